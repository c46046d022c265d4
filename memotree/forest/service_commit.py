"""A commit of the service itself on a branch, past sessions: entries before and after, checked and told of."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.model import trailers
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.validation import canonical_node, check_archive, check_node
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.refs import BRANCHES
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.request.limits import ServiceLimits


@dataclass(frozen=True, slots=True)
class Change:
    """One entry before and after; ``None`` is not there. The version says which blob it must still have."""

    before: Version | None
    after: Entry | None
    was: Entry | None = None


@dataclass(frozen=True, slots=True)
class Changeset:
    """What one commit of the service changes, and how it is told.

    Attributes:
        changes: Every entry that changes, by id.
        message: Its first line is the subject.
        tool: The operation behind it.
        job_id: The job behind it, or "".
        author: Its author; the service itself when ``None``.
    """

    changes: Mapping[str, Change]
    message: str
    tool: str
    job_id: str = ""
    author: Signature | None = None


async def branch_head(conn: Connection, workspace_id: str, branch: str) -> State:
    """The state at the head of a branch.

    Raises:
        BranchNotFoundError: There is no such branch.
    """
    found = await refs.find_ref(conn, workspace_id, BRANCHES, branch)
    if found is None:
        raise BranchNotFoundError(branch)
    return State(workspace_id, found.commit_id)


async def commit(store: Store, workspace_id: str, branch: str, changeset: Changeset, limits: ServiceLimits) -> str:
    """Commit a changeset on the head of a branch; the id of the commit is returned.

    Raises:
        ImportRacedError: An entry is not any more as it was read; nothing was committed.
        InvalidNodeError: An entry breaks a rule.
    """
    changes = changeset.changes
    entries, message = await asyncio.to_thread(_prepared, changeset, limits)
    return await commit_entries(
        store,
        workspace_id,
        branch,
        entries,
        message,
        changeset.author,
        removals=[entry_id for entry_id, change in changes.items() if change.after is None],
        expected={entry_id: change.before.blob if change.before else None for entry_id, change in changes.items()},
    )


def _prepared(changeset: Changeset, limits: ServiceLimits) -> tuple[Sequence[Entry], str]:
    entries = [_checked(change.after, limits) for change in changeset.changes.values() if change.after is not None]
    listed = [ListedChange(_was(change), change.after) for change in changeset.changes.values()]
    return entries, compose(changeset.message, listed, {trailers.TOOL: changeset.tool, trailers.JOB: changeset.job_id})


def _was(change: Change) -> Entry | None:
    if change.was is not None or change.before is None:
        return change.was
    return change.before.to_archive() if change.before.is_archive else change.before.to_node()


def _checked(entry: Entry, limits: ServiceLimits) -> Entry:
    if isinstance(entry, Archive):
        check_archive(entry, limits.node)
        return entry
    node: Node = canonical_node(entry)
    check_node(node, limits.node, limits.types)
    return node
