"""A workspace held for a change of Git and then of its rows: its turn, one transaction, and what mends a broken end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from memotree_storage.concurrency.cancellation import CommitPoint, retry_until_done
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.catch_up import catch_up_within, is_behind
from memotree_storage.postgres import registry
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store


@dataclass(frozen=True, slots=True)
class WorkspaceTransaction:
    """The right to change a workspace: a transaction that holds it, and its repository."""

    conn: Connection
    repository: GitRepository


@asynccontextmanager
async def workspace_transaction(
    store: Store,
    workspace_id: str,
    commit_point: CommitPoint,
    *,
    session_id: str = "",
    follow: bool = True,
    mend: Callable[[], Coroutine[Any, Any, object]] | None = None,
) -> AsyncIterator[WorkspaceTransaction]:
    """Hold a workspace while Git and then its rows are changed, in one transaction of the rows.

    Args:
        store: An open store.
        workspace_id: The workspace.
        commit_point: Set by the block just before Git changes. When the block or its transaction fails after that, the
            rows are made to follow in the background.
        session_id: A session whose turn is needed too.
        follow: Bring the mirror to where Git is first.
        mend: What makes the rows follow; the mirroring of Git when none is given.

    Raises:
        WorkspaceNotFoundError: It is gone.
    """
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(store.locks.of(workspace_id))
            if session_id:
                await stack.enter_async_context(store.locks.of(session_id))
            conn = await stack.enter_async_context(store.database.transaction())
            await registry.lock_workspace(conn, workspace_id)
            repository = await asyncio.to_thread(store.repositories.get, workspace_id)
            if follow and await is_behind(conn, workspace_id, repository):
                await catch_up_within(conn, workspace_id, repository)
                store.indexer.notice(workspace_id)
            yield WorkspaceTransaction(conn, repository)
    except BaseException:
        if commit_point.reached:
            repair = mend or (lambda: store.catch_up(workspace_id))
            store.locks.run_in_background(retry_until_done(f"the mirror of workspace {workspace_id} is behind", repair))
        raise
