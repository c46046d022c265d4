"""Ingestion: the events of its job, names and places, and refusals."""

import asyncio
from typing import Any

import pytest
from integration.forests import FAILED, SUCCEEDED, Forest
from integration.ingestion.documents import prose
from integration.ingestion.steps import SeenSteps
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.errors import AlreadyExistsError, InvalidInputError, NotFoundError

from memotree.forest.documents.document import EmptyDocumentError, UnreadableDocumentError
from memotree.forest.ingestion.known_document import DocumentNameTakenError
from memotree.history import HistoryOperations
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import history_service_pb2, types_pb2

# --- What a job tells ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-1", "SERVE-6")
async def test_progress_is_streamed_and_the_commit_names_the_document_the_tool_and_the_job(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = SeenSteps(monkeypatch)
    told = await forest.try_ingest(prose(8), on_step=seen.add, name="papers", chunk_size=300, agent="scout")
    assert (told.first.id, told.first.kind, told.first.subject) == (told.last.id, "ingest", "papers")
    assert told.last.state == SUCCEEDED
    names = list(dict.fromkeys(step for step, _, _ in told.steps))
    assert names == ["split", "summarise", "embed", "merge", "commit"]
    assert all(done <= total for _, done, total in told.steps)
    assert told.result.commit_id == await forest.world.head()
    message = forest.git("log", "-1", "--format=%s%n%an%n%b")
    assert message.startswith("Ingest papers\nscout")
    for trailer in ("Agent: scout", "Tool: IngestDocument", f"Job: {told.last.id}"):
        assert f"MemoTree-{trailer}\n" in message


async def test_a_caller_that_stops_listening_does_not_stop_the_job(forest: Forest) -> None:
    request = pb.IngestDocumentRequest(workspace=forest.world.workspace, text=prose(30), name="papers")
    events = forest.ingestion.ingest_document(request)
    first = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert (await forest.over(first.job.id)).state == SUCCEEDED


async def test_message_author_and_tags_are_those_of_the_request(forest: Forest) -> None:
    result = await forest.ingest(
        prose(3),
        name="papers",
        message="Take the notes in\n\nThey were on paper.",
        author=types_pb2.CommitAuthor(name="Ada", email="ada@example.org"),
        tags=["paper", "old", "paper"],
    )
    assert forest.git("log", "-1", "--format=%s|%an|%ae").strip() == "Take the notes in|Ada|ada@example.org"
    assert "They were on paper." in forest.git("log", "-1", "--format=%b")
    assert all(version.tags == ["old", "paper"] for version in await forest.versions(result.archive_id))


async def test_a_request_id_makes_one_job_and_one_tree(forest: Forest) -> None:
    told = await asyncio.gather(
        *(forest.try_ingest(prose(5), name="papers", request_id="one-and-the-same") for _ in range(3))
    )
    again = await forest.try_ingest(prose(5), name="papers", request_id="one-and-the-same")
    assert len({each.last.id for each in (*told, again)}) == 1
    assert forest.commits()[0] == "Ingest papers"
    assert forest.commits().count("Ingest papers") == 1
    with pytest.raises(InvalidInputError):
        await forest.try_ingest(prose(6), name="papers", request_id="one-and-the-same")


async def test_a_document_is_kept_as_long_as_its_job_may_need_it(forest: Forest) -> None:
    async def inputs() -> int:
        async with forest.world.store.database.connection() as conn:
            mine = "select count(*) from work.job_input join work.job using (job_id) where workspace_id = %s"
            row = await (await conn.execute(mine, (forest.world.workspace,))).fetchone()
        return int(row[0]) if row else -1

    await forest.ingest(prose(3), name="papers")
    assert await inputs() == 0
    told = await forest.try_ingest(prose(4), name="papers", request_id="r")
    assert told.last.state == FAILED
    assert await inputs() == 1, "it may be resumed"
    await forest.commit_change_of_name("papers", "old papers")
    assert (await forest.resume(told.last.id)).state == SUCCEEDED
    assert await inputs() == 0


# --- Names and places ------------------------------------------------------------------------------------------------


async def test_the_same_document_twice_without_an_id_makes_two_archives(forest: Forest) -> None:
    text = "# A title\n\nSome text.\n"
    first = await forest.ingest(text, media_type="text/markdown")
    second = await forest.ingest(text, media_type="text/markdown")
    assert first.archive_id != second.archive_id
    assert first.document_id != second.document_id
    titles = [(await forest.archive(result.archive_id)).title for result in (first, second)]
    assert titles == ["A title", "A title (2)"], "nobody asked for that name, so it gives way"


async def test_a_name_that_another_archive_has_is_refused_at_once(forest: Forest) -> None:
    await forest.ingest("One.", name="papers", document_id="d1")
    other = await forest.ingest("Two.", name="others", document_id="d2")
    for fields in ({"document_id": "d3"}, {}, {"document_id": "d2"}):
        with pytest.raises(DocumentNameTakenError) as caught:
            await forest.try_ingest("Three.", name="papers", **fields)
        assert isinstance(caught.value, AlreadyExistsError)
    # With a request id an earlier attempt of this call may have taken the name; then the job reports it.
    told = await forest.try_ingest("Three.", name="papers", request_id="r")
    assert (told.last.state, told.last.reason) == (FAILED, "DOCUMENT_NAME_TAKEN")
    assert (await forest.archive(other.archive_id)).title == "others"


@pytest.mark.requirement("FOREST-5")
async def test_a_new_name_and_model_rename_the_archive_of_a_known_document(forest: Forest) -> None:
    first = await forest.ingest(prose(4), name="papers", document_id="d", model_id="scout")
    second = await forest.ingest(prose(4), name="my papers", document_id="d")
    third = await forest.ingest(prose(4), document_id="d", model_id="ranger")
    archive = await forest.archive(first.archive_id)
    assert (archive.title, archive.type) == ("my papers", "ranger")
    assert second.commit_id != third.commit_id
    assert set(forest.files()) == {first.archive_id}, "no node is touched"


async def test_documents_go_to_the_branch_that_is_named(forest: Forest) -> None:
    head = await forest.world.head()
    history = HistoryOperations(forest.world.store, forest.world.pages, forest.world.limits)
    await history.create_branch(
        history_service_pb2.CreateBranchRequest(workspace=forest.world.workspace, name="side", revision=head)
    )
    result = await forest.ingest("On the side.", name="papers", branch="side")
    assert await forest.world.head() == head
    assert await forest.text(result.archive_id, "side") == "On the side."
    on_main = await forest.ingest("On main.", name="papers")
    assert on_main.archive_id != result.archive_id


async def test_a_missing_workspace_or_branch_is_refused(forest: Forest) -> None:
    with pytest.raises(BranchNotFoundError):
        await forest.try_ingest("Text.", branch="nowhere")
    request = pb.IngestDocumentRequest(workspace="nowhere", text="Text.")
    with pytest.raises(NotFoundError):
        await anext(aiter(forest.ingestion.ingest_document(request)))


# --- What is refused -------------------------------------------------------------------------------------------------


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"text": " \n\u200b\t\n"}, "EMPTY_DOCUMENT"),
    ({"file": b""}, "EMPTY_DOCUMENT"),
    ({"file": bytes(range(256)) * 8}, "BINARY_DOCUMENT"),
    ({"file": b"%PDF-1.7 and nothing more"}, "DAMAGED_PDF"),
    ({"conversation": pb.Conversation()}, "EMPTY_DOCUMENT"),
]


async def test_an_unreadable_document_is_refused_before_a_job_is_created(forest: Forest) -> None:
    before = forest.commits()
    for fields, reason in UNREADABLE:
        with pytest.raises(UnreadableDocumentError) as caught:
            await forest.try_ingest(**fields)
        assert caught.value.reason == reason, fields
        assert isinstance(caught.value, EmptyDocumentError) == (reason == "EMPTY_DOCUMENT"), fields
    assert forest.commits() == before


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({}, "document"),
    ({"text": "x", "chunk_size": 5}, "chunk_size"),
    ({"text": "x", "chunk_size": 1 << 30}, "chunk_size"),
    ({"text": "x", "merge_limit": -1}, "merge_limit"),
    ({"text": "x", "similarity_threshold": 1.5}, "similarity_threshold"),
    ({"text": "x", "similarity_threshold": float("nan")}, "similarity_threshold"),
    ({"text": "x", "max_model_tokens": -1}, "max_model_tokens"),
    ({"text": "x", "document_id": "d\n"}, "document_id"),
    ({"text": "x", "document_id": "d" * 201}, "document_id"),
    ({"text": "x", "model_id": "m" * 201}, "model_id"),
    ({"text": "x", "name": "n" * 201}, "name"),
    ({"text": "x", "tags": ["a,b"]}, "tags[0]"),
    ({"text": "x", "tags": [f"{n:03}" + "y" * 90 for n in range(60)]}, "tags"),
    ({"text": "x", "message": "no\0"}, "message"),
    ({"text": "x", "author": types_pb2.CommitAuthor(name="<>")}, "author.name"),
]


async def test_impossible_values_are_refused_by_their_field(forest: Forest) -> None:
    for fields, path in IMPOSSIBLE:
        with pytest.raises(InvalidInputError) as caught:
            await forest.try_ingest(**fields)
        assert path in {violation.field for violation in caught.value.violations}, fields
