"""A backup is one file, of everything or of what earlier ones lack; it restores every ref, or changes nothing."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.backups import only, put_back, save
from integration.leftovers import files_with
from integration.pushes import OpenAgain, differences
from integration.worlds import World
from memotree_storage.backup.restoring import NotInBackupError, WorkspaceInPlaceError, check_backup, restore_backup
from memotree_storage.backup.writing import write_backup
from memotree_storage.erasure.rewriting import Order, rewrite_history
from memotree_storage.errors import InvalidInputError, MemoTreeError
from memotree_storage.git.backup_chain import BackupMissingError, BackupNotInChainError, chain_of
from memotree_storage.git.backup_file import open_backup
from memotree_storage.git.backup_list import FORMAT, BackupDamagedError, parse_list
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.erasure import ErasureTarget
from memotree_storage.model.node import new_id
from memotree_storage.model.workspace import service_signature

from memotree.maintenance import MaintenanceOperations
from memotree.v1 import maintenance_service_pb2 as pb

pytestmark = [pytest.mark.requirement("USE-8", "GIT-11"), pytest.mark.own_store]

SECRET = "Tulpenzwiebel-7731"  # noqa: S105 - of nobody


async def saved(world: World, target: Path) -> Path:
    maintenance = MaintenanceOperations(world.store, world.pages, world.limits)
    chunks = [answer.chunk async for answer in maintenance.back_up(pb.BackUpRequest())]
    target.write_bytes(b"".join(chunks))  # noqa: ASYNC240 - a small file
    return target


def seen(folder: Path) -> dict[str, Any]:
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


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


# --- Chains of increments ---------------------------------------------------------------------------------------------


def refs_in(data_folder: Path) -> dict[str, dict[str, str]]:
    """The refs of each workspace in a data folder, by its id."""
    repositories = Repositories(data_folder / "workspaces", data_folder / "trash")
    try:
        return {each: repositories.get(each).refs() for each in repositories.ids()}
    finally:
        repositories.close()


async def test_a_chain_of_increments_restores_what_the_last_one_saw_and_takes_no_room_without_changes(
    lived_in: World, tmp_path: Path, again: OpenAgain
) -> None:
    base = await save(lived_in.store, tmp_path / "1.backup")
    await lived_in.put(lived_in.node("On Tuesday", content="t" * 5000, position="a7"), tag="v2")
    second = await save(lived_in.store, tmp_path / "2.backup", base)
    await lived_in.put(lived_in.node("On Wednesday", position="a8"), branch="side")
    third = await save(lived_in.store, tmp_path / "3.backup", second)
    there = refs_in(lived_in.store.data_folder)
    assert {"refs/heads/main", "refs/heads/side", "refs/tags/v1", "refs/memotree/workspace"} <= set(*there.values())
    head = await lived_in.head()
    alive = await lived_in.alive(head)
    assert [only(open_backup(file)).complete for file in (base, second, third)] == [True, False, False]
    assert only(open_backup(second)).bytes < only(open_backup(base)).bytes
    same = await save(lived_in.store, tmp_path / "4.backup", third)
    assert only(open_backup(same)).bundle == "", "without changes"
    await lived_in.put(lived_in.node("Too late", position="a9"))
    await put_back(lived_in.store, [same])
    assert refs_in(lived_in.store.data_folder) == there
    async with again() as store:
        assert await differences(store, lived_in.workspace) == []
        assert await lived_in.on(store).head() == head
        assert await lived_in.on(store).alive(head) == alive


async def test_branches_that_moved_back_went_or_changed_their_kind_come_right(world: World, tmp_path: Path) -> None:
    first = await world.head()
    await world.put(world.node("Second"))
    repository = world.repository
    for name in ("rewound", "gone", "folder"):
        assert repository.move_ref(f"refs/heads/{name}", None, await world.head())
    base = await save(world.store, tmp_path / "1.backup")
    assert repository.move_ref("refs/heads/rewound", await world.head(), first)
    assert repository.move_ref("refs/heads/gone", await world.head(), None)
    assert repository.move_ref("refs/heads/folder", await world.head(), None)
    assert repository.move_ref("refs/heads/folder/inside", None, first)
    only_refs = await save(world.store, tmp_path / "2.backup", base)
    restore_backup([only_refs], tmp_path / "elsewhere")
    assert refs_in(tmp_path / "elsewhere") == refs_in(world.store.data_folder)
    await world.put(world.node("Third", position="a5"))
    restore_backup([await save(world.store, tmp_path / "3.backup", only_refs)], tmp_path / "later")
    assert refs_in(tmp_path / "later") == refs_in(world.store.data_folder)


async def test_workspaces_that_came_are_whole_and_those_that_went_stay_away(world: World, tmp_path: Path) -> None:
    gone = await World.create(world.store, world.pages, world.limits, "gone")
    base = await save(world.store, tmp_path / "1.backup")
    world.store.repositories.discard(gone.workspace)
    came = await World.create(world.store, world.pages, world.limits, "came")
    increment = await save(world.store, tmp_path / "2.backup", base)
    saved = {each.name: each for each in open_backup(increment).listed.workspaces}
    assert saved.keys() == {world.store.repositories.describe(world.workspace).name, "came"}
    assert saved["came"].complete
    restore_backup([increment], tmp_path / "elsewhere")
    assert refs_in(tmp_path / "elsewhere").keys() == {world.workspace, came.workspace}


async def test_an_erased_workspace_is_saved_whole_and_the_text_does_not_come_back(world: World, tmp_path: Path) -> None:
    node = world.node("A secret", content=f"The password is {SECRET}.")
    await world.put(node)
    base = await save(world.store, tmp_path / "1.backup")
    await world.put(replace(node, content=f"It was {SECRET}."))
    second = await save(world.store, tmp_path / "2.backup", base)
    target = ErasureTarget(text=SECRET)
    await rewrite_history(
        world.store, Order(new_id(), world.workspace, target, "ada", "It leaked.", service_signature())
    )
    third = await save(world.store, tmp_path / "3.backup", second)
    assert only(open_backup(third)).complete
    for old in (base, second):
        old.unlink()  # the text is in them, and nothing needs them
    restore_backup([third], tmp_path / "elsewhere")
    assert refs_in(tmp_path / "elsewhere") == refs_in(world.store.data_folder)
    assert files_with(tmp_path / "elsewhere", SECRET.encode()) == []


async def test_a_chain_is_given_or_found_and_one_that_misses_is_named(world: World, tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    base = await save(world.store, far / "monday.backup")
    await world.put(world.node("A node"))
    second = await save(world.store, tmp_path / "tuesday.backup", base)
    await world.put(world.node("Another", position="a5"))
    third = await save(world.store, tmp_path / "wednesday.backup", second)
    with pytest.raises(BackupMissingError, match=r"tuesday.backup builds on an earlier backup, .* Nothing was changed"):
        restore_backup([third], tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere" / "workspaces").exists()
    for number, files in enumerate(([base, third], [base, second, third], [second, base, third])):
        restore_backup(files, tmp_path / str(number))
        assert refs_in(tmp_path / str(number)) == refs_in(world.store.data_folder)
    assert [each.file for each in chain_of([base, third])] == [base, second, third]


async def test_a_backup_of_another_chain_or_a_damaged_base_is_refused_before_anything_is_changed(
    world: World, tmp_path: Path
) -> None:
    base = await save(world.store, tmp_path / "base.backup")
    await world.put(world.node("A node"))
    other = await save(world.store, tmp_path / "other.backup")
    increment = await save(world.store, tmp_path / "increment.backup", base)
    with pytest.raises(BackupNotInChainError, match=r"increment.backup does not build on .*other.backup"):
        restore_backup([other, increment], tmp_path / "elsewhere")
    (tmp_path / "text").write_text("no backup\n" * 200)
    with pytest.raises(BackupDamagedError):
        restore_backup([tmp_path / "text", increment], tmp_path / "elsewhere")
    base.write_bytes(DAMAGES["a bit flipped"](base.read_bytes()))
    (tmp_path / "aside").mkdir()
    for refused in (restore_backup, check_backup):
        with pytest.raises(BackupDamagedError, match="another hash than its list says"):
            refused([increment], tmp_path / ("elsewhere" if refused is restore_backup else "aside"))
    assert not refs_in(tmp_path / "elsewhere")


async def test_an_increment_can_be_read_with_git_alone(world: World, tmp_path: Path) -> None:
    base = await save(world.store, tmp_path / "base.backup")
    await world.put(world.node("A node"))
    increment = await save(world.store, tmp_path / "increment.backup", base)
    for file in (base, increment):
        (tmp_path / file.stem).mkdir()
        run("tar", "-xf", str(file), folder=tmp_path / file.stem)
        run("sha256sum", "-c", "--quiet", "backup.json.sha256", folder=tmp_path / file.stem)
    bundle = f"workspaces/{world.workspace}.bundle"
    run("git", "clone", "-q", "--mirror", f"base/{bundle}", "clone", folder=tmp_path)
    run("git", "bundle", "verify", f"../increment/{bundle}", folder=tmp_path / "clone")
    run("git", "fetch", "-q", "--prune", f"../increment/{bundle}", "+refs/*:refs/*", folder=tmp_path / "clone")
    assert run("git", "rev-parse", "main", folder=tmp_path / "clone").strip() == await world.head()


def run(*command: str, folder: Path) -> str:
    return subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout  # noqa: S603 - typed
