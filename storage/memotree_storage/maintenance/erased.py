"""The rows of a workspace follow a new generation of its repository, which an erasure has put in its place."""

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.erasures import rewritten_commits
from memotree_storage.git.generations import ErasedMark
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.catch_up import Report, replay_in_transaction
from memotree_storage.model.workspace import WorkspaceInfo
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.erasures import carry_over


async def follow_generation(
    conn: Connection, info: WorkspaceInfo, repository: GitRepository, mark: ErasedMark, report: Report | None = None
) -> None:
    """Mirror the new history from its beginning, and let sessions, views, requests and jobs name its commits.

    Args:
        conn: In a transaction that holds the workspace.
        info: The workspace as the new generation describes it.
        repository: The new generation.
        mark: Its mark.
        report: Called with progress.
    """
    await projector.forget(conn, info.workspace_id)  # from here on no session can be opened on an old commit
    commits = await in_store_thread(rewritten_commits, repository, mark.erasure_id)
    await carry_over(conn, info.workspace_id, commits, mark.blobs)
    await registry.register(conn, info)
    await replay_in_transaction(conn, info.workspace_id, repository, report)
