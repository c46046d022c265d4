"""Caches the archive snapshots of states, and the search corpora of many snapshots that are scored together.

A commit never changes, so what was read of it stays valid, and a later commit shares the snapshots of all archives that
have not changed since. The snapshot of an archive that has changed is made from an earlier one, at the cost of what
changed. A session uses its base's snapshots, except for the archives that its staged changes touch: those are made from
the base's whenever the staged changes differ, so that a search right after an edit is correct. The cache is bounded in
bytes and evicts the least recently used entries first.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, TypeAlias

from memotree_storage.cache import BoundedCache, Misremembered
from memotree_storage.concurrency.locks import KeyedLocks
from memotree_storage.index import leaf_features
from memotree_storage.index.leaf_features import LeafFeatureBlock, LeafFeatures
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.mirror.contents import read_staged
from memotree_storage.model.node import Node
from memotree_storage.model.paths import node_path
from memotree_storage.postgres import archive_trees
from memotree_storage.postgres.archive_trees import TreeNode
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.recall.archive_change import ChangedNodes, changed_snapshot
from memotree.forest.recall.archive_snapshot import ArchiveSnapshot, is_leaf, make_snapshots
from memotree.forest.recall.kept_snapshots import KeptSnapshots
from memotree.forest.recall.leaf_blocks import block_of, joined_blocks, picked
from memotree.forest.recall.saved.array_files import UnusableFilesError
from memotree.forest.recall.saved.saved_corpora import SavedCorpora, SavedCorpus
from memotree.forest.recall.saved.saving import MOST_CHANGES, CorpusSaving
from memotree.forest.recall.search_corpus import SearchCorpus, changed_corpus, make_corpus
from memotree.forest.recall.snapshot_comparison import same
from memotree.forest.recall.state_view import StateView, check_digest, reading
from memotree.forest.recall.tree_order import UnclearOrderError
from memotree.forest.recall.view_cache import COMPARED, ViewCache, counts_after, is_as_read, take_over

_CORPORA: Final = 256
"""The number of sets of archives whose latest corpus is known."""

_EVERY: Final = "*"
"""The name of the set of all archives."""

_AT_ONCE: Final = 250
"""The number of archives that one database snapshot reads."""

_MOST_COMPARED: Final = 20_000
"""The nodes in archive snapshots that are compared with their rows."""

_STAGED_BYTES: Final = 32 << 20


_Rows: TypeAlias = tuple[Sequence[str], list[TreeNode], LeafFeatureBlock, dict[str, LeafFeatures]]


_Stored: TypeAlias = tuple[LeafFeatureBlock, dict[str, LeafFeatures], dict[str, Node], list[int]]
"""The stored features of leaves, those known by blob, the texts of the others by blob, and the versions without any."""


class SnapshotCache:
    """Reads and caches the trees of states.

    Args:
        store: An open store.
        limit: The most bytes to cache; a call that needs more still gets its result.
        folder: Where corpora are saved for the next start; none are if it is ``None``.
        index: The index whose vectors are cached; the one that answers if it is ``None``.
    """

    def __init__(self, store: Store, limit: int, folder: Path | None = None, index: ModelIndex | None = None) -> None:
        self._store = store
        self.index = index or store.current
        self._embedder = self.index.embedder
        self._turns = KeyedLocks()
        self._views = ViewCache(store)
        self._kept = KeptSnapshots(limit)
        self._latest: BoundedCache[str, str] = BoundedCache(_CORPORA)
        """The key of the corpus of a commit that was made last of each set of archives."""
        self._staged: BoundedCache[str, LeafFeatures] = BoundedCache(_STAGED_BYTES, _weigh)
        self._saving: CorpusSaving | None = None
        if folder is not None:
            self._saving = CorpusSaving(store, SavedCorpora(folder, limit, self.index.label))
        self._looked: set[str] = set()
        """The workspaces whose saved corpus is in use, or of no use."""
        store.cache_checks.append(self.check)

    @property
    def weight(self) -> int:
        """The bytes cached now."""
        return self._kept.weight

    def excess(self, corpus: SearchCorpus) -> tuple[int, int] | None:
        """Returns the bytes of a corpus that is too large to be cached, and the limit; ``None`` if it fits."""
        return self._kept.excess(corpus)

    async def clear_saved(self) -> None:
        """Deletes what is saved of workspaces that are gone."""
        if self._saving is not None:
            await self._saving.clear()

    def close(self) -> None:
        """Ends the part of this cache in the store, once another one has taken its place."""
        self._store.cache_checks.remove(self.check)
        if self._saving is not None:
            self._saving.close()

    async def view(self, state: State) -> StateView:
        """Returns the view of a state as it is now.

        Raises:
            SessionMovedError: If the session's changes differ from a moment before, or it ended.
        """
        return await self._views.view(state)

    async def leaf_counts(self, view: StateView) -> Mapping[str, int]:
        """Returns the estimated number of leaves of each archive, without staged changes."""
        base = view.below or view
        await self._load(base)
        if base.counts is None:
            async with self._store.database.connection() as conn:
                base.counts = await archive_trees.leaf_counts(Snapshot(conn, base.state))
        return base.counts

    # --- Archive snapshots ---

    async def snapshots(self, view: StateView, archive_ids: Collection[str]) -> list[ArchiveSnapshot]:
        """Returns the snapshots of archives of a state, ordered by archive id.

        Raises:
            SessionMovedError: If the session was changed meanwhile.
        """
        found: dict[str, ArchiveSnapshot] = {}
        wanted = set(archive_ids)
        if view.below is not None:
            same = wanted - view.touched
            found = {each.archive_id: each for each in await self.snapshots(view.below, same)}
            view.keys.update({key: view.below.keys[key] for key in same})
            wanted -= same
        found |= self._found(view, wanted)
        if len(found) < len(archive_ids):
            # One reader per state: callers that waited for the lock find what the first one has read.
            async with self._turns.of(f"{view.state.commit_id}/{view.digest}"):
                found |= self._found(view, wanted)
                found |= await self._read(view, sorted(wanted - found.keys()))
        return [found[key] for key in sorted(found)]

    def _found(self, view: StateView, archive_ids: Collection[str]) -> dict[str, ArchiveSnapshot]:
        found = {}
        for archive_id in archive_ids:
            kept = self._kept.get(view.keys.get(archive_id))
            if isinstance(kept, ArchiveSnapshot):
                found[archive_id] = kept
        return found

    async def _changed(self, view: StateView, archive_ids: Collection[str]) -> dict[str, ArchiveSnapshot]:
        """Makes those of some archive snapshots that follow from an earlier one at the cost of what changed."""
        earlier: dict[str, dict[str, ArchiveSnapshot]] = {}
        if view.below is not None:  # a session asks often, so its base is worth reading
            await self.snapshots(view.below, [key for key in archive_ids if key in view.below.archives])
        for archive_id in archive_ids:
            if view.below is not None:
                commit_id, key = view.below.state.commit_id, view.below.keys.get(archive_id)
            else:
                commit_id, key = view.earlier.get(archive_id, ("", None))
            kept = self._kept.get(key)
            if isinstance(kept, ArchiveSnapshot) and kept.order.is_clear:
                earlier.setdefault(commit_id, {})[archive_id] = kept
        found: dict[str, ArchiveSnapshot] = {}
        for commit_id, snapshots in earlier.items():
            changed = await self._changed_nodes(view, commit_id, snapshots)
            for archive_id, nodes in changed.items():
                try:
                    made = await asyncio.to_thread(changed_snapshot, snapshots[archive_id], nodes)
                except UnclearOrderError:
                    continue  # the whole archive is read
                found |= self._made(view, [made])
        return found

    async def _changed_nodes(
        self, view: StateView, commit_id: str, archive_ids: Collection[str]
    ) -> dict[str, ChangedNodes]:
        """Reads what may differ in some archives since a commit; nothing if that is very much."""
        state = view.state
        if self._embedder.is_slow:  # the indexer embeds what is committed; to do so here, too, would cost twice
            await self.index.indexer.current(state.workspace_id)
        async with reading(self._store, view) as conn:
            snapshot = Snapshot(conn, state)
            changes = view.changes.pop(commit_id, None)
            if changes is None and view.digest:
                changes = await archive_trees.staged_changes(snapshot)
            elif changes is None:
                changes = await archive_trees.changes(conn, state.workspace_id, commit_id, state.commit_id)
            ids = None if changes is None else changes.entry_ids
            if not view.digest:
                self._count_changes(view, MOST_CHANGES if ids is None else len(ids))
            if ids is None:
                return {}
            nodes = [node for node in await archive_trees.some_nodes(snapshot, ids) if node.archive_id in archive_ids]
            leaves = [node for node in nodes if is_leaf(node)]
            # What is not indexed yet is made from its text, so that nobody waits for the index if a model is fast.
            block, extra, texts, _ = await self._stored(conn, state, leaves)
        extra |= await self._features(texts)
        dimensions = self._embedder.dimensions
        return await asyncio.to_thread(_by_archive, ids, archive_ids, nodes, block, extra, dimensions)

    async def _read(self, view: StateView, archive_ids: Sequence[str]) -> dict[str, ArchiveSnapshot]:
        """Reads archive snapshots in batches, so that finished ones stay cached if the caller disconnects.

        The next batch is read from the database while the snapshots of the current one are built.
        """
        found = await self._changed(view, archive_ids)
        archive_ids = [key for key in archive_ids if key not in found]
        if not archive_ids:
            return found
        making: asyncio.Task[list[ArchiveSnapshot]] | None = None
        await self.index.indexer.current(view.state.workspace_id)
        try:
            for start in range(0, len(archive_ids), _AT_ONCE):
                rows = await self._rows(view, archive_ids[start : start + _AT_ONCE])
                if making is not None:
                    found |= self._made(view, await making)
                making = asyncio.create_task(
                    asyncio.to_thread(make_snapshots, *rows, self._embedder.dimensions), name="memotree-snapshots"
                )
            if making is not None:
                found |= self._made(view, await making)
        finally:
            if making is not None and not making.done():
                making.cancel()
        self._count_changes(view, sum(len(found[key].ids) for key in archive_ids if key not in view.earlier))
        return found

    def _count_changes(self, view: StateView, count: int) -> None:
        if self._saving is not None and view.below is None:
            self._saving.count_changes(view.state.workspace_id, count)

    def _made(self, view: StateView, snapshots: Sequence[ArchiveSnapshot]) -> dict[str, ArchiveSnapshot]:
        for each in snapshots:
            key = f"{view.key}/archive {each.archive_id}"
            view.keys[each.archive_id] = key
            self._kept.put(key, each)
        return {each.archive_id: each for each in snapshots}

    async def _rows(self, view: StateView, archive_ids: Sequence[str]) -> _Rows:
        """Reads archives: their nodes, the stored features, and by blob the features of leaves without stored ones."""
        state = view.state
        # The digest, the nodes and their features must come from one database snapshot.
        async with self._store.database.repeatable_read() as conn:
            if view.digest:
                await check_digest(Snapshot(conn, state), view.digest)
            nodes = await archive_trees.ordered_nodes(Snapshot(conn, state), archive_ids)
            block, extra, texts, lost = await self._stored(conn, state, [node for node in nodes if is_leaf(node)])
        if lost:  # unless the index is being rebuilt, the rows are gone or damaged
            self._store.background.start(self.index.indexer.make_again(state.workspace_id, lost))
        return archive_ids, nodes, block, extra | await self._features(texts)

    async def _stored(self, conn: Connection, state: State, leaves: Sequence[TreeNode]) -> _Stored:
        """Reads what is stored of the features of leaves, and the texts of those of which nothing is."""
        committed = [node.version_id for node in leaves if node.version_id is not None]
        block = await leaf_features.load_block(conn, self.index.number, committed)
        stored = frozenset(block.version_ids.tolist())
        bare = [node for node in leaves if node.version_id not in stored]
        extra = {node.blob: known for node in bare if (known := self._staged.get(node.blob)) is not None}
        texts = await self._texts(Snapshot(conn, state), [node for node in bare if node.blob not in extra])
        return block, extra, texts, [node.version_id for node in bare if node.version_id is not None]

    async def _texts(self, snapshot: Snapshot, bare: Sequence[TreeNode]) -> dict[str, Node]:
        """Returns leaves without stored features, by blob: staged ones, and all while the index is being rebuilt."""
        blobs = {node.entry_id: node.blob for node in bare if node.version_id is None}
        staged = await read_staged(snapshot, list(blobs))
        paths = {node.blob: node_path(node.entry_id) for node in bare if node.version_id is not None}
        found = {blobs[entry_id]: entry for entry_id, entry in staged.items()}
        found |= await self._store.entries.read(snapshot.state.workspace_id, paths)
        return {blob: entry for blob, entry in found.items() if isinstance(entry, Node)}

    async def _features(self, texts: Mapping[str, Node]) -> dict[str, LeafFeatures]:
        made = await leaf_features.of_nodes(list(texts.values()), self._embedder)
        found = {blob: passage for blob, passage in zip(texts, made, strict=True) if passage is not None}
        for blob, passage in found.items():
            self._staged.put(blob, passage)
        return found

    # --- Saved corpora ---

    async def _load(self, view: StateView) -> None:
        """Takes over the saved corpus of a workspace for the view of a commit, once, if it is of a related commit."""
        workspace_id = view.state.workspace_id
        if self._saving is None or workspace_id in self._looked or view.keys:
            return
        async with self._turns.of(f"saved {workspace_id}"):
            if workspace_id in self._looked or view.keys:
                return
            found = None if view.generation else await self._saving.find(workspace_id)
            is_related = True
            if found is not None:
                try:
                    is_related = await self._take(view, found)
                except UnusableFilesError as error:
                    await self._saving.discard(found, str(error))
            if is_related:
                self._looked.add(workspace_id)

    async def _take(self, view: StateView, found: SavedCorpus) -> bool:
        """Takes over a saved corpus for a view; nothing if it is of another branch."""
        state, now = State(view.state.workspace_id, found.of.commit_id), view.state
        async with self._store.database.connection() as conn:
            changes = await archive_trees.changes(conn, state.workspace_id, state.commit_id, now.commit_id)
            if changes is None:
                return False
            saved = view if state == now else await self._views.read(conn, state)
            if sorted(saved.archive_ids) != sorted(found.archive_ids):
                raise UnusableFilesError("The commit has other archives.")
            saved.counts = dict(found.of.counts)
            if view.counts is None:
                view.counts = await counts_after(saved.counts, Snapshot(conn, state), Snapshot(conn, now), changes)
        corpus = await asyncio.to_thread(found.read, saved.superseded)
        for start in range(0, len(corpus.snapshots), _AT_ONCE):
            self._made(saved, corpus.snapshots[start : start + _AT_ONCE])
            await asyncio.sleep(0)  # for other calls
        self._put_corpus(saved, _EVERY, corpus)
        if saved is not view:
            view.changes[state.commit_id] = changes
            take_over(view, saved, changes.archive_ids)
            self._views.keep(saved)
        self._views.keep(view)
        return True

    def _put_corpus(self, view: StateView, name: str, corpus: SearchCorpus) -> None:
        key = f"{view.key}/{name}"
        self._kept.put(key, corpus)
        if view.below is None:
            self._latest.put(f"{view.state.workspace_id}/{view.generation}/{name}", key)

    # --- Comparing with the rows ---

    async def check(self, conn: Connection, workspace_id: str) -> list[Misremembered]:
        """Compares the latest views of commits of a workspace, and their archive snapshots, with the rows."""
        found: list[Misremembered] = []
        left = _MOST_COMPARED
        for view in self._views.of_commits(workspace_id)[:COMPARED]:
            snapshot, commit_id = Snapshot(conn, view.state), view.state.commit_id
            if not is_as_read(view, await self._views.read(conn, view.state)):
                found.append(Misremembered("archives", commit_id))
            for archive_id, kept in self._found(view, list(view.keys)).items():
                if left > 0:
                    left -= len(kept.ids)
                    if not await self._is_as_stored(snapshot, kept):
                        found.append(Misremembered("archive", commit_id, archive_id))
        return found

    async def _is_as_stored(self, snapshot: Snapshot, kept: ArchiveSnapshot) -> bool:
        """Whether an archive snapshot is the one that the rows give; true if leaf features are missing or damaged."""
        nodes = await archive_trees.ordered_nodes(snapshot, [kept.archive_id])
        leaves = [node for node in nodes if is_leaf(node)]
        block = await leaf_features.load_block(
            snapshot.conn, self.index.number, [node.version_id for node in leaves if node.version_id is not None]
        )
        if len(block.version_ids) < len(leaves):
            return True
        (fresh,) = await asyncio.to_thread(
            make_snapshots, [kept.archive_id], nodes, block, {}, self._embedder.dimensions
        )
        return await asyncio.to_thread(same, kept, fresh)

    # --- Corpora ---

    async def corpus(self, view: StateView, archive_ids: Collection[str]) -> SearchCorpus:
        """Returns the corpus of some archives of a state.

        Raises:
            SessionMovedError: If the session was changed meanwhile.
        """
        wanted = frozenset(archive_ids)
        name = _name_of(view, wanted)
        key = f"{view.key}/{name}"
        kept = self._kept.get(key)
        if not isinstance(kept, SearchCorpus):
            async with self._turns.of(key):
                kept = self._kept.get(key)
                if not isinstance(kept, SearchCorpus):
                    await self._load(view.below or view)
                    kept = await self._made_corpus(view, await self.snapshots(view, wanted), name)
                    self._put_corpus(view, name, kept)
                    if self._saving is not None and view.below is None and name == _EVERY:
                        self._saving.consider(view, kept, await self.leaf_counts(view))
        return kept

    async def _made_corpus(self, view: StateView, snapshots: Sequence[ArchiveSnapshot], name: str) -> SearchCorpus:
        """Makes a corpus from that of its base or of the commit asked last, if the archives are the same."""
        if view.below is None:
            old = self._kept.get(self._latest.get(f"{view.state.workspace_id}/{view.generation}/{name}"))
        else:
            old = self._kept.get(f"{view.below.key}/{name}")
            if old is None and name == _EVERY and set(view.below.archive_ids) == set(view.archive_ids):
                # A session asks often, and the corpus of its base is the one that is saved.
                old = await self.corpus(view.below, view.below.archive_ids)
        if isinstance(old, SearchCorpus):
            made = await asyncio.to_thread(changed_corpus, old, snapshots, view.superseded)
            if made is not None:
                return made
        made = await asyncio.to_thread(make_corpus, snapshots, self._embedder.dimensions, view.superseded)
        self._share(view, made)
        return made

    def _share(self, view: StateView, corpus: SearchCorpus) -> None:
        """Replaces cached snapshots by those of a corpus, which share its vectors; vectors are most of their size."""
        for snapshot in corpus.snapshots:
            key = view.keys[snapshot.archive_id]
            if key in self._kept:
                self._kept.put(key, snapshot)


def _by_archive(
    ids: Collection[str],
    archive_ids: Collection[str],
    nodes: Sequence[TreeNode],
    block: LeafFeatureBlock,
    extra: Mapping[str, LeafFeatures],
    dimensions: int,
) -> dict[str, ChangedNodes]:
    """Returns the changed nodes of each archive, but for archives with a leaf without features."""
    row = {version_id: place for place, version_id in enumerate(block.version_ids.tolist())}
    blobs = {blob: len(row) + place for place, blob in enumerate(extra)}
    whole = joined_blocks(block, block_of(list(extra.values()), dimensions)) if extra else block
    alive: dict[str, dict[str, TreeNode]] = {archive_id: {} for archive_id in archive_ids}
    for node in nodes:
        alive[node.archive_id][node.entry_id] = node
    found = {}
    for archive_id, own in alive.items():
        leaves = [node for node in own.values() if is_leaf(node)]
        rows = [blobs.get(leaf.blob) if leaf.version_id not in row else row[leaf.version_id] for leaf in leaves]
        known = [each for each in rows if each is not None]
        if len(known) == len(rows):
            found[archive_id] = ChangedNodes(ids, own, picked(whole, known) if known else block_of([], dimensions))
    return found


def _name_of(view: StateView, archive_ids: AbstractSet[str]) -> str:
    """Returns a short key for a set of archives of a view."""
    if archive_ids == set(view.archive_ids):
        return _EVERY
    return hashlib.sha256(",".join(sorted(archive_ids)).encode()).hexdigest()


def _weigh(passage: LeafFeatures) -> int:
    return 500 + passage.terms.nbytes + passage.counts.nbytes + passage.vector.nbytes
