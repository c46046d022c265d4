"""ChangeEmbedding on a real server: the job, its cancellation, and what answers meanwhile."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from crash.service import DEADLINE, Service, start
from integration.leftovers import files_with
from memotree_storage.model.node import new_id

from memotree.client import AsyncClient, Difference, InvalidArgumentError, Job, JobState
from memotree.client.workspace import AsyncWorkspace
from memotree.v1 import workspace_service_pb2, workspace_service_pb2_grpc

pytestmark = [pytest.mark.requirement("STORE-7"), pytest.mark.timeout(180)]

LENGTHS = (64, 128, 256)
"""The lengths that the built-in model can have; each test changes to another one than it finds."""


@pytest.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """One server for all; each test has a workspace of its own."""
    folder = tmp_path_factory.mktemp("embedding")
    found = await start(folder / "data", folder / "server.log")
    try:
        yield found
    finally:
        found.kill()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.address) as found:
        yield found


def named(length: int) -> str:
    return f"wordllama-l2-{length}"


async def lengths(client: AsyncClient) -> tuple[str, int]:
    """The model that answers, and a length that it does not have."""
    model = (await client.status()).embedding_model
    return model, next(length for length in LENGTHS if named(length) != model)


def collections(service: Service) -> list[Path]:
    """The folders of the indexes."""
    return [path.parent for path in service.data.glob("qdrant/data/collections/*/collection.binpb")]


async def over(client: AsyncClient, job: Job) -> Job:
    async with asyncio.timeout(DEADLINE):
        async for each in client.watch_job(job):
            job = each
    return job


async def until_progress(client: AsyncClient, job: Job, done: int = 0) -> None:
    """Wait until a job has told that it has done so much of a step."""
    async with asyncio.timeout(DEADLINE):
        async for each in client.watch_job(job):
            if each.progress is not None and each.progress.done >= done:
                break


async def differences(workspace: AsyncWorkspace) -> list[str]:
    return [each.description async for each in workspace.verify() if isinstance(each, Difference)]


Filled = Callable[[int], Awaitable[AsyncWorkspace]]


@pytest.fixture
async def filled(client: AsyncClient, service: Service) -> AsyncIterator[Filled]:
    """Makes a workspace with a document of many leaves; a change is as long as there are leaves, so it is deleted."""
    name = f"garden-{new_id()}"

    async def fill(count: int) -> AsyncWorkspace:
        await client.create_workspace(name)
        workspace = client.workspace(name)
        parts = [f"# Part {number}\n\nRoses of bed {number} need water at {number} o'clock." for number in range(count)]
        async for _ in workspace.ingest("\n\n".join(parts), name="beds.md"):
            pass
        return workspace

    yield fill
    async with service.channel() as channel:
        stub = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
        await stub.DeleteWorkspace(workspace_service_pb2.DeleteWorkspaceRequest(workspace=name, confirm_name=name))


async def test_searches_recall_and_commits_go_on_until_and_after_the_switch(
    client: AsyncClient, filled: Filled, service: Service
) -> None:
    garden = await filled(200)
    old, length = await lengths(client)
    change = {"model": "wordllama-l2", "dimensions": length, "request_id": new_id()}
    job = await client.change_embedding(**change)
    assert (await client.change_embedding(**change)).id == job.id
    assert (job.kind, job.subject, job.workspace_id) == ("change_embedding", f"wordllama-l2 {length}", "")
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
    assert (await client.status()).embedding_model == named(length)
    assert seen <= {old, named(length)}
    assert await differences(garden) == []
    assert len(collections(service)) == 1
    for number in range(1, notes + 1):
        (hit,) = await garden.search(f"Tulip number {number} is yellow.", search_type="SEMANTIC", max_results=1)
        assert hit.node.title.startswith("Tulip")


async def test_a_cancelled_change_leaves_the_old_model_and_nothing_of_the_new_one(
    client: AsyncClient, filled: Filled, service: Service
) -> None:
    garden = await filled(1000)
    old, length = await lengths(client)
    job = await client.change_embedding("wordllama-l2", dimensions=length)
    await until_progress(client, job)
    job = await over(client, await client.cancel_job(job))
    assert job.state is JobState.CANCELLED
    assert (await client.status()).embedding_model == old
    async with asyncio.timeout(DEADLINE):
        while len(collections(service)) > 1:  # noqa: ASYNC110 - it is deleted in the background
            await asyncio.sleep(0.01)
    (hit,) = await garden.search("roses of bed 7 need water", search_type="SEMANTIC", max_results=1)
    assert "o'clock" in hit.preview
    assert await differences(garden) == []
    assert (await over(client, await client.resume_job(job))).state is JobState.SUCCEEDED
    assert (await client.status()).embedding_model == named(length)
    assert await differences(garden) == []


async def test_a_killed_engine_loses_nothing_of_either_index(
    client: AsyncClient, filled: Filled, service: Service
) -> None:
    garden = await filled(400)
    _, length = await lengths(client)
    job = await client.change_embedding("wordllama-l2", dimensions=length)
    await until_progress(client, job, done=1)
    os.kill(service.child("memotree_storage.qdrant.engine"), signal.SIGKILL)
    job = await over(client, job)
    assert job.state is JobState.SUCCEEDED, job.message
    assert (await client.status()).embedding_model == named(length)
    assert len(collections(service)) == 1
    assert await differences(garden) == []


@pytest.mark.requirement("GIT-10")
async def test_an_erasure_during_a_change_takes_the_text_out_of_both_indexes(
    client: AsyncClient, filled: Filled, service: Service
) -> None:
    garden = await filled(100)
    secret = "Ranunkel-5519"  # noqa: S105 - of nobody
    made = await garden.remember(f"The word is {secret}.", title="Word")
    phrase = (await garden.preview_erasure(text=secret)).phrase
    _, length = await lengths(client)
    change = await client.change_embedding("wordllama-l2", dimensions=length)
    erasure = await garden.erase(phrase, "It leaked.", text=secret, by="ada")
    for job in (change, erasure):
        ended = await over(client, job)
        assert ended.state is JobState.SUCCEEDED, ended.message
    assert (await client.status()).embedding_model == named(length)
    assert await differences(garden) == []
    assert len(collections(service)) == 1
    assert files_with(service.data, secret.encode()) == []
    assert (await garden.node(made.node.id)).content == "The word is erased."


async def test_the_model_that_answers_already_is_no_work(client: AsyncClient, filled: Filled, service: Service) -> None:
    garden = await filled(5)
    model, _ = await lengths(client)
    job = await over(client, await client.change_embedding(model))
    assert job.state is JobState.SUCCEEDED
    assert len(collections(service)) == 1
    assert await differences(garden) == []


async def test_a_model_that_cannot_be_used_is_refused_with_what_can(client: AsyncClient) -> None:
    for model, dimensions, said in (
        (
            "bge-m3",
            0,
            "is none of wordllama-l2, all-minilm-l6-v2, use-multilingual-3. To use a model behind a URL, name both",
        ),
        ("wordllama-l2", 100, "has vectors of length 64, 128, 256, not 100"),
        ("wordllama-l2-64", 128, "has vectors of length 64, not 128"),
        ("wordllama-l2", -1, "is below 0"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            await client.change_embedding(model, dimensions=dimensions)
