"""Creating, changing and deleting workspaces: the repository and its row together."""

from functools import partial
from pathlib import Path

from memotree_storage import faults
from memotree_storage.commit.transaction import Transaction, WorkspaceTransaction, transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.model.trailers import Request
from memotree_storage.model.workspace import WorkspaceInfo, WorkspaceNotFoundError
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.requests import check_same_request
from memotree_storage.store import Store


async def create_workspace(store: Store, info: WorkspaceInfo) -> Workspace:
    """Make a workspace with an empty first commit on its default branch.

    Raises:
        WorkspaceExistsError: Another workspace has the name.
    """

    async def work(commit_point: CommitPoint) -> Workspace:
        repair = partial(repair_creation, store, info.workspace_id)
        async with transaction(store, commit_point, f"workspace {info.name} is half made", repair) as held:
            created = await create_workspace_in_transaction(held, info)
        await store.catch_up(info.workspace_id)
        return created

    return await finish_past_commit_point(work)


async def create_workspace_in_transaction(
    held: Transaction, info: WorkspaceInfo, request: Request | None = None
) -> Workspace:
    """The same in the caller's transaction; the caller mirrors the first commit when that has ended.

    If the same request made the workspace before and its answer was lost, that workspace is returned.
    """
    request = request or Request()
    earlier = await registry.made_by_request(held.conn, info.name, request.id)
    if earlier is not None:
        check_same_request(request, earlier.message)
        return earlier.workspace
    await registry.put_workspace(held.conn, info)
    faults.point("workspace.registered")
    await held.change_git(held.store.repositories.create, info, request)
    faults.point("workspace.made")
    return await registry.find_workspace(held.conn, info.workspace_id)


async def repair_creation(store: Store, workspace_id: str) -> None:
    """After a failed creation: mirror the workspace if PostgreSQL has its row, else discard its repository."""
    try:
        async with store.database.connection() as conn:
            await registry.find_workspace(conn, workspace_id)
    except WorkspaceNotFoundError:
        await discard_repository(store, workspace_id)
    else:
        await store.catch_up(workspace_id)


async def discard_repository(store: Store, workspace_id: str) -> None:
    """Move the repository of a workspace to the trash, if it is there."""
    if store.repositories.path(workspace_id).is_dir():
        await in_store_thread(store.repositories.discard, workspace_id)


async def describe_workspace(held: WorkspaceTransaction, info: WorkspaceInfo, message: str) -> Workspace:
    """Give a workspace another name or description, in its row and by a commit on its description's ref.

    Raises:
        WorkspaceExistsError: Another workspace has the name.
        WorkspaceRacedError: Another program changed the description at the same moment.
    """
    await registry.put_workspace(held.conn, info)
    await held.change_git(held.store.repositories.update, info, message)
    return await registry.find_workspace(held.conn, info.workspace_id)


async def delete_workspace(held: WorkspaceTransaction) -> Path:
    """Remove the rows of a workspace and move its repository to the trash; return the new folder.

    Its lines are noted as gone until its points are removed, so that the next start removes those too.
    """
    await projector.forget(held.conn, held.workspace_id)
    await registry.remove_workspace(held.conn, held.workspace_id)
    return await held.change_git(held.store.repositories.discard, held.workspace_id)
