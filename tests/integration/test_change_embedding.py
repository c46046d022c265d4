"""ChangeEmbedding on a real server: the job, its cancellation, and what answers meanwhile."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crash.service import DEADLINE, Service, start
from integration.leftovers import files_with

from memotree.client import AsyncClient, Difference, InvalidArgumentError, Job, JobState
from memotree.client.workspace import AsyncWorkspace

pytestmark = [pytest.mark.requirement("STORE-7"), pytest.mark.timeout(180)]

OLD, NEW = "wordllama-l2-256", "wordllama-l2-64"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    found = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        yield found
    finally:
        found.kill()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.address) as found:
        yield found


def collections(service: Service) -> list[Path]:
    """The folders of the indexes."""
    return [path.parent for path in service.data.glob("qdrant/data/collections/*/collection.binpb")]


async def over(client: AsyncClient, job: Job) -> Job:
    async with asyncio.timeout(DEADLINE):
        async for each in client.watch_job(job):
            job = each
    return job


async def differences(workspace: AsyncWorkspace) -> list[str]:
    return [each.description async for each in workspace.verify() if isinstance(each, Difference)]


async def filled(client: AsyncClient, name: str, count: int) -> AsyncWorkspace:
    """A workspace with a document of many leaves."""
    await client.create_workspace(name)
    workspace = client.workspace(name)
    parts = [f"# Part {number}\n\nRoses of bed {number} need water at {number} o'clock." for number in range(count)]
    async for _ in workspace.ingest("\n\n".join(parts), name="beds.md"):
        pass
    return workspace


async def test_searches_recall_and_commits_go_on_until_and_after_the_switch(
    client: AsyncClient, service: Service
) -> None:
    garden = await filled(client, "garden", 400)
    job = await client.change_embedding("wordllama-l2", dimensions=64, request_id="once")
    assert (await client.change_embedding("wordllama-l2", dimensions=64, request_id="once")).id == job.id
    assert (job.kind, job.subject, job.workspace_id) == ("change_embedding", "wordllama-l2 64", "")
    watching = asyncio.create_task(over(client, job))
    seen, notes = set[str](), 0
    while not watching.done() or notes < 3:
        seen.add((await client.status()).embedding_model)
        notes += 1
        await garden.remember(f"Tulip number {notes} is yellow.", title=f"Tulip {notes}")
        found = await garden.search(f"yellow tulip number {notes}", search_type="HYBRID", max_results=20)
        assert f"Tulip {notes}" in [hit.node.title for hit in found]
        answer = await garden.recall("When do the roses of bed 7 need water?")
        assert "7 o'clock" in answer.text
    assert (await watching).state is JobState.SUCCEEDED
    assert (await client.status()).embedding_model == NEW
    assert seen <= {OLD, NEW}
    assert await differences(garden) == []
    assert len(collections(service)) == 1
    for number in range(1, notes + 1):
        (hit,) = await garden.search(f"Tulip number {number} is yellow.", search_type="SEMANTIC", max_results=1)
        assert hit.node.title.startswith("Tulip")


async def test_a_cancelled_change_leaves_the_old_model_and_nothing_of_the_new_one(
    client: AsyncClient, service: Service
) -> None:
    garden = await filled(client, "garden", 1500)
    job = await client.change_embedding("wordllama-l2", dimensions=128)
    async with asyncio.timeout(DEADLINE):
        async for each in client.watch_job(job):
            if each.progress is not None:
                break
    job = await client.cancel_job(job)
    job = await over(client, job)
    assert job.state is JobState.CANCELLED
    assert (await client.status()).embedding_model == OLD
    async with asyncio.timeout(DEADLINE):
        while len(collections(service)) > 1:  # noqa: ASYNC110 - it is deleted in the background
            await asyncio.sleep(0.01)
    (hit,) = await garden.search("roses of bed 7 need water", search_type="SEMANTIC", max_results=1)
    assert "o'clock" in hit.preview
    assert await differences(garden) == []
    assert (await over(client, await client.resume_job(job))).state is JobState.SUCCEEDED
    assert (await client.status()).embedding_model == "wordllama-l2-128"
    assert await differences(garden) == []


async def test_a_killed_engine_loses_nothing_of_either_index(client: AsyncClient, service: Service) -> None:
    garden = await filled(client, "garden", 800)
    job = await client.change_embedding("wordllama-l2", dimensions=128)
    async with asyncio.timeout(DEADLINE):
        async for each in client.watch_job(job):
            if each.progress is not None and each.progress.done:
                break
    os.kill(service.child("memotree_storage.qdrant.engine"), signal.SIGKILL)
    job = await over(client, job)
    assert job.state is JobState.SUCCEEDED, job.message
    assert (await client.status()).embedding_model == "wordllama-l2-128"
    assert len(collections(service)) == 1
    assert await differences(garden) == []


@pytest.mark.requirement("GIT-10")
async def test_an_erasure_meanwhile_takes_the_text_out_of_both_indexes(client: AsyncClient, service: Service) -> None:
    garden = await filled(client, "garden", 300)
    secret = "Ranunkel-5519"  # noqa: S105 - of nobody
    made = await garden.remember(f"The word is {secret}.", title="Word")
    phrase = (await garden.preview_erasure(text=secret)).phrase
    change = await client.change_embedding("wordllama-l2", dimensions=64)
    erasure = await garden.erase(phrase, "It leaked.", text=secret, by="ada")
    for job in (change, erasure):
        ended = await over(client, job)
        assert ended.state is JobState.SUCCEEDED, ended.message
    assert (await client.status()).embedding_model == NEW
    assert await differences(garden) == []
    assert len(collections(service)) == 1
    assert files_with(service.data, secret.encode()) == []
    assert (await garden.node(made.node.id)).content == "The word is erased."


async def test_the_model_that_answers_already_is_no_work(client: AsyncClient, service: Service) -> None:
    garden = await filled(client, "garden", 5)
    job = await over(client, await client.change_embedding("wordllama-l2-256"))
    assert job.state is JobState.SUCCEEDED
    assert len(collections(service)) == 1
    assert await differences(garden) == []


@pytest.mark.parametrize(
    ("model", "dimensions", "said"),
    [
        (
            "bge-m3",
            0,
            "is none of wordllama-l2, all-minilm-l6-v2. To use a model behind a URL, name both",
        ),
        ("wordllama-l2", 100, "has vectors of length 64, 128, 256, not 100"),
        ("wordllama-l2-64", 128, "has vectors of length 64, not 128"),
        ("all-minilm-l6-v2", 256, "has vectors of length 384, not 256"),
        ("wordllama-l2", -1, "is below 0"),
        ("", 0, "model"),
    ],
)
async def test_a_model_that_cannot_be_used_is_refused_with_what_can(
    client: AsyncClient, model: str, dimensions: int, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        await client.change_embedding(model, dimensions=dimensions)
