"""The jobs that rebuild the mirrors of a workspace."""

from memotree_storage.store import Store

from memotree.jobs.job_context import JobContext
from memotree.jobs.runner import JobRunner

REBUILD = "rebuild"
REINDEX = "reindex"


def register(runner: JobRunner, store: Store) -> None:
    """Registers ``rebuild`` and ``reindex``; both can be restarted at any point."""

    async def rebuild(context: JobContext) -> None:
        await store.rebuild(context.job.workspace_id, context.report)

    async def reindex(context: JobContext) -> None:
        await store.reindex(context.job.workspace_id, context.report)

    runner.register(REBUILD, rebuild)
    runner.register(REINDEX, reindex)


def lane(workspace_id: str) -> str:
    """Returns the lane of both kinds, so that only one of them runs at a time in a workspace."""
    return f"{workspace_id}/mirrors"
