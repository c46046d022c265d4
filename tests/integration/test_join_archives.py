"""Archives about the same subject are suggested, and joined under a new root."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from integration.forests import loaded
from integration.histories import branch
from integration.worlds import World
from memotree_storage.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidInputError,
    NotFoundError,
)
from memotree_storage.model.attribute_names import JOINED_FROM, SUMMARY_BY, SUMMARY_OF
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.postgres import tree
from memotree_storage.postgres.requests import RequestIdReusedError
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.verify import Difference, verify

from memotree.canvas import NodeOperations
from memotree.forest.joining import join as joining_module
from memotree.forest.joining.join import ArchiveJoin
from memotree.history import HistoryOperations
from memotree.models.cache import AnswerCache
from memotree.models.gateway import Models
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import history_service_pb2, node_service_pb2, types_pb2


class Library:
    """Three documents of one agent, two of them about bridges, and one of another agent."""

    def __init__(self, world: World) -> None:
        self.world = world
        models = loaded(Models(AnswerCache(world.store.database)), world)
        self._joining = ArchiveJoin(world.store, models, world.limits)
        self.stone = Archive(new_id(), "stone.md", "scout", "About stone.", {"document_id": "d-stone", "sha256": "ab"})
        self.wood = Archive(new_id(), "wood.md", "scout", "", {"document_id": "d-wood"})
        self.bread = Archive(new_id(), "bread.md", "scout")
        self.other = Archive(new_id(), "stone copy", "another")
        text = "The bridge over the river was built of {} and carries carts and people."
        self.stone_root = self._node(self.stone, None, "Bridges of stone", text.format("stone"))
        self.stone_leaf = self._node(self.stone, self.stone_root, "Arches", "Seven arches carry the stone bridge.")
        self.wood_root = self._node(self.wood, None, "Bridges of wood", text.format("wood"))
        self.wood_second = self._node(self.wood, None, "Piles", "Wooden piles carry the bridge over the river.", "a1")
        self.bread_root = self._node(self.bread, None, "Bread", "Rye dough rests for a night before it is baked.")
        self.other_root = self._node(self.other, None, "Bridges of stone", text.format("stone"))

    def _node(self, archive: Archive, parent: Node | None, title: str, text: str, position: str = "a0") -> Node:
        return self.world.node(
            title, archive_id=archive.id, parent=parent, summary=text, content=text, position=position
        )

    async def put(self) -> "Library":
        nodes = [self.stone_root, self.stone_leaf, self.wood_root, self.wood_second, self.bread_root, self.other_root]
        await self.world.put(self.stone, self.wood, self.bread, self.other, *nodes)
        return self

    async def join(self, *archives: str, name: str = "bridges", **fields: Any) -> pb.MergeArchivesResponse:
        named = {"workspace": self.world.workspace, "archives": archives, "name": name}
        return await self._joining.merge_archives(pb.MergeArchivesRequest(**named, **fields))

    async def suggested(self, **fields: Any) -> list[tuple[list[str], float]]:
        request = pb.SuggestArchiveMergesRequest(workspace=self.world.workspace, **fields)
        answer = await self._joining.suggest_archive_merges(request)
        assert all(found.reason for found in answer.suggestions)
        return [([archive.name for archive in found.archives], found.similarity) for found in answer.suggestions]


@pytest.fixture
async def library(world: World) -> Library:
    return await Library(world).put()


async def entries(world: World, branch: str = "main") -> dict[str, Version]:
    state = State(world.workspace, await world.head(branch))
    async with world.store.database.connection() as conn:
        return {version.entry_id: version for version in await tree.everything(Snapshot(conn, state))}


# --- Suggesting ---


@pytest.mark.requirement("FOREST-11")
async def test_archives_of_one_model_with_similar_roots_are_suggested(world: World, library: Library) -> None:
    ((names, similarity),) = await library.suggested()
    assert names == ["stone.md", "wood.md"], "not the one of another model, nor what is about something else"
    assert 0.6 <= similarity <= 1.0
    assert await library.suggested(threshold=0.999) == []
    assert await library.suggested(model_id="another") == []
    assert len(await library.suggested(model_id="scout")) == 1
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInputError):
            await library.suggested(threshold=wrong)
    before = await world.head()
    await world.put(delete=[library.wood, library.wood_root, library.wood_second])
    assert await library.suggested() == []
    assert len(await library.suggested(revision=before)) == 1


# --- Joining ---


@pytest.mark.requirement("FOREST-11")
async def test_joined_archives_stand_below_a_new_root_in_one_commit(world: World, library: Library) -> None:
    before = await world.head()
    answer = await library.join("stone.md", library.wood.id)
    now = await entries(world)
    assert answer.commit_id == await world.head()
    assert world.repository.commit_info(answer.commit_id).parents == (before,)
    assert answer.moved_nodes == 4
    assert (answer.archive.name, answer.archive.model_id) == ("bridges", "scout")
    assert library.stone.id not in now
    assert library.wood.id not in now
    root = now[answer.root.id]
    assert (root.title, root.type, root.parent_id, root.archive_id) == (
        "bridges",
        "summary_node",
        "",
        answer.archive.id,
    )
    below = sorted((each for each in now.values() if each.parent_id == root.entry_id), key=lambda each: each.position)
    assert [each.title for each in below] == ["stone.md", "wood.md"]
    assert {each.type for each in below} == {"summary_node"}
    assert all(each.summary for each in below)
    assert root.summary
    assert now[library.stone_root.id].parent_id == below[0].entry_id
    assert now[library.wood_root.id].parent_id == now[library.wood_second.id].parent_id == below[1].entry_id
    assert now[library.stone_leaf.id].parent_id == library.stone_root.id
    moved = [library.stone_root, library.stone_leaf, library.wood_root, library.wood_second]
    assert {now[node.id].archive_id for node in moved} == {answer.archive.id}


@pytest.mark.requirement("FOREST-11", "FOREST-5", "GIT-5")
async def test_nodes_keep_ids_texts_and_history_and_archives_the_attributes_of_documents(
    world: World, library: Library
) -> None:
    answer = await library.join("stone.md", "wood.md", author=types_pb2.CommitAuthor(name="Ann"))
    found = {each.title: each.attributes for each in (await entries(world)).values() if not each.is_archive}
    assert found["stone.md"]["document_id"] == "d-stone"
    assert found["stone.md"]["sha256"] == "ab"
    assert found["stone.md"]["description"] == "About stone."
    assert found["stone.md"][JOINED_FROM] == library.stone.id
    assert found["wood.md"]["document_id"] == "d-wood"
    assert {SUMMARY_BY, SUMMARY_OF} <= found["bridges"].keys()
    history = HistoryOperations(world.store, world.pages, world.limits)
    nodes = NodeOperations(world.store, world.pages, world.limits)
    leaf = {"workspace": world.workspace, "node_id": library.stone_leaf.id}
    revisions = await history.list_node_revisions(history_service_pb2.ListNodeRevisionsRequest(**leaf))
    assert revisions.revisions[0].commit.id == answer.commit_id
    assert len(revisions.revisions) == 2
    read = await nodes.get_node(node_service_pb2.GetNodeRequest(**leaf))
    assert read.node.content == library.stone_leaf.content
    assert len(read.node.path) == 3
    info = world.repository.commit_info(answer.commit_id)
    assert info.author.name == "Ann"
    assert info.message.startswith("Join stone.md, wood.md into bridges")
    assert "MemoTree-Tool: MergeArchives" in info.message
    assert not [one async for one in verify(world.store, world.workspace) if isinstance(one, Difference)]


async def test_a_joined_archive_has_the_name_of_one_or_is_joined_again(world: World, library: Library) -> None:
    answer = await library.join("stone.md", "wood.md", name="stone.md")
    assert answer.archive.name == "stone.md"
    with pytest.raises(AlreadyExistsError) as refused:
        await library.join("stone.md", "bread.md", name="notes")
    assert refused.value.reason == "ARCHIVE_NAME_TAKEN"
    answer = await library.join(answer.archive.id, "bread.md", name="town")
    assert answer.moved_nodes == 1 + 2 + 4 + 1
    titles = {each.title for each in (await entries(world)).values()}
    assert {"town", "stone.md", "wood.md", "bread.md"} <= titles


async def test_archives_without_nodes_are_joined_too_and_not_on_other_branches(world: World, library: Library) -> None:
    empty = [Archive(new_id(), f"empty {number}", "scout") for number in range(2)]
    await world.put(*empty)
    await branch(HistoryOperations(world.store, world.pages, world.limits), world, "side")
    answer = await library.join("empty 0", "empty 1", branch="side")
    assert (answer.moved_nodes, answer.root.child_count) == (0, 2)
    assert answer.archive.id in await entries(world, "side")
    assert {archive.id for archive in empty} <= (await entries(world)).keys()


@pytest.mark.requirement("FOREST-11")
async def test_an_impossible_join_is_refused_and_nothing_is_committed(world: World, library: Library) -> None:
    before = await world.head()
    with pytest.raises(FailedPreconditionError) as refused:
        await library.join("stone.md", "stone copy")
    assert refused.value.reason == "ARCHIVES_OF_DIFFERENT_MODELS"
    for archives in ((), ("stone.md",), ("stone.md", library.stone.id)):
        with pytest.raises(InvalidInputError):
            await library.join(*archives)
    with pytest.raises(InvalidInputError):
        await library.join("stone.md", "wood.md", name=" ")
    with pytest.raises(NotFoundError):
        await library.join("stone.md", "nowhere")
    with pytest.raises(NotFoundError):
        await library.join("stone.md", "wood.md", branch="nowhere")
    assert await world.head() == before


@pytest.mark.requirement("STORE-2")
async def test_a_repeated_request_is_answered_by_its_result_or_its_commit(world: World, library: Library) -> None:
    first, second = await asyncio.gather(*(library.join("stone.md", "wood.md", request_id="r1") for _ in range(2)))
    assert first == second == await library.join("stone.md", "wood.md", request_id="r1")
    with pytest.raises(RequestIdReusedError):
        await library.join("bread.md", "wood.md", request_id="r1")
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")
    with pytest.raises(RequestIdReusedError):
        await library.join("stone.md", "bread.md", request_id="r1")
    assert await library.join("stone.md", "wood.md", request_id="r1") == first
    assert await world.head() == first.commit_id


@pytest.mark.requirement("STORE-2")
async def test_an_edit_made_meanwhile_stays(world: World, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    real, edits = joining_module.commit_entries, 0

    async def raced(*args: Any, **fields: Any) -> str:
        nonlocal edits
        if not edits:
            edits += 1
            late = world.node("Late", archive_id=library.wood.id, position="a5")
            await world.put(replace(library.stone_leaf, content="Eight arches."), late)
        return await real(*args, **fields)

    monkeypatch.setattr(joining_module, "commit_entries", raced)
    answer = await library.join("stone.md", "wood.md")
    assert answer.moved_nodes == 5
    now = await entries(world)
    read = (await world.store.entries.load(world.workspace, [now[library.stone_leaf.id]])).values()
    assert [entry.content for entry in read if isinstance(entry, Node)] == ["Eight arches."]


async def test_a_session_edits_nodes_in_the_joined_archive_and_makes_none_in_the_old_one(
    world: World, library: Library
) -> None:
    session, other = await world.open(), await world.open()
    await world.stage(session, replace(library.stone_leaf, content="Nine arches."))
    await world.stage(other, world.node("New", archive_id=library.stone.id, position="a7"))
    answer = await library.join("stone.md", "wood.md")
    await world.commit(session)
    now = (await entries(world))[library.stone_leaf.id]
    assert now.archive_id == answer.archive.id
    node = await world.store.entries.node(world.workspace, now)
    assert node.content == "Nine arches."
    with pytest.raises(AbortedError) as refused:
        await world.commit(other)
    assert any("archive" in conflict.description for conflict in refused.value.conflicts)
