"""Caches the views of states: which archives there are, and which snapshots of them were read."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from memotree_storage.concurrency.locks import KeyedLocks
from memotree_storage.postgres import archive_trees, archive_versions, misplaced, tree
from memotree_storage.postgres.archive_trees import Changes
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.superseding import Superseding, superseding
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.recall.state_view import StateView, check_digest, read_digest

COMPARED: Final = 3
"""The number of views of other commits that a new view is compared with."""

_VIEWS: Final = 256


class ViewCache:
    """Reads and caches the views of states; the least recently used go first.

    Args:
        store: An open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = KeyedLocks()
        self._views: OrderedDict[str, StateView] = OrderedDict()

    async def view(self, state: State) -> StateView:
        """Returns the view of a state as it is now.

        Raises:
            SessionMovedError: If the session's changes differ from a moment before, or it ended.
        """
        if state.session_id is None:
            return await self._base(state)
        async with self._store.database.connection() as conn:
            now, digest = await read_digest(Snapshot(conn, state))
        below = await self._base(State(now.workspace_id, now.commit_id))
        if not digest:
            return below
        generation = below.generation
        key = f"{now.workspace_id}/{generation}/{now.commit_id}/{now.session_id}/{digest}"
        known = self._views.get(key)
        if known is None:
            async with self._store.database.repeatable_read() as conn:
                snapshot = Snapshot(conn, now)
                await check_digest(snapshot, digest)
                changes = await archive_trees.staged_changes(snapshot)
                touched = changes.archive_ids
                archives = await _changed_archives(snapshot, below.archives, changes)
                changed = await superseding(snapshot, touched)
            known = StateView(key, generation, now, digest, touched, below, archives, gone=below.gone - archives.keys())
            known.changes[now.commit_id] = changes
            known.superseding = _with_changed(below.superseding, touched, changed)
        return self.keep(known)

    async def _base(self, state: State) -> StateView:
        bare = self._bare(state)
        known = self._views.get(bare.key)
        if known is None:
            async with self._turns.of(bare.key), self._store.database.connection() as conn:
                known = self._views.get(bare.key)
                if known is None:
                    known = await _completed(conn, bare, self.of_commits(state.workspace_id))
                    self.keep(known)
        return self.keep(known)

    def _bare(self, state: State) -> StateView:
        generation = self._store.generations[state.workspace_id]
        key = f"{state.workspace_id}/{generation}/{state.commit_id}"
        return StateView(key, generation, state, "", frozenset(), None, {})

    def keep(self, view: StateView) -> StateView:
        """Keeps a view as the one that was used last, and returns it."""
        self._views[view.key] = view
        self._views.move_to_end(view.key)
        while len(self._views) > _VIEWS:
            self._views.popitem(last=False)
        return view

    def of_commits(self, workspace_id: str) -> list[StateView]:
        """Returns the cached views of the commits of a workspace, as its rows are now, the latest first."""
        now = (workspace_id, self._store.generations[workspace_id])
        return [
            view
            for view in reversed(self._views.values())
            if view.below is None and (view.state.workspace_id, view.generation) == now
        ]

    async def read(self, conn: Connection, state: State) -> StateView:
        """Returns the view of a commit from its rows alone; it is not cached."""
        return await _completed(conn, self._bare(state), [])


def take_over(view: StateView, other: StateView, changed: Collection[str]) -> None:
    """Notes in the view of a commit what was read of the archives that are unchanged since another commit.

    Args:
        view: The view.
        other: The view of the other commit.
        changed: The archives that may have changed.
    """
    same = {key: value for key, value in other.keys.items() if key not in changed}
    earlier = {key: (other.state.commit_id, other.keys[key]) for key in other.keys if key in changed}
    view.keys = same | view.keys
    view.earlier = {**other.earlier, **earlier, **view.earlier}


async def _completed(conn: Connection, view: StateView, others: Sequence[StateView]) -> StateView:
    """Completes the view of a commit; it takes over the archives that are unchanged since that of another commit.

    So the first recall after a commit costs what the commit changed, however many archives there are.
    """
    snapshot = Snapshot(conn, view.state)
    for other in sorted(others, key=lambda other: not other.keys)[:COMPARED]:
        older, newer = other.state.commit_id, view.state.commit_id
        changes = await archive_trees.changes(conn, view.state.workspace_id, older, newer)
        if changes is not None:
            changed = changes.archive_ids
            view.changes[older] = changes
            view.archives = await _changed_archives(snapshot, other.archives, changes)
            take_over(view, other, changed)
            if other.counts is not None:
                view.counts = await counts_after(other.counts, Snapshot(conn, other.state), snapshot, changes)
            now = await superseding(snapshot, changed) if changed else []
            view.superseding = _with_changed(other.superseding, changed, now)
            perhaps = (other.gone | changed) - view.archives.keys()
            view.gone = await misplaced.their_archives(snapshot) - view.archives.keys() if perhaps else frozenset()
            return view
    view.archives = {one.entry_id: one for one in await archive_versions.archives(snapshot)}
    view.gone = await misplaced.their_archives(snapshot) - view.archives.keys()
    view.superseding = _with_changed({}, (), await superseding(snapshot))
    return view


async def counts_after(before: Mapping[str, int], older: Snapshot, newer: Snapshot, changes: Changes) -> dict[str, int]:
    """Returns the numbers of leaves of the archives of a state from those of another one."""
    if changes.entry_ids is None:
        kept = {key: count for key, count in before.items() if key not in changes.archive_ids}
        return kept | await archive_trees.leaf_counts(newer, changes.archive_ids)
    states = (older.state.commit_id, newer.state.commit_id)
    more = await archive_trees.more_leaves(newer.conn, newer.state.workspace_id, *states, changes.entry_ids)
    both = {key: before.get(key, 0) + count for key, count in more.items()}
    return {key: count for key, count in {**before, **both}.items() if count}


def is_as_read(view: StateView, fresh: StateView) -> bool:
    """Whether a view says the same as one that was read from the rows."""
    one, other = ((each.archives, each.gone, _relations(each)) for each in (view, fresh))
    return one == other


async def _changed_archives(
    snapshot: Snapshot, before: Mapping[str, ArchiveVersion], changes: Changes
) -> dict[str, ArchiveVersion]:
    """Returns the archives of a state from those of another one; those whose own entry may differ are read."""
    changed = changes.archive_ids if changes.entry_ids is None else changes.archive_ids & changes.entry_ids
    versions = await tree.versions(snapshot, changed) if changed else {}
    return _with_versions(before, changed, versions)


def _with_versions(
    archives: Mapping[str, ArchiveVersion], changed: Collection[str], versions: Mapping[str, Version]
) -> dict[str, ArchiveVersion]:
    """The archives by id with the present versions of those that may have changed, in the order of their names."""
    now = {key: ArchiveVersion.of(version) for key, version in versions.items() if version.is_archive}
    if all(key in archives and key in now and archives[key].name == now[key].name for key in changed):
        return {**archives, **now}
    kept = {key: archive for key, archive in archives.items() if key not in changed}
    every = sorted((kept | now).items(), key=lambda item: (item[1].name.encode(), item[0]))
    return dict(every)


def _with_changed(
    before: Mapping[str, Sequence[Superseding]], archive_ids: Collection[str], now: Iterable[Superseding]
) -> Mapping[str, Sequence[Superseding]]:
    """Returns relations by archive: those of before, with those of some archives replaced."""
    fresh: dict[str, list[Superseding]] = {}
    for one in now:
        fresh.setdefault(one.archive_id, []).append(one)
    return {**{key: value for key, value in before.items() if key not in archive_ids}, **fresh}


def _relations(view: StateView) -> dict[str, set[Superseding]]:
    return {archive_id: set(found) for archive_id, found in view.superseding.items() if found}
