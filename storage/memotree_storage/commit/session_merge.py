"""Bringing another state into a session: a merge, revert or cherry-pick whose conflicts are resolved there.

What merges by itself is staged. A field in conflict keeps the value that the session has, and the conflict is noted.
The next commit of the session is the merge commit.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.mirror.staged_merge import recheck_tree
from memotree_storage.mirror.state_merge import FileConflictError, StateMerge
from memotree_storage.ports import CommitReader, FileContent
from memotree_storage.postgres import sessions, staging, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.session_conflicts import SessionConflict, add_conflicts, conflicts_of
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Edit, blob_id
from memotree_storage.postgres.tree import Snapshot

FileChanges = Mapping[str, tuple[str | None, str | None]]
"""Files that are no entries, by path: the blobs before and after; ``None`` if there is none."""

_MOST_FILES: Final = 10_000


class SessionMergesError(FailedPreconditionError):
    """The session merges another commit already."""

    reason = "SESSION_MERGES"

    def __init__(self, session: Session) -> None:
        super().__init__(
            f"Session {session.session_id} merges commit {session.merged} already. Commit or discard it first, or "
            "merge in another session."
        )


class UnresolvedConflictsError(FailedPreconditionError):
    """The session has conflicts that are not resolved."""

    reason = "UNRESOLVED_CONFLICTS"

    def __init__(self, session: Session) -> None:
        super().__init__(
            f"Session {session.session_id} has conflicts that are not resolved. Resolve them first (ListConflicts, "
            "ResolveConflicts), or bring this into another session."
        )


class TooManyFilesError(FailedPreconditionError):
    """Their side changed too many files that are no entries."""

    reason = "TOO_MANY_FILES"


async def stage_merge(
    conn: Connection,
    repository: CommitReader,
    session: Session,
    merge: StateMerge,
    *,
    tool: str,
    message: str,
    merged: str | None,
    max_depth: int | None,
) -> int:
    """Stage a merge into a session, in a transaction that holds it.

    Args:
        conn: In that transaction.
        repository: The repository of the workspace.
        session: The session.
        merge: The merge, whose side "ours" is the session.
        tool: The tool that brings it.
        message: Why each entry changes.
        merged: The second parent of the session's next commit; ``None`` for none.
        max_depth: The greatest depth of a node, if there is a limit.

    Returns:
        How many conflicts the session has now.

    Raises:
        SessionMergesError: It merges another commit.
        UnresolvedConflictsError: It has conflicts.
        FileConflictError: It brings a file that the session brings with another content already.
        TooManyFilesError: There are too many such files.
    """
    if merged is not None and session.merged is not None:
        raise SessionMergesError(session)
    if session.has_conflicts:
        kept = await conflicts_of(conn, session.session_id, of_values=True)
        in_conflict = {one.conflict.node_id for one in kept}
        if kept and (merged is not None or any(change.entry_id in in_conflict for change in merge.changes)):
            raise UnresolvedConflictsError(session)
    files = await in_store_thread(_with_files, repository, session, merge)
    before = await _before(Snapshot(conn, session.tree), merge)
    edits = [Edit(change.entry, before.get(change.entry_id), message, tool) for change in merge.changed]
    await staging.stage(conn, session, edits)
    found = [
        SessionConflict(conflict, base_blob=change.blobs[0], their_blob=change.blobs[1])
        for change in merge.changes
        for conflict in change.conflicts
    ]
    await add_conflicts(conn, session.session_id, found)
    merged = session.merged if merged is None else merged
    await sessions.set_merged(conn, session.session_id, merged, files)
    base = Snapshot(conn, session.base)
    tree_conflicts = await recheck_tree(base, session.session_id, max_depth, is_merge=True)
    return len(found) + len(tree_conflicts)


async def _before(snapshot: Snapshot, merge: StateMerge) -> dict[str, Version]:
    """The versions that the session has of what changes: alive ones, and staged deletions."""
    found = dict(merge.at_ours)
    missing = [change.entry_id for change in merge.changed if change.entry_id not in found]
    dead = await tree.versions(snapshot, missing, dead=True)
    return found | {entry_id: version for entry_id, version in dead.items() if version.commit_id is None}


def _with_files(repository: CommitReader, session: Session, merge: StateMerge) -> FileChanges:
    """The files that the session brings, and those of the merge. Blocks."""
    if len(session.files) + len(merge.files) > _MOST_FILES:
        message = f"The other side changed more than {_MOST_FILES} files that are no nodes. Merge it with git."
        raise TooManyFilesError(message)
    files = dict(session.files)
    clashes = [path for path in merge.files if path in files and files[path][1] != merge.files[path]]
    if clashes:
        raise FileConflictError.of(clashes)
    for path, after in merge.files.items():
        files.setdefault(path, (_blob_at(repository, session.base_commit, path), after))
    return files


def files_at(repository: CommitReader, files: FileChanges, head: str) -> dict[str, FileContent | None]:
    """What a commit on ``head`` writes of the files that a session brings. Blocks.

    Raises:
        FileConflictError: The branch has changed some of them meanwhile.
    """
    found: dict[str, FileContent | None] = {}
    clashes: list[str] = []
    for path, (before, after) in files.items():
        present = _blob_at(repository, head, path)
        if present not in (before, after):
            clashes.append(path)
        elif present != after:
            found[path] = None if after is None else partial(repository.read_blob, after)
    if clashes:
        raise FileConflictError.since_staged(sorted(clashes))
    return found


def fitting_files(repository: CommitReader, files: FileChanges, head: str) -> FileChanges:
    """Those of the files that a session brings which ``head`` has not changed otherwise. Blocks."""
    return {path: sides for path, sides in files.items() if _blob_at(repository, head, path) in tuple(sides)}


def _blob_at(repository: CommitReader, commit_id: str, path: str) -> str | None:
    data = repository.read_path(commit_id, path)
    return None if data is None else blob_id(data)
