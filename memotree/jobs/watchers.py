"""Who waits for news of a job in this process."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Watchers:
    """Wakes those who watch a job; several changes before one looks are one piece of news."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def of(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each change of the job."""
        event = asyncio.Event()
        self._waiting[job_id].add(event)
        try:
            yield event
        finally:
            self._waiting[job_id].discard(event)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    def tell(self, job_id: str) -> None:
        """Tell that a job has changed."""
        for event in self._waiting.get(job_id, ()):
            event.set()

    def tell_all(self) -> None:
        """Wake everybody."""
        for job_id in list(self._waiting):
            self.tell(job_id)
