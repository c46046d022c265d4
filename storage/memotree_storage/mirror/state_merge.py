"""Three-way merge of states: what differs between a base and another commit, brought into a third one.

A merge of branches takes the merge base as the base. To pick a commit, its parent is the base; to revert it, the commit
itself is the base, and its parent the other side.

Only entries that differ between the base and "theirs" are looked at; all others stay as "ours" has them. So the work
follows what their side changed, not the size of the tree.

Histories that merged each other crosswise have several merge bases. As in git, these are merged first, and their result
is the base. Where they conflict, or if there are more than two, no version is the base: the merge has to give the same
whichever of them is taken.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memotree_storage.concurrency.threads import LONG_TEXT, in_comparison_thread, in_store_thread, in_store_thread_if
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.mirror.change_selection import Selection, select
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.staged_merge import RenewSummary, check_limits, entries_of
from memotree_storage.mirror.tree_check import IncompleteChoiceError, MissingChange, check_tree, named_by
from memotree_storage.model.merge import MergeResult, deleted_and_changed, merge_entries
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.paths import ENTRY_PATHS, parse_path
from memotree_storage.ports import CommitReader, PathChange
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.merge_bases import merge_bases
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_FEW: Final = 50
"""More entries are merged in a thread, so that other calls can run."""

_DEEPEST: Final = 8
"""How many times merge bases that have several merge bases are merged; beyond that each of them counts."""

_TWO: Final = 2
_MOST_FILES_TOLD: Final = 10


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
            f"Both sides changed files that are no nodes: {_listed(paths)}. Nothing was written. Make them equal with "
            "git first, or bring this change in with git."
        )

    @classmethod
    def since_staged(cls, paths: Sequence[str]) -> "FileConflictError":
        """The error for paths that the branch has changed since a session brought them."""
        return cls(
            f"The branch has changed files that are no nodes and that this session brings: {_listed(paths)}. Nothing "
            "was committed and everything is still staged. RebaseSession with keep_conflicts rebases the session and "
            "keeps the branch's version of them."
        )


class UnreadableFilesError(FailedPreconditionError):
    """Their side changed files of nodes or archives so that they cannot be read."""

    reason = "UNREADABLE_FILES"

    @classmethod
    def of(cls, paths: Sequence[str]) -> "UnreadableFilesError":
        """The error for these paths."""
        return cls(
            f"The change to bring in has files that cannot be read as nodes: {_listed(paths)}. Nothing was written. "
            "ListFaults says what is wrong with those of a branch; mend or remove them there, and send the call again."
        )


@dataclass(frozen=True, slots=True)
class MergedEntry:
    """One entry that their side changed.

    Attributes:
        entry_id: The node or archive.
        entry: The merged entry; ``None`` if it is deleted. A field in conflict has our value.
        ours: The entry on our side; ``None`` if it is not alive there.
        conflicts: The fields that both sides changed differently.
        blobs: The files of the whole entry at the merge base and on their side; "" for a side that lacks it.
    """

    entry_id: str
    entry: Entry | None
    ours: Entry | None
    conflicts: tuple[Conflict, ...] = ()
    blobs: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class StateMerge:
    """What a merge does.

    Attributes:
        ours: The commit that is merged into.
        theirs: The commit that is merged.
        bases: Their merge bases, the newest first.
        changes: The entries that it changes on our side, or that conflict; by id.
        at_ours: The alive versions of these entries on our side, by id.
        tree_conflicts: Why the result would not be a tree.
        files: Files that are no entries and that only their side changed, with the new blob; ``None`` removes the file.
    """

    ours: str
    theirs: str
    bases: Sequence[str]
    changes: Sequence[MergedEntry] = ()
    at_ours: Mapping[str, Version] = field(default_factory=dict)
    tree_conflicts: Sequence[Conflict] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def conflicts(self) -> list[Conflict]:
        """Why it cannot be made: conflicts of fields, then those of the tree."""
        return [*(conflict for change in self.changes for conflict in change.conflicts), *self.tree_conflicts]

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
    renew: RenewSummary | None = None,
    selection: Selection | None = None,
) -> StateMerge:
    """Merge a commit into a state, without writing anything.

    Args:
        conn: Reads the mirror, which has both commits.
        entries: Reads entries.
        repository: The repository of the workspace.
        ours: The commit that is merged into, or a session.
        theirs: The commit that is merged.
        max_depth: The greatest depth of a node that gets another place; ``None`` for no limit.
        renew: Renews the summary of a node whose content is merged; without it, it is marked.
        selection: Which of their changes are brought; then files that are no entries stay out. All if ``None``.

    Raises:
        UnrelatedHistoriesError: They have no common ancestor.
        NoSuchChangeError: They have not changed a chosen node.
        IncompleteChoiceError: The chosen changes need others.
        FileConflictError: Both sides changed a file that is no entry.
        UnreadableFilesError: Their side changed a file of an entry that cannot be read.
        InvalidNodeError, InvalidArchiveError: A merged entry breaks a limit that each side kept.
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
    return await _Merging(conn, entries, repository, ours, theirs, bases, renew, selection).run(max_depth)


async def bring_difference(
    conn: Connection,
    entries: EntryReader,
    repository: CommitReader,
    ours: State,
    base: str,
    theirs: str,
    *,
    max_depth: int | None = None,
    renew: RenewSummary | None = None,
    selection: Selection | None = None,
    changed_by: str = "",
) -> StateMerge:
    """Bring what differs between two commits, ``base`` and ``theirs``, into a state.

    A selection looks at the versions of the commit ``changed_by``, or at theirs if that is empty. For the other
    arguments and the errors see `merge_states`.
    """
    return await _Merging(conn, entries, repository, ours, theirs, [base], renew, selection, changed_by).run(max_depth)


@dataclass(frozen=True, slots=True)
class _Merging:
    conn: Connection
    entries: EntryReader
    repository: CommitReader
    ours: State
    theirs: str
    bases: Sequence[str]
    renew: RenewSummary | None
    selection: Selection | None
    changed_by: str = ""

    async def run(self, max_depth: int | None) -> StateMerge:
        changed = ids = await self._changed()
        if self.selection:
            named = self._state(self.changed_by or self.theirs)
            ids = await select(self.conn, self.ours, named, changed, self.selection)
        before = await self._bases(self.bases, ids, 0)
        our_versions, ours = await self._alive(self.ours, ids)
        their_versions, theirs = await self._alive(self._state(self.theirs), ids)
        unlike = [one for one in ids if _blob(our_versions.get(one)) != _blob(their_versions.get(one))]
        compared = sum(_compared(before.get(one, ()), ours.get(one), theirs.get(one)) for one in unlike)

        def merge_all() -> list[MergedEntry]:
            found = [
                self._renewed(_merged(one, before.get(one, (None,)), ours.get(one), theirs.get(one))) for one in unlike
            ]
            for change in found:
                if change.entry != change.ours:
                    check_limits(change.entry)
            return found

        if compared > LONG_TEXT:
            merged = await in_comparison_thread(merge_all)
        else:
            merged = await in_store_thread_if(len(unlike) > _FEW, merge_all)
        changes = [change for change in merged if change.entry != change.ours or change.conflicts]
        written = {change.entry_id: change.entry for change in changes if change.entry != change.ours}
        around = Snapshot(self.conn, self.ours)
        others = await tree.versions(around, named_by(written).difference(ids))
        left_out = set(changed).difference(ids)
        checked = await check_tree(
            around, written, left_out, at_head={**our_versions, **others}, max_depth=max_depth, is_merge=True
        )
        if checked.missing:
            raise await self._incomplete(checked.missing)
        return StateMerge(
            self.ours.commit_id,
            self.theirs,
            self.bases,
            await self._with_blobs(changes, their_versions),
            {change.entry_id: our_versions[change.entry_id] for change in changes if change.entry_id in our_versions},
            checked.conflicts,
            {} if self.selection else await self._files(ids, their_versions),
        )

    def _renewed(self, change: MergedEntry) -> MergedEntry:
        if self.renew is None or not isinstance(change.entry, Node) or change.entry == change.ours:
            return change
        return replace(change, entry=self.renew(change.entry))

    def _state(self, commit_id: str) -> State:
        return State(self.ours.workspace_id, commit_id)

    async def _changed(self) -> list[str]:
        """The entries that differ between their side and any base."""
        found: set[str] = set()
        for base in self.bases:
            found.update(
                await history.differing(self.conn, self._state(base), self._state(self.theirs), limit=history.EVERY)
            )
        return sorted(found)

    async def _alive(self, state: State, ids: Sequence[str]) -> tuple[dict[str, Version], dict[str, Entry]]:
        """The versions and entries that are alive in a state, by id."""
        versions = await tree.versions(Snapshot(self.conn, state), ids)
        return versions, await entries_of(self.conn, self.entries, state, versions)

    async def _incomplete(self, missing: Sequence[MissingChange]) -> IncompleteChoiceError:
        ids = sorted({item.entry_id for item in missing})
        versions = await tree.versions(Snapshot(self.conn, self._state(self.theirs)), ids, dead=True)
        reasons = "; ".join(f"{item.entry_id}, for {item.why} {item.needed_by}" for item in missing[:_MOST_FILES_TOLD])
        error = IncompleteChoiceError(f"The choice would leave the tree broken. Choose as well: {reasons}.")
        error.nodes = [versions[entry_id] for entry_id in ids if entry_id in versions]
        return error

    async def _with_blobs(self, changes: Sequence[MergedEntry], theirs: Mapping[str, Version]) -> Sequence[MergedEntry]:
        """The changes, those with a conflict with the files of the whole entry."""
        whole = [change.entry_id for change in changes if change.conflicts]
        if not whole:
            return changes
        before = await tree.versions(Snapshot(self.conn, self._state(self.bases[0])), whole)
        blobs = {one: (_blob(before.get(one)), _blob(theirs.get(one))) for one in whole}
        return [replace(change, blobs=blobs.get(change.entry_id, ("", ""))) for change in changes]

    async def _bases(self, bases: Sequence[str], ids: Sequence[str], depth: int) -> dict[str, tuple[Entry | None, ...]]:
        """What each entry was at the base: one version, or several where the merge bases conflict.

        Args:
            bases: Merge bases, at least one.
            ids: The entries.
            depth: How many merges of merge bases this is for.
        """
        found: dict[str, tuple[Entry | None, ...]] = dict.fromkeys(ids, ())
        for base in bases:
            _, entries = await self._alive(self._state(base), ids)
            for one in ids:
                if entries.get(one) not in found[one]:
                    found[one] = (*found[one], entries.get(one))
        unlike = [one for one in ids if len(found[one]) > 1]
        if len(bases) != _TWO or not unlike or depth >= _DEEPEST:
            return found
        below = await merge_bases(self.conn, self.ours.workspace_id, *bases)
        before = await self._bases(below, unlike, depth + 1) if below else {}
        merged = await in_comparison_thread(lambda: {one: _joined(before.get(one, ()), *found[one]) for one in unlike})
        return found | merged

    async def _files(self, ids: Sequence[str], alive: Collection[str]) -> dict[str, str | None]:
        """The files that are no entries and that only their side changed, by path, the same from each merge base.

        Args:
            ids: The entries that were merged, whose files are not looked at.
            alive: Those of them that are alive on their side.
        """
        merged = set(ids)
        found = [await in_store_thread(self._file_changes, base, merged, alive) for base in self.bases]
        if not any(found):
            return {}
        # What is left is seldom much: an entry's file that only has another name, or a file that is no entry.
        named = {parsed[1] for changes in found for path in changes if (parsed := parse_path(path)) is not None}
        renamed = await tree.versions(Snapshot(self.conn, self._state(self.theirs)), sorted(named - merged))
        others = [
            {path: change for path, change in changes.items() if not _is_entry(path, renamed)} for changes in found
        ]
        unreadable = {
            path
            for changes in others
            for path, change in changes.items()
            if change.new_blob is not None and _is_among_entries(path)
        }
        if unreadable:
            raise UnreadableFilesError.of(sorted(unreadable))
        if not any(others):
            return {}
        ours = [await in_store_thread(self._our_blobs, base) for base in self.bases]
        taken = [_brought(their, our) for their, our in zip(others, ours, strict=True)]
        paths = {path for each in taken for path in each}
        results = {path: {each.get(path, _CLASH) for each in taken} for path in paths}
        clashing = [path for path, blobs in results.items() if _CLASH in blobs or len(blobs) > 1]
        if clashing:
            raise FileConflictError.of(sorted(clashing))
        return {path: blob for path, blob in taken[0].items() if not isinstance(blob, _Clash)}

    def _file_changes(self, base: str, merged: Collection[str], alive: Collection[str]) -> dict[str, PathChange]:
        """What their side changed, by path, without files of merged entries that can be read or are gone. Blocks."""
        found: dict[str, PathChange] = {}
        for change in self.repository.diff(base, self.theirs):
            parsed = parse_path(change.path)
            if parsed is None or parsed[1] not in merged or (change.new_blob is not None and parsed[1] not in alive):
                found[change.path] = change
        return found

    def _our_blobs(self, base: str) -> dict[str, str | None]:
        """What our side changed, by path. Blocks."""
        return {change.path: change.new_blob for change in self.repository.diff(base, self.ours.commit_id)}


class _Clash:
    """Stands for a file that both sides changed differently."""


_CLASH: Final = _Clash()


def _brought(theirs: Mapping[str, PathChange], ours: Mapping[str, str | None]) -> dict[str, str | _Clash | None]:
    """What their side's changes of files bring: the new blob, nothing where our side has it, or a clash."""
    found: dict[str, str | _Clash | None] = {}
    for path, change in theirs.items():
        our = ours.get(path, change.old_blob)
        if our == change.old_blob:
            found[path] = change.new_blob
        elif our != change.new_blob:
            found[path] = _CLASH
    return found


def _is_among_entries(path: str) -> bool:
    """Whether a file is where entries are."""
    return parse_path(path) is not None or ENTRY_PATHS.names(f"{path.rpartition('/')[0]}/") is not None


def _is_entry(path: str, alive: Mapping[str, Version]) -> bool:
    """Whether a file has the name of an entry that is alive."""
    parsed = parse_path(path)
    return parsed is not None and parsed[1] in alive


def _listed(paths: Sequence[str]) -> str:
    told = ", ".join(repr(path[:200]) for path in paths[:_MOST_FILES_TOLD])
    return told if len(paths) <= _MOST_FILES_TOLD else f"{told} and {len(paths) - _MOST_FILES_TOLD} more"


def _blob(version: Version | None) -> str:
    return "" if version is None else version.blob


def _joined(before: Sequence[Entry | None], one: Entry | None, other: Entry | None) -> tuple[Entry | None, ...]:
    """The merge of an entry at two merge bases; both its versions where that conflicts."""
    merged = [merge_entries(base, one, other) for base in before]
    if merged and all(not each.conflicts and each.entry == merged[0].entry for each in merged):
        return (merged[0].entry,)
    return one, other


def _compared(bases: Sequence[Entry | None], ours: Entry | None, theirs: Entry | None) -> int:
    """How many characters of contents are compared to merge an entry; 0 if one side alone changed its content."""
    if not isinstance(ours, Node) or not isinstance(theirs, Node):
        return 0
    texts = [base.content for base in bases if isinstance(base, Node)]
    if theirs.content == ours.content or all(text in (ours.content, theirs.content) for text in texts):
        return 0
    return len(ours.content) + len(theirs.content) + max(map(len, texts), default=0)


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
