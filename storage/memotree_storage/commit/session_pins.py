"""Protects the base commit of an open session, and the commits that it brings, from ``git gc`` by a ref for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from memotree_storage.commit.transaction import repository_of
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import UnavailableError
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.postgres import sessions
from memotree_storage.store import Store

_log = structlog.get_logger(__name__)

_PROTECTED: Final = frozenset({"open", "detached"})
"""The states of sessions whose base commit is protected."""


async def pin_base(store: Store, workspace_id: str, session_id: str, old: str | None, new: str | None) -> None:
    """Move the ref that protects a session's base commit. A failure is only logged: the mirror keeps the commit's rows.

    Calls for one session may end in another order than its changes, such as that of a commit after that of a discard.
    So if the ref is not where the caller left it, it follows the row of the session.

    Args:
        store: An open store.
        workspace_id: The workspace.
        session_id: The session.
        old: The commit that the ref names now, as far as the caller knows; ``None`` if there is no ref.
        new: The commit to protect; ``None`` deletes the ref.
    """
    ref = f"{KEEP_PREFIX}{session_id}"
    repository = await repository_of(store, workspace_id)
    with _logged(ref):
        if not await in_store_thread(repository.move_ref, ref, old, new):
            await _follow_row(store, workspace_id, session_id, repository, ref)


async def pin_brought(store: Store, workspace_id: str, session_id: str, commit_id: str) -> None:
    """Protect a commit whose changes a session brings. Maintenance deletes the ref after its commit or its end."""
    ref = f"{KEEP_PREFIX}{session_id}.{commit_id}"
    repository = await repository_of(store, workspace_id)
    with _logged(ref):
        await in_store_thread(repository.move_ref, ref, None, commit_id)  # if there is one, it names this commit


async def _follow_row(store: Store, workspace_id: str, session_id: str, repository: GitRepository, ref: str) -> None:
    """Move the ref until it is where the row of the session says, although others change both meanwhile."""
    while True:
        async with store.database.connection() as conn:
            session = await sessions.find_if_there(conn, workspace_id, session_id)
        wanted = session.base_commit if session is not None and session.state in _PROTECTED else None
        current = await in_store_thread(repository.ref, ref)
        if current == wanted:
            return
        await in_store_thread(repository.move_ref, ref, current, wanted)


@contextmanager
def _logged(ref: str) -> Iterator[None]:
    """Log an outage."""
    try:
        yield
    except UnavailableError as error:
        _log.warning("a commit of a session is not protected from git gc", ref=ref, why=error.message)
