"""Three-way merge of states: what differs between a base and another commit, brought into a third one.

A merge of branches takes the merge base as the base. To pick a commit, its parent is the base; to revert it, the commit
itself is the base, and its parent the other side.

Only entries that differ between the base and "theirs" are looked at; all others stay as "ours" has them. So the work
follows what their side changed, not the size of the tree.

Histories that merged each other crosswise have several merge bases. As in git, these are merged first, and their result
is the base. Where they conflict, no version is the base: the merge has to give the same whichever of them is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memotree_storage.concurrency.threads import LONG_BYTES, in_store_thread, in_store_thread_if
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.tree_check import check_tree, named_by
from memotree_storage.model.merge import MergeResult, deleted_and_changed, merge_entries
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.paths import ENTRY_PATHS, parse_path
from memotree_storage.model.readme import README_PATH
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.merge_bases import merge_bases
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_FEW: Final = 50
"""More entries are merged in a thread, so that other calls can run."""

_DEEPEST: Final = 8
"""How many times merge bases that have several merge bases are merged; beyond that each of them counts."""

_MOST_FILES_TOLD: Final = 10
_EVERY: Final = 2_147_483_647


class UnrelatedHistoriesError(FailedPreconditionError):
    """Two commits have no common ancestor."""

    reason = "UNRELATED_HISTORIES"


class FileConflictError(FailedPreconditionError):
    """Both sides changed a file that is no node or archive."""

    reason = "FILE_CONFLICT"

    @classmethod
    def of(cls, paths: Sequence[str]) -> "FileConflictError":
        """The error for these paths."""
        return cls(
            f"Both sides changed files that are no nodes: {_listed(paths)}. Nothing was written. Make them equal on "
            "both branches with git, and merge again."
        )


class UnreadableFilesError(FailedPreconditionError):
    """Their side changed files of nodes or archives so that they cannot be read."""

    reason = "UNREADABLE_FILES"

    @classmethod
    def of(cls, paths: Sequence[str]) -> "UnreadableFilesError":
        """The error for these paths."""
        return cls(
            f"The side to merge has files that cannot be read as nodes: {_listed(paths)}. Nothing was written. "
            "ListFaults says what is wrong with them; mend or remove them there, and merge again."
        )


@dataclass(frozen=True, slots=True)
class MergedEntry:
    """One entry that their side changed.

    Attributes:
        entry_id: The node or archive.
        entry: The merged entry; ``None`` if it is deleted. A field in conflict has our value.
        ours: The entry on our side; ``None`` if it is not alive there.
        conflicts: The fields that both sides changed differently.
    """

    entry_id: str
    entry: Entry | None
    ours: Entry | None
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True)
class StateMerge:
    """What a merge does.

    Attributes:
        ours: The commit that is merged into.
        theirs: The commit that is merged.
        bases: Their merge bases, the newest first.
        changes: The entries that it changes on our side, or that conflict; by id.
        at_ours: The alive versions of these entries on our side, by id.
        conflicts: Why it cannot be made: of fields, then those of the tree.
        files: Files that are no entries and that only their side changed, with the new blob; ``None`` removes the file.
    """

    ours: str
    theirs: str
    bases: Sequence[str]
    changes: Sequence[MergedEntry] = ()
    at_ours: Mapping[str, Version] = field(default_factory=dict)
    conflicts: Sequence[Conflict] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def is_merged(self) -> bool:
        """Whether our side has all of their history already."""
        return self.theirs in self.bases

    @property
    def changed(self) -> list[MergedEntry]:
        """The entries that change on our side, by id."""
        return [change for change in self.changes if change.entry != change.ours]

    @property
    def change_count(self) -> int:
        """How many entries change on our side."""
        return len(self.changed)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change on our side, and nothing conflicts."""
        return not self.changes and not self.files and not self.conflicts

    @property
    def is_fast_forward(self) -> bool:
        """Whether their side has all of our history."""
        return self.ours in self.bases


async def merge_states(
    conn: Connection,
    entries: EntryReader,
    repository: CommitReader,
    ours: State,
    theirs: str,
    *,
    max_depth: int | None = None,
) -> StateMerge:
    """Merge a commit into a state, without writing anything.

    Args:
        conn: Reads the mirror, which has both commits.
        entries: Reads entries.
        repository: The repository of the workspace.
        ours: The commit that is merged into.
        theirs: The commit that is merged.
        max_depth: The greatest depth of a node that gets another place; ``None`` for no limit.

    Raises:
        UnrelatedHistoriesError: They have no common ancestor.
        FileConflictError: Both sides changed a file that is no entry.
        UnreadableFilesError: Their side changed a file of an entry that cannot be read.
    """
    bases = await merge_bases(conn, ours.workspace_id, ours.commit_id, theirs)
    if not bases:
        raise UnrelatedHistoriesError(
            f"Commits {ours.commit_id} and {theirs} have no common ancestor, so it cannot be told what each side "
            "changed. Nothing was written. Import the other tree instead, or join the histories with git."
        )
    merge = StateMerge(ours.commit_id, theirs, bases)
    if merge.is_merged:
        return merge
    return await _Merging(conn, entries, repository, ours, theirs, bases).run(max_depth)


async def bring_difference(
    conn: Connection,
    entries: EntryReader,
    repository: CommitReader,
    ours: State,
    base: str,
    theirs: str,
    *,
    max_depth: int | None = None,
) -> StateMerge:
    """Bring what differs between two commits into a state; for the arguments and errors see `merge_states`."""
    return await _Merging(conn, entries, repository, ours, theirs, [base]).run(max_depth)


@dataclass(frozen=True, slots=True)
class _Merging:
    conn: Connection
    entries: EntryReader
    repository: CommitReader
    ours: State
    theirs: str
    bases: Sequence[str]

    async def run(self, max_depth: int | None) -> StateMerge:
        ids = await self._changed()
        before = await self._bases(self.bases, ids, 0)
        our_versions, ours = await self._alive(self.ours.commit_id, ids)
        their_versions, theirs = await self._alive(self.theirs, ids)
        unlike = [one for one in ids if _blob(our_versions.get(one)) != _blob(their_versions.get(one))]
        long = sum(len(entry.content) for entry in ours.values() if isinstance(entry, Node))
        merged = await in_store_thread_if(
            len(unlike) > _FEW or long > LONG_BYTES,
            lambda: [_merged(one, before.get(one, (None,)), ours.get(one), theirs.get(one)) for one in unlike],
        )
        changes = [change for change in merged if change.entry != change.ours or change.conflicts]
        written = {change.entry_id: change.entry for change in changes if change.entry != change.ours}
        around = Snapshot(self.conn, self.ours)
        others = await tree.versions(around, named_by(written).difference(ids))
        checked = await check_tree(
            around, written, set(), at_head={**our_versions, **others}, max_depth=max_depth, is_merge=True
        )
        conflicts = [conflict for change in changes for conflict in change.conflicts]
        return StateMerge(
            self.ours.commit_id,
            self.theirs,
            self.bases,
            changes,
            {change.entry_id: our_versions[change.entry_id] for change in changes if change.entry_id in our_versions},
            [*conflicts, *checked.conflicts],
            await in_store_thread(self._files, set(their_versions)),
        )

    def _state(self, commit_id: str) -> State:
        return State(self.ours.workspace_id, commit_id)

    async def _changed(self) -> list[str]:
        """The entries that differ between their side and any base."""
        found: set[str] = set()
        for base in self.bases:
            found.update(await history.differing(self.conn, self._state(base), self._state(self.theirs), limit=_EVERY))
        return sorted(found)

    async def _alive(self, commit_id: str, ids: Sequence[str]) -> tuple[dict[str, Version], dict[str, Entry]]:
        """The versions and entries that are alive at a commit, by id."""
        versions = await tree.versions(Snapshot(self.conn, self._state(commit_id)), ids)
        read = await self.entries.load(self.ours.workspace_id, versions.values())
        return versions, {entry_id: read[version.blob] for entry_id, version in versions.items()}

    async def _bases(self, bases: Sequence[str], ids: Sequence[str], depth: int) -> dict[str, tuple[Entry | None, ...]]:
        """What each entry was at the base: one version, or several where the merge bases conflict.

        Args:
            bases: Merge bases, at least one.
            ids: The entries.
            depth: How many merges of merge bases this is for.
        """
        newest, *others = bases
        _, entries = await self._alive(newest, ids)
        found: dict[str, tuple[Entry | None, ...]] = {one: (entries.get(one),) for one in ids}
        for other in others:
            _, entries = await self._alive(other, ids)
            below = await merge_bases(self.conn, self.ours.workspace_id, newest, other) if depth < _DEEPEST else []
            differing = [one for one in ids if found[one] != (entries.get(one),)]
            before = await self._bases(below, differing, depth + 1) if below and differing else {}
            for one in differing:
                found[one] = _joined(before.get(one, ()), found[one], entries.get(one))
        return found

    def _files(self, alive: set[str]) -> dict[str, str | None]:
        """The files that are no entries and that only their side changed, by path. Blocks.

        Args:
            alive: The entries among those that differ that are alive on their side.
        """
        found: dict[str, str | None] = {}
        clashing: list[str] = []
        unreadable: list[str] = []
        changed: dict[str, tuple[str | None, str | None]] = {}
        for change in self.repository.diff(self.bases[0], self.theirs):
            parsed = parse_path(change.path)
            if parsed is None and ENTRY_PATHS.names(f"{change.path.rpartition('/')[0]}/") is None:
                changed[change.path] = change.old_blob, change.new_blob
            elif change.new_blob is not None and (parsed is None or parsed[1] not in alive):
                unreadable.append(change.path)
        changed.pop(README_PATH, None)
        if unreadable:
            raise UnreadableFilesError.of(unreadable)
        if not changed:
            return found
        our_changes = {
            change.path: change.new_blob for change in self.repository.diff(self.bases[0], self.ours.commit_id)
        }
        for path, (old, new) in changed.items():
            our = our_changes.get(path, old)
            if our == old:
                found[path] = new
            elif our != new:
                clashing.append(path)
        if clashing:
            raise FileConflictError.of(clashing)
        return found


def _listed(paths: Sequence[str]) -> str:
    told = ", ".join(repr(path[:200]) for path in paths[:_MOST_FILES_TOLD])
    return told if len(paths) <= _MOST_FILES_TOLD else f"{told} and {len(paths) - _MOST_FILES_TOLD} more"


def _blob(version: Version | None) -> str:
    return "" if version is None else version.blob


def _joined(
    before: Sequence[Entry | None], ones: Sequence[Entry | None], other: Entry | None
) -> tuple[Entry | None, ...]:
    """The merge of an entry at two merge bases; all its versions where that conflicts."""
    merged = [merge_entries(base, one, other) for base in before for one in ones]
    first = merged[0] if merged else None
    if first is not None and all(not each.conflicts and each.entry == first.entry for each in merged):
        return (first.entry,)
    return (*ones, other)


def _merged(entry_id: str, bases: Sequence[Entry | None], ours: Entry | None, theirs: Entry | None) -> MergedEntry:
    found = [merge_entries(base, ours, theirs) for base in bases]
    conflicting = next((each for each in found if each.conflicts), None)
    if conflicting is None and any(each.entry != found[0].entry for each in found):
        conflicting = _without_base(bases, ours, theirs)
    result = conflicting or found[0]
    return MergedEntry(entry_id, result.entry, ours, result.conflicts)


def _without_base(bases: Sequence[Entry | None], ours: Entry | None, theirs: Entry | None) -> MergeResult:
    """The conflict of two versions if no base is known; one of the bases has the entry if one of the sides lacks it."""
    base = next((each for each in bases if each is not None), None)
    if base is not None and (ours is None or theirs is None):
        return deleted_and_changed(base, ours, theirs)
    return merge_entries(None, ours, theirs)
