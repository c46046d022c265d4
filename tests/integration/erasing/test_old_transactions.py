"""What transactions from before an erasure can still read goes when they have ended."""

import asyncio

import pytest
from memotree_storage.erasure import remains
from memotree_storage.postgres import erasures
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store

pytestmark = pytest.mark.requirement("GIT-10")


async def test_a_transaction_that_only_reads_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = asyncio.Queue[bool]()
    is_settled = erasures.is_settled

    async def observed(conn: Connection, number: str) -> bool:
        looks.put_nowait(found := await is_settled(conn, number))
        return found

    monkeypatch.setattr(erasures, "is_settled", observed)
    async with store.database.connection() as reader:
        await reader.execute("begin isolation level repeatable read read only")
        await reader.execute("select count(*) from work.request")
        async with store.database.transaction() as conn:
            await conn.execute("select pg_current_xact_id()")
        compacting = asyncio.create_task(remains.compact(store, None))
        assert not await looks.get()
        await reader.execute("rollback")
    left = await compacting
    assert not [each for each in left if "did not end" in each]
