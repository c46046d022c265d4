"""The answers of models that are known already, and those that are just being asked for.

A key is a hash of everything that the answer depends on. Equal questions at one time share one call; every answer is
kept as soon as it is there, so that work which was killed does not pay for it again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.postgres import answers
from memotree_storage.postgres.database import Database

from memotree.models.concurrent import finish_all
from memotree.models.meter import BudgetExhaustedError

_log = structlog.get_logger(__name__)

Batches = Callable[[Sequence[bytes]], Iterable[Sequence[bytes]]]
"""Cuts keys into those that one call asks for."""

Make = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Asks the model for the values of some keys."""


def key_of(*parts: str) -> bytes:
    """The key of a question: parts of any content, in order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


class AnswerCache:
    """Answers by key, in PostgreSQL; for one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked: dict[bytes, asyncio.Future[bytes | None]] = {}

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """What is known of these keys."""
        async with self._database.connection() as conn:
            return await answers.find(conn, keys)

    async def answers(
        self, kind: str, model: str, keys: Iterable[bytes], make: Make, batches: Batches
    ) -> tuple[dict[bytes, bytes], int]:
        """The values of all keys, and how many of them nobody had to be asked for here.

        Args:
            kind: The kind of answer, for people who look into the table.
            model: The model, likewise.
            keys: What is asked for; equal ones count once.
            make: Asks the model for the keys of one batch.
            batches: Cuts keys into batches.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
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
            missing = [key for key in missing if key not in known]  # those whose asker gave up
        return known, len(known) - made

    async def _lead(
        self, kind: str, model: str, keys: list[bytes], known: dict[bytes, bytes], make: Make, batches: Batches
    ) -> int:
        """Find or make the values of keys that nobody else asks for now; how many were made is returned."""
        loop = asyncio.get_running_loop()
        places = {key: loop.create_future() for key in keys}
        self._asked.update(places)

        def tell(values: Mapping[bytes, bytes]) -> None:
            known.update(values)
            for key, value in values.items():
                places[key].set_result(value)

        async def ask(batch: Sequence[bytes]) -> None:
            values = await make(batch)
            await self._keep(kind, model, values)
            tell(values)

        found: dict[bytes, bytes] = {}
        try:
            if keys:
                found = await self.find(keys)
                tell(found)
                await finish_all([ask(batch) for batch in batches([key for key in keys if key not in found])])
        except MemoTreeError as error:
            # Those who wait for the same learn why there is none; a budget is this caller's own.
            _leave(places, None if isinstance(error, BudgetExhaustedError) else error)
            raise
        finally:
            _leave(places, None)
            for key in keys:
                del self._asked[key]
        return len(keys) - len(found)

    async def _keep(self, kind: str, model: str, values: Mapping[bytes, bytes]) -> None:
        """Remember answers; they are paid for, so the caller gets them even when PostgreSQL is away."""
        try:
            async with self._database.connection() as conn:
                await answers.keep(conn, kind, model, values)
        except UnavailableError as error:
            _log.warning("an answer of a model could not be kept", kind=kind, model=model, why=error.message)


def one_batch(keys: Sequence[bytes]) -> list[Sequence[bytes]]:
    """All keys in one call."""
    return [keys] if keys else []


def _leave(places: Mapping[bytes, asyncio.Future[bytes | None]], error: Exception | None) -> None:
    """End the waiting of others for what will not come."""
    for future in places.values():
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # that nobody may have waited for it is no fault
