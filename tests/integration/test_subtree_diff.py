"""The differences in a subtree or an archive between two states."""

import random
from dataclasses import replace

import pytest
from integration.histories import CREATED, DELETED, UPDATED, diff, kinds
from integration.pushes import push_files
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.paths import entry_path

from memotree.history import HistoryOperations, subtree_diff
from memotree.request.lookup import NodeNotFoundError
from memotree.v1 import history_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-5")


async def summary(history: HistoryOperations, world: World, **fields: str) -> str:
    request = pb.DiffRevisionsRequest(workspace=world.workspace, page_size=1, **fields)
    return (await history.diff_revisions(request)).summary


async def test_only_what_is_below_a_node_is_told_also_what_was_moved_in_or_out(
    world: World, history: HistoryOperations
) -> None:
    top, other = world.node("Top"), world.node("Other")
    inner = world.node("Inner", parent_id=top.id)
    leaf = world.node("Leaf", parent_id=inner.id)
    out, into = world.node("Out", parent_id=inner.id), world.node("Into", parent_id=other.id)
    gone = world.node("Gone", parent_id=leaf.id)
    first = await world.put(top, other, inner, leaf, out, into, gone)
    new = world.node("New", parent_id=leaf.id)
    await world.put(
        replace(leaf, title="Leaf 2"),
        replace(out, parent_id=other.id),
        replace(into, parent_id=inner.id),
        replace(other, title="Other 2"),
        new,
        delete=[gone],
    )
    expected = {leaf.id: UPDATED, out.id: UPDATED, into.id: UPDATED, new.id: CREATED, gone.id: DELETED}
    for size in (1, 2, 50):
        found = await diff(history, world, old_revision=first, subtree_id=top.id, page_size=size)
        assert kinds(found) == expected
    assert kinds(await diff(history, world, old_revision=first, subtree_id=other.id)) == {
        other.id: UPDATED,
        out.id: UPDATED,
        into.id: UPDATED,
    }
    assert kinds(await diff(history, world, old_revision=first, subtree_id=gone.id[:8])) == {gone.id: DELETED}
    assert kinds(await diff(history, world, old_revision=first, subtree_id=world.archive.id)) == {
        **expected,
        other.id: UPDATED,
    }
    told = await summary(history, world, old_revision=first, subtree_id=top.id)
    assert told == "5 entries differ: 1 created, 3 changed, 1 deleted."


async def test_a_session_is_compared_below_a_node_that_is_there(world: World, history: HistoryOperations) -> None:
    top, other = world.node("Top"), world.node("Other")
    await world.put(top, other)
    session = await world.open()
    new = world.node("New", parent_id=top.id)
    await world.stage(session, new, replace(other, title="Other 2"))
    assert kinds(await diff(history, world, new_revision=session, subtree_id=top.id)) == {new.id: CREATED}
    with pytest.raises(InvalidInputError, match="subtree_id"):
        await diff(history, world, node_id=top.id, subtree_id=top.id)
    with pytest.raises(NodeNotFoundError):
        await diff(history, world, subtree_id="zzzzzzzzzzzzzzzz")


async def test_pages_go_on_behind_differences_that_are_not_in_the_subtree(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtree_diff, "_AT_ONCE", 4)
    monkeypatch.setattr(subtree_diff, "MOST_SCANNED", 8)
    chosen = random.Random(3)
    top = world.node("Top")
    first = await world.put(top)
    nodes: list[Node] = [
        world.node(f"Node {number}", **({"parent_id": top.id} if chosen.random() < 0.3 else {}))  # type: ignore[arg-type]
        for number in range(30)
    ]
    await world.put(*nodes)
    inside = {node.id: CREATED for node in nodes if node.parent_id == top.id}
    assert 3 < len(inside) < 20
    for size in (1, 3, 50):
        assert kinds(await diff(history, world, old_revision=first, subtree_id=top.id, page_size=size)) == inside
    told = await summary(history, world, old_revision=first, subtree_id=top.id)
    assert told.startswith("At least ")


async def test_a_node_whose_archive_is_gone_or_another_one_is_told_in_the_archive_that_shows_it(
    world: World, history: HistoryOperations
) -> None:
    other = Archive(new_id(), "zz other")
    top = world.node("Top")
    before = await world.put(other, top)
    stray = Node(new_id(), other.id, top.id, "a0", title="Stray")
    push_files(world, {entry_path(stray): encode_entry(stray)})
    await world.store.catch_up(world.workspace)
    assert kinds(await diff(history, world, old_revision=before, subtree_id=world.archive.id)) == {stray.id: CREATED}
    assert kinds(await diff(history, world, old_revision=before, subtree_id=other.id)) == {}
    gone = Archive(new_id(), "zz gone")
    root = Node(new_id(), gone.id, None, "a0", title="Root")
    below = Node(new_id(), gone.id, root.id, "a0", title="Below")
    await world.put(gone, root, below)
    first = push_files(world, {entry_path(gone): None})
    await world.store.catch_up(world.workspace)
    push_files(world, {entry_path(below): encode_entry(replace(below, content="More."))})
    await world.store.catch_up(world.workspace)
    found = await diff(history, world, old_revision=first, subtree_id=world.archive.id)
    assert kinds(found) == {below.id: UPDATED}
