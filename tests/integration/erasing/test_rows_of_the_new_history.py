"""After an erasure, the rows follow the new history: sessions go on in it, and verify names what leads elsewhere."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from integration.damage import change, differences
from integration.pushes import rewind, session_of
from integration.worlds import World
from memotree_storage.erasure.rewriting import Order, rewrite_history
from memotree_storage.model.erasure import ErasureTarget
from memotree_storage.model.node import new_id
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import IndexPoint
from memotree_storage.postgres.database import TransactionRacedError

pytestmark = [pytest.mark.requirement("GIT-10", "STORE-4"), pytest.mark.own_store]

DAMAGE = {
    "a row leads to another commit": "update mirror.rewritten set new_commit = repeat('a', 40)",
    "a row is missing": (
        "delete from mirror.rewritten where old_commit in (select min(old_commit) from mirror.rewritten)"
    ),
    "a row is of a commit that was not rewritten": (
        "insert into mirror.rewritten select workspace_id, repeat('b', 40), new_commit from mirror.rewritten limit 1"
    ),
}


async def erase(world: World, text: str) -> None:
    by = service_signature(datetime.now(UTC).replace(microsecond=0))
    await rewrite_history(
        world.store, Order(new_id(), world.workspace, ErasureTarget(text=text), "ada", "It leaked.", by)
    )


async def test_a_wrong_row_of_an_erased_commit_is_named_and_repaired(world: World) -> None:
    await world.put(world.node(content="The word is tulip."))
    await erase(world, "tulip")
    assert await differences(world) == []
    for damage, statement in DAMAGE.items():
        await change(world, statement)
        found = await differences(world)
        assert {(one.store, one.what) for one in found} == {("postgres", "commit")}, damage
        assert "which an erasure rewrote, leads to" in found[0].description
        await world.store.rebuild(world.workspace)
        assert await differences(world) == [], damage


async def test_points_that_wait_for_their_deletion_are_no_difference(world: World) -> None:
    """The old history was indexed already; the job of an erasure deletes its points in its next part."""
    await world.put(world.node(content="The word is tulip."))
    await world.store.indexer.drain(world.workspace)
    await erase(world, "tulip")
    assert await differences(world) == []
    assert await world.store.index.count(world.workspace) == 2
    await world.store.index_rows(world.workspace)
    assert await world.store.index.count(world.workspace) == 1
    assert await differences(world) == []


async def test_a_late_write_of_the_old_points_does_not_outlive_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index carries out what it was sent, although the transaction has failed and the call was cancelled."""
    store, upsert, delete = world.store, world.store.index.upsert, world.store.index.delete
    sent, may_write, order = asyncio.Event(), asyncio.Event(), list[str]()
    carrying: list[asyncio.Task[None]] = []

    async def carry_out(points: Sequence[IndexPoint]) -> None:
        await may_write.wait()
        await upsert(points)
        order.append("written")

    async def send(points: Sequence[IndexPoint]) -> None:
        if points and not carrying:
            carrying.append(asyncio.create_task(carry_out(points)))
            sent.set()
            await asyncio.shield(carrying[0])
        else:
            await upsert(points)

    async def deleted(workspace_id: str, **lines: Any) -> None:
        await delete(workspace_id, **lines)
        order.append("deleted")

    async def fail(*_: Any) -> None:
        await sent.wait()
        raise TransactionRacedError("It raced.")

    await store.indexer.stop()
    await world.put(world.node(content="The word is tulip."))
    monkeypatch.setattr(store.index, "upsert", send)
    monkeypatch.setattr(store.index, "delete", deleted)
    with monkeypatch.context() as failing:
        failing.setattr(store.indexer, "_put_features", fail)
        with pytest.raises(TransactionRacedError):
            await store.indexer.drain(world.workspace)
    await erase(world, "tulip")
    asyncio.get_running_loop().call_later(0.5, may_write.set)
    await asyncio.gather(store.index_rows(world.workspace), carrying[0])
    assert order == ["written", "deleted"]
    assert await store.index.count(world.workspace) == 1
    assert await differences(world) == []


async def test_an_open_session_goes_on_after_an_erasure(world: World) -> None:
    await world.put(world.node(content="The word is tulip."))
    session_id = await world.open()
    await world.stage(session_id, world.node("Mine"))
    await erase(world, "tulip")
    assert not (await session_of(world, session_id)).rewound
    assert await world.commit(session_id) == await world.head()


async def test_a_rewound_session_stays_so_after_an_erasure(world: World) -> None:
    first = await world.put(world.node(content="The word is tulip."))
    await world.put(world.node())
    session_id = await world.open()
    await rewind(world, first)
    await erase(world, "tulip")
    assert (await session_of(world, session_id)).rewound
