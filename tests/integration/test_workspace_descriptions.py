"""The description of a workspace in its repository, which anybody who can push or write there may have changed."""

import functools
import json
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from integration.pushes import PERSON, OpenAgain, differences, push, run
from integration.worlds import World
from memotree_storage.backup import writing
from memotree_storage.commit.transaction import workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint
from memotree_storage.model.node import new_id
from memotree_storage.model.workspace import WORKSPACE_REF, WorkspaceInfo
from memotree_storage.ports import CommitDraft
from memotree_storage.postgres import registry
from memotree_storage.store import Store, WorkspaceSetAsideError

from memotree.v1 import workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

Damage = Callable[[Store, str], None]


def _written(data: bytes) -> Damage:
    def damage(store: Store, workspace_id: str) -> None:
        repository = store.repositories.get(workspace_id)
        tip = repository.refs()[WORKSPACE_REF]
        draft = CommitDraft(tip, {"workspace.json": data}, "Odd\n", PERSON, PERSON)
        assert repository.move_ref(WORKSPACE_REF, tip, repository.write_commit(draft).commit_id)

    return damage


def _with(**fields: object) -> Damage:
    told = {"name": "odd", "description": "", "created_at": "2024-01-01T00:00:00+00:00"} | fields
    return _written(json.dumps(told).encode())


def _forget_description(store: Store, workspace_id: str) -> None:
    repository = store.repositories.get(workspace_id)
    assert repository.move_ref(WORKSPACE_REF, repository.refs()[WORKSPACE_REF], None)


def _raise_format(store: Store, workspace_id: str) -> None:
    repository = store.repositories.get(workspace_id)
    head = repository.refs()["refs/heads/main"]
    draft = CommitDraft(head, {"README.md": b"Format version: 99\n"}, "Odd\n", PERSON, PERSON)
    assert repository.move_ref("refs/heads/main", head, repository.write_commit(draft).commit_id)


BAD_DESCRIPTIONS: dict[str, Damage] = {
    "a name that is a list": _with(name=["x"]),
    "a name that is an object": _with(name={}),
    "no name": _with(name=""),
    "a name that is a path": _with(name="../garden"),
    "a name like an id": _with(name=new_id()),
    "a time that is a number": _with(created_at=12),
    "a time before the calendar": _with(created_at="0001-01-01T00:00:00+23:59"),
    "a description of a mebibyte": _with(description="x" * (1 << 20)),
    "a list nested 200,000 times": _written(b"[" * 200_000),
    "a list": _written(b"[]"),
    "no JSON": _written(b"\xff"),
    "no description": _forget_description,
    "a format of the future": _raise_format,
}


async def _names(store: Store) -> dict[str, str]:
    async with store.database.connection() as conn:
        return {one.workspace_id: one.name for one in await registry.list_workspaces(conn)}


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("is_mirrored", [True, False])
async def test_workspaces_whose_descriptions_cannot_be_read_are_set_aside_until_they_are_mended(
    world: World, again: OpenAgain, is_mirrored: bool
) -> None:
    """Their reads answer from what was mirrored; it is told why they take no changes, and they are in every backup."""
    worlds = {bad: await World.create(world.store, world.pages, world.limits) for bad in BAD_DESCRIPTIONS}
    names, before = await _names(world.store), {bad: one.repository.refs() for bad, one in worlds.items()}
    for bad, one in worlds.items():
        BAD_DESCRIPTIONS[bad](world.store, one.workspace)
    if not is_mirrored:
        await run(world.store, "delete from mirror.workspace")
    async with again() as store:
        assert store.set_aside.keys() == {one.workspace for one in worlds.values()}
        for bad, one in worlds.items():
            name = names[one.workspace]
            await _is_set_aside(store, one.workspace, bad, name if is_mirrored else one.workspace)
            refs = one.repository.refs()
            for ref in {WORKSPACE_REF} | {ref for ref in refs if before[bad][ref] != refs[ref]}:
                assert one.repository.move_ref(ref, refs.get(ref), before[bad][ref])
            await _is_mended(one.on(store), bad, name)


async def _is_set_aside(store: Store, workspace_id: str, bad: str, name: str) -> None:
    assert (await _names(store))[workspace_id] == name, bad
    assert workspace_id in writing.names_of(store.repositories), bad
    with pytest.raises(WorkspaceSetAsideError, match=re.escape(store.set_aside[workspace_id][:40])):
        async with workspace_transaction(store, workspace_id, CommitPoint()):
            pass


async def _is_mended(world: World, bad: str, name: str) -> None:
    async with workspace_transaction(world.store, world.workspace, CommitPoint()):
        pass
    assert world.workspace not in world.store.set_aside, bad
    assert (await _names(world.store))[world.workspace] == name, bad
    await world.put(world.node("Taken"))
    assert await differences(world.store, world.workspace) == [], bad


@pytest.mark.requirement("STORE-8")
async def test_a_workspace_that_was_set_aside_is_told_no_more_once_it_is_deleted(
    world: World, again: OpenAgain
) -> None:
    BAD_DESCRIPTIONS["no JSON"](world.store, world.workspace)
    async with again() as store:
        assert list(store.set_aside) == [world.workspace]
        (name,) = (await _names(store)).values()
        order = workspace_service_pb2.DeleteWorkspaceRequest(workspace=world.workspace, confirm_name=name)
        await WorkspaceOperations(store, world.pages, world.limits).delete_workspace(order)
        assert store.set_aside == {}


@pytest.mark.requirement("STORE-8")
async def test_a_pushed_description_does_not_take_the_name_of_another_workspace(world: World, again: OpenAgain) -> None:
    other = await World.create(world.store, world.pages, world.limits)
    name = (await _names(world.store))[world.workspace]
    _with(name=name, created_at="1970-01-01T00:00:00+00:00")(world.store, other.workspace)
    async with again() as store:
        assert await _names(store) == {world.workspace: name, other.workspace: f"{name}-{other.workspace}"}


@pytest.mark.parametrize("is_mirrored", [True, False])
async def test_of_two_workspaces_of_one_name_the_registered_or_older_one_keeps_it(
    world: World, again: OpenAgain, is_mirrored: bool
) -> None:
    expected = {}
    other = await World.create(world.store, world.pages, world.limits)
    for one, age in ((world, timedelta(days=1)), (other, timedelta(days=-1))):
        mine = world.store.repositories.describe(one.workspace)
        twin = WorkspaceInfo(new_id(), mine.name, "", mine.created_at - age)
        world.store.repositories.create(twin)
        later = twin if is_mirrored else max(mine, twin, key=lambda info: info.created_at)
        expected |= {mine.workspace_id: mine.name, twin.workspace_id: mine.name}
        expected[later.workspace_id] = f"{mine.name}-{later.workspace_id}"
    if not is_mirrored:
        await run(world.store, "delete from mirror.workspace")
    for _ in range(2):
        async with again() as store:
            assert await _names(store) == expected
            for key in expected:
                assert await differences(store, key) == []
                await store.rebuild(key)
            assert await _names(store) == expected


def _lose_packs(store: Store, workspace_id: str) -> None:
    for pack in (store.repositories.path(workspace_id) / "objects" / "pack").glob("pack-*"):
        pack.unlink()


def _spoil_packed_refs(store: Store, workspace_id: str) -> None:
    (store.repositories.path(workspace_id) / "packed-refs").write_bytes(b"nonsense\n")


@pytest.mark.requirement("STORE-4")
async def test_other_workspaces_work_beside_damaged_ones(world: World, again: OpenAgain) -> None:
    bad_descriptions = [_with(name="half \ud800"), _with(name="\0"), _with(description=None)]
    for damage in (*bad_descriptions, _with(created_at="0001-01-01T00:00:00"), _lose_packs, _spoil_packed_refs):
        other = await World.create(world.store, world.pages, world.limits)
        damage(world.store, other.workspace)
    push(world, "main", world.node("Pushed"))
    async with again() as store:
        assert await differences(store, world.workspace) == []


@pytest.mark.requirement("STORE-8")
async def test_a_push_changes_neither_the_description_nor_what_protects_sessions(world: World, tmp_path: Path) -> None:
    await world.open()
    path = world.repository.path
    protected = [name for name in world.repository.refs() if name.startswith("refs/memotree/")]
    assert len(protected) == 2
    clone = tmp_path / "clone"
    git = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    assert git(["git", "clone", "--quiet", "--mirror", str(path), str(clone)]).returncode == 0
    for ref in protected:
        for refspec in (f"+refs/heads/main:{ref}", f":{ref}"):
            pushed = git(["git", "-C", str(clone), "push", str(path), refspec])
            assert pushed.returncode != 0
            assert "hidden ref" in pushed.stderr
    assert git(["git", "-C", str(clone), "push", str(path), "refs/heads/main:refs/heads/mine"]).returncode == 0
