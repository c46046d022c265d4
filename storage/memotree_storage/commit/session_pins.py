"""Protects the base commit of an open session, and the commits that it brings, from ``git gc`` by a ref for each."""

import structlog

from memotree_storage.commit.transaction import repository_of
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import UnavailableError
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.store import Store

_log = structlog.get_logger(__name__)


async def pin_base(store: Store, workspace_id: str, session_id: str, old: str | None, new: str | None) -> None:
    """Move the ref that protects a session's base commit. A failure is only logged: the mirror keeps the commit's rows.

    Args:
        store: An open store.
        workspace_id: The workspace.
        session_id: The session.
        old: The commit that the ref names now, as far as the caller knows; ``None`` if there is no ref.
        new: The commit to protect; ``None`` deletes the ref.
    """
    await _pin(store, workspace_id, f"{KEEP_PREFIX}{session_id}", old, new)


async def pin_brought(store: Store, workspace_id: str, session_id: str, commit_id: str) -> None:
    """Protect a commit whose changes a session brings. Maintenance deletes the ref after its commit or its end."""
    await _pin(store, workspace_id, f"{KEEP_PREFIX}{session_id}.{commit_id}", None, commit_id)


async def _pin(store: Store, workspace_id: str, ref: str, old: str | None, new: str | None) -> None:
    repository = await repository_of(store, workspace_id)
    try:
        if not await in_store_thread(repository.move_ref, ref, old, new):
            current = await in_store_thread(repository.ref, ref)
            await in_store_thread(repository.move_ref, ref, current, new)
    except UnavailableError as error:
        _log.warning("a commit of a session is not protected from git gc", ref=ref, why=error.message)
