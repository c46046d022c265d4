"""Jobs whose steps wait until their caller has seen them."""

import asyncio

import pytest

from memotree.jobs.job_context import JobContext


class SeenSteps:
    """Lets each step of a job wait until a caller has seen it, since a slow caller misses steps that are over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen = set[str]()
        self._more = asyncio.Event()
        progress = JobContext.progress

        async def until_seen(context: JobContext, step: str, done: int = 0, total: int = 0) -> None:
            await progress(context, step, done, total)
            while step not in self._seen:
                self._more.clear()
                await self._more.wait()

        monkeypatch.setattr(JobContext, "progress", until_seen)

    def forget(self) -> None:
        """Begin with another job."""
        self._seen.clear()

    def add(self, step: str) -> None:
        """Note what a caller has seen."""
        self._seen.add(step)
        self._more.set()
