"""Turns: who may change a workspace, decided before a connection of the pool is taken.

PostgreSQL would make the callers wait as well, but each with a connection in its hand; a few of them would keep every
other call of the server waiting.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from memotree_storage.catchup import catch_up_within, is_behind
from memotree_storage.git.repository import GitRepository
from memotree_storage.postgres import registry
from memotree_storage.postgres.database import Connection
from memotree_storage.shield import Passage, until_done

if TYPE_CHECKING:
    from memotree_storage.store import Store

_GRACE: Final = 5.0


class Turns:
    """One lock per workspace or session, and the background work that is left when a turn has ended.

    A workspace's turn comes before that of a session in it, and both before a transaction.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._background: set[asyncio.Task[None]] = set()

    def of(self, key: str) -> asyncio.Lock:
        """The lock of a workspace's or session's id; served in the order of asking, gone when nobody has it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def finish(self, grace: float = _GRACE) -> None:
        """Wait for the background work, so many seconds at most: the next start makes up for the rest."""
        if not self._background:
            return
        _, late = await asyncio.wait(self._background, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to change a workspace: a transaction that holds it, and its repository."""

    conn: Connection
    repository: GitRepository


@asynccontextmanager
async def turn_of(
    store: "Store",
    workspace_id: str,
    passage: Passage,
    *,
    session_id: str = "",
    follow: bool = True,
    mend: Callable[[], Coroutine[Any, Any, object]] | None = None,
) -> AsyncIterator[Turn]:
    """Hold a workspace while Git and then its rows are changed, in one transaction of the rows.

    Args:
        store: An open store.
        workspace_id: The workspace.
        passage: Set by the block just before Git changes. When the block or its transaction fails after that, the rows
            are made to follow in the background.
        session_id: A session whose turn is needed too.
        follow: Bring the mirror to where Git is first.
        mend: What makes the rows follow; the mirroring of Git when none is given.

    Raises:
        WorkspaceNotFoundError: It is gone.
    """
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(store.turns.of(workspace_id))
            if session_id:
                await stack.enter_async_context(store.turns.of(session_id))
            conn = await stack.enter_async_context(store.database.transaction())
            await registry.lock_workspace(conn, workspace_id)
            repository = await asyncio.to_thread(store.repositories.get, workspace_id)
            if follow and await is_behind(conn, workspace_id, repository):
                await catch_up_within(conn, workspace_id, repository)
                store.indexer.notice(workspace_id)
            yield Turn(conn, repository)
    except BaseException:
        if passage.begun:
            repair = mend or (lambda: store.catch_up(workspace_id))
            store.turns.afterwards(until_done(f"the mirror of workspace {workspace_id} is behind", repair))
        raise
