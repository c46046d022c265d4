"""Committing what a session has staged.

1. Merge the chosen changes onto the head of the branch, and check that the result is a tree.
2. Hand it to the write path, which moves the branch from exactly that head. If another program was faster, begin again.

A caller that keeps request ids claims the id in the same transaction, before step 1.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from memotree_storage import faults
from memotree_storage.commit import refs as ref_changes
from memotree_storage.commit.group_commit import BranchBusyError, commit_of_session
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.session_merge import files_at
from memotree_storage.commit.session_pins import pin_base
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import NewCommit, SettledSession, place_tag, write_commit
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread, in_store_thread_if
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import FailedPreconditionError, NotFoundError
from memotree_storage.mirror.staged_merge import (
    MergedChange,
    MergedChanges,
    RenewSummary,
    check_limits,
    check_merged,
    merge_onto,
    with_renewed_summaries,
)
from memotree_storage.mirror.tree_check import IncompleteChoiceError, MissingChange
from memotree_storage.model import trailers
from memotree_storage.model.trailers import Request
from memotree_storage.ports import FileContent, Signature, TagDraft
from memotree_storage.postgres import history, refs, sessions, staging, tree
from memotree_storage.postgres.merge_bases import is_ancestor
from memotree_storage.postgres.projector import EntryChange
from memotree_storage.postgres.refs import BRANCHES, TAGS
from memotree_storage.postgres.requests import commit_of_request
from memotree_storage.postgres.session_conflicts import conflicts_of
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

_ATTEMPTS: Final = 8
_MOST_TOLD: Final = 10
_MOST_CONFLICTS: Final = 100
"""The most conflicts in the error about those that are not resolved; ListConflicts has all."""


class NothingToCommitError(FailedPreconditionError):
    """The session (or the choice) has no changes."""

    reason = "NOTHING_TO_COMMIT"


class BranchGoneError(FailedPreconditionError):
    """The branch of the session was deleted, or deleted and created again."""

    reason = "BRANCH_GONE"


class ChangeNotFoundError(NotFoundError):
    """A chosen node has no staged change."""

    reason = "CHANGE_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """What a caller wants committed.

    Attributes:
        message: Subject and text, without trailers.
        author: Its author; one without a name is the session's agent.
        committer: Who commits: the service.
        choice: Ids of the entries whose changes are committed; all when empty.
        tag: The name of an annotated tag to make; none when empty.
        renew: Renews the summary of a node whose content the commit merges; without it, it is marked.
        request: Kept in the commit, so that a repeated call finds the commit again; none when its id is empty.
    """

    message: str
    author: Signature
    committer: Signature
    choice: Sequence[str] = ()
    tag: str = ""
    renew: RenewSummary | None = None
    request: Request = field(default_factory=Request)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit gave.

    Attributes:
        commit_id: The commit.
        branch: The branch that is at it.
        tag: The tag that was made; "" if none.
        changes: How many entries it changes.
        remaining: How many changes the session has still staged.
        warnings: Why the tag was not made, if it was not, and which of the remaining changes do not fit the commit.
    """

    commit_id: str
    branch: str
    tag: str
    changes: int
    remaining: int
    warnings: tuple[str, ...] = ()


ResolveChoice = Callable[[Mapping[str, Staged], Sequence[str]], Sequence[str]]
"""Turns what a caller calls changes into ids, given the staged changes by id."""

Prepare = Callable[[Session], Awaitable[Collection[str]]]
"""Stages changes in the held session that belong to the commit; returns the ids of their entries."""


async def commit_session(store: Store, workspace_id: str, session_id: str, order: CommitOrder) -> CommitResult:
    """Commit the changes of a session.

    Once its work has begun, which is when it no longer waits for others, a cancellation waits for the end.

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
        SessionNotFoundError: There is no such session.
        SessionClosedError: It takes no changes any more.
        NothingToCommitError: There are no changes.
        ChangeNotFoundError: A chosen entry has no change.
        IncompleteChoiceError: The choice would leave an orphan.
        BranchGoneError: The session's branch was deleted.
        SessionRewoundError: The session's branch was rewound.
        BranchBusyError: Another program kept moving the branch.
        ConflictError: The branch moved, and both sides changed the same field.
        TagExistsError: The tag exists.
        ConfusingNameError: A branch has the name of the tag.
        RefNameTakenError: A ref exists that would be a folder of the tag, or the other way round.
        InvalidNodeError: A merged node breaks a limit that each side kept.
        InvalidArchiveError: A merged archive does.
    """

    async def work(commit_point: CommitPoint) -> CommitResult:
        async def commit(transaction: WorkspaceTransaction) -> CommitResult:
            return await commit_session_in_transaction(transaction, session_id, order)

        async with store.database.connection() as conn:
            session = await sessions.find_if_there(conn, workspace_id, session_id)
        result = await commit_of_session(
            store, workspace_id, session_id, commit_point, commit, session=session, alone=bool(order.tag)
        )
        store.notice_commit(workspace_id)
        return result

    return await finish_past_commit_point(work)


async def commit_session_in_transaction(
    transaction: WorkspaceTransaction,
    session_id: str,
    order: CommitOrder,
    resolve: ResolveChoice | None = None,
    prepare: Prepare | None = None,
) -> CommitResult:
    """The same in a transaction that holds the workspace and the session; the caller tells the store of the commit.

    If the request of the order made a commit before whose answer was cut off, its result is returned.

    Args:
        transaction: Holds the workspace and the session.
        session_id: The session.
        order: What to commit.
        resolve: Turns the choice into ids, when the session is held; without it the choice has ids.
        prepare: Stages what belongs to the commit; not called if the request has made its commit already.
    """
    if order.request.id:
        await transaction.follow_git()
        earlier = await _earlier_result(transaction, session_id, order)
        if earlier is not None:
            return earlier
    session = await sessions.hold_session(transaction.conn, transaction.workspace_id, session_id)
    if not order.author.name:
        order = replace(order, author=replace(order.author, name=session.agent))
    if prepare is not None:
        added = await prepare(session)
        order = replace(order, choice=[*order.choice, *added] if order.choice else ())
    if resolve is not None and order.choice:
        rows = await staging.staged(transaction.conn, session_id, data=False)
        order = replace(order, choice=resolve({row.entry_id: row for row in rows}, order.choice))
    result = await _SessionCommit(transaction, session, order).run()
    store, workspace_id = transaction.store, transaction.workspace_id
    transaction.afterwards.append(
        partial(pin_base, store, workspace_id, session_id, session.base_commit, result.commit_id)
    )
    return result


async def commit_and_drop_session(
    transaction: WorkspaceTransaction, session: Session, order: CommitOrder
) -> CommitResult:
    """Commit a session that was opened in the same transaction for this commit alone, and delete it.

    Nobody else has seen the session, so no ref protects its base, and the commit does not name it.
    """
    result = await _SessionCommit(transaction, session, order, is_lasting=False).run()
    await sessions.drop_session(transaction.conn, session.session_id)
    return result


@dataclass(slots=True)
class _SessionCommit:
    """One commit of a session's changes, in a transaction that holds the workspace and the session.

    Attributes:
        transaction: Holds both.
        session: The session.
        order: What to commit.
        is_lasting: Whether the session stays, so that the commit settles it.
        merging: The chosen changes on the head.
        parents: The further parents of the commit.
        files: The files that are no entries and that it writes.
    """

    transaction: WorkspaceTransaction
    session: Session
    order: CommitOrder
    is_lasting: bool = True
    merging: MergedChanges = field(default_factory=MergedChanges)
    parents: Sequence[str] = ()
    files: Mapping[str, FileContent | None] = field(default_factory=dict)

    async def run(self) -> CommitResult:
        for _ in range(_ATTEMPTS):
            if await self.transaction.follow_git():
                rewound = await sessions.is_rewound(self.transaction.conn, self.session.session_id)
                self.session = replace(self.session, rewound=rewound)
            if self.session.rewound:
                raise sessions.SessionRewoundError.of(self.session.branch, self.session.base_commit)
            head = await self._head()
            if self.order.tag:
                await ref_changes.check_new_tag(self.transaction, self.order.tag)
            rows, left_out = await self._choose()
            await self._check_resolved(rows)
            self.parents = await self._parents(head)
            if self.session.files:
                repository, files = self.transaction.repository, self.session.files
                self.files = await in_store_thread(files_at, repository, files, head.commit_id)
            faults.point("commit.frozen")
            self.merging = await self._merge(head, rows, left_out)
            faults.point("commit.merged")
            effective = _effective(self.merging)
            new = await in_store_thread_if(self.merging.is_much, self._new_commit, head, effective)
            outcome = await write_commit(self.transaction, new)
            if outcome is not None:
                tag = "" if outcome.warnings else self.order.tag
                warnings = (*outcome.warnings, *_unfit(outcome.conflicts))
                return CommitResult(
                    outcome.commit_id, self.session.branch, tag, len(effective), outcome.remaining, warnings
                )
        raise BranchBusyError.of(self.session.branch, _ATTEMPTS)

    async def _head(self) -> State:
        conn, workspace_id, pending = self.transaction.conn, self.transaction.workspace_id, self.transaction.pending
        last = None if pending is None else pending.head_of(BRANCHES + self.session.branch)
        if last is not None:
            return State(workspace_id, last.commit_id)
        head = await refs.branch_head(conn, workspace_id, self.session.branch)
        if head is None:
            raise BranchGoneError(
                f"Branch {self.session.branch} was deleted. The staged changes can still be read; open a session on "
                "another branch and make them there."
            )
        return head

    async def _choose(self) -> tuple[list[Staged], set[str]]:
        """The staged changes to commit, and the ids of the others."""
        rows = await staging.staged(self.transaction.conn, self.session.session_id)
        if not rows and not self._brings_more:
            raise NothingToCommitError("The session has no changes. Change a node first.")
        if not self.order.choice:
            return rows, set()
        if self.session.merged is not None:
            raise IncompleteChoiceError(
                f"The session merges commit {self.session.merged}, and a merge is committed whole. Commit all changes; "
                "what the merge shall not bring, change or discard in the session first."
            )
        chosen = set(self.order.choice)
        check_chosen(chosen, {row.entry_id for row in rows})
        return [row for row in rows if row.entry_id in chosen], {row.entry_id for row in rows} - chosen

    @property
    def _brings_more(self) -> bool:
        """Whether the commit is for more than the staged changes."""
        return self.session.merged is not None or bool(self.session.files)

    async def _check_resolved(self, rows: Sequence[Staged]) -> None:
        if not self.session.has_conflicts:
            return
        ids = [row.entry_id for row in rows] if self.order.choice else None
        conn, session_id = self.transaction.conn, self.session.session_id
        kept = await conflicts_of(conn, session_id, ids=ids, of_values=True, limit=_MOST_CONFLICTS)
        if kept:
            raise ConflictError.unresolved([one.conflict for one in kept])

    async def _parents(self, head: State) -> Sequence[str]:
        """The commit that the session merges, unless the branch has it by now."""
        merged = self.session.merged
        if merged is None or await is_ancestor(
            self.transaction.conn, self.transaction.workspace_id, merged, head.commit_id
        ):
            return ()
        return (merged,)

    async def _merge(self, head: State, rows: list[Staged], left_out: set[str]) -> MergedChanges:
        """Merge changes onto the head and check the result against it."""
        snapshot, store = Snapshot(self.transaction.conn, head), self.transaction.store
        is_merge = self.session.brings
        merging = await merge_onto(snapshot, store.entries, rows, brings=is_merge)
        checked = await check_merged(snapshot, merging, left_out, store.max_depth, is_merge=is_merge)
        if checked.missing:
            raise await self._incomplete(checked.missing)
        conflicts = [*merging.conflicts, *checked.conflicts]
        if conflicts:
            raise ConflictError.of(conflicts)
        if self.order.renew is not None and any(item.is_merged for item in merging.merged):
            merging = await in_store_thread(with_renewed_summaries, merging, self.order.renew)
        effective = _effective(merging)
        if not effective and not self.parents and not self.files:
            raise NothingToCommitError("The branch has all changes of the session already. Rebase or discard it.")
        await in_store_thread_if(merging.is_much, _check_merged, effective)
        return merging

    async def _incomplete(self, missing: list[MissingChange]) -> "IncompleteChoiceError":
        ids = sorted({item.entry_id for item in missing})
        versions = await tree.versions(Snapshot(self.transaction.conn, self.session.tree), ids, dead=True)
        reasons = "; ".join(f"{item.entry_id}, for {item.why} {item.needed_by}" for item in missing[:10])
        error = IncompleteChoiceError(f"The choice would leave the tree broken. Choose as well: {reasons}.")
        error.nodes = [versions[entry_id] for entry_id in ids if entry_id in versions]
        return error

    def _settled_session(self) -> SettledSession:
        session = self.session
        return SettledSession(session.session_id, _settled(self.merging), session.has_conflicts, session.brings)

    def _new_commit(self, head: State, effective: Sequence[MergedChange]) -> NewCommit:
        order = self.order
        message = compose(
            order.message,
            [ListedChange(item.theirs, item.entry, item.row.messages) for item in effective],
            {
                trailers.SESSION: self.session.session_id if self.is_lasting else "",
                trailers.AGENT: self.session.agent,
                trailers.TOOL: ", ".join(sorted({tool for item in effective for tool in item.row.tools})),
                **order.request.trailers(),
                trailers.TAG: order.tag,
            },
        )
        return NewCommit(
            branch=self.session.branch,
            parent=head.commit_id,
            entries={item.row.entry_id: item.entry for item in effective},
            at_parent=self.merging.at_head,
            message=message,
            author=order.author,
            committer=order.committer,
            tag=_tag_draft(order) if order.tag else None,
            merged=self.parents,
            files=self.files,
            session=self._settled_session() if self.is_lasting else None,
        )


async def _earlier_result(
    transaction: WorkspaceTransaction, session_id: str, order: CommitOrder
) -> CommitResult | None:
    """The result of an earlier call with this request id whose answer was lost; the commit's trailers name it."""
    conn, workspace_id = transaction.conn, transaction.workspace_id
    found = await commit_of_request(conn, workspace_id, order.request, session_id=session_id)
    if found is None:
        return None
    session = await sessions.find_if_there(conn, workspace_id, session_id)  # it may be lost with the schema ``work``
    warnings = await _earlier_tag(transaction, order, found.commit_id) if order.tag else ()
    return CommitResult(
        found.commit_id,
        found.branch if session is None else session.branch,
        "" if warnings else order.tag,
        await history.count_touched(conn, workspace_id, found.commit_id),
        await staging.count_staged(conn, session_id),
        warnings,
    )


async def _earlier_tag(transaction: WorkspaceTransaction, order: CommitOrder, commit_id: str) -> tuple[str, ...]:
    """Make the tag of an earlier commit if it is missing; return why that failed, or nothing."""
    found = await refs.find_ref(transaction.conn, transaction.workspace_id, TAGS, order.tag)
    if found is not None:
        return () if found.commit_id == commit_id else (f"Tag {order.tag} names another commit; this one has no tag.",)
    message = (await in_store_thread(transaction.repository.commit_info, commit_id)).message
    if trailers.trailers_of(message).get(trailers.TAG) != order.tag:
        return (f"The commit was made without tag {order.tag}.",)
    tag_id = await in_store_thread(transaction.repository.write_tag, _tag_draft(order), commit_id)
    return await place_tag(transaction, order.tag, tag_id, commit_id)


def _tag_draft(order: CommitOrder) -> TagDraft:
    return TagDraft(order.tag, order.message.strip().split("\n", 1)[0] + "\n", order.committer)


def _unfit(conflicts: Sequence[Conflict]) -> list[str]:
    """The warning about remaining changes that do not fit the commit."""
    ids = sorted({conflict.node_id for conflict in conflicts})
    if not ids:
        return []
    told = f"{', '.join(ids[:_MOST_TOLD])}{' and others' if len(ids) > _MOST_TOLD else ''}"
    sentence = (
        f"{len(ids)} of the remaining changes do not fit what the branch has now: {told}. ListConflicts says why. "
        "ResolveConflicts chooses for them; until then the session's tree may miss nodes, and they cannot be committed."
    )
    return [sentence]


def _effective(merging: MergedChanges) -> list[MergedChange]:
    """The changes that differ from the head."""
    return [item for item in merging.merged if item.entry != item.theirs]


def _check_merged(changes: Iterable[MergedChange]) -> None:
    for item in changes:
        if item.is_merged:
            check_limits(item.entry)


def _settled(merging: MergedChanges) -> list[EntryChange]:
    """Each chosen change with its staged blob. The merged entry contains it, so the session can drop it."""
    return [EntryChange(item.row.entry_id, item.row.version.blob, item.entry) for item in merging.merged]


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
