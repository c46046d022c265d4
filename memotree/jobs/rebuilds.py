"""The jobs that make the mirrors of a workspace anew."""

from memotree_storage.store import Store

from memotree.jobs.job_context import RunningJob
from memotree.jobs.runner import Runner

REBUILD = "rebuild"
REINDEX = "reindex"


def register(runner: Runner, store: Store) -> None:
    """Register ``rebuild`` and ``reindex``; both may begin again at any point."""

    async def rebuild(running: RunningJob) -> None:
        await store.rebuild(running.job.workspace_id, running.report)

    async def reindex(running: RunningJob) -> None:
        await store.reindex(running.job.workspace_id, running.report)

    runner.register(REBUILD, rebuild)
    runner.register(REINDEX, reindex)


def lane(workspace_id: str) -> str:
    """The lane of both: a second one waits for the first."""
    return f"{workspace_id}/mirrors"
