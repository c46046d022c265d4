"""Mirrors commits that other programs have pushed, before a call that begins at the head of a branch."""

from memotree_storage.commit.transaction import repository_of
from memotree_storage.mirror.catch_up import is_behind
from memotree_storage.store import Store


async def mirror_pushed(store: Store, workspace_id: str) -> None:
    """Mirror what was pushed to a workspace meanwhile, if anything; costs one look at its refs if nothing was."""
    repository = await repository_of(store, workspace_id)
    async with store.database.connection() as conn:
        behind = await is_behind(conn, workspace_id, repository)
    if behind:
        await store.catch_up(workspace_id)
