"""Damages rows of the mirror, and returns the differences that a verification finds."""

from typing import Any

from integration.worlds import World
from memotree_storage.verify import Difference, verify


async def differences(world: World) -> list[Difference]:
    """All differences that a verification finds."""
    return [found async for found in verify(world.store, world.workspace) if isinstance(found, Difference)]


def kinds(found: list[Difference]) -> set[tuple[str, str]]:
    return {(one.store, one.what) for one in found}


async def change(world: World, statement: str, *arguments: Any) -> None:
    """Change the mirror by a statement, which must affect at least one row."""
    async with world.store.database.connection() as conn:
        cursor = await conn.execute(statement.encode(), arguments)
        assert cursor.rowcount > 0


async def node_of(world: World, title: str) -> str:
    async with world.store.database.connection() as conn:
        row = await (await conn.execute("select entry_id from mirror.version where title = %s", (title,))).fetchone()
    assert row is not None
    return str(row[0])
