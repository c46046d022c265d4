"""The forest in Python: documents are ingested and questions answered, by the blocking and the asynchronous client."""

import errno
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from unit.client.fake_memotree import FakeMemoTree
from unit.client.fake_state import RefusedError, state_of

from memotree.client import (
    Answer,
    AskStep,
    AsyncClient,
    Author,
    Client,
    DeadlineExceededError,
    FilesFound,
    IngestedFile,
    IngestionProgress,
    Job,
    Progress,
    StaleReason,
    Turn,
)
from memotree.client.transport import BlockingTransport
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2 as jobs

pytestmark = [pytest.mark.requirement("SERVE-4")]


@pytest.fixture
def root_id(client: Client) -> str:
    """Make a workspace with a small tree; return the id of its root."""
    client.create_workspace("demo")
    with client.workspace("demo").session() as session:
        session.create_archive("notes", model_id="m1")
        root = session.create("Root", "alpha", archive="notes")
        session.create("Child", "beta", parent=root)
        session.commit("Begin")
    return root.id


def test_a_document_is_ingested_by_a_job_that_can_be_watched(client: Client, root_id: str) -> None:
    assert root_id
    events = list(client.workspace("demo").ingest("Text.", name="guide", model_id="m1", document_id="d1"))
    assert [type(event) for event in events] == [Job, Progress, Job]
    last = events[-1]
    assert isinstance(last, Job)
    assert last.over
    assert last.ingestion is not None
    assert last.ingestion.document_id == "d1"
    archives = {archive.name: archive for archive in client.workspace("demo").archives()}
    assert archives["guide"].attributes["document_id"] == "d1"


def test_a_commit_may_wait_for_the_summaries_above_it(client: Client, fake: FakeMemoTree, root_id: str) -> None:
    with client.workspace("demo").session() as session:
        session.update(root_id, content="gamma")
        session.commit("In the background")
        session.update(root_id, content="delta")
        session.commit("At once", renew_summaries=True)
    assert [request.renew_summaries for request in fake.requests("CommitChanges")][-2:] == [False, True]


def test_a_document_may_be_text_bytes_or_turns(client: Client, fake: FakeMemoTree, root_id: str) -> None:
    assert root_id
    workspace = client.workspace("demo")
    turns = [Turn("Ann", "Hello.", time="2024-05-01", id="t1", session="s1"), Turn("Ben", "Hi.")]
    for document in ("text", b"bytes", turns):
        list(workspace.ingest(document, name="x", chunk_size=300, similarity_threshold=0.0, tags=["a"]))
    requests = fake.requests("IngestDocument")
    assert [each.WhichOneof("document") for each in requests] == ["text", "file", "conversation"]
    assert [(turn.speaker, turn.time) for turn in requests[2].conversation.turns] == [
        ("Ann", "2024-05-01"),
        ("Ben", ""),
    ]
    assert requests[0].HasField("similarity_threshold"), "0 is a threshold like any other"
    assert requests[0].chunk_size == 300


@pytest.mark.requirement("USE-9")
def test_a_folder_is_ingested_in_one_call(client: Client, fake: FakeMemoTree, root_id: str, tmp_path: Path) -> None:
    assert root_id
    workspace = client.workspace("demo")
    (tmp_path / "book").mkdir()
    for name in ("a.md", "b.md", ".c.md"):
        (tmp_path / "book" / name).write_text(f"Text of {name}.")
    fake.refusals["book/b.md"] = ("UNREADABLE_DOCUMENT", "It has no text.")
    events = list(workspace.ingest_files(tmp_path / "book", agent="scout", author=Author("Ada")))
    found, outcomes = events[0], [event for event in events if isinstance(event, IngestedFile)]
    assert isinstance(found, FilesFound)
    assert ([each.name for each in found.files], [each.why for each in found.left_out]) == (
        ["book/a.md", "book/b.md"],
        ["hidden"],
    )
    assert [(each.document_id, each.is_committed, each.message) for each in outcomes] == [
        ("book/a.md", True, ""),
        ("book/b.md", False, "It has no text."),
    ]
    done = [event.done for event in events if isinstance(event, IngestionProgress)]
    assert done == sorted(done)
    assert done[-1] == 2
    (request,) = fake.requests("IngestDocuments")
    assert (request.agent, request.author.name) == ("scout", "Ada")
    with pytest.raises(FileNotFoundError):
        list(workspace.ingest_files(tmp_path / "nowhere"))


@pytest.mark.requirement("USE-9")
def test_a_batch_that_is_too_large_for_the_server_is_sent_in_halves(
    client: Client, fake: FakeMemoTree, root_id: str, tmp_path: Path
) -> None:
    assert root_id
    for name in "abcd":
        (tmp_path / name).write_text(f"Text of {name}.")
    for _ in range(2):
        fake.fail("IngestDocuments", RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too large.", "TOO_LARGE"))
    events = list(client.workspace("demo").ingest_files(tmp_path))
    outcomes = [event for event in events if isinstance(event, IngestedFile)]
    assert [each.is_committed for each in outcomes] == [True] * 4
    assert [len(each.documents) for each in fake.requests("IngestDocuments")] == [4, 2, 1, 1, 2]


@pytest.mark.requirement("USE-9")
def test_a_file_that_cannot_be_read_fails_alone(
    client: Client, root_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert root_id
    for name in "ab":
        (tmp_path / name).write_text(f"Text of {name}.")
    real = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        if self.name == "a":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    events = list(client.workspace("demo").ingest_files(tmp_path))
    outcomes = [event for event in events if isinstance(event, IngestedFile)]
    assert [(each.is_committed, each.reason) for each in outcomes] == [(False, "FILE_NOT_READABLE"), (True, "")]
    assert outcomes[0].message == "It cannot be read: Permission denied."


@pytest.mark.requirement("USE-9")
def test_a_batch_that_takes_longer_than_a_call_is_watched_until_it_ends(
    client: Client, root_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert root_id
    (tmp_path / "a").write_text("Text.")
    real, asked = BlockingTransport.stream, []

    async def stream(self: BlockingTransport, request: Any, answer: Any) -> AsyncIterator[Any]:
        asked.append(type(request).__name__)
        if isinstance(request, jobs.WatchJobRequest):
            result = jobs.IngestedDocument(ingestion=jobs.IngestionResult(commit_id="c" * 40))
            done = jobs.Job(id=request.job_id, state=jobs.JOB_STATE_SUCCEEDED)
            done.batch_ingestion.documents.append(result)
            yield jobs.WatchJobResponse(job=done)
            return
        async for event in real(self, request, answer):
            yield event
            raise DeadlineExceededError("The call has taken too long.")

    monkeypatch.setattr(BlockingTransport, "stream", stream)
    events = list(client.workspace("demo").ingest_files(tmp_path))
    assert asked == ["IngestDocumentsRequest", "WatchJobRequest"]
    (outcome,) = [event for event in events if isinstance(event, IngestedFile)]
    assert outcome.is_committed


@pytest.mark.requirement("USE-9")
def test_after_a_job_that_stopped_nothing_more_is_sent_and_what_it_committed_is_told(
    client: Client, fake: FakeMemoTree, root_id: str, tmp_path: Path
) -> None:
    assert root_id
    workspace = client.workspace("demo")
    for number in range(150):
        (tmp_path / f"{number:03}").write_text(f"Text {number}.")
    list(workspace.ingest_files(tmp_path / "000"))
    (known,) = [each for each in workspace.archives() if each.attributes.get("document_id")]
    stopped = jobs.Job(id="j" * 16, state=jobs.JOB_STATE_STOPPED, reason="BUDGET", message="The limit is reached.")
    fake.ingestions.append(stopped)
    state_of(fake.space("demo"), "").archives[known.id].attributes["ingestion"] = "j" * 16
    events = list(workspace.ingest_files(tmp_path))
    outcomes = [event for event in events if isinstance(event, IngestedFile)]
    assert len(outcomes) == 100
    assert [each.path for each in outcomes if each.is_committed] == [(tmp_path / "000").as_posix()]
    assert {each.message for each in outcomes[1:]} == {"The limit is reached."}


@pytest.mark.requirement("FOREST-8")
def test_recall_takes_its_filters_in_the_words_of_the_domain(client: Client, fake: FakeMemoTree, root_id: str) -> None:
    found = client.workspace("demo").recall(
        "what?",
        strategy="LCA",
        top_k=3,
        archives=["notes"],
        tags=["a"],
        since=datetime(2024, 1, 1, tzinfo=UTC),
        under=root_id,
        include_trace=True,
    )
    assert {each.node.title for each in found.nodes} == {"Root", "Child"}
    assert found.nodes[0].trace is not None
    assert found.nodes[0].trace.signals[0].name == "words"
    assert found.nodes[0].citation is not None
    (request,) = fake.requests("Recall")
    assert request.strategy == pb.RECALL_STRATEGY_LCA
    assert request.filter.since == "2024-01-01T00:00:00+00:00"
    assert (request.filter.scope_node_id, list(request.filter.tags)) == (root_id, ["a"])
    assert client.workspace("demo").recall("what?", strategy="HYBRID").passages[0].headings == ("Top",)
    with pytest.raises(ValueError, match="RecallStrategy"):
        client.workspace("demo").recall("what?", strategy="BEST")  # type: ignore[arg-type] # that is the point


@pytest.mark.requirement("FOREST-7")
def test_drilling_down_returns_children_with_scores(client: Client, fake: FakeMemoTree, root_id: str) -> None:
    found = client.workspace("demo").drill_down(root_id, "beta")
    assert [(each.node.title, each.score) for each in found] == [("Child", 0.8)]
    assert (len(found), found[0].node.title, found.below_threshold) == (1, "Child", 1)
    client.workspace("demo").drill_down(root_id, "beta", threshold=0.0)
    without, with_zero = fake.requests("DrillDown")
    assert (without.HasField("threshold"), with_zero.HasField("threshold")) == (False, True)


@pytest.mark.requirement("FOREST-9")
def test_asking_returns_steps_and_then_the_answer(client: Client, root_id: str) -> None:
    *steps, answer = client.workspace("demo").ask("When?", max_steps=3)
    assert all(isinstance(step, AskStep) for step in steps)
    assert isinstance(answer, Answer)
    assert answer.text == "In 1784."
    assert answer.citations[0].node_id == root_id
    assert answer.citations[0].source is not None
    assert (answer.usage[0].kind, answer.usage[0].calls) == ("chat", 2)


@pytest.mark.requirement("FOREST-11")
def test_archives_are_suggested_and_joined(client: Client, root_id: str) -> None:
    assert root_id
    workspace = client.workspace("demo")
    assert workspace.suggest_archive_merges() == []
    list(workspace.ingest("Text.", name="guide", document_id="d1"))
    (suggestion,) = workspace.suggest_archive_merges(threshold=0.5)
    made = workspace.merge_archives(suggestion.archives, "all")
    assert (made.archive.name, made.moved_nodes) == ("all", 7)


@pytest.mark.requirement("FOREST-5")
def test_stale_summaries_are_listed_and_renewed(client: Client, root_id: str) -> None:
    found = client.workspace("demo").stale_summaries(max_results=1)
    assert (found.summaries[0].node.id, found.summaries[0].reason, found.total) == (root_id, StaleReason.CHILDREN, 2)
    assert client.workspace("demo").renew_summaries().kind == "renew_summaries"


async def test_the_same_on_an_event_loop(fake: FakeMemoTree, root_id: str) -> None:
    async with AsyncClient(fake.address) as client:
        workspace = client.workspace("demo")
        assert len(await workspace.drill_down(root_id, "beta")) == 1
        events = [event async for event in workspace.at("main").ask("When?")]
        assert isinstance(events[-1], Answer)
        assert [type(event) async for event in workspace.ingest("Text.", name="y")] == [Job, Progress, Job]
