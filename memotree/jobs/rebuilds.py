"""The jobs that make the mirrors of a workspace anew."""

from memotree_storage.store import Store

from memotree.jobs.job_context import JobContext
from memotree.jobs.runner import JobRunner

REBUILD = "rebuild"
REINDEX = "reindex"


def register(runner: JobRunner, store: Store) -> None:
    """Register ``rebuild`` and ``reindex``; both may begin again at any point."""

    async def rebuild(context: JobContext) -> None:
        await store.rebuild(context.job.workspace_id, context.report)

    async def reindex(context: JobContext) -> None:
        await store.reindex(context.job.workspace_id, context.report)

    runner.register(REBUILD, rebuild)
    runner.register(REINDEX, reindex)


def lane(workspace_id: str) -> str:
    """The lane of both: a second one waits for the first."""
    return f"{workspace_id}/mirrors"
