"""The right to change one workspace or session: its lock, one PostgreSQL transaction, and the commit point.

Git and PostgreSQL share no transaction. So Git is changed inside a PostgreSQL transaction, by `change_git`, which sets
the commit point. From then on a cancellation waits for the end, and if PostgreSQL fails, a background task updates the
rows from Git.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from memotree_storage.concurrency.cancellation import CommitPoint, retry_until_done
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.catch_up import catch_up_in_transaction, is_behind
from memotree_storage.ports import CommitStore, OpenPack
from memotree_storage.postgres import registry, sessions
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.projector import Tip
from memotree_storage.store import Store

P = ParamSpec("P")
T = TypeVar("T")

Repair = Callable[[], Coroutine[Any, Any, object]]
"""Updates the rows from Git; safe to repeat."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A PostgreSQL transaction of a call that changes Git too; the functions below open it for a block."""

    store: Store
    conn: Connection
    commit_point: CommitPoint

    async def past_commit_point(self, effect: Awaitable[T]) -> T:
        """Await an effect that a rollback cannot undo; from here on the call runs to its end even if cancelled."""
        self.commit_point.reached = True
        return await effect

    async def change_git(self, change: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking change of Git in a thread, past the commit point."""
        return await self.past_commit_point(in_store_thread(change, *args, **kwargs))

    async def swap(self, change: Callable[P, bool], *args: P.args, **kwargs: P.kwargs) -> bool:
        """The same for a compare and swap. If it fails, nothing has changed, and the commit point is reset."""
        before = self.commit_point.reached
        swapped = await self.change_git(change, *args, **kwargs)
        if not swapped:
            self.commit_point.reached = before
            self.commit_point.found_behind = True
        return swapped


@dataclass(frozen=True, slots=True)
class PendingHead:
    """The last of several commits that are not published yet, and its place in the mirror."""

    commit_id: str
    tip: Tip


class OpenCommits(Protocol):
    """Commits of a transaction that are published at its end; see `memotree_storage.commit.group_commit`."""

    @property
    def pack(self) -> OpenPack:
        """Takes their objects."""
        ...

    def head_of(self, ref: str) -> PendingHead | None:
        """The last commit of a branch; ``None`` if there is none yet."""
        ...

    def begin_rows(self) -> None:
        """Note that the rows of a commit are written from here on."""
        ...

    def add(self, ref: str, parent: str, head: PendingHead) -> None:
        """Note a commit on top of the earlier ones, which the ref shall be at in the end."""
        ...


@dataclass(frozen=True, slots=True)
class WorkspaceTransaction(Transaction):
    """The right to change a workspace: a transaction that holds its row, and its repository.

    With ``pending``, commits are not published one by one but all at the end. Until then the mirror is ahead of Git, so
    what other programs have pushed is mirrored before.

    Attributes:
        workspace_id: The workspace.
        repository: Its repository.
        pending: The commits that are published at the end; ``None`` if each is published at once.
        afterwards: Work for the background once the transaction has ended well.
    """

    workspace_id: str
    repository: CommitStore
    pending: OpenCommits | None = None
    afterwards: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)

    def start_afterwards(self) -> None:
        """Start the work that waited for the end of the transaction."""
        for work in self.afterwards:
            self.store.background.start(work())

    async def follow_git(self) -> bool:
        """Mirror what other programs have committed or pushed; with ``pending`` that was done before.

        Returns:
            Whether there was anything.
        """
        if self.pending is not None:
            return False
        with self.store.following(self.workspace_id):
            if not await is_behind(self.conn, self.workspace_id, self.repository):
                return False
            await catch_up_in_transaction(self.conn, self.workspace_id, self.repository, self.store.entries)
        self.commit_point.found_behind = True
        self.store.indexer.notice(self.workspace_id)
        return True


@asynccontextmanager
async def transaction(store: Store, commit_point: CommitPoint, what: str, repair: Repair) -> AsyncIterator[Transaction]:
    """A transaction whose block may change Git without holding a workspace or session that exists already.

    Args:
        store: An open store.
        commit_point: Of the call.
        what: What stays undone when the repair fails for good, for the log.
        repair: Runs in the background when the block or the transaction fails past the commit point, or after it found
            that another program had changed Git.
    """
    try:
        async with store.database.transaction() as conn:
            yield Transaction(store, conn, commit_point)
            commit_point.reached = True  # COMMIT follows; a cancellation must not interrupt it
    except BaseException:
        if commit_point.reached or commit_point.found_behind:
            store.background.start(retry_until_done(what, repair))
        raise


async def repository_of(store: Store, workspace_id: str) -> GitRepository:
    """The repository of a workspace; a thread opens it the first time.

    Raises:
        WorkspaceNotFoundError: There is no workspace with this id.
    """
    opened = store.repositories.opened(workspace_id)
    return await in_store_thread(store.repositories.get, workspace_id) if opened is None else opened


@asynccontextmanager
async def session_transaction(
    store: Store, session_id: str, commit_point: CommitPoint | None = None
) -> AsyncIterator[Connection]:
    """A transaction that holds a session's lock, for changes of its rows alone.

    The lock is taken before a connection, so that changes that wait for the session hold no connection. If a commit
    point is given, a cancellation after the block waits until COMMIT has ended.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_settled(store, session_id))
        conn = await stack.enter_async_context(store.database.transaction())
        yield conn
        if commit_point is not None:
            commit_point.reached = True


@asynccontextmanager
async def _settled(store: Store, session_id: str) -> AsyncIterator[None]:
    """The lock of a session none of whose commits has failed after its branch had moved, as far as rows can tell."""
    while True:
        await store.settle(session_id)
        async with store.locks.sessions.of(session_id):
            if session_id not in store.unsettled:  # else a commit failed so while this call waited for the lock
                yield
                return


def note_unsettled(
    store: Store,
    workspace_id: str,
    session_id: str,
    commit_point: CommitPoint,
    kind: type[BaseException] | None,
    *_: object,
) -> None:
    """When a transaction ends: note its session if its commit may have been made and the rows do not show it."""
    if kind is not None and commit_point.reached:
        store.unsettled[session_id] = workspace_id


async def _has_session(store: Store, workspace_id: str, session_id: str) -> bool:
    """Whether a workspace has a session; one that made a commit may have been lost with the schema ``work`` since."""
    async with store.database.connection() as conn:
        return await sessions.has_session(conn, workspace_id, session_id)


@asynccontextmanager
async def workspace_transaction(
    store: Store,
    workspace_id: str,
    commit_point: CommitPoint,
    *,
    session_id: str = "",
    follow: bool = True,
    admit: bool = True,
    repair: Repair | None = None,
) -> AsyncIterator[WorkspaceTransaction]:
    """Hold a workspace while Git and then its rows are changed, in one transaction of the rows.

    Args:
        store: An open store.
        workspace_id: The workspace.
        commit_point: Of the call; `finish_past_commit_point` makes it.
        session_id: A session whose lock is needed too. It is not waited for if the workspace has no such session: a
            call of another workspace may hold it for long.
        follow: Mirror first what other programs have written to Git.
        admit: Refuse a workspace that is set aside; what may mend or delete it does not ask for this.
        repair: Runs in the background as in `transaction`; the mirroring of Git when none is given.

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
        WorkspaceSetAsideError: It could not be recovered.
    """
    if admit:
        await store.admit(workspace_id)
    has_session = bool(session_id) and await _has_session(store, workspace_id, session_id)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(store.locks.workspaces.of(workspace_id))
        if has_session:
            await stack.enter_async_context(store.locks.sessions.of(session_id))
            stack.push(partial(note_unsettled, store, workspace_id, session_id, commit_point))
        held = await stack.enter_async_context(
            transaction(
                store,
                commit_point,
                f"the mirror of workspace {workspace_id} is behind",
                repair or (lambda: store.catch_up(workspace_id)),
            )
        )
        await registry.lock_workspace(held.conn, workspace_id)
        repository = await repository_of(store, workspace_id)
        opened = WorkspaceTransaction(store, held.conn, commit_point, workspace_id, repository)
        if follow:
            await opened.follow_git()
        yield opened
    opened.start_afterwards()
