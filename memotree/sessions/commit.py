"""A commit, step by step (the order is what makes it safe to die anywhere).

1. Claim the request id; hold the workspace and the session. A repeat of the request ends here with the first result.
2. Merge the chosen changes onto the head of the branch, and check that the result is a tree.
3. Write the pack and move the ref by compare and swap. From here the call has succeeded, and is not cancelled any more.
4. In the transaction that has been open since step 1: mirror the commit, settle the session, keep the result.
5. Make the tag, tell the indexer.

Dying before the ref moves changes nothing. Dying after it leaves a mirror that is behind; the start brings it up to
date from the trailers of the commit: it settles the session, keeps the request id, and makes the tag.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from memotree_storage import faults
from memotree_storage.commit.tree_check import MissingChange, check_tree
from memotree_storage.concurrency.cancellation import CommitPoint
from memotree_storage.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidInputError,
    NotFoundError,
)
from memotree_storage.git.refs import RefNameTakenError
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.catch_up import catch_up_within, is_behind
from memotree_storage.model import trailers
from memotree_storage.model.codec import READ_LIMITS, encode_entry, entry_path
from memotree_storage.model.node import Archive, Entry
from memotree_storage.model.validation import check_archive, check_node, check_text
from memotree_storage.ports import CommitDraft, Signature, TagDraft, WrittenCommit
from memotree_storage.postgres import projector, staging, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.projector import EntryChange
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.request.naming import BRANCHES, TAGS, ConfusingNameError, TagExistsError
from memotree.sessions.commit_message import ListedChange, compose
from memotree.sessions.rebase import ConflictError, MergedChange, carry_over, merge_onto

_ATTEMPTS: Final = 8
_MESSAGE_BYTES: Final = 64 << 10
_log = structlog.get_logger(__name__)


class NothingToCommitError(FailedPreconditionError):
    """The session (or the choice) has no changes."""

    reason = "NOTHING_TO_COMMIT"


class BranchGoneError(FailedPreconditionError):
    """The branch of the session was deleted, or deleted and created again."""

    reason = "BRANCH_GONE"


class IncompleteChoiceError(FailedPreconditionError):
    """The chosen changes need others of the session; ``nodes`` has those that are missing."""

    reason = "INCOMPLETE_CHOICE"
    nodes: Sequence[object] = ()


class ChangeNotFoundError(NotFoundError):
    """A chosen node has no staged change."""

    reason = "CHANGE_NOT_FOUND"


class BranchBusyError(AbortedError):
    """The branch kept moving; nothing was written."""

    reason = "BRANCH_BUSY"


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """What a caller wants committed: an empty choice is everything, an empty tag is none."""

    message: str
    author: Signature
    committer: Signature
    choice: Sequence[str] = ()
    tag: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit gave."""

    commit_id: str
    branch: str
    tag: str
    changes: int
    remaining: int
    warnings: tuple[str, ...] = ()


class Commit:
    """One commit of a session's changes, inside the transaction that holds the workspace and the session."""

    def __init__(
        self, conn: Connection, store: Store, session: Session, order: CommitOrder, commit_point: CommitPoint
    ) -> None:
        self._conn = conn
        self._store = store
        self._workspace_id = session.workspace_id
        self._session = session
        self._order = order
        self._ref = f"refs/heads/{session.branch}"
        self._at_head: Mapping[str, Version] = {}
        self._passage = commit_point

    async def run(self) -> CommitResult:
        """Make the commit.

        Raises:
            NothingToCommitError: There are no changes.
            BranchGoneError: The session's branch is not there any more.
            TagExistsError: The tag is there already.
            ConfusingNameError: A branch has the name of the tag.
            IncompleteChoiceError: The choice would leave an orphan.
            ConflictError: The branch moved and both sides changed the same field.
        """
        repository = await asyncio.to_thread(self._store.repositories.get, self._workspace_id)
        for _ in range(_ATTEMPTS):
            if await is_behind(self._conn, self._workspace_id, repository):
                await catch_up_within(self._conn, self._workspace_id, repository)
            head = await self._head()
            await self._check_tag()
            rows, left_out = await self._choose()
            faults.point("commit.frozen")
            merged = await self._merge(head, rows, left_out)
            faults.point("commit.merged")
            written = await asyncio.to_thread(repository.write_commit, self._draft(head, merged))
            faults.point("commit.before-swap")
            self._passage.reached = True
            if await asyncio.to_thread(repository.move_ref, self._ref, head.commit_id, written.commit_id):
                return await self._finish(repository, written, merged)
            self._passage.reached = False
        raise BranchBusyError(
            f"Branch {self._session.branch} moved {_ATTEMPTS} times while this commit was made; nothing was written. "
            "Send the call again."
        )

    async def _head(self) -> State:
        cursor = await self._conn.execute(
            "select commit_id from mirror.ref where workspace_id = %s and name = %s", (self._workspace_id, self._ref)
        )
        row = await cursor.fetchone()
        if row is None:
            raise BranchGoneError(
                f"Branch {self._session.branch} was deleted. The staged changes can still be read; open a session on "
                "another branch and make them there."
            )
        return State(self._workspace_id, row[0])

    async def _check_tag(self) -> None:
        if not self._order.tag:
            return
        ref, branch = TAGS + self._order.tag, BRANCHES + self._order.tag
        cursor = await self._conn.execute(
            "select name from mirror.ref where workspace_id = %(workspace)s and (name in (%(ref)s, %(branch)s)"
            " or starts_with(name, %(ref)s || '/') or starts_with(%(ref)s, name || '/')) order by name desc limit 1",
            {"workspace": self._workspace_id, "ref": ref, "branch": branch},
        )
        found = await cursor.fetchone()
        if found and found[0] == ref:
            raise TagExistsError(self._order.tag)
        if found and found[0] == branch:
            raise ConfusingNameError.taken(self._order.tag, branch, "tag_name")
        if found:
            raise RefNameTakenError(
                f"Tag {self._order.tag!r} can't be made while {found[0]} exists, since one would be a folder of the "
                "other; nothing was committed. Choose another name."
            )

    async def _choose(self) -> tuple[list[Staged], set[str]]:
        rows = await staging.staged(self._conn, self._session.session_id)
        if not rows:
            raise NothingToCommitError("The session has no changes. Change a node first.")
        if not self._order.choice:
            return rows, set()
        chosen = set(self._order.choice)
        check_chosen(chosen, {row.entry_id for row in rows})
        return [row for row in rows if row.entry_id in chosen], {row.entry_id for row in rows} - chosen

    async def _merge(self, head: State, rows: list[Staged], left_out: set[str]) -> list[MergedChange]:
        merging = await merge_onto(Snapshot(self._conn, head), self._store, rows)
        self._at_head = merging.at_head
        entries: dict[str, Entry | None] = {item.row.entry_id: item.entry for item in merging.merged}
        verdict = await check_tree(Snapshot(self._conn, head), entries, left_out)
        if verdict.missing:
            raise await self._incomplete(verdict.missing)
        conflicts = [*merging.conflicts, *verdict.conflicts]
        if conflicts:
            raise ConflictError.of(conflicts)
        effective = [item for item in merging.merged if _changes_something(item)]
        if not effective:
            raise NothingToCommitError("The branch has all changes of the session already. Rebase or discard it.")
        for item in effective:
            if item.theirs_blob != item.row.derived_blob:
                _check_merged(item.entry)
        return merging.merged

    async def _incomplete(self, missing: list[MissingChange]) -> IncompleteChoiceError:
        ids = sorted({item.entry_id for item in missing})
        versions = await tree.versions(Snapshot(self._conn, self._session.tree), ids, dead=True)
        reasons = "; ".join(f"{item.entry_id}, for {item.why} {item.needed_by}" for item in missing[:10])
        error = IncompleteChoiceError(f"The choice would leave the tree broken. Choose as well: {reasons}.")
        error.nodes = [versions[entry_id] for entry_id in ids if entry_id in versions]
        return error

    def _draft(self, head: State, merged: list[MergedChange]) -> CommitDraft:
        order = self._order
        effective = [item for item in merged if _changes_something(item)]
        listed = [ListedChange(item.theirs, item.entry, item.row.messages) for item in effective]
        tools = sorted({tool for item in effective for tool in item.row.tools})
        message = compose(
            order.message,
            listed,
            {
                trailers.SESSION: self._session.session_id,
                trailers.AGENT: self._session.agent,
                trailers.TOOL: ", ".join(tools),
                trailers.REQUEST: order.request_id,
                trailers.TAG: order.tag,
            },
        )
        changes: dict[str, bytes | None] = {}
        for item in effective:
            shell = item.entry or item.theirs
            if shell is not None:
                changes[entry_path(shell)] = None if item.entry is None else encode_entry(item.entry)
        tag = _tag_draft(order) if order.tag else None
        return CommitDraft(head.commit_id, changes, message, order.author, order.committer, tag)

    async def _finish(
        self, repository: GitRepository, written: WrittenCommit, merged: list[MergedChange]
    ) -> CommitResult:
        faults.point("commit.swapped")
        changes = [_entry_change(item, written) for item in merged if _changes_something(item)]
        self._store.entries.remember({change.blob: change.entry for change in changes if change.entry is not None})
        info = await asyncio.to_thread(repository.commit_info, written.commit_id)
        await projector.project(self._conn, self._workspace_id, info, changes, before=self._at_head)
        await projector.put_ref(self._conn, self._workspace_id, self._ref, written.commit_id, written.commit_id)
        faults.point("commit.projected")
        await staging.settle(
            self._conn, self._workspace_id, self._session.session_id, written.commit_id, _settled(merged)
        )
        remaining = await remaining_changes(self._conn, self._session.session_id)
        if remaining:
            await carry_over(
                Snapshot(self._conn, State(self._workspace_id, written.commit_id)),
                self._store,
                self._session.session_id,
            )
            remaining = await remaining_changes(self._conn, self._session.session_id)
        faults.point("commit.mirrored")
        tag, warnings = self._order.tag, list[str]()
        if tag and written.tag_id:
            warnings = await _place_tag(self._conn, repository, self._workspace_id, tag, written)
        faults.point("commit.tagged")
        return CommitResult(
            written.commit_id,
            self._session.branch,
            "" if warnings else tag,
            len(changes),
            remaining,
            tuple(warnings),
        )


async def _place_tag(
    conn: Connection, repository: GitRepository, workspace_id: str, tag: str, written: WrittenCommit
) -> list[str]:
    """Make the tag of a commit that stands; why it was not made, if so."""
    ref = f"refs/tags/{tag}"
    try:
        made = await asyncio.to_thread(repository.move_ref, ref, None, written.tag_id)
    except RefNameTakenError as error:  # by a push of this moment; the commit stands
        return [f"Tag {tag} was not made: {error.message}"]
    if not made:
        return [f"Tag {tag} was made by someone else at the same moment; the commit has no tag."]
    await projector.put_ref(conn, workspace_id, ref, written.tag_id or "", written.commit_id)
    return []


async def earlier_result(
    conn: Connection, repository: GitRepository, session: Session, order: CommitOrder
) -> CommitResult | None:
    """The result of a request that was cut off after its commit was made; its trailers say whose it is."""
    if not order.request_id:
        return None
    cursor = await conn.execute(
        "select c.commit_id, count(v.version_id) from mirror.commit c"
        " left join mirror.version v on v.line_id = c.line_id and v.from_seq = c.seq"
        " where c.workspace_id = %s and c.request_id = %s and c.session_id = %s group by c.commit_id",
        (session.workspace_id, order.request_id, session.session_id),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    warnings = await _earlier_tag(conn, repository, session.workspace_id, order, row[0]) if order.tag else []
    remaining = await remaining_changes(conn, session.session_id)
    return CommitResult(row[0], session.branch, "" if warnings else order.tag, row[1], remaining, tuple(warnings))


async def _earlier_tag(
    conn: Connection, repository: GitRepository, workspace_id: str, order: CommitOrder, commit_id: str
) -> list[str]:
    """See that an earlier commit has the tag it asked for; why it has not, if so."""
    cursor = await conn.execute(
        "select commit_id from mirror.ref where workspace_id = %s and name = %s",
        (workspace_id, f"refs/tags/{order.tag}"),
    )
    found = await cursor.fetchone()
    if found is not None:
        return [] if found[0] == commit_id else [f"Tag {order.tag} names another commit; this one has no tag."]
    message = (await asyncio.to_thread(repository.commit_info, commit_id)).message
    if trailers.trailers_of(message).get(trailers.TAG) != order.tag:
        return [f"The commit was made without tag {order.tag}."]
    tag_id = await asyncio.to_thread(repository.write_tag, _tag_draft(order), commit_id)
    return await _place_tag(conn, repository, workspace_id, order.tag, WrittenCommit(commit_id, {}, tag_id))


def _tag_draft(order: CommitOrder) -> TagDraft:
    return TagDraft(order.tag, order.message.strip().split("\n", 1)[0] + "\n", order.committer)


async def remaining_changes(conn: Connection, session_id: str) -> int:
    """How many changes a session has still staged."""
    cursor = await conn.execute("select count(*) from work.staged where session_id = %s", (session_id,))
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


def _changes_something(item: MergedChange) -> bool:
    return item.entry != item.theirs


def _check_merged(entry: Entry | None) -> None:
    """Each side kept the limits; both together have to as well."""
    if isinstance(entry, Archive):
        check_archive(entry)
    elif entry is not None:
        check_node(entry, READ_LIMITS)


def _entry_change(item: MergedChange, written: WrittenCommit) -> EntryChange:
    if item.entry is None:
        return EntryChange(item.row.entry_id, "", None)
    return EntryChange(item.row.entry_id, written.blobs[entry_path(item.entry)], item.entry)


def _settled(merged: list[MergedChange]) -> list[EntryChange]:
    """What the session is told: for each chosen change, that its own bytes are committed, since the merge has them."""
    return [EntryChange(item.row.entry_id, item.row.version.blob, item.entry) for item in merged]


def check_chosen(chosen: Collection[str], staged_ids: Collection[str]) -> None:
    """Refuse a choice of changes that the session does not have.

    Raises:
        ChangeNotFoundError: With the first of those that are missing.
    """
    unknown = sorted(entry_id for entry_id in chosen if entry_id not in staged_ids)
    if unknown:
        raise ChangeNotFoundError(
            f"The session has no change of {', '.join(unknown)}. List the changes with ListChanges.",
            "change",
            unknown[0],
        )


def check_message(message: str) -> str:
    """The message of a commit, without blanks around it.

    Raises:
        InvalidInputError: It is empty, too long, or has characters that no commit message can hold.
    """
    stripped = message.strip()
    if not stripped:
        raise InvalidInputError.at("message", "is needed: say what the commit is for.")
    check_text("message", stripped, multiline=True, max_bytes=_MESSAGE_BYTES)
    return stripped
