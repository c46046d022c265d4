"""The server is killed while an index of another embedding model is made: afterwards the old or the new one answers.

The next server ends the job. At every moment exactly one index answers, and it is whole.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from campaigns import budget, dice, points
from crash.filled_folders import FilledFolders
from crash.service import DEADLINE, Service, running, start
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.postgres import indexes
from memotree_storage.postgres.database import Database

from memotree.client import AsyncClient, Difference, Job, JobState, UnavailableError
from memotree.client.workspace import AsyncWorkspace

pytestmark = [pytest.mark.requirement("STORE-7", "STORE-1"), pytest.mark.timeout(180)]

OLD, NEW = "wordllama-l2-256", "wordllama-l2-64"
BEFORE = ("reindex.begun", "index.put", "reindex.workspace-filled", "reindex.filled", "reindex.switching")
AFTER = ("reindex.switched", "reindex.rows-deleted", "reindex.points-deleted", "job.worked")


async def prepare(service: Service) -> None:
    """Make two workspaces with notes."""
    async with AsyncClient(service.address) as client:
        for name in ("garden", "meadow"):
            await client.create_workspace(name)
            for number in range(12):
                await client.workspace(name).remember(f"Note {number} of the {name}.")
            await client.workspace(name).remember(f"Roses of the {name} need water.", title="Roses")
        await client.workspace("garden").branch("idea")
    await service.has_indexed()  # or the next server could have a point to put before it has a job


async def best(workspace: AsyncWorkspace, question: str = "Do roses need water?") -> str:
    """The title of what is nearest in meaning to a question."""
    found = await workspace.search(question, search_type="SEMANTIC", max_results=1)
    return found.hits[0].node.title


async def is_whole(client: AsyncClient) -> None:
    """The index that answers has all, and nothing else."""
    for name in ("garden", "meadow"):
        workspace = client.workspace(name)
        assert await best(workspace) == "Roses"
        assert [each.description async for each in workspace.verify() if isinstance(each, Difference)] == []


async def answering(data: Path) -> str:
    """The embedding model of the index that answers, as the database says while no server uses it."""
    postgres = EmbeddedPostgres(data / "postgres")
    try:
        database = Database(await postgres.start())
        await database.open()
        try:
            async with database.connection() as conn:
                found = await indexes.read(conn)
        finally:
            await database.close()
    finally:
        await postgres.stop()
    assert found is not None
    return found.current.model


async def ended(data: Path, log: Path) -> None:
    """The next server answers at once with one of the models, ends the job, and has deleted the other index."""
    async with running(data, log) as service:
        async with AsyncClient(service.address) as client:
            assert (await client.status()).embedding_model in {OLD, NEW}
            assert await best(client.workspace("garden")) == "Roses"
            await client.workspace("garden").remember("What came after the kill.", title="Later")
            job = await over(client)
            assert job.state is JobState.SUCCEEDED, job.message
            assert (await client.status()).embedding_model == NEW
            await is_whole(client)
            assert await best(client.workspace("garden"), "what came after the kill") == "Later"
        async with asyncio.timeout(DEADLINE):
            while len(collections(data)) > 1:  # noqa: ASYNC110 - the server deletes the earlier one in the background
                await asyncio.sleep(0.01)
        assert await service.stop() == 0


def collections(data: Path) -> list[Path]:
    """The folders of the indexes."""
    return [path.parent for path in data.glob("qdrant/data/collections/*/collection.binpb")]


async def over(client: AsyncClient) -> Job:
    """The only job at its end."""
    (job,) = [each async for each in client.jobs(kind="change_embedding")]
    async with asyncio.timeout(DEADLINE):
        async for each in client.watch_job(job):
            job = each
    return job


@pytest.mark.parametrize("point", points("reindex", (*BEFORE, *AFTER), hardest="reindex.switched"))
async def test_a_killed_change_of_the_model_is_ended_by_the_next_server(
    filled: FilledFolders, tmp_path: Path, point: str
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    await filled.copy(data, prepare)
    async with running(data, log, fault=point) as service, AsyncClient(service.address) as client:
        with suppress(UnavailableError):  # the server may end before it can answer
            await client.change_embedding("wordllama-l2", dimensions=64, request_id="once")
        await service.has_killed_itself()
    assert await answering(data) == (OLD if point in BEFORE else NEW)
    await ended(data, log)


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(budget(1)))
async def test_kills_at_random_moments_leave_one_whole_index(
    filled: FilledFolders, tmp_path: Path, number: int
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    await filled.copy(data, prepare)
    rng = dice("reindex", number)
    service: Service = await start(data, log)
    try:
        async with AsyncClient(service.address) as client:
            await client.change_embedding("wordllama-l2", dimensions=64, request_id="once")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), rng.uniform(0.0, 0.5))
            service.kill()
            service = await start(data, log)
            async with AsyncClient(service.address) as client:
                assert await best(client.workspace("garden")) == "Roses"
    finally:
        service.kill()
    await ended(data, log)
