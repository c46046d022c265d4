"""The limit on the depth of a tree, and that a chain costs what its length is, also one that somebody pushed."""

from dataclasses import replace
from typing import Any

import pytest
from integration.forests import FAILED, forest_of
from integration.pushes import session_of
from integration.statements import rows_read
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas import NodeOperations
from memotree.canvas.depth import TooDeepError
from memotree.forest.joining.join import ArchiveJoin
from memotree.memory import MemoryOperations
from memotree.models.cache import AnswerCache
from memotree.models.gateway import Models
from memotree.v1 import forest_service_pb2, memory_service_pb2, session_service_pb2
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
    deeper = chain(world, 8)  # a tree that is deeper can be read, and moved upwards
    await world.put(*deeper)
    edit = Editing(world, await world.open())
    await edit.move(deeper[2].id, parent_id=deeper[0].id)
    await edit.move(deeper[5].id, archive_id=world.archive.id)
    await edit.move(deeper[5].id, parent_id=deeper[0].id)
    with pytest.raises(TooDeepError):
        await edit.move(deeper[5].id, parent_id=deeper[1].id)


@pytest.mark.parametrize("how", ["commit", "rebase", "the rest of a partial commit"])
async def test_sessions_together_put_no_node_deeper_than_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each moves a chain of two below another one of two, which is allowed; both together would make six levels."""
    monkeypatch.setattr(world.store, "max_depth", 3)
    first, second, third = (chain(world, 2) for _ in range(3))
    (other,) = world.nodes(1)
    await world.put(*first, *second, *third, other)
    one, two = await world.open(), await world.open()
    await Editing(world, one).move(second[0].id, parent_id=first[1].id)
    await Editing(world, two).move(third[0].id, parent_id=second[1].id)
    await world.stage(two, replace(other, title="Else"))
    await world.commit(one)
    if how == "commit":
        with pytest.raises(ConflictError) as caught:
            await world.commit(two)
        (conflict,) = caught.value.conflicts
        assert (conflict.node_id, "depth 4" in conflict.description) == (third[0].id, True)
    elif how == "rebase":
        with pytest.raises(ConflictError):
            await world.sessions.rebase_session(
                session_service_pb2.RebaseSessionRequest(workspace=world.workspace, session_id=two)
            )
    else:
        await world.commit(two, specific_nodes=[other.id])
        assert (await session_of(world, two)).has_conflicts
        with pytest.raises(ConflictError):
            await world.commit(two)
    await Editing(world, two).move(third[0].id, parent_id=first[1].id)
    await Editing(world, two).move(third[1].id, parent_id=first[1].id)
    await world.commit(two)


async def test_what_leaves_a_subtree_in_the_same_commit_does_not_count_for_its_depth(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "max_depth", 3)
    first, second = chain(world, 3), chain(world, 3)
    await world.put(*first, *second)
    session_id = await world.open()
    editing = Editing(world, session_id)
    await editing.move(second[1].id, parent_id="", archive_id=world.archive.id)
    await editing.move(second[0].id, parent_id=first[2].id)
    await world.put(world.node("Meanwhile"))
    await world.commit(session_id)
    await world.put(delete=first[2:] + second[:1])


async def _rows(world: World, commit_id: str, node: Node, archive_id: str) -> int:
    """The rows that PostgreSQL fetches for a node with its path, the tree, and the paths of all nodes."""
    async with world.store.database.transaction() as conn:
        await conn.execute("set local enable_seqscan = off")  # a small table is read whole, which a big one is not
        snapshot = Snapshot(conn, State(world.workspace, commit_id))
        for _ in range(2):  # the first time also reads the catalogue
            begun = await rows_read(conn)
            await tree.one(snapshot, node.id)
            order = await tree.archive_tree(snapshot, archive_id)
            await tree.ancestors(snapshot, [item.entry_id for item in order])
        return await rows_read(conn) - begun


@pytest.mark.own_store
async def test_a_chain_of_twice_the_length_costs_twice_as_much(world: World) -> None:
    """In rows and in what each row holds: no row has the whole path to it."""
    cost = []
    for length in (300, 600):  # of a table of 150 rows, all are read
        nodes = chain(world, length)
        archive = replace(world.archive, id=nodes[0].id[:-1] + "z", name=f"chain {length}")
        nodes = [replace(node, archive_id=archive.id) for node in nodes]
        head = await commit_entries(world.store, world.workspace, "main", [archive, *nodes], "Import")
        cost.append(await _rows(world, head, nodes[-1], archive.id))
    assert 1.8 * cost[0] <= cost[1] <= 2.2 * cost[0]


# --- Trees that others than an agent make ---


async def depth_of(world: World, archive_id: str) -> int:
    async with world.store.database.connection() as conn:
        found = await tree.archive_tree(Snapshot(conn, State(world.workspace, await world.head())), archive_id)
    return max(item.depth for item in found)


async def test_a_document_is_merged_to_the_limit_and_refused_if_its_sections_exceed_it(world: World) -> None:
    alike = "# One\n\n" + "The river runs to the sea. " * 200
    async with forest_of(replace(world, limits=replace(world.limits, max_depth=4))) as forest:
        options = {"chunk_size": 60, "merge_limit": 100_000, "similarity_threshold": -1.0}
        made = await forest.ingest(alike, document_id="alike", media_type="text/markdown", **options)
        assert await depth_of(world, made.archive_id) == 4
        nested = "".join(f"{'#' * level} Level {level}\n\n" for level in range(1, 6)) + "Words."
        told = await forest.try_ingest(nested, media_type="text/markdown")
        assert (told.last.state, told.last.reason) == (FAILED, "TOO_DEEP")
        assert "MEMOTREE_MAX_DEPTH" in told.last.message


async def test_archives_whose_nodes_would_be_too_deep_are_not_joined(world: World) -> None:
    deep = chain(world, 3)
    other = Archive(new_id(), "other", world.archive.model_id)
    await world.put(*deep, other, world.node("Alone", archive_id=other.id))
    request = forest_service_pb2.MergeArchivesRequest(
        workspace=world.workspace, archives=[world.archive.id, other.id], name="both"
    )
    models = Models(AnswerCache(world.store.database))
    before = await world.head()
    with pytest.raises(TooDeepError, match="depth 4"):
        await ArchiveJoin(world.store, models, replace(world.limits, max_depth=3)).merge_archives(request)
    assert await world.head() == before
    joined = await ArchiveJoin(world.store, models, replace(world.limits, max_depth=4)).merge_archives(request)
    assert await depth_of(world, joined.archive.id) == 4


async def test_a_note_whose_place_has_moved_down_is_restored_only_to_the_limit(world: World) -> None:
    deep, note = chain(world, 3), world.node("Note")
    below = [replace(note, parent_id=deep[0].id), world.node("Below", parent=note)]
    await world.put(*deep, *below)
    memory = MemoryOperations(world.store, replace(world.limits, max_depth=3))
    at = {"workspace": world.workspace, "node_id": note.id}
    await memory.forget(memory_service_pb2.ForgetRequest(**at, recursive=True))
    other = chain(world, 2)
    await world.put(*other, replace(deep[0], parent_id=other[1].id))
    with pytest.raises(TooDeepError, match="depth 4"):
        await memory.restore(memory_service_pb2.RestoreRequest(**at))
    await world.put(replace(deep[0], parent_id=other[0].id))
    back = await memory.restore(memory_service_pb2.RestoreRequest(**at))
    assert list(back.restored_ids) == [note.id, below[1].id]
