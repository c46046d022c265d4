"""Holding the base commit of an open session against ``git gc``, by a ref of its own."""

import asyncio

import structlog

from memotree_storage.errors import UnavailableError
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.store import Store

_log = structlog.get_logger(__name__)


async def pin_base(store: Store, workspace_id: str, session_id: str, old: str | None, new: str | None) -> None:
    """Move the ref that holds a session's base commit. Best effort, since the mirror keeps the commit's rows as well.

    Args:
        store: An open store.
        workspace_id: The workspace.
        session_id: The session.
        old: The commit that is held, as far as the caller knows; ``None`` for none.
        new: The commit to hold; ``None`` to let go.
    """
    repository = await asyncio.to_thread(store.repositories.get, workspace_id)
    ref = f"{KEEP_PREFIX}{session_id}"
    try:
        if not await asyncio.to_thread(repository.move_ref, ref, old, new):
            current = (await asyncio.to_thread(repository.refs)).get(ref)
            await asyncio.to_thread(repository.move_ref, ref, current, new)
    except UnavailableError as error:
        _log.warning("the base of a session is not held against git gc", session=session_id, why=error.message)
