"""An optimised copy of a shard takes its place: nothing is lost by a kill at any moment, nor by writes meanwhile."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from integration.embedded.engines import Running, run_engine
from integration.embedded.programs import alive, until
from memotree_storage import faults
from memotree_storage.conformance.vector_index import entries, point, unit
from memotree_storage.ports import IndexEntry, IndexPoint, IndexQuery, IndexUnavailableError, LineSpan, TermVector

pytestmark = pytest.mark.requirement("STORE-1")

POINTS = 300


def some(count: int = POINTS, first: int = 0) -> list[IndexPoint]:
    return [
        point("w", number % 3, number, vector=unit(1.0, number / 100), terms=TermVector((7, 10 + number), (1.0, 2.0)))
        for number in range(first, first + count)
    ]


def known(points: list[IndexPoint], ended: dict[str, int] | None = None) -> dict[str, IndexEntry]:
    """What a scan must give of points."""
    return {
        one.point_id: IndexEntry(
            one.point_id, one.node_id, one.line_id, one.from_seq, (ended or {}).get(one.point_id), ()
        )
        for one in points
    }


async def check(running: Running, expected: dict[str, IndexEntry], points: list[IndexPoint]) -> None:
    """Check all points by a scan, and both kinds of search for some."""
    assert await entries(running.index, "w") == expected
    assert await running.index.count("w") == len(expected)
    for one in points[::97]:
        query = IndexQuery("w", [LineSpan(one.line_id, 2**31)], 5, node_ids=[one.node_id])
        assert one.vector is not None
        assert [hit.point_id for hit in await running.index.nearest(query, one.vector)] == [one.point_id]
        terms = await running.index.best_terms(query, TermVector((10 + one.from_seq,), (1.0,)))
        assert [hit.point_id for hit in terms] == [one.point_id]


@pytest.fixture
def stops_halfway(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that optimises a copy stops before the end, until it is told to go on."""
    monkeypatch.setenv(faults.ENVIRONMENT_VARIABLE, "engine.copy_optimised:1:stop")


async def halfway(running: Running) -> tuple[asyncio.Task[None], int]:
    """Begin to optimise, and wait until the process that does it has stopped."""
    optimising = asyncio.create_task(running.engine.optimise())
    await until(lambda: running.stopped_optimiser() or optimising.done(), "the process that optimises a copy stops")
    child = running.stopped_optimiser()
    assert child is not None, optimising
    assert os.getpriority(os.PRIO_PROCESS, child) > os.getpriority(os.PRIO_PROCESS, running.pid)
    return optimising, child


async def test_the_shard_is_replaced_and_stays_replaced_after_a_restart(tmp_path: Path) -> None:
    points = some()
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert(points)
        await running.engine.optimise()
        (first,) = running.shards()
        assert first != "shard"
        await check(running, known(points), points)
        await running.engine.optimise()
        (second,) = running.shards()
        assert second != first
    async with run_engine(tmp_path / "qdrant") as running:
        assert running.shards() == [second]
        await check(running, known(points), points)


@pytest.mark.parametrize("moment", ["engine.shard_copied", "engine.copy_flushed", "engine.shard_replaced"])
async def test_a_kill_leaves_the_old_or_the_new_shard_with_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setenv(faults.ENVIRONMENT_VARIABLE, moment)
    points = some()
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert(points[:200])
        await running.index.flush()
        await running.index.upsert(points[200:])
        ended = {points[5].point_id: 90, points[250].point_id: 1000}
        await running.index.close_versions(list(ended.items()))
        with pytest.raises(IndexUnavailableError):
            await running.engine.optimise()
        await running.restarted()
        (shard,) = running.shards()
        assert (shard == "shard") == (moment != "engine.shard_replaced")
        await check(running, known(points, ended), [one for one in points if one.point_id not in ended])


async def test_when_the_optimising_process_is_killed_the_shard_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faults.ENVIRONMENT_VARIABLE, "engine.copy_optimised")
    points = some()
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert(points)
        with pytest.raises(IndexUnavailableError, match="does not answer"):
            await running.engine.optimise()
        assert running.shards() == ["shard"]
        assert running.engine.supervisor.restarts == 0
        await check(running, known(points), points)


@pytest.mark.usefixtures("stops_halfway")
async def test_writes_go_on_while_a_copy_is_optimised_and_are_in_it(tmp_path: Path) -> None:
    points = some()
    later = some(50, first=1000)
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert(points)
        optimising, child = await halfway(running)
        await running.index.upsert(later)
        ended = {points[3].point_id: 50, later[7].point_id: 2000}
        await running.index.close_versions(list(ended.items()))
        await running.index.upsert([points[4]])
        await running.index.delete("w", lines=[2])
        await running.index.flush()
        left = [one for one in points + later if one.line_id != 2]
        expected = {key: entry for key, entry in known(points + later, ended).items() if entry.line_id != 2}
        open_ended = [one for one in left if one.point_id not in ended]
        await check(running, expected, open_ended)
        assert not optimising.done()
        os.kill(child, signal.SIGCONT)
        await optimising
        assert running.shards() != ["shard"]
        await check(running, expected, open_ended)
        await running.kill()
        await check(running, expected, open_ended)


@pytest.mark.usefixtures("stops_halfway")
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_the_optimising_process_ends_with_the_engine(tmp_path: Path, how: str) -> None:
    points = some()
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert(points)
        optimising, child = await halfway(running)
        os.kill(running.pid, signal.SIGKILL if how == "killed" else signal.SIGTERM)
        await until(lambda: not alive(child), "the process has ended")
        with pytest.raises(IndexUnavailableError):
            await optimising
        await running.restarted()
        assert running.shards() == ["shard"]
        await check(running, known(points), points)


@pytest.mark.usefixtures("stops_halfway")
async def test_a_collection_can_be_removed_while_its_copy_is_optimised(tmp_path: Path) -> None:
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert(some())
        optimising, child = await halfway(running)
        await running.client.delete_collection(running.index.collection)
        assert not alive(child)
        with pytest.raises(IndexUnavailableError):
            await optimising
        await running.index.prepare()
        assert await running.index.count("w") == 0
