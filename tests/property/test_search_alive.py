"""A search finds exactly the nodes that are alive at its state, also after the loss of a store.

The model is brute force: a node is a hit for a word if its text has the word, and is near every meaning (all vectors of
these tests have only positive components). Searches run at heads, in sessions, at old commits and on forks; between the
steps of a commit; after the loss of PostgreSQL, after the loss of the index, and after the index went back to its last
flush.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from memotree_storage import faults
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.index.frequencies import ALL_DOCUMENTS
from memotree_storage.index.node_text import text_of
from memotree_storage.index.search import SearchQuery
from memotree_storage.index.terms import document_terms
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import node_path
from memotree_storage.ports import IndexQuery
from memotree_storage.postgres import indexes, projector
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.search_reads import lineage_of
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.engine.files import copy_shard
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.reindexing import NewModel, reindex_with
from memotree_storage.store import Store
from property.drafted_states import PLACES, DraftedStates, Wanted
from property.store_harness import MemoryIndex, PositiveEmbedder, StoreHarness, fresh_database, numbered_id, pick
from qdrant_client import AsyncQdrantClient

WORDS: Final = ["apple", "birch", "cedar", "daisy", "elder", "fern"]
BRANCHES: Final = ["main", "side", "third"]
ALL: Final = 1000
POINTS: Final = ["begun", "workspace-filled", "filled", "switching", "switched", "rows-deleted", "points-deleted"]
"""The points of a change of the embedding model, at which the server may end."""

_VERSIONS: Final = (
    "select v.entry_id, v.line_id, v.from_seq, v.to_seq, v.blob from mirror.version v join mirror.line using (line_id)"
    " where workspace_id = %s and not v.dead and not v.is_archive"
)

choices = st.integers(0, 1000)
edits = st.lists(
    st.tuples(st.sampled_from(["create", "create", "edit", "edit", "move", "delete", "again"]), choices, choices),
    min_size=1,
    max_size=3,
)


LONGER: Final = 12


class _EndedError(Exception):
    """The server's own part has ended."""


class Stores:
    """A store on a real PostgreSQL and a real engine, each of which can be lost and restored."""

    def __init__(self, harness: StoreHarness, postgres: str, folder: Path) -> None:
        self.harness = harness
        self._postgres = postgres
        self._folder = folder
        self._engine: EmbeddedQdrant
        self._client: AsyncQdrantClient
        self._database = fresh_database(postgres)
        self._dimensions = 8
        harness.run(self._start_engine())
        harness.run(self._open())
        harness.run(self._flush_and_keep())

    def close(self) -> None:
        self.harness.run(self.harness.store.close())
        self.harness.run(self._stop_engine())

    async def _start_engine(self) -> None:
        self._engine = EmbeddedQdrant(self._folder / "engine")
        endpoint = await self._engine.start()
        self._client = connect(endpoint.url, endpoint.api_key)

    async def _stop_engine(self) -> None:
        await self._client.close()
        await self._engine.stop()

    async def _open(self) -> None:
        """Open a new store over the data, as after a restart.

        Its background work is stopped, so that it happens only where the model says so: a search that waits for the
        indexer starts it, and a commit that no ref reaches stays mirrored until a step collects it.
        """
        embedder = PositiveEmbedder(self._dimensions)
        index = self._points(embedder.model, embedder.dimensions)
        self.harness.store = Store(
            self._folder / "data", Database(self._database, max_size=4), index, embedder, open_points=self._points
        )
        await self.harness.store.open()
        await self.harness.store.indexer.stop()
        await self.harness.store.maintenance.stop()

    def _points(self, model: str, dimensions: int) -> QdrantIndex:
        return QdrantIndex(self._client, model=model, dimensions=dimensions, flush=self._flush_and_keep)

    async def change_model(self, last_point: str) -> None:
        """Change to vectors of another length; end the server's own part at a point of that, if one is named."""
        embedder = PositiveEmbedder(8 if self._dimensions == LONGER else LONGER)
        store = self.harness.store

        def end(name: str) -> None:
            if name == last_point:
                raise _EndedError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "point", end)
            with suppress(_EndedError):
                model = NewModel(embedder, self._points(embedder.model, embedder.dimensions))
                await reindex_with(store, model, lambda *_: None)
        async with store.database.connection() as conn:
            self._dimensions = (await indexes.read_begun(conn)).current.dimensions
        if last_point:
            await self.restart()
        else:
            await self.harness.store.indexer.stop()

    async def restart(self) -> None:
        """Stop and start the server's own part."""
        await self.harness.store.close()
        await self._open()

    async def lose_postgres(self) -> None:
        """Start again with an empty database: the working state is lost too."""
        await self.harness.store.close()
        self._database = fresh_database(self._postgres)
        await self._open()

    async def lose_mirror(self) -> None:
        """Start again with only the working state in the database."""
        await self.harness.store.close()
        async with await psycopg.AsyncConnection.connect(self._database) as conn:
            await conn.execute("drop schema mirror cascade")
        await self._open()

    async def lose_index(self) -> None:
        """Start again with an empty engine."""
        await self.harness.store.close()
        await self._stop_engine()
        shutil.rmtree(self._folder / "engine")
        await self._start_engine()
        await self._open()

    async def _flush_and_keep(self) -> None:
        """Flush the engine, and copy its files."""
        await self._engine.flush()
        _replace(self._folder / "flushed", self._folder / "engine" / "data")

    async def go_back_to_flush(self) -> None:
        """Lose everything that the engine wrote after its last flush, as a power cut may do."""
        await self._stop_engine()
        _replace(self._folder / "engine" / "data", self._folder / "flushed")
        await self._start_engine()
        await self.restart()


def _replace(goal: Path, source: Path) -> None:
    """Replace a folder of the engine's files by another."""
    shutil.rmtree(goal, ignore_errors=True)
    copy_shard(source, goal, lambda: None)


@pytest.fixture
def stores(postgres: str, tmp_path: Path) -> Iterator[Stores]:
    """Empty stores; the harness's own store is never used."""
    harness = StoreHarness.open(postgres, tmp_path / "unused", MemoryIndex())
    harness.run(harness.store.close())
    opened = Stores(harness, postgres, tmp_path)
    try:
        yield opened
    finally:
        opened.close()
        harness.end()


class Searches(DraftedStates):
    """Random commits, branches, sessions and losses of stores; after each step every state is searched."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.harness)
        self.stores = stores
        self.losses = 0

    @initialize()
    def begin(self) -> None:
        archive = Archive(numbered_id(0), "notes")
        self._commit("main", {archive.id: archive})
        self.commit(0, [("create", number, number) for number in range(3)], follow=True)

    # --- steps ---

    @rule(branch=choices, wanted=edits, follow=st.sampled_from([True, True, True, False]))
    def commit(self, branch: int, wanted: Wanted, follow: bool) -> None:
        """Commit in Git. Without ``follow`` the mirror does not catch up, as in the middle of a commit."""
        name = pick(sorted(self.refs), branch)
        before = self.states[self.refs[name]]
        self._commit(name, self._changes(before, wanted), follow=follow)

    @rule(at=choices, name=st.sampled_from(BRANCHES[1:]))
    def fork(self, at: int, name: str) -> None:
        """Create or move a branch to any commit."""
        self._point(name, pick(self.order, at))

    @precondition(lambda self: len(self.refs) > 1)
    @rule(which=choices)
    def drop_and_collect(self, which: int) -> None:
        """Delete a branch and collect the lines that are then unreachable."""
        name = pick(sorted(self.refs.keys() - {"main"}), which)
        assert self._git().move_ref(f"refs/heads/{name}", self._git().refs()[f"refs/heads/{name}"], None)
        del self.refs[name]
        for draft in self.drafts:
            draft.detached |= draft.branch == name
        self.harness.run(self._follow())
        self.harness.run(self.store.maintenance.tidy())
        self.let_the_indexer_run()

    @precondition(lambda self: len(self.drafts) < 2)
    @rule(branch=choices)
    def open(self, branch: int) -> None:
        self.harness.run(self._follow())
        self._open(pick(sorted(self.refs), branch))

    @precondition(lambda self: not all(draft.detached for draft in self.drafts))
    @rule(which=choices, wanted=edits)
    def stage(self, which: int, wanted: Wanted) -> None:
        draft = pick([draft for draft in self.drafts if not draft.detached], which)
        self._stage(draft, self._changes(self._state_of(draft), wanted))

    @rule()
    def let_the_indexer_run(self) -> None:
        self.harness.run(self.store.indexer.drain(self.workspace))
        self.harness.run(self._check_index())

    @rule()
    def flush(self) -> None:
        self.harness.run(self.store.indexer.flush())

    @rule()
    def restart(self) -> None:
        self.harness.run(self.stores.restart())

    @rule()
    def rebuild(self) -> None:
        self.harness.run(self.store.rebuild(self.workspace))

    @rule(last_point=st.sampled_from(["", "", *(f"reindex.{point}" for point in POINTS)]))
    def change_model(self, last_point: str) -> None:
        self.harness.run(self.stores.change_model(last_point))

    @rule()
    def lose_mirror(self) -> None:
        self.harness.run(self.stores.lose_mirror())

    @rule()
    def lose_postgres(self) -> None:
        self.harness.run(self.stores.lose_postgres())
        self.drafts.clear()

    @precondition(lambda self: self.losses < 2)
    @rule()
    def lose_index(self) -> None:
        self.losses += 1
        self.harness.run(self.stores.lose_index())

    @precondition(lambda self: self.losses < 2)
    @rule()
    def go_back_to_flush(self) -> None:
        self.losses += 1
        self.harness.run(self.stores.go_back_to_flush())

    # --- what holds ---

    @invariant()
    def hits_are_the_alive_nodes(self) -> None:
        self.harness.run(self._check())

    async def _check(self) -> None:
        async with self.store.database.connection() as conn:
            known = await projector.known_commits(conn, self.workspace)
        heads = [commit_id for commit_id in self.refs.values() if commit_id in known]
        older = [commit_id for commit_id in self.order if commit_id in known]
        looked = dict.fromkeys([*heads, *(pick(older, self.count + step) for step in (0, 3))])
        word = WORDS[self.count % len(WORDS)]
        for commit_id in looked:
            await self._check_state(State(self.workspace, commit_id), self.states[commit_id], word)
        for draft in self.drafts:
            await self._check_state(State(self.workspace, draft.base, draft.id), self._state_of(draft), word)

    async def _check_index(self) -> None:
        """If nothing is pending, check that the index has each version and its span; other lines may have points."""
        async with self.store.database.connection() as conn:
            cursor = await conn.execute(_VERSIONS, (self.workspace,))
            spans = {(row[0], row[1], row[2]): row[3] for row in await cursor.fetchall()}
        lines = {line_id for _, line_id, _ in spans}
        found = {
            (point.node_id, point.line_id, point.from_seq): point.to_seq
            async for point in self.store.index.scan(self.workspace)
            if point.line_id in lines
        }
        assert found == spans
        await self._check_candidates()
        await self._check_frequencies()

    async def _check_candidates(self) -> None:
        """Check that the index itself proposes exactly the alive nodes of every state, so that no search asks twice."""
        vector = (await self.store.embedder.embed(["any"]))[0]
        async with self.store.database.connection() as conn:
            lineages = {
                commit_id: await lineage_of(Snapshot(conn, State(self.workspace, commit_id)))
                for commit_id in await projector.known_commits(conn, self.workspace)
            }
        for commit_id, lineage in lineages.items():
            hits = await self.store.index.nearest(IndexQuery(self.workspace, lineage, ALL), vector)
            nodes = sorted(key for key, entry in self.states[commit_id].items() if isinstance(entry, Node))
            assert sorted(hit.node_id for hit in hits) == nodes

    async def _check_frequencies(self) -> None:
        """Check that the frequencies count the terms of exactly the existing versions."""
        async with self.store.database.connection() as conn:
            versions = await (await conn.execute(_VERSIONS, (self.workspace,))).fetchall()
            cursor = await conn.execute(
                "select term, documents from mirror.term where workspace_id = %s", (self.workspace,)
            )
            counted = dict(await cursor.fetchall())
        should: Counter[int] = Counter()
        for entry_id, *_, blob in versions:
            node = decode_entry(node_path(entry_id), self._git().read_blob(blob))
            assert isinstance(node, Node)
            should.update([ALL_DOCUMENTS, *document_terms(text_of(node)).ids])
        assert counted == should

    async def _check_state(self, state: State, alive: dict[str, Entry], word: str) -> None:
        nodes = {key: node for key, node in alive.items() if isinstance(node, Node)}
        with_word = {key for key, node in nodes.items() if word in node.content.split()}
        assert await self._hits(state, SearchQuery(word, ALL)) == with_word
        assert await self._hits(state, SearchQuery(word, ALL, words=False, meaning=True)) == set(nodes)
        plans = {key for key, node in nodes.items() if node.type == "plan"}
        query = SearchQuery(word, ALL, types=["plan"], tags=["tagged"])
        assert await self._hits(state, query) == {key for key in with_word & plans if nodes[key].tags}  # type: ignore[union-attr]
        few = await self.store.search.find(state, SearchQuery(word, 2, meaning=True))
        assert len(few) == min(2, len(nodes))

    async def _hits(self, state: State, query: SearchQuery) -> set[str]:
        found = await self.store.search.find(state, query)
        ids = [hit.version.entry_id for hit in found]
        assert len(ids) == len(set(ids))
        assert all(0 < hit.score <= 1 for hit in found)
        return set(ids)

    # --- by hand ---

    def _node(self, node_id: str, parent: Node | None, number: int) -> Node:
        words = [word for bit, word in enumerate(WORDS) if number >> bit & 1]
        return Node(
            node_id,
            numbered_id(0),
            parent.id if parent else None,
            pick(PLACES, number),
            type=pick(["note", "plan"], number),
            title=f"node {number}",
            content=" ".join(words),
            tags=("tagged",) if number % 3 else (),
        )


@pytest.mark.requirement("STORE-3", "STORE-5", "GIT-1", "GIT-4")
def test_hits_are_exactly_the_alive_nodes_after_any_loss_of_a_store(stores: Stores) -> None:
    run_state_machine_as_test(lambda: Searches(stores), settings=effort(4, steps=12, shrink=False))
