"""The output of ``memotree jobs``, ``rebuild --background`` and ``reindex``."""

import pytest
from unit.cli.conftest import CommandLine

from memotree.v1 import job_service_pb2 as pb
from memotree.v1 import maintenance_service_pb2 as maintenance_pb2
from memotree.v1 import types_pb2

pytestmark = [pytest.mark.requirement("SERVE-4", "SERVE-6")]


@pytest.fixture
def garden(memotree: CommandLine) -> CommandLine:
    """The command line with a chosen workspace."""
    memotree.json("ws", "create", "demo")
    return memotree


@pytest.mark.parametrize("command", ["rebuild", "reindex"])
def test_in_the_background_a_command_says_where_its_job_can_be_watched(garden: CommandLine, command: str) -> None:
    job = garden.json(command, "--background")
    assert (job["kind"], job["subject"], job["state"]) == (command, "demo", "QUEUED")
    assert "memotree jobs watch" in garden(command, "--background").err
    watched = garden("jobs", "watch", job["id"][:6])
    assert (watched.code, "succeeded" in watched.out) == (0, True)
    done = garden.json("jobs", "show", job["id"])
    assert (done["state"], done["progress"]) == ("SUCCEEDED", {"step": "index", "done": 3, "total": 3})
    assert garden.json("jobs", "show", "0000", code=1)["error"]


def test_a_stopped_job_is_shown_with_its_reason_and_the_command_that_continues_it(garden: CommandLine) -> None:
    stop = pb.Job(state=pb.JOB_STATE_STOPPED, reason="MODEL_UNAVAILABLE", message="The model is away. Resume it later.")
    garden.fake.ends.append(stop)
    ran = garden("reindex")
    assert ran.code == 1
    assert "error: The model is away. Resume it later." in ran.err
    (job,) = garden.json("jobs", "list", "--unfinished")["jobs"]
    assert f"memotree jobs resume {job['id']}" in ran.err
    assert garden.json("jobs", "resume", job["id"], "--max-model-tokens", "900")["state"] == "SUCCEEDED"
    (request,) = garden.fake.requests("ResumeJob")
    assert request.max_model_tokens == 900
    assert "memotree jobs watch" in garden.refused("jobs", "resume", job["id"])


def test_progress_is_shown_unless_the_job_has_succeeded(garden: CommandLine) -> None:
    half = maintenance_pb2.Progress(step="commit", done=0, total=13)
    for state, shown in ((pb.JOB_STATE_SUCCEEDED, False), (pb.JOB_STATE_RUNNING, True), (pb.JOB_STATE_STOPPED, True)):
        job = garden.fake.build(kind="ingest", subject="A book", state=state, progress=half)
        assert ("commit 0/13" in garden("jobs", "show", job.id).out) is shown
    assert garden("jobs", "list", "--all").out.count("commit 0/13") == 2


def test_a_job_is_cancelled(garden: CommandLine) -> None:
    job = garden.json("reindex", "--background")
    assert garden.json("jobs", "cancel", job["id"])["state"] == "CANCELLED"
    done = garden.json("reindex")["id"]
    assert f"The job {done} had ended already: it has succeeded." in garden("jobs", "cancel", done).err
    assert "is cancelled" in garden("jobs", "cancel", job["id"]).err
    assert "The job was cancelled." in garden.refused("jobs", "watch", job["id"])


def test_cancelling_waits_for_a_running_job_so_that_it_can_be_resumed(garden: CommandLine) -> None:
    job = garden.fake.build(kind="ingest", state=pb.JOB_STATE_RUNNING)
    assert garden.json("jobs", "cancel", job.id)["state"] == "CANCELLED"
    assert garden.json("jobs", "resume", job.id)["state"] == "SUCCEEDED"


def test_lists_name_the_jobs_of_the_workspace_or_of_all(garden: CommandLine) -> None:
    mine = garden.json("reindex", "--background")["id"]
    other = garden.fake.build(workspace_id="o" * 16, kind="ingest", subject="A book", state=pb.JOB_STATE_RUNNING)
    assert [job["id"] for job in garden.json("jobs", "list")["jobs"]] == [mine]
    assert [job["id"] for job in garden.json("jobs", "list", "--all")["jobs"]] == [other.id, mine]
    assert [job["id"] for job in garden.json("jobs", "list", "--all", "--kind", "ingest")["jobs"]] == [other.id]
    shown = garden("jobs", "list", "--all").out
    assert "A book" in shown
    assert "running" in shown
    assert garden("jobs", "list", "--kind", "rebuild").out.strip() == "No jobs."


def test_a_job_is_shown_with_its_result_and_its_use_of_models(garden: CommandLine) -> None:
    job = garden.fake.build(
        kind="ingest",
        subject="A book",
        state=pb.JOB_STATE_SUCCEEDED,
        attempts=2,
        ingestion=pb.IngestionResult(created_leaves=1200, kept_leaves=7, warnings=["A page has no text."]),
        usage=[types_pb2.ModelUsage(kind="chat", model="small", calls=12, prompt_tokens=3400, cached=5)],
    )
    shown = garden("jobs", "show", job.id).out
    for text in ("A book", "1,200 new, 7 kept", "had not changed", "A page has no text.", "small", "3,400", "2 times"):
        assert text in shown
    document = garden.json("jobs", "show", job.id)
    assert document["ingestion"]["created_leaves"] == 1200
    assert document["usage"][0]["prompt_tokens"] == 3400
    documents = [
        pb.IngestedDocument(name="a.md", ingestion=pb.IngestionResult(commit_id="c" * 40, created_leaves=3)),
        pb.IngestedDocument(name="b.md", ingestion=pb.IngestionResult(kept_leaves=2)),
        pb.IngestedDocument(document_id="c.md", reason="NO", message="It has no text."),
    ]
    batch = pb.BatchIngestionResult(documents=documents)
    job = garden.fake.build(kind="ingest_documents", state=pb.JOB_STATE_SUCCEEDED, batch_ingestion=batch)
    shown = garden("jobs", "show", job.id).out
    for text in ("1 ingested, 1 unchanged, 1 failed", "c" * 40, "3 new, 2 kept", "c.md: It has no text."):
        assert text in shown
    assert "1 document could not be ingested" in garden.refused("jobs", "watch", job.id)
    job = garden.fake.build(kind="renew_summaries", state=pb.JOB_STATE_SUCCEEDED, renewal=pb.RenewalResult(renewed=4))
    assert "no summary was stale" in garden("jobs", "show", job.id).out
