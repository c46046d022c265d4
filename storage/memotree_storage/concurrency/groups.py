"""Work that waits for one lock is done together: one task takes all that waits at that moment, in order."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from memotree_storage.concurrency.background import BackgroundTasks

Member = TypeVar("Member")

MakeSome = Callable[[deque[Member]], Awaitable[None]]
"""Takes some members from the left of the queue and does their work; it must not fail."""


class Groups(Generic[Member]):
    """Queues by key, each with a task that works on it while it is not empty. Not thread-safe: for one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Member]] = {}
        self._tasks = BackgroundTasks()

    def join(self, key: str, member: Member, make_some: MakeSome[Member]) -> None:
        """Add a member to a queue; if nobody works on this queue, begin.

        Args:
            key: The queue.
            member: Its work is done by ``make_some`` of the first member that waits.
            make_some: Called again and again until the queue is empty.
        """
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(member)
            return
        self._queues[key] = deque([member])
        self._tasks.start(self._work(key, make_some))

    async def finish(self) -> None:
        """Wait a few seconds for what was begun, then cancel the rest."""
        await self._tasks.finish()

    async def _work(self, key: str, make_some: MakeSome[Member]) -> None:
        queue = self._queues[key]
        try:
            while queue:
                await make_some(queue)
        finally:
            del self._queues[key]
