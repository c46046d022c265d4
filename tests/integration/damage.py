"""Damages rows of the mirror, and returns the differences that a verification finds."""

from typing import Any

from integration.worlds import World
from memotree_storage.postgres.database import TransactionRacedError
from memotree_storage.verify import Difference, verify


async def differences(world: World) -> list[Difference]:
    """All differences that a verification finds."""
    return [found async for found in verify(world.store, world.workspace) if isinstance(found, Difference)]


def kinds(found: list[Difference]) -> set[tuple[str, str]]:
    return {(one.store, one.what) for one in found}


async def change(world: World, statement: str, *arguments: Any) -> None:
    """Change the mirror by a statement, which must affect at least one row.

    The store indexes meanwhile: a cascading delete by hand may reach the rows of the outbox in another order.
    """
    for left in reversed(range(5)):
        try:
            async with world.store.database.connection() as conn:
                cursor = await conn.execute(statement.encode(), arguments)
        except TransactionRacedError:
            if not left:
                raise
        else:
            assert cursor.rowcount > 0
            return
