"""Removes what jobs of a kind keep from one attempt to the next, once no job of that kind needs it."""

from collections.abc import Awaitable, Callable
from typing import Final

from memotree_storage.concurrency.cancellation import retry_until_done
from memotree_storage.postgres import jobs
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.jobs import QUEUED, RUNNING, STOPPED, JobFilter

_NEEDING: Final = (QUEUED, RUNNING, STOPPED)


class Leftovers:
    """What jobs have left, by their kind.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._remove: dict[str, Callable[[], Awaitable[object]]] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that may leave something."""
        return tuple(self._remove)

    def register(self, kind: str, remove: Callable[[], Awaitable[object]]) -> None:
        """Let a function remove what jobs of a kind leave; it is safe to repeat."""
        self._remove[kind] = remove

    async def remove(self, kind: str) -> None:
        """Remove what jobs of a kind have left, unless one of them may still need it."""
        if kind not in self._remove:
            return

        async def remove() -> None:
            async with self._database.connection() as conn:
                left = await jobs.list_jobs(conn, JobFilter(states=_NEEDING, kind=kind), before=None, limit=1)
            if not left:
                await self._remove[kind]()

        await retry_until_done(f"what jobs of the kind {kind} have left stays", remove)
