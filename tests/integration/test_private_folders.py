"""What the server stores is for its user only, also in folders that an earlier version or a person left open."""

import os
import stat
from pathlib import Path

import pytest
import structlog
from crash.service import start
from memotree_storage.embedded.privacy import give_to, make_private, owner_of

from memotree.server.preflight import RepositoryNotWritableError, check_repositories
from memotree.v1 import workspace_service_pb2, workspace_service_pb2_grpc

pytestmark = pytest.mark.requirement("USE-8")


def open_to_others(folder: Path) -> list[str]:
    """What another user could enter, read or write, without what PostgreSQL itself removes while we look."""
    cluster = folder / "postgres" / "cluster"
    paths = [folder, *(path for path in folder.rglob("*") if cluster not in path.parents)]
    return [str(path) for path in paths if path.exists() and path.stat().st_mode & 0o077]


async def test_an_open_folder_is_closed_at_the_start_and_what_is_new_in_it_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in (data, data / "trash", data / "of an earlier version"):
        folder.mkdir()
        folder.chmod(0o755)
    service = await start(data, tmp_path / "server.log")
    try:
        async with service.channel() as channel:
            workspaces = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
            await workspaces.CreateWorkspace(workspace_service_pb2.CreateWorkspaceRequest(name="garden"))
        assert open_to_others(data) == []
    finally:
        service.kill()


def test_a_folder_that_is_shared_on_purpose_is_left_alone_and_named(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with structlog.testing.capture_logs() as lines:
        for folder in (shared, tmp_path / "new", tmp_path / "new"):
            make_private(folder)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert [line["folder"] for line in lines] == [str(shared)], "one that is closed is not mentioned"


NOBODY = (65534, 65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_restores_belongs_to_the_owner_of_the_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "workspaces").mkdir(parents=True)
    os.chown(data, *NOBODY)
    owner = owner_of(data)
    assert owner == NOBODY
    (data / "workspaces" / "a.git" / "objects").mkdir(parents=True)
    (data / "workspaces" / "a.git" / "HEAD").touch()
    (data / "lock").touch()
    outside = tmp_path / "outside"
    outside.touch()
    (data / "workspaces" / "link").symlink_to(outside)
    give_to(owner, data)
    given = [data, *data.rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in given} == {NOBODY}
    assert outside.stat().st_uid == 0
    assert owner_of(tmp_path) is None, "its own folder"
    assert owner_of(tmp_path / "nowhere") is None


def test_a_repository_of_another_user_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights are simulated: root, who may run the tests, may write everywhere."""
    for name in ("a", "b"):
        (tmp_path / "workspaces" / f"{name}.git" / "objects").mkdir(parents=True)
    check_repositories(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, _mode: "b.git" not in str(path))
    with pytest.raises(RepositoryNotWritableError, match=r"b\.git.* chown -R \d+ "):
        check_repositories(tmp_path)
