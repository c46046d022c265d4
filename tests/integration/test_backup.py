"""A backup is one file; restoring it gives every commit, branch and tag, and a damaged file changes nothing."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.pushes import OpenAgain
from integration.worlds import World
from memotree_storage.backup.restoring import NotInBackupError, WorkspaceInPlaceError, restore_backup
from memotree_storage.backup.writing import write_backup
from memotree_storage.errors import InvalidInputError, MemoTreeError
from memotree_storage.git.backup_file import open_backup
from memotree_storage.git.backup_list import FORMAT, BackupDamagedError, parse_list
from memotree_storage.git.workspaces import Repositories
from memotree_storage.postgres.database import Database
from memotree_storage.store import Store
from memotree_storage.verify import Difference, verify

from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.maintenance import MaintenanceOperations
from memotree.sessions import SessionOperations
from memotree.v1 import maintenance_service_pb2 as pb

pytestmark = pytest.mark.requirement("USE-8")


async def saved(world: World, target: Path) -> Path:
    maintenance = MaintenanceOperations(world.store, world.pages, world.limits)
    chunks = [answer.chunk async for answer in maintenance.back_up(pb.BackUpRequest())]
    target.write_bytes(b"".join(chunks))  # noqa: ASYNC240 - a small file
    return target


def seen(folder: Path) -> dict[str, Any]:
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


async def test_a_restored_workspace_has_all_refs_and_agrees_with_its_new_mirror(
    lived_in: World, tmp_path: Path, database_url: str
) -> None:
    node = lived_in.node("Staged")
    session = await lived_in.open()
    await lived_in.stage(session, node)
    before = lived_in.store.repositories.get(lived_in.workspace).refs()
    head, alive = await lived_in.head(), await lived_in.alive(await lived_in.head())
    file = await saved(lived_in, tmp_path / "all.backup")
    await lived_in.store.close()
    (restored,) = restore_backup([file], tmp_path / "elsewhere")
    assert restored.refs == before
    assert {"refs/heads/main", "refs/heads/side", "refs/tags/v1", "refs/memotree/workspace"} <= set(restored.refs)
    store = Store(tmp_path / "elsewhere", Database(database_url), lived_in.store.index, lived_in.store.embedder)
    await store.open()
    try:
        events = [event async for event in verify(store, lived_in.workspace)]
        assert [event for event in events if isinstance(event, Difference)] == []
        sessions = SessionOperations(
            store, lived_in.pages, lived_in.limits, resolver=ConflictResolution(store, lived_in.limits)
        )
        elsewhere = replace(lived_in, store=store, sessions=sessions)
        assert await elsewhere.head() == head
        assert await elsewhere.alive(head) == alive
        assert node.id not in alive
        await elsewhere.commit(session)  # what was staged is in the backup
        assert node.id in await elsewhere.alive(await elsewhere.head())
    finally:
        await store.close()


async def test_a_backup_is_read_with_tar_and_git_alone(lived_in: World, tmp_path: Path) -> None:
    file = await saved(lived_in, tmp_path / "all.backup")
    run("tar", "-xf", str(file), folder=tmp_path)
    (bundle,) = (tmp_path / "workspaces").glob("*.bundle")
    run("git", "clone", "-q", str(bundle), "clone", folder=tmp_path)
    run("sha256sum", "-c", "--quiet", "backup.json.sha256", folder=tmp_path)


def run(*command: str, folder: Path) -> None:
    subprocess.run(command, check=True, cwd=folder)  # noqa: S603 - what a person would type


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_at_the_end(data: bytes) -> bytes:
    return data[:-3000]


def flip(data: bytes) -> bytes:
    return data[:2000] + bytes([data[2000] ^ 1]) + data[2001:]


def flip_a_name(data: bytes) -> bytes:
    return data.replace(b'"name": "garden"', b'"name": "gardem"')


def empty(_data: bytes) -> bytes:
    return b""


def text(_data: bytes) -> bytes:
    return b"not a backup\n" * 1000


@pytest.mark.parametrize("damage", [cut, cut_at_the_end, flip, flip_a_name, empty, text])
async def test_a_damaged_file_is_refused_and_changes_nothing(
    lived_in: World, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    file = await saved(lived_in, tmp_path / "all.backup")
    damaged = tmp_path / "damaged.backup"
    damaged.write_bytes(damage(file.read_bytes()))
    target = tmp_path / "target"
    restore_backup([file], target)
    before = seen(target)
    with pytest.raises(MemoTreeError) as caught:
        restore_backup([damaged], target, replace=True)
    assert isinstance(caught.value, BackupDamagedError)
    assert "Nothing was changed" in caught.value.message
    assert seen(target) == before


async def test_a_workspace_that_is_there_is_refused_by_name_unless_it_may_be_replaced(
    lived_in: World, tmp_path: Path
) -> None:
    file, target = await saved(lived_in, tmp_path / "all.backup"), tmp_path / "target"
    restore_backup([file], target)
    before = seen(target)
    with pytest.raises(WorkspaceInPlaceError, match=r"these workspaces: garden\. Nothing was changed"):
        restore_backup([file], target)
    assert seen(target) == before
    restore_backup([file], target, replace=True)
    assert len(list((target / "trash").iterdir())) == 1
    repositories = Repositories(target / "workspaces", target / "trash")
    assert [info.name for info in repositories.descriptions().readable] == ["garden"]
    repositories.close()


async def test_workspaces_are_chosen_by_name(lived_in: World, tmp_path: Path) -> None:
    file = await saved(lived_in, tmp_path / "all.backup")
    with pytest.raises(NotInBackupError, match=r"no workspace desert\. It has: garden\."):
        restore_backup([file], tmp_path / "target", names=["desert"])
    assert [each.name for each in restore_backup([file], tmp_path / "target", names=["garden"])] == ["garden"]
    assert [each.name for each in open_backup(file).listed.workspaces] == ["garden"]


@pytest.mark.parametrize(
    "since", [b"x", b"[]", b"{}", b"[" * 100_000, b'{"format": 2, "workspaces": [{"id": 1}], "created_at": ""}']
)
async def test_an_increment_of_what_is_no_list_is_refused(world: World, since: bytes) -> None:
    maintenance = MaintenanceOperations(world.store, world.pages, world.limits)
    with pytest.raises(InvalidInputError, match=r"since: give the whole file backup\.json"):
        await anext(maintenance.back_up(pb.BackUpRequest(since=since)))


def test_an_id_that_would_leave_the_data_folder_is_refused() -> None:
    entry = {"id": "../../etc", "name": "n", "bundle": "b", "bytes": 1, "sha256": "", "refs": {}}
    listed = {"format": FORMAT, "memotree": "1", "created_at": "2026-01-01T00:00:00+00:00", "workspaces": [entry]}
    with pytest.raises(BackupDamagedError, match="is not the id of a workspace"):
        parse_list(json.dumps(listed).encode())


async def test_a_start_removes_what_a_killed_backup_or_restore_left_and_nothing_of_a_running_one(
    lived_in: World, again: OpenAgain
) -> None:
    folder = lived_in.store.data_folder
    for name in ("backup.unfinished-killed", "restore.unfinished-killed"):
        (folder / name / "workspace.git" / "refs").mkdir(parents=True)
    running = write_backup(lived_in.store, "0")
    await anext(running)
    await lived_in.store.close()
    async with again():
        (left,) = folder.glob("*.unfinished-*")
        assert [path.suffix for path in left.iterdir() if path.suffix] == [".bundle"]
    await running.aclose()
    assert not list(folder.glob("*.unfinished-*"))
