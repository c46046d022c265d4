"""The planner's statistics follow large commits at once, not when PostgreSQL next looks."""

import asyncio

import pytest
from integration.pushes import DEADLINE, rows
from integration.worlds import World
from memotree_storage.maintenance import background
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.planner_statistics import renew_statistics

pytestmark = [pytest.mark.requirement("STORE-9"), pytest.mark.own_store]

MANY = 600


async def known_rows(world: World) -> float:
    """The rows of the table of placements that the planner knows of; -1 before the first statistics."""
    ((known,),) = await rows(world.store, "select reltuples from pg_class where oid = 'mirror.placement'::regclass")
    return float(known)


async def test_a_table_that_has_grown_is_analyzed_once(world: World) -> None:
    await world.store.maintenance.stop()
    await world.put(world.node())
    assert await renew_statistics(world.store.database) == []
    await world.put(*world.nodes(MANY))
    async with asyncio.timeout(DEADLINE):
        while await known_rows(world) < MANY:  # a connection may tell ten seconds later what it has written
            await renew_statistics(world.store.database)
            await asyncio.sleep(0.05)
    assert "placement" not in await renew_statistics(world.store.database)


async def test_each_commit_and_rebuild_asks_how_much_has_grown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def telling(database: Database) -> list[str]:
        if database is world.store.database:  # other tests have stores in this process
            asked.put_nowait(None)
        return []

    monkeypatch.setattr(background, "renew_statistics", telling)
    monkeypatch.setattr(background, "_PAUSE", 0)
    async with asyncio.timeout(DEADLINE):
        await world.put(world.node())
        await asked.get()
        while not asked.empty():
            asked.get_nowait()
        await world.store.rebuild(world.workspace)
        await asked.get()
