"""What a strict workspace refuses is what would bring a fault into the tree, for any files that people push."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from campaigns import budget, dice
from integration.pushes import PERSON
from integration.worlds import World
from memotree_storage.git.entry_files import entry_files
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.mirror.push_check import push_faults, state_behind
from memotree_storage.mirror.tree_faults import tree_faults, unreadable_files
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.ports import CommitDraft
from memotree_storage.postgres.tree import Snapshot, State

pytestmark = pytest.mark.requirement("GIT-8")

UNREAD = b"---\nnot: [an entry\n"


def committed(world: World, files: Mapping[str, bytes | None], parent: str | None) -> str:
    """A commit with git that no ref has."""
    draft = CommitDraft(parent, files, "Change files\n", PERSON, PERSON)
    return world.repository.write_commit(draft).commit_id


def files_of(world: World, commit_id: str, *entries: Entry) -> dict[str, bytes | None]:
    """The files that write these entries on a commit, under their names of now."""
    there = entry_files(world.repository, commit_id, sorted(entry.id for entry in entries))
    gone: dict[str, bytes | None] = {file.path: None for found in there.values() for file in found}
    return gone | {entry_path(entry): encode_entry(entry) for entry in entries}


async def told(world: World, commit_id: str, onto: str, max_depth: int | None = None) -> list[tuple[str, str]]:
    """The kinds of the faults that a push would bring, with their nodes, or with their paths if they cannot be read."""
    async with world.store.database.connection() as conn:
        snapshot = Snapshot(conn, State(world.workspace, onto))
        found = await push_faults(snapshot, world.repository, commit_id, max_depth=max_depth, limit=100)
    return sorted((fault.kind, fault.entry_id or fault.path) for fault in found)


async def there(world: World, commit_id: str) -> set[tuple[str, str]]:
    """The faults of a mirrored commit, likewise."""
    async with world.store.database.connection() as conn:
        snapshot = Snapshot(conn, State(world.workspace, commit_id))
        nodes = [(row.kind, row.entry_id) for row in await tree_faults(snapshot, "", 1000)]
        files = [(fault.kind, fault.path) for fault in await unreadable_files(snapshot, world.repository, "", 1000)]
    return {*nodes, *files}


async def test_each_kind_of_fault_is_told_by_its_file(world: World) -> None:
    top, below = world.node("Top"), world.node("Below")
    below = replace(below, parent_id=top.id)
    other = Archive(new_id(), "others", "an-agent", "")
    head = await world.put(top, below, other)

    async def of(*entries: Entry, files: Mapping[str, bytes | None] | None = None) -> list[tuple[str, str]]:
        pushed = committed(world, {**files_of(world, head, *entries), **(files or {})}, head)
        return await told(world, pushed, head, max_depth=3)

    lost, deep = world.node("Lost", parent=new_id()), [world.node(f"Deep {number}") for number in range(4)]
    chain = [replace(one, parent_id=above.id) for one, above in zip(deep, [below, *deep], strict=False)]
    assert await of(lost) == [("orphan", lost.id)]
    assert await of(replace(lost, parent_id=None, archive_id=new_id())) == [("no_archive", lost.id)]
    assert await of(replace(below, archive_id=other.id)) == [("other_archive", below.id)]
    assert await of(replace(top, parent_id=below.id)) == [("cycle", top.id)]
    assert await of(replace(other, name=world.archive.name)) == [("name_taken", other.id)]
    assert {kind for kind, _ in await of(*chain)} == {"too_deep"}
    assert await of(files={entry_path(top): None}) == [("orphan", below.id)]
    assert await of(files={entry_path(world.archive): None}) == [("no_archive", top.id)]
    assert await of(replace(top, archive_id=other.id)) == [("other_archive", below.id)]
    assert ("unreadable", entry_path(top)) in await of(files={entry_path(top): UNREAD})
    assert await of(files={entry_path(replace(top, title="Second")): encode_entry(top)}) != []
    assert await of(world.node("Good", parent=below), replace(top, title="Renamed")) == []


async def test_a_new_branch_is_compared_with_the_nearest_commit_that_is_known(world: World) -> None:
    head = await world.head()
    files = files_of(world, head, world.node("Lost", parent=new_id()))
    first = committed(world, files, head)
    second = committed(world, {"README": b"Not a node.\n"}, first)
    alone = committed(world, files_of(world, head, world.node("Alone")), None)
    async with world.store.database.connection() as conn:
        assert (await state_behind(conn, world.workspace, world.repository, second)).commit_id == head
        assert (await state_behind(conn, world.workspace, world.repository, alone)).commit_id == ""
        with pytest.raises(ObjectMissingError):
            await state_behind(conn, world.workspace, world.repository, "a" * 40)
    assert [kind for kind, _ in await told(world, second, head)] == ["orphan"]
    assert [kind for kind, _ in await told(world, alone, "")] == ["no_archive"]


@pytest.mark.parametrize("number", range(budget(2)))
async def test_a_push_is_refused_if_and_only_if_its_tree_would_have_a_fault(world: World, number: int) -> None:
    """So a strict workspace that has no fault never gets one. What is refused is mirrored on a branch beside it."""
    chance = dice("pushes", number)
    archives = [world.archive, Archive(new_id(), "others", "an-agent", "")]
    nodes = {node.id: node for node in (world.node(f"Node {number}") for number in range(8))}
    head = await world.put(*nodes.values(), archives[1])
    refused = 0
    for step in range(25):
        changed = {
            node.id: replace(
                node,
                parent_id=chance.choice([None, None, *nodes, *([new_id()] if chance.random() < 0.2 else [])]),
                archive_id=chance.choice(archives).id if chance.random() < 0.3 else node.archive_id,
            )
            for node in chance.sample(list(nodes.values()), chance.randint(1, 3))
        }
        files = files_of(world, head, *changed.values())
        for node in changed.values():
            kind = chance.random()
            if kind < 0.2:
                files |= dict.fromkeys(path for path in files if node.id in path)
            elif kind < 0.3:
                files[entry_path(node)] = UNREAD
        pushed = committed(world, files, head)
        faults = await told(world, pushed, head)
        onto = "refs/heads/main" if not faults else f"refs/heads/refused-{step}"
        assert world.repository.move_ref(onto, world.repository.ref(onto), pushed)
        await world.store.catch_up(world.workspace)
        assert bool(faults) == bool(await there(world, pushed)), faults
        if faults:
            refused += 1
        else:
            head, nodes = pushed, nodes | changed
    assert 0 < refused < 25
