"""The faults that a branch would get by a commit that is in Git, but not mirrored yet."""

from collections.abc import Mapping
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.conflicts import ArchiveValue, ChildValue, Conflict, ConflictKind
from memotree_storage.git.entry_files import entry_files
from memotree_storage.mirror.catch_up import changes_between
from memotree_storage.mirror.tree_check import check_tree
from memotree_storage.mirror.tree_faults import (
    MEND_FILE,
    NAME_TAKEN,
    TOO_DEEP,
    UNREADABLE,
    FaultRow,
    TreeFault,
    tell_fault,
)
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import projector, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.misplaced import CYCLE, NO_ARCHIVE, ORPHAN, OTHER_ARCHIVE
from memotree_storage.postgres.tree import Snapshot, State

_AT_ONCE: Final = 200
"""Commits that are looked up together."""

_KINDS: Final[Mapping[ConflictKind, str]] = {
    ConflictKind.PARENT_MOVED: OTHER_ARCHIVE,
    ConflictKind.CYCLE: CYCLE,
    ConflictKind.TOO_DEEP: TOO_DEEP,
}


async def state_behind(conn: Connection, workspace_id: str, repository: CommitReader, commit_id: str) -> State:
    """The nearest state behind a commit by first parents that is mirrored; an empty state, at no commit, if none is.

    Raises:
        ObjectMissingError: There is no such commit.
    """
    following: str | None = commit_id
    while following is not None:
        walked, following = await in_store_thread(_first_parents, repository, following)
        known = await projector.known_commits(conn, workspace_id, walked)
        found = next((one for one in walked if one in known), None)
        if found is not None:
            return State(workspace_id, found)
    return State(workspace_id, "")


def _first_parents(repository: CommitReader, commit_id: str) -> tuple[list[str], str | None]:
    """A commit and some first parents behind it, and the next one after those."""
    walked: list[str] = []
    at: str | None = commit_id
    while at is not None and len(walked) < _AT_ONCE:
        walked.append(at)
        at = next(iter(repository.commit_info(at).parents), None)
    return walked, at


async def push_faults(
    snapshot: Snapshot, repository: CommitReader, commit_id: str, *, max_depth: int | None, limit: int
) -> list[TreeFault]:
    """Return faults that come into a tree if a commit takes the place of its state.

    Faults that the state has already are not among them. Costs what differs between the two.

    Args:
        snapshot: The state, at a mirrored commit or at none.
        repository: The repository.
        commit_id: The commit.
        max_depth: The greatest depth of a node, a root having 0; ``None`` for no limit.
        limit: The most faults to return.

    Raises:
        ObjectMissingError: There is no such commit.
    """
    old = snapshot.state.commit_id or None
    changes, unreadable = await in_store_thread(changes_between, repository, old, commit_id)
    entries = {change.entry_id: change.entry for change in changes}
    found = [TreeFault(UNREADABLE, "", "", path, 0, why, MEND_FILE) for path, why in sorted(unreadable.items())[:limit]]
    checked = await check_tree(snapshot, entries, set(), max_depth=max_depth, is_merge=True)
    rows = [_row(conflict, entries) for conflict in checked.conflicts[: limit - len(found)]]
    before = await tree.versions(snapshot, [row.entry_id for row in rows if not row.title])
    rows = [row._replace(title=before[row.entry_id].title) if row.entry_id in before else row for row in rows]
    return found + await in_store_thread(_told, repository, commit_id, rows)


def _row(conflict: Conflict, entries: Mapping[str, Entry | None]) -> FaultRow:
    """What a conflict with the tree would be as a fault in it; without the title of an entry that is not changed."""
    entry_id = conflict.node_id
    entry = entries.get(entry_id)
    values = (conflict.ours, conflict.theirs)
    if conflict.kind is ConflictKind.HAS_CHILDREN:
        child = next(value.child_id for value in values if isinstance(value, ChildValue))
        was_archive = isinstance(conflict.base, ArchiveValue)
        kind = OTHER_ARCHIVE if entry is not None else NO_ARCHIVE if was_archive else ORPHAN
        return FaultRow(kind, child, "", "", entry_id)
    if isinstance(entry, Archive):
        others = [value.id for value in values if isinstance(value, ArchiveValue) and value.id != entry_id]
        return FaultRow(NAME_TAKEN, entry_id, entry.name, "", next(iter(others), ""))
    assert isinstance(entry, Node)  # noqa: S101 - all other conflicts with a tree are of nodes that it gets
    above = entry.parent_id or entry.archive_id
    kind = _KINDS.get(conflict.kind, ORPHAN if entry.parent_id else NO_ARCHIVE)
    return FaultRow(kind, entry_id, entry.title, "", above)


def _told(repository: CommitReader, commit_id: str, rows: list[FaultRow]) -> list[TreeFault]:
    files = entry_files(repository, commit_id, sorted({row.entry_id for row in rows}))
    blobs = {entry_id: found[0].blob for entry_id, found in files.items() if found}
    return [tell_fault(repository, commit_id, row._replace(blob=blobs.get(row.entry_id, ""))) for row in rows]
