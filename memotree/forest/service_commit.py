"""Commits changes of the service itself to a branch, without a session; checks the entries and writes the message."""

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
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.request.limits import ServiceLimits


@dataclass(frozen=True, slots=True)
class Change:
    """One entry before and after the commit; ``None`` if it does not exist then.

    The commit is refused if the entry no longer has the blob of ``before``. ``was`` is the entry before with its
    content, for the commit message; without it, the message is made from the version.
    """

    before: Version | None
    after: Entry | None
    was: Entry | None = None


@dataclass(frozen=True, slots=True)
class Changeset:
    """The changes of one commit of the service, and its message.

    Attributes:
        changes: Every entry that changes, by id.
        message: The commit message; its first line is the subject.
        tool: The operation that makes the commit.
        job_id: The id of the job that makes the commit, or ``""``.
        author: The author; the service itself if ``None``.
        agent: The name of the agent that it was made for, or ``""``.
        is_derived: Whether it only renews what follows from other commits, so that a protected branch takes it.
    """

    changes: Mapping[str, Change]
    message: str
    tool: str
    job_id: str = ""
    author: Signature | None = None
    agent: str = ""
    is_derived: bool = False


async def branch_head(conn: Connection, workspace_id: str, branch: str) -> State:
    """Returns the state at the head of a branch.

    Raises:
        BranchNotFoundError: If there is no such branch.
    """
    head = await refs.branch_head(conn, workspace_id, branch)
    if head is None:
        raise BranchNotFoundError(branch)
    return head


async def commit(store: Store, workspace_id: str, branch: str, changeset: Changeset, limits: ServiceLimits) -> str:
    """Commits a changeset to the head of a branch and returns the id of the commit.

    Raises:
        ImportRacedError: If an entry has changed since it was read; nothing is committed.
        InvalidNodeError: If an entry is invalid.
    """
    entries, message, removals, expected = await asyncio.to_thread(_prepared, changeset, limits)
    return await commit_entries(
        store,
        workspace_id,
        branch,
        entries,
        message,
        changeset.author,
        removals=removals,
        expected=expected,
        passes_protection=changeset.is_derived,
    )


def _prepared(
    changeset: Changeset, limits: ServiceLimits
) -> tuple[Sequence[Entry], str, list[str], dict[str, str | None]]:
    """The checked entries, the message, the ids of the entries to remove, and the blob before of each entry."""
    changes = changeset.changes
    entries = [_checked(change.after, limits) for change in changeset.changes.values() if change.after is not None]
    listed = [ListedChange(_was(change), change.after) for change in changeset.changes.values()]
    told = {trailers.AGENT: changeset.agent, trailers.TOOL: changeset.tool, trailers.JOB: changeset.job_id}
    removals = [entry_id for entry_id, change in changes.items() if change.after is None]
    expected = {entry_id: change.before.blob if change.before else None for entry_id, change in changes.items()}
    return entries, compose(changeset.message, listed, told), removals, expected


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
