"""Leaf features belong to versions, and whole trees are read in the order of the tools, at every state."""

from dataclasses import replace

import numpy as np
import pytest
from integration.damage import differences
from integration.pushes import OpenAgain
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.index import leaf_features
from memotree_storage.index.leaf_features import LeafFeatures
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.postgres import archive_trees, tree
from memotree_storage.postgres.archive_trees import TreeNode
from memotree_storage.postgres.tree import Snapshot, State

from memotree.forest.recall.recall import Recall
from memotree.models.gateway import Models
from memotree.v1 import forest_service_pb2

pytestmark = pytest.mark.own_store


async def listed(
    world: World, commit: str, session: str | None = None, archives: set[str] | None = None
) -> list[TreeNode]:
    async with world.store.database.connection() as conn:
        return await archive_trees.ordered_nodes(Snapshot(conn, State(world.workspace, commit, session)), archives)


async def loaded(world: World, leaves: list[TreeNode]) -> dict[str, LeafFeatures]:
    await world.store.indexer.current(world.workspace)
    names = {leaf.version_id: leaf.entry_id for leaf in leaves if leaf.version_id is not None}
    async with world.store.database.connection() as conn:
        return {names[key]: features for key, features in (await leaf_features.load(conn, 1, list(names))).items()}


async def as_the_tools_see(world: World, state: State, archives: list[str]) -> list[tuple[str, int]]:
    async with world.store.database.connection() as conn:
        return [
            (item.entry_id, item.depth)
            for archive_id in sorted(archives)
            for item in await tree.archive_tree(Snapshot(conn, state), archive_id)
        ]


def same(one: LeafFeatures, other: LeafFeatures) -> bool:
    return (
        (one.length, one.tokens) == (other.length, other.tokens)
        and np.array_equal(one.terms, other.terms)
        and np.array_equal(one.counts, other.counts)
        and np.allclose(one.vector, other.vector, atol=1e-6)
    )


@pytest.mark.requirement("FOREST-8")
async def test_the_stored_features_of_every_committed_content_equal_those_of_its_text(world: World) -> None:
    top = world.node("Top", content="", type="summary_node")
    some = [world.node(f"Leaf {number}", parent=top, content="words " * number + "端口 x") for number in range(1, 60)]
    commit = await commit_entries(world.store, world.workspace, "main", [top, *some], "Import")
    found = await loaded(world, await listed(world, commit))
    assert set(found) == {node.id for node in some}
    should = await leaf_features.of_nodes([top, *some], world.store.embedder)
    assert should[0] is None
    assert all(same(found[node.id], made) for node, made in zip(some, should[1:], strict=True) if made)
    few = found[some[3].id]
    assert few.counts.max() == 4, "frequencies are plain"
    assert few.terms.dtype == np.uint32
    assert np.all(np.diff(few.terms.astype(np.int64)) > 0)


async def test_each_version_keeps_its_own_features(world: World) -> None:
    node = world.node("A", content="first")
    before = await world.put(node)
    after = await world.put(replace(node, content="second and longer"))
    assert (await loaded(world, await listed(world, before)))[node.id].length == len(["a", "first"])
    assert (await loaded(world, await listed(world, after)))[node.id].length == len(["a", "second", "and", "longer"])
    await world.store.reindex(world.workspace)
    assert len(await loaded(world, await listed(world, after))) == 1, "once, though the point is applied again"
    assert await differences(world) == []


_GARBAGE = {
    "none": "delete from mirror.passage",
    "no whole numbers": "update mirror.passage set terms = '\\x010203', vector = '\\xff'",
    "no numbers at all": "update mirror.passage set vector = decode(repeat('ff', length(vector)), 'hex')",
    "the features of other leaves": (
        "update mirror.passage p set terms = q.terms, counts = q.counts, vector = q.vector, length = q.length,"
        " tokens = q.tokens, checksum = q.checksum from mirror.passage q where q.version_id <> p.version_id"
    ),
}


@pytest.mark.requirement("STORE-4")
async def test_damaged_features_are_never_used_and_mended_by_the_first_recall_that_misses_them(world: World) -> None:
    """A recall makes those of the leaves that it misses from their texts, and has them stored again."""
    nodes = [world.node("A", content="A red fox."), world.node("B", content="Two grey wolves.")]
    head = await world.put(*nodes)
    assert await differences(world) == []
    for garbage, statement in _GARBAGE.items():
        async with world.store.database.transaction() as conn:
            await conn.execute(statement)
        told = await differences(world)
        assert sorted((one.store, one.what, one.node_id, one.commit_id) for one in told) == sorted(
            ("postgres", "passage", node.id, head) for node in nodes
        ), garbage
        recalling = Recall(world.store, world.limits, Models(world.store.embedder))
        found = await recalling.recall(forest_service_pb2.RecallRequest(workspace=world.workspace, query="red fox"))
        assert found.passages[0].nodes[0].node.id == nodes[0].id, garbage
        await world.store.background.finish()
        await world.store.indexer.current(world.workspace)
        assert await differences(world) == [], garbage


async def forest(world: World) -> tuple[Archive, list[Node]]:
    other = Archive(new_id(), "other")
    a, b = world.nodes(2)
    c, d = world.node("C", parent=a, position="a1"), world.node("D", parent=a, position="a0")
    e = world.node("E", parent=d, attributes={"time": "2024-01-02"}, tags=("t",))
    f = world.node("F", archive_id=other.id)
    await world.put(other, a, b, c, d, e, f)
    return other, [a, b, c, d, e, f]


@pytest.mark.requirement("STORE-5")
async def test_leaves_come_in_the_order_of_the_tree_at_every_state(world: World) -> None:
    other, (a, b, c, d, e, f) = await forest(world)
    both = [world.archive.id, other.id]
    first = await world.head()
    leaves = await listed(world, first)
    assert [(leaf.entry_id, leaf.depth) for leaf in leaves] == await as_the_tools_see(
        world, State(world.workspace, first), both
    )
    there = {leaf.entry_id: leaf for leaf in leaves}
    assert (there[e.id].time, [*there[e.id].tags], there[e.id].parent_id) == ("2024-01-02", ["t"], d.id)
    assert there[e.id].committed_at is not None
    second = await world.put(replace(d, parent_id=None, position="a2"), replace(c, content="more"), delete=[b])
    session = await world.open()
    fresh = world.node("G", parent=e)
    await world.stage(session, fresh, replace(f, archive_id=world.archive.id, parent_id=a.id), delete=[c])
    for commit, open_session in ((first, None), (second, None), (second, session)):
        state = State(world.workspace, commit, open_session)
        seen = [(leaf.entry_id, leaf.depth) for leaf in await listed(world, commit, open_session)]
        assert seen == await as_the_tools_see(world, state, both)
        for archive_id in both:
            seen = [(leaf.entry_id, leaf.depth) for leaf in await listed(world, commit, open_session, {archive_id})]
            assert seen == await as_the_tools_see(world, state, [archive_id])
    staged = {leaf.entry_id: leaf for leaf in await listed(world, second, session)}
    assert staged[fresh.id].version_id is None
    assert staged[fresh.id].committed_at is None
    assert staged[d.id].version_id is not None


@pytest.mark.requirement("STORE-5")
async def test_leaves_of_a_branch_include_its_changes_and_no_others(world: World) -> None:
    other, (a, b, c, d, e, f) = await forest(world)
    start = await world.head()
    await world.put(replace(a, content="on main"), delete=[c])  # so that the branch has a line of its own
    assert world.repository.move_ref("refs/heads/side", None, start)
    await world.store.catch_up(world.workspace)
    tip = await world.put(replace(f, archive_id=world.archive.id), delete=[b], branch="side")
    for archives in ([world.archive.id], [other.id]):
        leaves = await listed(world, tip, archives=set(archives))
        assert [(leaf.entry_id, leaf.depth) for leaf in leaves] == await as_the_tools_see(
            world, State(world.workspace, tip), archives
        )
    assert {leaf.entry_id for leaf in await listed(world, tip)} == {a.id, c.id, d.id, e.id, f.id}


async def test_changed_archives_are_those_that_differ(world: World) -> None:
    other, (a, _, _, _, _, f) = await forest(world)

    async def changed(one: str, two: str) -> frozenset[str] | None:
        async with world.store.database.connection() as conn:
            found = await archive_trees.changes(conn, world.workspace, one, two)
        return None if found is None else found.archive_ids

    first = await world.head()
    second = await world.put(replace(a, title="Changed"))
    third = await world.put(replace(f, archive_id=world.archive.id))
    assert await changed(first, first) == set()
    assert await changed(first, second) == {world.archive.id} == await changed(second, first)
    assert await changed(second, third) == {world.archive.id, other.id} == await changed(first, third)
    fourth = await world.put(replace(other, name="renamed"))
    assert await changed(third, fourth) == {other.id}
    assert world.repository.move_ref("refs/heads/side", None, second)
    await world.store.catch_up(world.workspace)
    side = await world.put(world.node("Side", archive_id=other.id), branch="side")
    assert await changed(first, side) == {world.archive.id, other.id}
    assert await changed(second, side) == {other.id}
    assert await changed(third, side) is None, "neither came out of the other"
    assert await changed("0" * 40, side) is None


@pytest.mark.requirement("STORE-3")
async def test_a_start_computes_features_that_the_mirror_has_lost(world: World, again: OpenAgain) -> None:
    node = world.node("A")
    commit = await world.put(node)
    await world.store.indexer.current(world.workspace)
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from mirror.passage")
    async with again() as store:
        reopened = replace(world, store=store)
        assert set(await loaded(reopened, await listed(reopened, commit))) == {node.id}
