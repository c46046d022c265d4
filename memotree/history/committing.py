"""What merges, reverts and cherry-picks have in common: who commits, one transaction, and once per request id."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import Message
from memotree_storage.commit.merge_commit import Identity
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.transaction import WorkspaceTransaction, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.history.log import committed
from memotree.request import lookup
from memotree.request.idempotency import request_mark, run_once
from memotree.request.limits import ServiceLimits
from memotree.request.messages import author_of, check_message

_AUTHOR: Final = "agent"

Response = TypeVar("Response", bound=Message)


class FollowingSummaries(Protocol):
    """Renews the summaries above what commits change."""

    def notice(self, workspace_id: str, branch: str, commit_id: str) -> None:
        """Note that a branch has a new commit."""
        ...


class Committing:
    """Runs calls that commit on a branch without a session."""

    def __init__(self, store: Store, limits: ServiceLimits, summaries: FollowingSummaries | None) -> None:
        self._store = store
        self._limits = limits
        self._summaries = summaries

    def identity(self, request: Any) -> Identity:
        """Who commits: the author of the request, or "agent", with MemoTree as the committer."""
        now = datetime.now(UTC).replace(microsecond=0)
        author = Signature(_AUTHOR, self._limits.author_email, now)
        author = author_of(request, author)
        committer = Signature(self._limits.committer_name, self._limits.committer_email, now)
        return Identity(author, committer, request_mark(request))

    async def workspace(self, name: str) -> Workspace:
        """The workspace of that name or id."""
        async with self._store.database.connection() as conn:
            return await registry.find_workspace(conn, lookup.needed("workspace", name))

    async def run(
        self,
        workspace: Workspace,
        branch: str,
        request: Message,
        response_type: type[Response],
        make: Callable[[WorkspaceTransaction], Awaitable[Response]],
    ) -> Response:
        """Commit; once the work has begun, a cancellation waits for the end.

        Args:
            workspace: The workspace.
            branch: The branch that gets the commit.
            request: The request; a repetition has the first answer.
            response_type: The type of its response, which has a ``commit_id``.
            make: Commits in a transaction that holds the workspace.
        """
        workspace_id = workspace.workspace_id

        async def run(commit_point: CommitPoint) -> Response:
            async with workspace_transaction(self._store, workspace_id, commit_point) as transaction:
                return await run_once(transaction.conn, workspace_id, request, response_type, lambda: make(transaction))

        response: Any = await finish_past_commit_point(run)
        self._store.notice_commit(workspace_id)
        if self._summaries is not None:
            self._summaries.notice(workspace_id, branch, response.commit_id)
        answer: Response = response
        return answer


def message_of(text: str) -> str:
    """The message that a caller gives, checked; "" if it gives none."""
    return check_message(text) if text.strip() else ""


async def head_of(conn: Connection, workspace_id: str, branch: str) -> State:
    """The state at the head of a branch.

    Raises:
        BranchNotFoundError: There is no such branch.
    """
    head = await refs.branch_head(conn, workspace_id, branch)
    if head is None:
        raise BranchNotFoundError(branch)
    return head


async def commit_of(conn: Connection, workspace_id: str, revision: str, field: str) -> str:
    """The commit that a branch, tag or commit names."""
    _, resolved = await registry.resolve(conn, workspace_id, revision, field)
    return committed(resolved).state.commit_id
