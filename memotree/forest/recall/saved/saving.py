"""When the corpus of a workspace is saved, and when a saved one is used.

It is saved in the background after it was read from the rows, and again after many changes: what was changed since is
read from the rows at the next start, at the cost of a recall after as many changes.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

import structlog
from memotree_storage.concurrency.locks import KeyedLocks
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError
from memotree_storage.postgres import archive_trees
from memotree_storage.store import Store

from memotree.forest.recall.saved.saved_corpora import SavedCorpora, SavedCorpus, SavedOf
from memotree.forest.recall.search_corpus import SearchCorpus
from memotree.forest.recall.state_view import StateView

LEAST_LEAVES: Final = 2000
"""Corpora with fewer leaves are not saved: to read them from the rows takes less than a tenth of a second."""

MOST_CHANGES: Final = 300
"""With this many changed entries since it was saved, a corpus is saved again.

At the next start each of them costs about a millisecond; a save writes some 2 KB a leaf.
"""

_log = structlog.get_logger(__name__)


class CorpusSaving:
    """Saves the corpora of all archives of a commit, one for each workspace.

    Args:
        store: An open store.
        saved: Where they are saved.
    """

    def __init__(self, store: Store, saved: SavedCorpora) -> None:
        self._store = store
        self._saved = saved
        self._turns = KeyedLocks()
        self._is_saved: set[str] = set()
        self._changes: Counter[str] = Counter()
        """The changed entries of each workspace since its corpus was saved."""
        self._closed = False
        store.forgetting.append(self._forget)

    def close(self) -> None:
        """Ends the saving: a corpus that is being saved now is not kept."""
        self._closed = True
        self._store.forgetting.remove(self._forget)

    def _forget(self, workspace_id: str) -> None:
        self._is_saved.discard(workspace_id)
        self._saved.forget(workspace_id)
        self._store.background.start(self._sweep(workspace_id))

    async def _sweep(self, workspace_id: str) -> None:
        async with self._turns.of(""):
            await asyncio.to_thread(self._saved.sweep, workspace_id)

    async def clear(self) -> None:
        """Deletes what is of no use any more: of workspaces that are gone, or whose rows were replaced at the start."""
        generations = self._store.generations
        try:
            async with self._turns.of(""):
                known = await in_store_thread(self._store.repositories.ids)
                await asyncio.to_thread(self._saved.clear, {key for key in known if not generations[key]})
        except OSError as error:
            _log.warning("saved recall corpora were not cleared; the next start tries again", why=str(error))

    async def find(self, workspace_id: str) -> SavedCorpus | None:
        """Returns the saved corpus of a workspace if the rows that it was made of are still there."""
        found = await asyncio.to_thread(self._saved.find, workspace_id)
        if found is None:
            return None
        async with self._store.database.connection() as conn:
            row = await archive_trees.row_of(conn, workspace_id, found.of.commit_id)
        if row != found.of.row:
            await self.discard(found, "The commit is not in the mirror, or in other rows.")
            return None
        self._is_saved.add(workspace_id)
        return found

    async def discard(self, found: SavedCorpus, why: str) -> None:
        """Deletes a saved corpus that cannot be used."""
        self._is_saved.discard(found.of.workspace_id)
        await asyncio.to_thread(self._saved.discard, found.folder, why)

    def count_changes(self, workspace_id: str, count: int) -> None:
        """Notes that entries of a workspace were read which a saved corpus does not have."""
        self._changes[workspace_id] += count

    def consider(self, view: StateView, corpus: SearchCorpus, counts: Mapping[str, int]) -> None:
        """Saves the corpus of all archives of a commit in the background, if that is due."""
        workspace_id = view.state.workspace_id
        is_due = workspace_id not in self._is_saved or self._changes[workspace_id] >= MOST_CHANGES
        if is_due and len(corpus.leaf_index) >= LEAST_LEAVES:
            self._is_saved.add(workspace_id)
            self._changes[workspace_id] = 0
            self._store.background.start(self._save(view, corpus, dict(counts)))

    async def _save(self, view: StateView, corpus: SearchCorpus, counts: Mapping[str, int]) -> None:
        workspace_id, commit_id = view.state.workspace_id, view.state.commit_id

        def is_current() -> bool:
            return not self._closed and self._store.generations[workspace_id] == view.generation

        try:
            async with self._turns.of(""):  # one at once: it is work that nobody waits for
                async with self._store.database.connection() as conn:
                    row = await archive_trees.row_of(conn, workspace_id, commit_id)
                if row is not None:
                    of = SavedOf(workspace_id, commit_id, row, counts)
                    await asyncio.to_thread(self._saved.save, of, corpus, is_current)
        except (OSError, MemoTreeError) as error:
            _log.warning("a recall corpus was not saved; the next start reads it anew", why=str(error))
