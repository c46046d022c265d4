"""Caches the answers of models, and shares calls in progress between equal requests.

A key is a hash of everything that the answer depends on. Equal requests at the same time share one call. Every answer
is stored as soon as it arrives, so that work that crashed does not pay for it again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.postgres import answers
from memotree_storage.postgres.database import Database

from memotree.models.concurrent import finish_all
from memotree.models.meter import BudgetExhaustedError

_log = structlog.get_logger(__name__)

Batches = Callable[[Sequence[bytes]], Iterable[Sequence[bytes]]]
"""Splits keys into the batches of single calls."""

Make = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Calls the model for the values of some keys."""


def key_of(*parts: str) -> bytes:
    """Returns the key of a request: a hash of its parts, which may have any content, in order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


class AnswerCache:
    """A cache of answers by key in PostgreSQL; for one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: dict[bytes, asyncio.Future[bytes | None]] = {}

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns the cached values of these keys."""
        async with self._database.connection() as conn:
            return await answers.find(conn, keys)

    async def answers(
        self, kind: str, model: str, keys: Iterable[bytes], make: Make, batches: Batches
    ) -> tuple[dict[bytes, bytes], int]:
        """Returns the values of all keys, and how many of them needed no call by this caller.

        Args:
            kind: The kind of answer; stored for people who inspect the table.
            model: The model; stored for the same reason.
            keys: The keys; duplicates count once.
            make: Calls the model for the keys of one batch.
            batches: Splits keys into batches.

        Raises:
            DatabaseUnavailableError: If PostgreSQL does not answer.
        """
        missing = list(dict.fromkeys(keys))
        known: dict[bytes, bytes] = {}
        made = 0
        while missing:
            own = [key for key in missing if key not in self._asked]
            shared = {key: self._asked[key] for key in missing if key in self._asked}
            made += await self._lead(kind, model, own, known, make, batches)
            for key, future in shared.items():
                value = await asyncio.shield(future)
                if value is not None:
                    known[key] = value
            missing = [key for key in missing if key not in known]  # another caller was asked for these and failed
        return known, len(known) - made

    async def _lead(
        self, kind: str, model: str, keys: list[bytes], known: dict[bytes, bytes], make: Make, batches: Batches
    ) -> int:
        """Finds or makes the values of keys that no other caller is making now; returns how many were made."""
        loop = asyncio.get_running_loop()
        places = {key: loop.create_future() for key in keys}
        self._asked.update(places)

        def publish(values: Mapping[bytes, bytes]) -> None:
            known.update(values)
            for key, value in values.items():
                places[key].set_result(value)

        async def ask(batch: Sequence[bytes]) -> None:
            async def paid(commit_point: CommitPoint) -> Mapping[bytes, bytes]:
                values = await make(batch)
                commit_point.reached = True  # a caller that leaves now must not make the next one pay again
                await self._keep(kind, model, values)
                return values

            publish(await finish_past_commit_point(paid))

        found: dict[bytes, bytes] = {}
        try:
            if keys:
                found = await self.find(keys)
                publish(found)
                await finish_all([ask(batch) for batch in batches([key for key in keys if key not in found])])
        except MemoTreeError as error:
            # Callers that wait for the same keys get the same error, except for a budget, which is this caller's own.
            _release(places, None if isinstance(error, BudgetExhaustedError) else error)
            raise
        finally:
            _release(places, None)
            for key in keys:
                del self._asked[key]
        return len(keys) - len(found)

    async def _keep(self, kind: str, model: str, values: Mapping[bytes, bytes]) -> None:
        """Stores answers. They are paid for, so the caller gets them even if PostgreSQL is down."""
        try:
            async with self._database.connection() as conn:
                await answers.keep(conn, kind, model, values)
        except UnavailableError as error:
            _log.warning("the answer of a model could not be cached", kind=kind, model=model, why=error.message)


def one_batch(keys: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Returns all keys as one batch."""
    return [keys] if keys else []


def _release(places: Mapping[bytes, asyncio.Future[bytes | None]], error: Exception | None) -> None:
    """Wakes callers that wait for values which will not be made: with ``None``, or with an error."""
    for future in places.values():
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: asyncio would log it if no caller waits
