"""What the server stores is for its user only, also in folders that an earlier version or a person left open."""

import stat
from pathlib import Path

import pytest
import structlog
from crash.service import start
from memotree_storage.embedded.privacy import make_private

from memotree.v1 import workspace_service_pb2, workspace_service_pb2_grpc

pytestmark = pytest.mark.requirement("USE-8")


def open_to_others(folder: Path) -> list[str]:
    """What another user could enter, read or write, without what PostgreSQL itself removes while we look."""
    cluster = folder / "postgres" / "cluster"
    paths = [folder, *(path for path in folder.rglob("*") if cluster not in path.parents)]
    return [str(path) for path in paths if path.exists() and path.stat().st_mode & 0o077]


def open_folders(folder: Path) -> list[str]:
    return [path.name for path in (folder, *folder.iterdir()) if path.is_dir() and path.stat().st_mode & 0o077]


async def serve_and_create(data: Path, log: Path) -> None:
    service = await start(data, log)
    try:
        async with service.channel() as channel:
            workspaces = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
            await workspaces.CreateWorkspace(workspace_service_pb2.CreateWorkspaceRequest(name="garden"))
        assert open_folders(data) == []
    finally:
        service.kill()


async def test_a_new_data_folder_has_nothing_that_other_users_can_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await serve_and_create(data, tmp_path / "server.log")
    assert open_to_others(data) == []


async def test_folders_that_were_open_are_closed_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in (data, data / "workspaces", data / "trash", data / "postgres", data / "qdrant"):
        folder.mkdir()
        folder.chmod(0o755)
    await serve_and_create(data, tmp_path / "server.log")


def test_a_folder_that_is_shared_on_purpose_is_left_alone_and_named(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with structlog.testing.capture_logs() as lines:
        make_private(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert [line["folder"] for line in lines] == [str(shared)]


def test_a_folder_that_is_closed_is_not_mentioned(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        make_private(tmp_path / "new")
        make_private(tmp_path / "new")
    assert lines == []
