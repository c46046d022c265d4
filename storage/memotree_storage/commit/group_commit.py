"""Group commit: commits on a branch that wait for each other are made in one transaction, one pack and one move of it.

Each stays a commit of its own, on top of the one before:

1. Hold the workspace and the sessions of the members, and mirror what other programs have pushed.
2. Do the work of each member: its commit goes into the open pack, its rows into the transaction. A member that is
   refused (a conflict, nothing to commit) is left out. It has a savepoint if it may have written more by then than that
   its session was used just now.
3. Sync the pack and move the branch from where it was to the last commit, by compare and swap. This is the commit point
   of all members.
4. Commit the transaction, and answer all.

A crash before step 3 changes nothing; after it the next start mirrors the commits, as for any other. So a synced pack,
a moved ref and a transaction cost a group what they cost one commit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

import psycopg
import structlog

from memotree_storage.commit.transaction import (
    WorkspaceTransaction,
    note_unsettled,
    repository_of,
    transaction,
    workspace_transaction,
)
from memotree_storage.commit.write_path import BranchMovedError, PendingCommits
from memotree_storage.concurrency.cancellation import CommitPoint
from memotree_storage.errors import AbortedError, MemoTreeError
from memotree_storage.postgres import registry
from memotree_storage.postgres.sessions import Session
from memotree_storage.store import Store

T = TypeVar("T")

_MOST_MEMBERS: Final = 64
_MOST_CHANGES: Final = 200
"""Staged changes of a session that are committed together with others."""

_MOST_BYTES: Final = 4 << 20
"""Bytes that a member may have to commit together with others, and after which a group ends."""

_MOST_PASSED_OVER: Final = 3
_ATTEMPTS: Final = 8
_log = structlog.get_logger(__name__)


class BranchBusyError(AbortedError):
    """The branch kept moving; nothing was written."""

    reason = "BRANCH_BUSY"

    @classmethod
    def of(cls, branch: str, attempts: int) -> "BranchBusyError":
        """The error for a branch that moved at each attempt."""
        return cls(
            f"Branch {branch} moved {attempts} times while this commit was made; nothing was written. Send the call "
            "again."
        )


class _MemberFailedError(Exception):
    """What one member needs could not be carried out, and it cannot be taken back without the others."""


@dataclass(eq=False, slots=True)
class _Member(Generic[T]):
    """A call that waits for its commit.

    Attributes:
        work: Makes its commit in a transaction that holds the workspace; repeated if the branch was moved meanwhile. It
            runs in the context of its call, whoever makes the group: that says who calls.
        branch: The branch that it commits on.
        session_id: The session that it commits; "" if it has none.
        commit_point: Of the call.
        writes_first: Whether it writes rows before it may be refused, which must not stay then.
        passed_over: How often others went before it since its session was being edited.
        answer: Its result.
    """

    work: Callable[[WorkspaceTransaction], Awaitable[T]]
    branch: str
    session_id: str
    commit_point: CommitPoint
    writes_first: bool
    passed_over: int = 0
    answer: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    context: Context = field(default_factory=copy_context)

    async def result(self, opened: WorkspaceTransaction) -> T:
        """Do the work in a transaction."""

        async def done() -> T:
            return await self.work(opened)

        return await asyncio.create_task(done(), context=self.context)


async def commit_of_session(
    store: Store,
    workspace_id: str,
    session_id: str,
    commit_point: CommitPoint,
    work: Callable[[WorkspaceTransaction], Awaitable[T]],
    *,
    session: Session | None,
    writes_first: bool = False,
    alone: bool = False,
) -> T:
    """Run the work of a call that commits a session, in a transaction that holds both.

    Args:
        store: An open store.
        workspace_id: The workspace.
        session_id: The session.
        commit_point: Of the call.
        work: Makes the commit. It may be called again, with another transaction.
        session: The session as it was found a moment ago; ``None`` if the workspace has no such session.
        writes_first: The work writes rows before its commit, which must not stay if it is refused.
        alone: It needs more than its commit, such as a tag, so it cannot be made with others.

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
        WorkspaceSetAsideError: It could not be recovered.
        BranchBusyError: Another program kept moving the branch.
    """
    if alone or session is None or session.merged is not None or _is_much(session):
        held = workspace_transaction(store, workspace_id, commit_point, session_id=session_id, follow=False)
        async with held as opened:
            return await work(opened)
    await store.admit(workspace_id)
    return await _joined(store, workspace_id, _Member(work, session.branch, session_id, commit_point, writes_first))


async def commit_on_branch(
    store: Store,
    workspace_id: str,
    branch: str,
    commit_point: CommitPoint,
    work: Callable[[WorkspaceTransaction], Awaitable[T]],
    *,
    alone: bool = False,
) -> T:
    """The same for a call that commits on a branch without a session that others know."""
    if alone:
        async with workspace_transaction(store, workspace_id, commit_point) as opened:
            return await work(opened)
    await store.admit(workspace_id)
    return await _joined(store, workspace_id, _Member(work, branch, "", commit_point, writes_first=True))


def _is_much(session: Session) -> bool:
    return session.change_count > _MOST_CHANGES or session.change_bytes > _MOST_BYTES


async def _joined(store: Store, workspace_id: str, member: _Member[T]) -> T:
    store.commits.join(workspace_id, member, partial(_make_some, store, workspace_id))
    return await member.answer


async def _make_some(store: Store, workspace_id: str, queue: deque[_Member[Any]]) -> None:
    """Make one group of the commits that wait, and answer them; the others stay in the queue."""
    group: list[_Member[Any]] = []
    try:
        async with store.locks.workspaces.of(workspace_id):
            group += _taken(store, queue)
            if group:
                await _Group(store, workspace_id, group, queue).make()
    except asyncio.CancelledError:
        _answer([*group, *queue], asyncio.CancelledError())
        queue.clear()
        raise
    except Exception as error:  # noqa: BLE001 - it is raised where the members wait
        _answer(group, error)


def _taken(store: Store, queue: deque[_Member[Any]]) -> list[_Member[Any]]:
    """Take the first that can begin, and all on its branch that can; the others stay in the queue, in their order.

    One whose session is edited at the moment is passed over a few times, and then waited for.
    """
    waiting = [member for member in queue if not member.answer.done()]  # a caller may have left
    queue.clear()
    if not waiting:
        return []
    late = [member for member in waiting if member.passed_over >= _MOST_PASSED_OVER]
    edited = {member for member in waiting if _is_edited(store, member)}.difference(late)
    first = next(iter(late), next((member for member in waiting if member not in edited), waiting[0]))
    group, sessions = [first], {first.session_id}
    for member in waiting:
        if member is first:
            continue
        is_taken = bool(member.session_id) and member.session_id in sessions
        if member.branch == first.branch and len(group) < _MOST_MEMBERS and not is_taken and member not in edited:
            group.append(member)
            sessions.add(member.session_id)
        else:
            member.passed_over += member in edited
            queue.append(member)
    return group


def _is_edited(store: Store, member: _Member[Any]) -> bool:
    return bool(member.session_id) and store.locks.sessions.of(member.session_id).locked()


def _answer(group: Sequence[_Member[Any]], error: BaseException) -> None:
    for member in group:
        if member.answer.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            member.answer.cancel()
        else:
            member.answer.set_exception(error)


@dataclass(slots=True)
class _Group:
    """Commits that are made together, while the lock of the workspace is held.

    Attributes:
        store: The store.
        workspace_id: The workspace.
        members: Those whose commits are made, in order.
        queue: Takes back those for which there is no room.
        answers: The result of each member, or why it was refused.
    """

    store: Store
    workspace_id: str
    members: list[_Member[Any]]
    queue: deque[_Member[Any]]
    answers: dict[_Member[Any], Any] = field(default_factory=dict)

    async def make(self) -> None:
        """Make the commits and answer the members.

        If one fails in a way that is not its caller's fault, all are rolled back, and each is made alone.
        """
        for _ in range(_ATTEMPTS):
            self.answers.clear()
            commit_point = CommitPoint()
            try:
                await self._make_together(commit_point)
            except BranchMovedError:
                continue
            except MemoTreeError:
                self._tell_refused()
                raise
            except Exception as error:
                if commit_point.reached or len(self.members) == 1:
                    self._tell_refused()
                    raise
                _log.warning(
                    "a group of commits failed; each is made alone", why=repr(error), commits=len(self.members)
                )
                for member in self.members:
                    await self._make_alone(member)
            else:
                for member, answer in self.answers.items():
                    if not member.answer.done() and not isinstance(answer, MemoTreeError):
                        member.answer.set_result(answer)
                self._tell_refused()
            return
        raise BranchBusyError.of(self.members[0].branch, _ATTEMPTS)

    def _tell_refused(self) -> None:
        """Raise where a member waits that it was refused; that holds whatever happens to the others."""
        for member, answer in self.answers.items():
            if isinstance(answer, MemoTreeError):
                _answer([member], answer)

    async def _make_alone(self, member: _Member[Any]) -> None:
        try:
            await _Group(self.store, self.workspace_id, [member], self.queue).make()
        except Exception as error:  # noqa: BLE001 - it is raised where the member waits
            _answer([member], error)

    async def _make_together(self, commit_point: CommitPoint) -> None:
        async with AsyncExitStack() as stack:
            await self._hold_sessions(stack, commit_point)
            what = f"the mirror of workspace {self.workspace_id} is behind"
            held = await stack.enter_async_context(
                transaction(self.store, commit_point, what, lambda: self.store.catch_up(self.workspace_id))
            )
            await registry.lock_workspace(held.conn, self.workspace_id)
            repository = await repository_of(self.store, self.workspace_id)
            opened = WorkspaceTransaction(self.store, held.conn, commit_point, self.workspace_id, repository)
            await opened.follow_git()
            pending = stack.enter_context(PendingCommits.on(repository))
            opened = replace(opened, pending=pending)
            await self._work(opened, pending)
            if pending.head is not None:
                await pending.publish(opened)
        opened.start_afterwards()

    async def _hold_sessions(self, stack: AsyncExitStack, commit_point: CommitPoint) -> None:
        for session_id in sorted({member.session_id for member in self.members} - {""}):
            await stack.enter_async_context(self.store.locks.sessions.of(session_id))
            stack.push(partial(note_unsettled, self.store, self.workspace_id, session_id, commit_point))

    async def _work(self, opened: WorkspaceTransaction, pending: PendingCommits) -> None:
        """Do the work of each member; those that come after too much of it go back into the queue."""
        for number, member in enumerate(self.members):
            if pending.size > _MOST_BYTES:
                self.queue.extendleft(reversed(self.members[number:]))
                del self.members[number:]
                break
            if member.answer.done():  # its caller has left
                continue
            member.commit_point.reached = True  # whoever leaves from now on has its commit made to the end
            before, begun, projected = pending.head, len(opened.afterwards), pending.projected
            if len(self.members) == 1:  # the transaction itself takes everything back
                self.answers[member] = await member.result(opened)
                return
            try:
                async with opened.conn.transaction() if member.writes_first else nullcontext():
                    self.answers[member] = await member.result(opened)
            except MemoTreeError as error:
                if not member.writes_first and pending.projected != projected:
                    raise _MemberFailedError from error
                pending.head = before
                del opened.afterwards[begun:]
                self.answers[member] = error
            except psycopg.Error as error:
                raise _MemberFailedError from error
