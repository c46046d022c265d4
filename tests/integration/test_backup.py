"""A backup is one file; restoring it gives every commit, branch and tag, and a damaged file changes nothing."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.pushes import OpenAgain, differences
from integration.worlds import World
from memotree_storage.backup.restoring import NotInBackupError, WorkspaceInPlaceError, restore_backup
from memotree_storage.backup.writing import write_backup
from memotree_storage.errors import InvalidInputError, MemoTreeError
from memotree_storage.git.backup_list import FORMAT, BackupDamagedError, parse_list
from memotree_storage.git.workspaces import Repositories
from memotree_storage.postgres.database import Database
from memotree_storage.store import Store

from memotree.maintenance import MaintenanceOperations
from memotree.v1 import maintenance_service_pb2 as pb

pytestmark = [pytest.mark.requirement("USE-8"), pytest.mark.own_store]


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
        assert await differences(store, lived_in.workspace) == []
        elsewhere = lived_in.on(store)
        assert await elsewhere.head() == head
        assert await elsewhere.alive(head) == alive
        assert node.id not in alive
        await elsewhere.commit(session)  # what was staged is in the backup
        assert node.id in await elsewhere.alive(await elsewhere.head())
    finally:
        await store.close()


async def test_a_backup_is_read_with_tar_and_git_alone(world: World, tmp_path: Path) -> None:
    file = await saved(world, tmp_path / "all.backup")
    run("tar", "-xf", str(file), folder=tmp_path)
    (bundle,) = (tmp_path / "workspaces").glob("*.bundle")
    run("git", "clone", "-q", str(bundle), "clone", folder=tmp_path)
    run("sha256sum", "-c", "--quiet", "backup.json.sha256", folder=tmp_path)


def run(*command: str, folder: Path) -> None:
    subprocess.run(command, check=True, cwd=folder)  # noqa: S603 - what a person would type


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut in half": lambda data: data[: len(data) // 2],
    "cut at the end": lambda data: data[:-3000],
    "a bit flipped": lambda data: data[:2000] + bytes([data[2000] ^ 1]) + data[2001:],
    "another name": lambda data: data.replace(b'"name": "garden', b'"name": "gardem'),
    "empty": lambda _: b"",
    "a text": lambda _: b"not a backup\n" * 1000,
}


async def test_only_a_whole_backup_replaces_a_workspace_and_only_if_it_may(lived_in: World, tmp_path: Path) -> None:
    file, target = await saved(lived_in, tmp_path / "all.backup"), tmp_path / "target"
    name = lived_in.store.repositories.describe(lived_in.workspace).name
    with pytest.raises(NotInBackupError, match=rf"no workspace desert\. It has: {name}\."):
        restore_backup([file], target, names=["desert"])
    assert [each.name for each in restore_backup([file], target, names=[name])] == [name]
    before = seen(target)
    damaged = tmp_path / "damaged.backup"
    for what, damage in DAMAGES.items():
        damaged.write_bytes(damage(file.read_bytes()))
        with pytest.raises(MemoTreeError) as caught:
            restore_backup([damaged], target, replace=True)
        assert isinstance(caught.value, BackupDamagedError), what
        assert "Nothing was changed" in caught.value.message, what
        assert seen(target) == before, what
    with pytest.raises(WorkspaceInPlaceError, match=rf"these workspaces: {name}\. Nothing was changed"):
        restore_backup([file], target)
    assert seen(target) == before
    restore_backup([file], target, replace=True)
    assert len(list((target / "trash").iterdir())) == 1
    repositories = Repositories(target / "workspaces", target / "trash")
    assert [info.name for info in repositories.descriptions().readable] == [name]
    repositories.close()


async def test_an_increment_of_what_is_no_list_is_refused(world: World) -> None:
    maintenance = MaintenanceOperations(world.store, world.pages, world.limits)
    ill = b'{"format": 2, "workspaces": [{"id": 1}], "created_at": ""}'
    for since in (b"x", b"[]", b"{}", b"[" * 100_000, ill):
        with pytest.raises(InvalidInputError, match=r"since: give the whole file backup\.json"):
            await anext(maintenance.back_up(pb.BackUpRequest(since=since)))


def test_an_id_that_would_leave_the_data_folder_is_refused() -> None:
    entry = {"id": "../../etc", "name": "n", "bundle": "b", "bytes": 1, "sha256": "", "refs": {}}
    listed = {"format": FORMAT, "memotree": "1", "created_at": "2026-01-01T00:00:00+00:00", "workspaces": [entry]}
    with pytest.raises(BackupDamagedError, match="is not the id of a workspace"):
        parse_list(json.dumps(listed).encode())


async def test_a_start_removes_what_a_killed_backup_or_restore_left_and_nothing_of_a_running_one(
    world: World, again: OpenAgain
) -> None:
    folder = world.store.data_folder
    for name in ("backup.unfinished-killed", "restore.unfinished-killed"):
        (folder / name / "workspace.git" / "refs").mkdir(parents=True)
    running = write_backup(world.store, "0")
    await anext(running)
    await world.store.close()
    async with again():
        (left,) = folder.glob("*.unfinished-*")
        assert [path.suffix for path in left.iterdir() if path.suffix] == [".bundle"]
    await running.aclose()
    assert not list(folder.glob("*.unfinished-*"))
