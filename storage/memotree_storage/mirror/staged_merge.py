"""Merging staged changes onto another state: three ways, per node and field, from the blob each was derived from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memotree_storage.concurrency.threads import LONG_BYTES, LONG_TEXT, in_comparison_thread, in_store_thread_if
from memotree_storage.conflicts import Absence, Conflict, ConflictKind
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.tree_check import TreeCheckResult, check_tree, named_by
from memotree_storage.model.codec import READ_LIMITS
from memotree_storage.model.field_values import entry_value, field_value, is_same_value
from memotree_storage.model.merge import deleted_and_changed, merge_entries
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import archive_path, node_path
from memotree_storage.model.validation import check_archive, check_node
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.session_conflicts import (
    SessionConflict,
    add_conflicts,
    conflicts_of,
    end_conflicts,
    set_tree_conflicts,
)
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot, State

_FEW: Final = 50
"""More staged changes are merged in a thread, so that other calls can run."""


RenewSummary = Callable[[Node], Node]
"""Gives a merged node whose generated summary is not of its content another one; leaves every other node as it is."""


@dataclass(frozen=True, slots=True)
class MergedChange:
    """One staged change on a new base.

    Attributes:
        row: The staged change.
        entry: The merged entry; ``None`` if it is deleted.
        theirs: The entry on the new base; ``None`` if it is not alive there.
        theirs_blob: Its blob.
        conflicts: The fields that both sides changed.
    """

    row: Staged
    entry: Entry | None
    theirs: Entry | None
    theirs_blob: str | None
    conflicts: tuple[Conflict, ...] = ()

    @property
    def is_merged(self) -> bool:
        """Whether the new base has another version than the change was derived from."""
        return self.theirs_blob != self.row.derived_blob


@dataclass(slots=True)
class MergedChanges:
    """Staged changes on a new base.

    Attributes:
        merged: The changes.
        at_head: The alive versions of their entries there, by id.
        around: The same, with those of the nodes and archives that the entries are staged in.
        looked_for: All ids of which ``around`` would have an alive version.
    """

    merged: list[MergedChange] = field(default_factory=list)
    at_head: Mapping[str, Version] = field(default_factory=dict)
    around: Mapping[str, Version] = field(default_factory=dict)
    looked_for: Collection[str] = frozenset()

    @property
    def is_much(self) -> bool:
        """Whether a computation over all changes belongs into a thread."""
        return _is_much([item.row for item in self.merged])

    @property
    def conflicts(self) -> list[Conflict]:
        """The conflicts of all changes."""
        return [conflict for item in self.merged for conflict in item.conflicts]


async def merge_onto(
    snapshot: Snapshot, entries: EntryReader, rows: Sequence[Staged], *, brings: bool = False
) -> MergedChanges:
    """Merge staged changes onto a state. A change is taken unchanged if its entry is as it was derived from there.

    In a session that ``brings`` a merge or pick, the branch is "ours", as in the merge: a field in conflict gets its
    value.
    """
    # What the check of the tree needs as well, so that it has nothing left to read as a rule.
    looked_for = {row.entry_id for row in rows}
    for row in rows:
        if not row.version.dead:
            looked_for.update({row.version.parent_id, row.version.archive_id} - {""})
    around = await tree.versions(snapshot, looked_for)
    at_head = {row.entry_id: around[row.entry_id] for row in rows if row.entry_id in around}
    theirs = await entries.load(snapshot.state.workspace_id, list(at_head.values()))
    wanted = {
        row.derived_blob: path_of(row)
        for row in rows
        if row.derived_blob and row.derived_blob != _blob(at_head.get(row.entry_id))
    }
    bases = await entries.read(snapshot.state.workspace_id, wanted)
    both = [row for row in rows if row.derived_blob in bases]

    def merge_all() -> list[MergedChange]:
        return [_merge(row, at_head.get(row.entry_id), theirs, bases, brings=brings) for row in rows]

    if sum(len(row.data) for row in both) > LONG_TEXT:
        merged = await in_comparison_thread(merge_all)
    else:
        merged = await in_store_thread_if(_is_much(rows), merge_all)
    return MergedChanges(merged, at_head, around, looked_for)


async def check_merged(
    snapshot: Snapshot,
    merging: MergedChanges,
    left_out: set[str],
    max_depth: int | None,
    *,
    is_merge: bool = False,
) -> TreeCheckResult:
    """Check that merged changes leave a tree on the state that they were merged onto; see `check_tree`."""
    entries: dict[str, Entry | None] = {item.row.entry_id: item.entry for item in merging.merged}
    others = await tree.versions(snapshot, named_by(entries).difference(merging.looked_for))
    return await check_tree(
        snapshot, entries, left_out, at_head={**merging.around, **others}, max_depth=max_depth, is_merge=is_merge
    )


def with_renewed_summaries(merging: MergedChanges, renew: RenewSummary) -> MergedChanges:
    """The same with the summaries of merged contents renewed. Blocks."""
    merged = [
        replace(item, entry=renew(item.entry)) if isinstance(item.entry, Node) and item.is_merged else item
        for item in merging.merged
    ]
    return MergedChanges(merged, merging.at_head, merging.around, merging.looked_for)


def _is_much(rows: Sequence[Staged]) -> bool:
    return len(rows) > _FEW or sum(len(row.data) for row in rows) > LONG_BYTES


def _merge(
    row: Staged,
    at_head: Version | None,
    theirs: Mapping[str, Entry],
    bases: Mapping[str, Entry],
    *,
    brings: bool,
) -> MergedChange:
    ours, blob = row.entry, _blob(at_head)
    other = theirs[blob] if blob else None
    if blob == row.derived_blob:
        return MergedChange(row, ours, other, blob)
    base = bases[row.derived_blob] if row.derived_blob else None
    result = merge_entries(base, ours, other)
    if brings and any(conflict.field for conflict in result.conflicts):
        result = merge_entries(base, other, ours)
    return MergedChange(row, result.entry, other, blob, result.conflicts)


def _blob(version: Version | None) -> str | None:
    return version.blob if version else None


def path_of(row: Staged) -> str:
    """A path of the entry of a staged change, which its decoder needs."""
    return archive_path(row.entry_id) if row.version.is_archive else node_path(row.entry_id)


def check_limits(entry: Entry | None) -> None:
    """Check the limits of merged entries: each side alone keeps them, but the merge may exceed them."""
    if isinstance(entry, Archive):
        check_archive(entry)
    elif entry is not None:
        check_node(entry, READ_LIMITS)


def _found_by(merging: MergedChanges, *, brings: bool) -> list[SessionConflict]:
    """The conflicts of values of merged changes, as the session keeps them."""
    found: list[SessionConflict] = []
    for item in merging.merged:
        for conflict in item.conflicts:
            of_branch = not (brings and conflict.field)
            blobs = (item.row.derived_blob or "", item.theirs_blob or "") if of_branch else ("", "")
            found.append(SessionConflict(conflict, 0, *blobs, of_branch=of_branch))
    return found


async def restage_merged(conn: Connection, session_id: str, merging: MergedChanges, *, brings: bool) -> None:
    """Base the staged changes of a session on the state that they were merged onto.

    A field in conflict keeps our value (see `merge_onto`), and the conflict is noted. So nothing of either side is
    lost, and what is chosen later is merged already.
    """
    for item in merging.merged:
        if item.is_merged:
            await staging.restage(conn, session_id, item.row, item.entry, item.theirs_blob)
    await add_conflicts(conn, session_id, _found_by(merging, brings=brings))


async def carry_over(
    snapshot: Snapshot, entries: EntryReader, session_id: str, max_depth: int | None = None, *, brings: bool = False
) -> list[Conflict]:
    """Rebase what is still staged in a session onto its new base, and note what does not fit there.

    Args:
        snapshot: The new base; the session has it as its base already.
        entries: Reads entries.
        session_id: The session, which the transaction holds.
        max_depth: The greatest depth of a node, if there is a limit.
        brings: Whether the session brings a merge or pick.

    Returns:
        Why some changes do not fit: others may have changed what they change, or deleted what they stand below.
    """
    rows = await staging.staged(snapshot.conn, session_id)
    merging = await merge_onto(snapshot, entries, rows, brings=brings)
    await restage_merged(snapshot.conn, session_id, merging, brings=brings)
    await refresh_conflicts(snapshot, entries, session_id)
    return [*merging.conflicts, *await recheck_tree(snapshot, session_id, max_depth, is_merge=brings)]


async def refresh_conflicts(base: Snapshot, entries: EntryReader, session_id: str) -> None:
    """Bring the conflicts of values of a session up to date after its base has moved.

    Our value is the one that the session has now, and that of the branch, where it is their side, the one that the
    base has. A conflict ends when both sides are the same. Of an entry that the branch has deleted meanwhile, one
    conflict is left, about the whole of it.
    """
    conn, workspace_id = base.conn, base.state.workspace_id
    kept = await conflicts_of(conn, session_id, of_values=True)
    if not kept:
        return
    ids = {one.conflict.node_id for one in kept}
    state = State(workspace_id, base.state.commit_id, session_id)
    versions = await tree.versions(Snapshot(conn, state), ids, dead=True)
    alive = {one: version for one, version in versions.items() if not version.dead}
    present = await entries_of(conn, entries, state, alive)
    at_base = await tree.versions(base, ids)
    branch = await entries_of(conn, entries, base.state, at_base)
    ended: list[tuple[str, int]] = []
    changed: dict[tuple[str, str], SessionConflict] = {}
    for one in kept:
        entry_id = one.conflict.node_id
        version = versions.get(entry_id)
        if one.of_branch:
            blob = at_base[entry_id].blob if entry_id in at_base else ""
            fresh = _with_branch(replace(one, their_blob=blob), present.get(entry_id), branch.get(entry_id))
        elif entry_id in present:
            fresh = _with_ours(one, present[entry_id])
        else:
            is_archive = version is not None and version.is_archive
            fresh = await _deleted_meanwhile(entries, workspace_id, one, is_archive=is_archive)
        if fresh is None:
            ended.append((entry_id, one.number))
        elif fresh != one:
            if fresh.conflict.field != one.conflict.field:
                ended.append((entry_id, one.number))
            changed[entry_id, fresh.conflict.field] = fresh
    await end_conflicts(conn, session_id, ended)
    await add_conflicts(conn, session_id, list(changed.values()))


def _with_branch(one: SessionConflict, entry: Entry | None, branch: Entry | None) -> SessionConflict | None:
    """A conflict of the session with the branch, with the values of both; ``None`` if they are the same."""
    conflict = one.conflict
    if not conflict.field:
        if (entry is None) == (branch is None):
            return None if entry == branch else one
        sides = [Absence.DELETED if side is None else entry_value(side) for side in (entry, branch)]
        return replace(one, conflict=replace(conflict, ours=sides[0], theirs=sides[1]))
    if entry is None or branch is None:
        return None  # one conflict about the whole of it is noted, or both are gone
    ours, theirs = (field_value(side, conflict.field) for side in (entry, branch))
    return None if is_same_value(ours, theirs) else replace(one, conflict=replace(conflict, ours=ours, theirs=theirs))


def _with_ours(one: SessionConflict, entry: Entry) -> SessionConflict | None:
    """A conflict with something that was brought, with the value that the session has; ``None`` if it is the same."""
    conflict = one.conflict
    if conflict.field:
        ours = field_value(entry, conflict.field)
        return None if is_same_value(ours, conflict.theirs) else replace(one, conflict=replace(conflict, ours=ours))
    if conflict.ours is Absence.DELETED:
        described = replace(conflict, ours=entry_value(entry), kind=ConflictKind.BOTH_CHANGED)
        return replace(one, conflict=described)
    return one


async def _deleted_meanwhile(
    entries: EntryReader, workspace_id: str, one: SessionConflict, *, is_archive: bool
) -> SessionConflict | None:
    """The conflict about an entry that our side has deleted; ``None`` if their side lacks it, too."""
    if one.conflict.ours is Absence.DELETED or not one.their_blob:
        return one if one.conflict.theirs is not Absence.DELETED and one.their_blob else None
    entry_id = one.conflict.node_id
    path = archive_path(entry_id) if is_archive else node_path(entry_id)
    try:
        read = await entries.read(workspace_id, {blob: path for blob in (one.base_blob, one.their_blob) if blob})
    except (NotFoundError, InvalidInputError):  # its branch was rewound or deleted
        return one
    theirs = read[one.their_blob]
    start = read.get(one.base_blob, theirs)
    return replace(one, conflict=deleted_and_changed(start, None, theirs).conflicts[0])


async def recheck_tree(
    base: Snapshot, session_id: str, max_depth: int | None = None, *, is_merge: bool = False
) -> list[Conflict]:
    """Note anew which staged changes of a session leave no tree on its base; return these conflicts.

    Args:
        base: The base of the session, which the transaction holds.
        session_id: The session.
        max_depth: The greatest depth of a node, if there is a limit.
        is_merge: Whether the session merges another commit; see `check_tree`.
    """
    rows = await staging.staged(base.conn, session_id, data=False)
    entries = await in_store_thread_if(len(rows) > _FEW, _shells, rows)
    checked = await check_tree(base, entries, set(), max_depth=max_depth, is_merge=is_merge)
    await set_tree_conflicts(base.conn, session_id, checked.conflicts)
    return checked.conflicts


def _shells(rows: Sequence[Staged]) -> dict[str, Entry | None]:
    """The staged entries without their contents."""
    found: dict[str, Entry | None] = {}
    for row in rows:
        shell = row.version.to_archive() if row.version.is_archive else row.version.to_node()
        found[row.entry_id] = None if row.version.dead else shell
    return found


async def entries_of(
    conn: Connection, entries: EntryReader, state: State, versions: Mapping[str, Version]
) -> dict[str, Entry]:
    """The entries of versions that are alive in a state, by id: committed ones, or staged ones of its session."""
    committed = [version for version in versions.values() if version.commit_id is not None]
    read = await entries.load(state.workspace_id, committed)
    found = {version.entry_id: read[version.blob] for version in committed}
    if state.session_id is not None and len(committed) < len(versions):
        rows = await staging.staged(conn, state.session_id, ids=versions.keys() - found.keys())
        found |= {row.entry_id: entry for row in rows if (entry := row.entry) is not None}
    return found
