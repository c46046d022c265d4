"""The server is killed with SIGKILL while it ingests documents; the next one finishes and repeats no model call."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from campaigns import points
from crash.service import DEADLINE, running
from crash.test_job_kill import over
from endpoints import ModelEndpoint
from integration.calls import ROOT_CONTENT, Calls
from integration.ingestion.documents import paragraphs

from memotree.settings import Settings
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import forest_service_pb2_grpc, job_service_pb2, node_service_pb2

pytestmark = pytest.mark.requirement("FOREST-1", "FOREST-12", "SERVE-6")

POINTS = (
    "job.claimed",
    "ingest.summarised",
    "ingest.planned",
    "commit.before-swap:2",
    "commit.swapped:2",  # the first commit is that of the root
    "ingest.committed",
    "job.worked",
)

MODEL_CALLS_AT_ONCE: Final = Settings.model_fields["model_concurrency"].default

SHAPE: dict[str, Any] = {"chunk_size": 300, "similarity_threshold": 0.3}
TEXT = "".join(
    f"# Chapter {number}\n\n" + "\n\n".join(paragraphs(4 * number + 4)[4 * number :]) + "\n\n" for number in range(5)
)


@pytest.fixture
async def endpoint() -> AsyncIterator[ModelEndpoint]:
    async with ModelEndpoint() as made:
        yield made


def environment(endpoint: ModelEndpoint) -> Mapping[str, str]:
    """The settings that name an endpoint, as variables."""
    return {f"MEMOTREE_{name.upper()}": value for name, value in endpoint.settings("chat", "embedding").items()}


def request(**fields: Any) -> pb.IngestDocumentRequest:
    return pb.IngestDocumentRequest(
        workspace="garden", text=TEXT, media_type="text/markdown", name="book", document_id="book", **SHAPE, **fields
    )


def batch(texts: Mapping[str, str], **fields: Any) -> pb.IngestDocumentsRequest:
    documents = [
        pb.NewDocument(name=name, document_id=name, text=text, media_type="text/markdown")
        for name, text in texts.items()
    ]
    return pb.IngestDocumentsRequest(workspace="garden", documents=documents, **SHAPE, **fields)


async def ingest(channel: grpc.aio.Channel, asked: pb.IngestDocumentRequest | pb.IngestDocumentsRequest) -> str:
    """Start an ingestion and read its events until the server ends; return the id of the job."""
    stub: Any = forest_service_pb2_grpc.ForestServiceStub(channel)
    job_id = ""
    try:
        async for event in getattr(stub, type(asked).__name__.removesuffix("Request"))(asked):
            job_id = event.job.id or job_id
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017 - the server was killed
    return job_id


def asked_twice(endpoint: ModelEndpoint) -> list[str]:
    """The texts that were sent to the endpoint more than once.

    The root from before the ingestion is left out: indexing a commit is no job, so it is repeated after a kill.
    """
    questions = Counter(call["messages"][1]["content"] for call in endpoint.chat_calls)
    questions.update(text for text in endpoint.texts_embedded if text != ROOT_CONTENT)
    return [text for text, times in questions.items() if times > 1]


async def text_of(calls: Calls, archive_id: str) -> str:
    """The leaves of an archive, joined."""
    found = await calls.nodes.GetTree(
        node_service_pb2.GetTreeRequest(workspace=calls.workspace, archive=archive_id, max_nodes=1000)
    )
    leaves = [await calls.read(item.node.id) for item in found.nodes if item.node.type == "leaf_chunk"]
    return "".join(content or "" for content in leaves)


def git(repository: Path, *arguments: str) -> list[str]:
    """The output lines of the git program in a repository."""
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - git, with our arguments
    return done.stdout.splitlines()


async def calls_made(endpoint: ModelEndpoint, count: int) -> None:
    """Wait until the endpoint got this many requests."""
    async with asyncio.timeout(DEADLINE):
        while len(endpoint.chat_calls) < count:  # noqa: ASYNC110 - the endpoint knows no events
            await asyncio.sleep(0)


async def finished_after_a_kill(
    folder: Path, endpoint: ModelEndpoint, asked: Any, point: str, texts: list[str], subject: str
) -> None:
    """Kill a server at a point of an ingestion; the next one must finish it in one commit, without repeated calls."""
    data, log = folder / "data", folder / "server.log"
    async with running(data, log, fault=point, environment=environment(endpoint)) as service:
        async with service.channel() as channel:
            await Calls(channel, "garden").begin()
            job_id = await ingest(channel, asked)
        await service.has_killed_itself()
    async with running(data, log, environment=environment(endpoint)) as service:
        async with service.channel() as channel:
            again = await ingest(channel, asked)
            job = await over(channel, again)
            assert again == (job_id or again)
            assert (job.state, job.attempts) == (job_service_pb2.JOB_STATE_SUCCEEDED, 2), job.message
            calls = Calls(channel, "garden")
            results = [each.ingestion for each in job.batch_ingestion.documents] or [job.ingestion]
            for result, text in zip(results, texts, strict=True):
                assert await text_of(calls, result.archive_id) == text
                assert result.created_leaves > 0, "the result is known whenever the server was killed"
            assert await calls.differences() == []
        (repository,) = (data / "workspaces").glob("*.git")
        assert git(repository, "log", "--format=%s", "main").count(subject) == 1, "one commit, whenever it was"
        assert {result.commit_id for result in results} == set(git(repository, "rev-parse", "main"))
        assert asked_twice(endpoint) == []
        assert await service.stop() == 0


@pytest.mark.parametrize("point", points("ingestion", POINTS))
async def test_a_killed_ingestion_is_finished_by_the_next_server_without_repeated_model_calls(
    tmp_path: Path, endpoint: ModelEndpoint, point: str
) -> None:
    asked = request(request_id="the-one")
    await finished_after_a_kill(tmp_path, endpoint, asked, point, [TEXT], "Ingest book")


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize("point", points("batch", [*POINTS, "ingest.summarised:2"], hardest="commit.swapped:2"))
async def test_a_killed_batch_is_finished_by_the_next_server_in_one_commit(
    tmp_path: Path, endpoint: ModelEndpoint, point: str
) -> None:
    texts = {name: f"# {name.title()}\n\n{TEXT}" for name in ("one", "two")} | {"three": "A short one."}
    asked = batch(texts, request_id="the-one")
    await finished_after_a_kill(tmp_path, endpoint, asked, point, [*texts.values()], "Ingest 3 documents")


@pytest.mark.campaign
@pytest.mark.parametrize("is_killed", [True, False])
async def test_after_an_end_during_model_calls_only_the_unanswered_ones_are_repeated(
    tmp_path: Path, endpoint: ModelEndpoint, *, is_killed: bool
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    async with running(data, log, environment=environment(endpoint)) as service, service.channel() as channel:
        await Calls(channel, "garden").begin()
        listening = asyncio.create_task(ingest(channel, request()))
        await calls_made(endpoint, 4)
        if is_killed:
            endpoint.hold()
            service.kill()
        else:
            assert await service.stop() == 0
        job_id = await listening
        endpoint.release()
    async with running(data, log, environment=environment(endpoint)) as service, service.channel() as channel:
        job = await over(channel, job_id)
        assert job.state == job_service_pb2.JOB_STATE_SUCCEEDED
        assert await text_of(Calls(channel, "garden"), job.ingestion.archive_id) == TEXT
    assert len(asked_twice(endpoint)) <= MODEL_CALLS_AT_ONCE
