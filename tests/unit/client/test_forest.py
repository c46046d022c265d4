"""The forest in Python: documents are ingested and questions answered, by the blocking and the asynchronous client."""

import errno
from collections.abc import AsyncIterator, Iterable
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
    Turn,
    Workspace,
)
from memotree.client.transport import BlockingTransport
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2 as jobs

pytestmark = [pytest.mark.requirement("SERVE-4")]


ROOT = "r" * 16


@pytest.fixture
def workspace(client: Client) -> Workspace:
    """A workspace with a small tree."""
    client.create_workspace("demo")
    found = client.workspace("demo")
    with found.session() as session:
        session.create_archive("notes", model_id="m1")
        session.create("Root", "alpha", archive="notes", node_id=ROOT)
        session.create("Child", "beta", parent=ROOT)
        session.commit("Begin")
    return found


def outcomes(events: Iterable[object]) -> list[IngestedFile]:
    return [event for event in events if isinstance(event, IngestedFile)]


def written(folder: Path, names: Iterable[str]) -> Path:
    """A folder of files with these names."""
    for name in names:
        (folder / name).write_text(f"Text of {name}.")
    return folder


def test_a_document_is_ingested_by_a_job_that_can_be_watched(workspace: Workspace) -> None:
    events = list(workspace.ingest("Text.", name="guide", model_id="m1", document_id="d1"))
    assert [type(event) for event in events] == [Job, Progress, Job]
    last = events[-1]
    assert isinstance(last, Job)
    assert last.over
    assert last.ingestion is not None
    assert last.ingestion.document_id == "d1"
    archives = {archive.name: archive for archive in workspace.archives()}
    assert archives["guide"].attributes["document_id"] == "d1"
    (suggestion,) = workspace.suggest_archive_merges(threshold=0.5)
    made = workspace.merge_archives(suggestion.archives, "all")
    assert (made.archive.name, made.moved_nodes) == ("all", 7)


def test_a_commit_may_wait_for_the_summaries_above_it(fake: FakeMemoTree, workspace: Workspace) -> None:
    with workspace.session() as session:
        session.update(ROOT, content="gamma")
        session.commit("In the background")
        session.update(ROOT, content="delta")
        session.commit("At once", renew_summaries=True)
    assert [request.renew_summaries for request in fake.requests("CommitChanges")][-2:] == [False, True]


def test_a_document_may_be_text_bytes_or_turns(fake: FakeMemoTree, workspace: Workspace) -> None:
    turns = [Turn("Ann", "Hello.", time="2024-05-01", id="t1", session="s1"), Turn("Ben", "Hi.")]
    for document in ("text", b"bytes", turns):
        list(workspace.ingest(document, name="x", chunk_size=300, similarity_threshold=0.0, tags=["a"]))
    requests = fake.requests("IngestDocument")
    assert [each.WhichOneof("document") for each in requests] == ["text", "file", "conversation"]
    sent = [(turn.speaker, turn.time) for turn in requests[2].conversation.turns]
    assert sent == [("Ann", "2024-05-01"), ("Ben", "")]
    assert requests[0].HasField("similarity_threshold"), "0 is a threshold like any other"
    assert requests[0].chunk_size == 300


@pytest.mark.requirement("USE-9")
def test_a_folder_is_ingested_in_one_call(fake: FakeMemoTree, workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    written(tmp_path / "book", ("a.md", "b.md", ".c.md"))
    fake.refusals["book/b.md"] = ("UNREADABLE_DOCUMENT", "It has no text.")
    events = list(workspace.ingest_files(tmp_path / "book", agent="scout", author=Author("Ada")))
    found = events[0]
    assert isinstance(found, FilesFound)
    assert [each.name for each in found.files] == ["book/a.md", "book/b.md"]
    assert [each.why for each in found.left_out] == ["hidden"]
    assert [(each.document_id, each.is_committed, each.message) for each in outcomes(events)] == [
        ("book/a.md", True, ""),
        ("book/b.md", False, "It has no text."),
    ]
    done = [event.done for event in events if isinstance(event, IngestionProgress)]
    assert (done, done[-1]) == (sorted(done), 2)
    (request,) = fake.requests("IngestDocuments")
    assert (request.agent, request.author.name) == ("scout", "Ada")
    with pytest.raises(FileNotFoundError):
        list(workspace.ingest_files(tmp_path / "nowhere"))


@pytest.mark.requirement("USE-9")
def test_a_batch_that_is_too_large_for_the_server_is_sent_in_halves(
    fake: FakeMemoTree, workspace: Workspace, tmp_path: Path
) -> None:
    fault = RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too large.", "TOO_LARGE")
    fake.fail("IngestDocuments", fault, fault)
    found = outcomes(workspace.ingest_files(written(tmp_path, "abcd")))
    assert [each.is_committed for each in found] == [True] * 4
    assert [len(each.documents) for each in fake.requests("IngestDocuments")] == [4, 2, 1, 1, 2]


@pytest.mark.requirement("USE-9")
def test_a_file_that_cannot_be_read_fails_alone(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "ab")
    real = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        if self.name == "a":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert [(each.is_committed, each.reason, each.message) for each in outcomes(workspace.ingest_files(tmp_path))] == [
        (False, "FILE_NOT_READABLE", "It cannot be read: Permission denied."),
        (True, "", ""),
    ]


@pytest.mark.requirement("USE-9")
def test_a_batch_that_takes_longer_than_a_call_is_watched_until_it_ends(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    (outcome,) = outcomes(workspace.ingest_files(written(tmp_path, "a")))
    assert asked == ["IngestDocumentsRequest", "WatchJobRequest"]
    assert outcome.is_committed


@pytest.mark.requirement("USE-9")
def test_after_a_job_that_stopped_nothing_more_is_sent_and_what_it_committed_is_told(
    fake: FakeMemoTree, workspace: Workspace, tmp_path: Path
) -> None:
    written(tmp_path, (f"{number:03}" for number in range(150)))
    list(workspace.ingest_files(tmp_path / "000"))
    (known,) = [each for each in workspace.archives() if each.attributes.get("document_id")]
    stopped = jobs.Job(id="j" * 16, state=jobs.JOB_STATE_STOPPED, reason="BUDGET", message="The limit is reached.")
    fake.ingestions.append(stopped)
    state_of(fake.space("demo"), "").archives[known.id].attributes["ingestion"] = "j" * 16
    found = outcomes(workspace.ingest_files(tmp_path))
    assert len(found) == 100
    assert [each.path for each in found if each.is_committed] == [(tmp_path / "000").as_posix()]
    assert {each.message for each in found[1:]} == {"The limit is reached."}


@pytest.mark.requirement("FOREST-8")
def test_recall_takes_its_filters_in_the_words_of_the_domain(fake: FakeMemoTree, workspace: Workspace) -> None:
    found = workspace.recall(
        "what?",
        strategy="LCA",
        top_k=3,
        archives=["notes"],
        tags=["a"],
        since=datetime(2024, 1, 1, tzinfo=UTC),
        under=ROOT,
        include_trace=True,
    )
    assert {each.node.title for each in found.nodes} == {"Root", "Child"}
    assert found.nodes[0].trace is not None
    assert found.nodes[0].trace.signals[0].name == "words"
    assert found.nodes[0].citation is not None
    (request,) = fake.requests("Recall")
    assert request.strategy == pb.RECALL_STRATEGY_LCA
    assert request.filter.since == "2024-01-01T00:00:00+00:00"
    assert (request.filter.scope_node_id, list(request.filter.tags)) == (ROOT, ["a"])
    assert workspace.recall("what?", strategy="HYBRID").passages[0].headings == ("Top",)
    with pytest.raises(ValueError, match="RecallStrategy"):
        workspace.recall("what?", strategy="BEST")  # type: ignore[arg-type] # that is the point


@pytest.mark.requirement("FOREST-7")
def test_drilling_down_returns_children_with_scores(fake: FakeMemoTree, workspace: Workspace) -> None:
    found = workspace.drill_down(ROOT, "beta")
    assert [(each.node.title, each.score) for each in found] == [("Child", 0.8)]
    assert (len(found), found[0].node.title, found.below_threshold) == (1, "Child", 1)
    workspace.drill_down(ROOT, "beta", threshold=0.0)
    without, with_zero = fake.requests("DrillDown")
    assert (without.HasField("threshold"), with_zero.HasField("threshold")) == (False, True)


@pytest.mark.requirement("FOREST-9")
async def test_asking_on_an_event_loop_returns_steps_and_then_the_answer(
    fake: FakeMemoTree, workspace: Workspace
) -> None:
    async with AsyncClient(fake.address) as client:
        same = client.workspace(workspace.name)
        assert len(await same.drill_down(ROOT, "beta")) == 1
        *steps, answer = [event async for event in same.at("main").ask("When?")]
        assert all(isinstance(step, AskStep) for step in steps)
        assert isinstance(answer, Answer)
        assert answer.citations[0].node_id == ROOT
        assert (answer.usage[0].kind, answer.usage[0].calls) == ("chat", 2)
        assert [type(event) async for event in same.ingest("Text.", name="y")] == [Job, Progress, Job]
