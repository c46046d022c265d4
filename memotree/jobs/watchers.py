"""Notifies the callers in this process that watch a job."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Watchers:
    """Wakes the watchers of a job; changes that a watcher has not seen yet are merged into one notification."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def of(self, job_id: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set at each change of the job."""
        event = asyncio.Event()
        self._waiting[job_id].add(event)
        try:
            yield event
        finally:
            self._waiting[job_id].discard(event)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    def notify(self, job_id: str) -> None:
        """Wakes the watchers of a job."""
        for event in self._waiting.get(job_id, ()):
            event.set()

    def notify_all(self) -> None:
        """Wakes the watchers of all jobs."""
        for job_id in list(self._waiting):
            self.notify(job_id)
