"""Edits that are committed at once: one transaction opens a session, edits it, commits it and deletes it.

The session is made at the head of the branch while the call holds the workspace. So nothing can conflict with it, no
other call ever sees it, and a call that fails leaves nothing behind. The summaries that follow the edits are part of
the same commit.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from google.protobuf.message import Message
from memotree_storage import faults
from memotree_storage.commit.group_commit import commit_on_branch
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.session_commit import CommitOrder, NothingToCommitError, commit_and_drop_session
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.errors import MemoTreeError
from memotree_storage.model import trailers
from memotree_storage.model.node import new_id
from memotree_storage.model.validation import check_author
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs, registry, sessions
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.requests import commit_of_request
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.idempotency import earlier_result, request_mark, run_once
from memotree.request.limits import ServiceLimits
from memotree.request.messages import as_principal, check_message
from memotree.sessions.editing import SessionEditor
from memotree.sessions.pushed import mirror_pushed

DEFAULT_AGENT: Final = "agent"
"""The agent of a call that names none."""

_TTL: Final = timedelta(hours=1)
"""Of the session, which the transaction deletes again; the column needs a value."""

_LONG: Final = 1 << 20
"""Bytes of a request above which its commit is made alone, so that short ones do not wait for it."""

Response = TypeVar("Response", bound=Message)
Response_co = TypeVar("Response_co", bound=Message, covariant=True)


class FollowingSummaries(Protocol):
    """Renews the summaries that follow the edits of a session."""

    async def follow(self, conn: Connection, session: Session) -> None:
        """Stage new built-in summaries above the staged changes, in the transaction that holds the session."""
        ...

    def notice(self, workspace_id: str, branch: str, commit_id: str) -> None:
        """Note that a branch has a new commit."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """What a call has staged.

    Attributes:
        subject: The subject of the commit, unless the caller gives a message.
        respond: Makes the response, given the state of the branch with the commit.
    """

    subject: str
    respond: Callable[[Connection, State], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call commits, and as whom.

    Attributes:
        workspace: Name or id of the workspace.
        branch: The branch; "" for the default branch.
        agent: Who commits; "" for the default agent.
        message: The commit message; "" for one that is made from the changes.
    """

    workspace: str
    branch: str
    agent: str
    message: str


Make = Callable[[SessionEditor], Awaitable[Made]]
"""Stages the changes of a call in a session."""


@dataclass(frozen=True, slots=True)
class ImmediateCall(Generic[Response]):
    """One call that edits and commits.

    Attributes:
        request: The request.
        target: Where it commits.
        response_type: The type of its response.
        tool: The name of the tool, for the trailers of the commit.
        prepare: Looks up what the changes need, at the head of the branch, before the workspace is held.
        again: Makes the response again for a commit whose first answer was lost, given a connection, the commit and
            the name of the branch. Refuses a commit that does not have the changes of this call.
        is_long: Whether it may change so much that its commit is made alone, as that of a long request is.
        may_change_nothing: Whether it is answered with a warning if everything is already as it would make it.
    """

    request: Message
    target: Target
    response_type: type[Response]
    tool: str
    prepare: Callable[[State, str], Awaitable[Make]]
    again: Callable[[Connection, State, str], Awaitable[Response]]
    is_long: bool = False
    may_change_nothing: bool = False


_UNCHANGED: Final = "Nothing was changed: everything is already as this call would make it."


class ImmediateCommits:
    """Runs calls that edit a branch and commit at once.

    Args:
        store: The store.
        limits: What the service allows.
        summaries: Renews what follows the edits; without it that waits for the next RenewSummaries.
    """

    def __init__(self, store: Store, limits: ServiceLimits, summaries: FollowingSummaries | None = None) -> None:
        self._store = store
        self._limits = limits
        self._summaries = summaries

    async def run(self, call: ImmediateCall[Response]) -> Response:
        """Run a call: all or nothing, and once per request id.

        A call that was made before is answered first of all, since the first one may have changed or removed what the
        preparation would look up. Once its work has begun, a cancellation waits for the end.

        Raises:
            WorkspaceNotFoundError: There is no such workspace.
            BranchNotFoundError: There is no such branch.
            RequestIdReusedError: An earlier call used the request id with other arguments.
        """
        target = call.target
        check_author(target.agent or DEFAULT_AGENT, "", name_field="agent")
        if target.message:
            check_message(target.message)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", target.workspace))
        branch = target.branch or workspace.default_branch
        answered = await self._answered(call, workspace.workspace_id)
        if answered is not None:
            return answered
        try:
            await mirror_pushed(self._store, workspace.workspace_id)
            async with self._store.database.connection() as conn:
                head = await _head(conn, workspace.workspace_id, branch)
                earlier = await _earlier(conn, head, call)
                if earlier is not None:
                    return await call.again(conn, earlier, branch)
            make = await call.prepare(head, branch)
        except MemoTreeError:
            answered = await self._answered(call, workspace.workspace_id)  # the first call may have ended meanwhile
            if answered is not None:
                return answered
            raise
        return await finish_past_commit_point(partial(self._run, call, make, workspace.workspace_id, branch))

    async def _answered(self, call: ImmediateCall[Response], workspace_id: str) -> Response | None:
        async with self._store.database.connection() as conn:
            return await earlier_result(conn, workspace_id, call.request, call.response_type)

    async def _run(
        self, call: ImmediateCall[Response], make: Make, workspace_id: str, branch: str, commit_point: CommitPoint
    ) -> Response:
        committed: list[str] = []

        async def work(held: WorkspaceTransaction) -> Response:
            committed.clear()

            async def once() -> Response:
                faults.point("immediate.claimed")
                head = await _head(held.conn, workspace_id, branch)
                earlier = await _earlier(held.conn, head, call)
                if earlier is not None:
                    return await call.again(held.conn, earlier, branch)
                made, commit_id = await self._edit_and_commit(held, call, make, head, branch)
                response: Any = await made.respond(held.conn, State(workspace_id, commit_id))
                if commit_id == head.commit_id:
                    response.warnings.append(_UNCHANGED)
                else:
                    committed.append(commit_id)
                assert isinstance(response, call.response_type)  # noqa: S101 - for the type checker
                return response

            return await run_once(held.conn, workspace_id, call.request, call.response_type, once)

        is_long = call.is_long or call.request.ByteSize() > _LONG
        response = await commit_on_branch(self._store, workspace_id, branch, commit_point, work, alone=is_long)
        faults.point("immediate.recorded")
        if committed:
            self._store.notice_commit(workspace_id)
            if self._summaries is not None:
                self._summaries.notice(workspace_id, branch, committed[0])
        return response

    async def _edit_and_commit(
        self, held: WorkspaceTransaction, call: ImmediateCall[Response], make: Make, head: State, branch: str
    ) -> tuple[Made, str]:
        agent = call.target.agent or DEFAULT_AGENT
        session = await sessions.open_session(Snapshot(held.conn, head), new_id(), branch=branch, agent=agent, ttl=_TTL)
        made = await make(SessionEditor(held.conn, self._store, session, self._limits, call.tool))
        if self._summaries is not None:
            await self._summaries.follow(held.conn, session)
        faults.point("immediate.staged")
        try:
            result = await commit_and_drop_session(held, session, self._order(call, made.subject, agent))
        except NothingToCommitError:
            if not call.may_change_nothing:
                raise NothingToCommitError(_UNCHANGED) from None
            await sessions.drop_session(held.conn, session.session_id)
            return made, head.commit_id
        except ConflictError as error:
            sentence = (
                "Nothing was changed: the branch has moved, and the change does not fit what it has now. Read the note "
                "again, see whether the change is still right, and send it again."
            )
            raise ConflictError(sentence, error.conflicts) from None
        return made, result.commit_id

    def _order(self, call: ImmediateCall[Any], subject: str, agent: str) -> CommitOrder:
        now = datetime.now(UTC).replace(microsecond=0)
        return CommitOrder(
            message=call.target.message.strip() or subject,
            author=as_principal(Signature(agent, self._limits.author_email, now), self._limits.author_email),
            committer=Signature(self._limits.committer_name, self._limits.committer_email, now),
            request=request_mark(call.request),
        )


async def _head(conn: Connection, workspace_id: str, branch: str) -> State:
    head = await refs.branch_head(conn, workspace_id, branch)
    if head is None:
        raise BranchNotFoundError(branch)
    return head


async def _earlier(conn: Connection, head: State, call: ImmediateCall[Any]) -> State | None:
    """The commit on this branch of an earlier call with this request id whose answer was lost, if there is one."""
    found = await commit_of_request(conn, head.workspace_id, request_mark(call.request), head=head.commit_id)
    if found is None or not found.is_on_branch:
        return None
    is_of_tool = call.tool in trailers.trailers_of(found.message).get(trailers.TOOL, "").split(", ")
    return State(head.workspace_id, found.commit_id) if is_of_tool else None
