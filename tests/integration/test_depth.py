"""The limit on the depth of a tree, and that a chain costs what its length is, also one that somebody pushed."""

from dataclasses import replace
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.node import Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas import NodeOperations
from memotree.canvas.depth import TooDeepError
from memotree.v1 import node_service_pb2 as pb

pytestmark = pytest.mark.requirement("STORE-8", "STORE-9")


def chain(world: World, length: int) -> list[Node]:
    """Nodes that each stand below the one before."""
    nodes: list[Node] = []
    for number in range(length):
        nodes.append(world.node(f"Level {number}", parent=nodes[-1] if nodes else None))
    return nodes


class Editing:
    """Calls on one session, with a limit of three levels below a root."""

    def __init__(self, world: World, session_id: str) -> None:
        self._fields = {"workspace": world.workspace, "session_id": session_id}
        self._nodes = NodeOperations(world.store, world.pages, replace(world.limits, max_depth=3))

    async def create(self, **fields: Any) -> str:
        made = await self._nodes.create_node(pb.CreateNodeRequest(**self._fields, title="New", **fields))
        return made.node.id

    async def move(self, node_id: str, **fields: Any) -> None:
        await self._nodes.move_node(pb.MoveNodeRequest(**self._fields, node_id=node_id, **fields))

    async def split(self, node_id: str, **fields: Any) -> None:
        parts = [pb.SplitPart(title=title, content=title) for title in ("One", "Two")]
        await self._nodes.split_node(pb.SplitNodeRequest(**self._fields, node_id=node_id, parts=parts, **fields))

    async def merge(self, *node_ids: str) -> None:
        await self._nodes.merge_nodes(pb.MergeNodesRequest(**self._fields, node_ids=node_ids))


async def test_no_call_puts_a_node_deeper_than_the_limit(world: World) -> None:
    deep, flat = chain(world, 4), chain(world, 3)
    await world.put(*deep, *flat)
    edit = Editing(world, await world.open())
    with pytest.raises(TooDeepError) as refused:
        await edit.create(parent_id=deep[3].id)
    assert refused.value.violations[0].field == "parent_id"
    assert "depth 4" in refused.value.message
    assert "MEMOTREE_MAX_DEPTH" in refused.value.message
    with pytest.raises(TooDeepError):
        await edit.move(flat[0].id, parent_id=deep[1].id)
    with pytest.raises(TooDeepError):
        await edit.split(deep[3].id, as_children=True)
    with pytest.raises(TooDeepError):
        await edit.merge(deep[3].id, flat[0].id)
    await edit.create(parent_id=deep[2].id)
    await edit.move(flat[0].id, parent_id=deep[0].id)
    await edit.split(deep[3].id)


async def test_a_tree_that_is_deeper_can_be_read_and_moved_upwards(world: World) -> None:
    deep = chain(world, 8)
    await world.put(*deep)
    edit = Editing(world, await world.open())
    await edit.move(deep[2].id, parent_id=deep[0].id)
    await edit.move(deep[5].id, archive_id=world.archive.id)
    await edit.move(deep[5].id, parent_id=deep[0].id)
    with pytest.raises(TooDeepError):
        await edit.move(deep[5].id, parent_id=deep[1].id)


async def _rows(world: World, commit_id: str, node: Node, archive_id: str) -> int:
    """The rows that PostgreSQL fetches for a node with its path, the tree, and the paths of all nodes."""
    async with world.store.database.transaction() as conn:
        snapshot = Snapshot(conn, State(world.workspace, commit_id))
        for _ in range(2):  # the first time also reads the catalogue
            begun = await _fetched(conn)
            await tree.one(snapshot, node.id)
            order = await tree.archive_tree(snapshot, archive_id)
            await tree.ancestors(snapshot, [item.entry_id for item in order])
        return await _fetched(conn) - begun


async def _fetched(conn: Any) -> int:
    cursor = await conn.execute(
        "select coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0) from pg_stat_xact_user_tables"
    )
    return int((await cursor.fetchone())[0])


async def test_a_chain_of_twice_the_length_costs_twice_as_much(world: World) -> None:
    """In rows and in what each row holds: no row has the whole path to it."""
    cost = []
    for length in (150, 300):
        nodes = chain(world, length)
        archive = replace(world.archive, id=nodes[0].id[:-1] + "z", name=f"chain {length}")
        nodes = [replace(node, archive_id=archive.id) for node in nodes]
        head = await commit_entries(world.store, world.workspace, "main", [archive, *nodes], "Import")
        cost.append(await _rows(world, head, nodes[-1], archive.id))
    assert cost[1] <= 2.2 * cost[0]
