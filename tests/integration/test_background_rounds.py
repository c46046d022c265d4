"""The background work on repositories goes on, whatever fails in one of its rounds."""

import asyncio

import pytest
from integration.pushes import DEADLINE
from integration.worlds import World
from memotree_storage.git.repository import GitRepository
from memotree_storage.maintenance import background
from memotree_storage.model.node import new_id

pytestmark = pytest.mark.own_store


async def test_packing_a_workspace_that_was_deleted_meanwhile_is_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    looked, packed = asyncio.Event(), asyncio.Event()
    loop, find = asyncio.get_running_loop(), world.store.repositories.get

    def get(workspace_id: str) -> GitRepository:
        if workspace_id == gone:
            loop.call_soon_threadsafe(looked.set)
        return find(workspace_id)

    def count(_: object) -> int:
        loop.call_soon_threadsafe(packed.set)
        return 0

    gone = new_id()
    monkeypatch.setattr(background._log, "warning", lambda event, **_: told.append(event))
    monkeypatch.setattr(world.store.repositories, "get", get)
    monkeypatch.setattr(background, "count_packs", count)
    world.store.maintenance.notice(gone)
    await asyncio.wait_for(looked.wait(), DEADLINE)
    packed.clear()
    world.store.maintenance.notice(world.workspace)  # its turn comes after that of the other one
    await asyncio.wait_for(packed.wait(), DEADLINE)
    assert told == []


@pytest.mark.parametrize("failure", [OSError("no"), RuntimeError("no"), ValueError("no")])
async def test_repacking_and_tidying_continue_after_errors(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    calls: dict[str, int] = {"count": 0, "tidy": 0}
    twice = asyncio.Event()

    def failing(key: str) -> None:
        calls[key] += 1
        if min(calls.values()) > 1:
            loop.call_soon_threadsafe(twice.set)
        if calls[key] == 1:
            raise failure

    def count(_: object) -> int:
        failing("count")
        return 0

    async def tidy() -> int:
        failing("tidy")
        world.store.maintenance.notice(world.workspace)
        return 0

    loop = asyncio.get_running_loop()
    await world.store.maintenance.stop()
    monkeypatch.setattr(background, "count_packs", count)
    monkeypatch.setattr(background, "_PERIOD", 0.0)
    monkeypatch.setattr(world.store.maintenance, "tidy", tidy)
    world.store.maintenance.start()
    await asyncio.wait_for(twice.wait(), DEADLINE)
    await world.store.maintenance.stop()
