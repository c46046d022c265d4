"""Several documents in one job: one commit, failures that stop nobody else, stops, races and cancellation."""

import asyncio
from typing import Any

import pytest
from integration.forests import STOPPED, SUCCEEDED, Forest
from integration.ingestion.documents import prose
from integration.ingestion.steps import SeenSteps
from memotree_storage.errors import InvalidInputError

from memotree.forest.ingestion import batch_run, planning
from memotree.forest.ingestion.batch_job import MOST_DOCUMENTS
from memotree.models.meter import BudgetExhaustedError
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2, node_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("USE-9")

THREE = {f"papers/{name}.md": f"{prose(number + 2)}\n\nThis is {name}." for number, name in enumerate("abc")}


async def texts(forest: Forest, found: dict[str, job_service_pb2.IngestedDocument]) -> dict[str, str]:
    """The text of each document that was ingested."""
    return {name: await forest.text(each.ingestion.archive_id) for name, each in found.items() if not each.reason}


# --- One commit ------------------------------------------------------------------------------------------------------


async def test_several_documents_are_one_commit_that_names_them_and_who_ingested_them(forest: Forest) -> None:
    found = await forest.ingest_all(THREE, agent="scout")
    assert {each.ingestion.commit_id for each in found.values()} == {await forest.world.head()}
    assert await texts(forest, found) == THREE
    subject, author, body = forest.git("log", "-1", "--format=%s%x00%an <%ae>%x00%b").split("\0")
    assert (subject, author) == ("Ingest 3 documents", "scout <agent@localhost>")
    assert body.startswith("New documents:\n- papers/a.md\n- papers/b.md\n- papers/c.md\n")
    assert "MemoTree-Agent: scout" in body
    assert "MemoTree-Tool: IngestDocuments" in body


async def test_message_author_and_tags_are_those_of_the_request_and_equal_texts_are_different_nodes(
    forest: Forest,
) -> None:
    author = types_pb2.CommitAuthor(name="Ada", email="ada@example.org")
    texts = dict.fromkeys("abc", prose(4))
    found = await forest.ingest_all(texts, message="Take the papers in", author=author, tags=["paper"])
    assert forest.git("log", "-1", "--format=%s|%an|%ae").strip() == "Take the papers in|Ada|ada@example.org"
    versions = [each for one in found.values() for each in await forest.versions(one.ingestion.archive_id)]
    assert {tuple(version.tags) for version in versions} == {("paper",)}
    assert len(versions) == len({version.entry_id for version in versions}) > len(found)


@pytest.mark.requirement("FOREST-5")
async def test_unchanged_documents_make_no_commit_and_a_changed_one_changes_only_itself(forest: Forest) -> None:
    first = await forest.ingest_all(THREE)
    head = await forest.world.head()
    again = await forest.ingest_all(THREE)
    assert await forest.world.head() == head
    for name, each in again.items():
        assert each.ingestion.commit_id == ""
        assert each.ingestion.kept_leaves == first[name].ingestion.created_leaves
        assert each.ingestion.summary_nodes == first[name].ingestion.summary_nodes
        assert each.ingestion.roots == first[name].ingestion.roots
    changed = THREE | {"papers/b.md": THREE["papers/b.md"] + " More of it.", "papers/d.md": prose(2)}
    third = await forest.ingest_all(changed)
    assert [name for name, each in third.items() if each.ingestion.commit_id] == ["papers/b.md", "papers/d.md"]
    assert forest.commits()[0] == "Ingest 1 and update 1 documents"
    assert await texts(forest, third) == changed


async def test_one_document_is_named_by_its_commit_and_reports_steps_and_several_are_counted(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = SeenSteps(monkeypatch)

    async def told(documents: dict[str, str]) -> list[pb.IngestDocumentsResponse]:
        given = [pb.NewDocument(name=name, text=text) for name, text in documents.items()]
        request = pb.IngestDocumentsRequest(workspace=forest.world.workspace, documents=given, chunk_size=300)
        events = []
        seen.forget()
        async for event in forest.batches.ingest_documents(request):
            events.append(event)
            seen.add(event.progress.step)
        return events

    events = await told({"papers": prose(8)})
    assert events[0].job.subject == "papers"
    assert forest.commits()[0] == "Ingest papers"
    assert {"summarise", "commit"} <= {event.progress.step for event in events[1:-1]}
    counted = [event.progress for event in (await told(THREE))[1:-1]]
    assert {each.total for each in counted} == {3}
    assert [each.done for each in counted] == sorted(each.done for each in counted)


async def test_documents_of_one_joined_archive_are_updated_one_commit_after_the_other(forest: Forest) -> None:
    found = await forest.ingest_all({"a": f"# A\n\n{prose(3)}", "b": f"# B\n\n{prose(4)}"})
    archives = [each.ingestion.archive_id for each in found.values()]
    joined = await forest.joining.merge_archives(
        pb.MergeArchivesRequest(workspace=forest.world.workspace, archives=archives, name="both")
    )
    changed = {"a": f"# A\n\nFirst of all. {prose(3)}", "b": f"# B\n\nFirst of all. {prose(4)}"}
    again = await forest.ingest_all(changed)
    assert {each.ingestion.archive_id for each in again.values()} == {joined.archive.id}
    assert all(each.ingestion.commit_id for each in again.values())
    assert await forest.text(joined.archive.id) == "".join(changed.values())
    assert await forest.stale() == [], "the summaries above both are of both"


# --- Failures --------------------------------------------------------------------------------------------------------


async def test_a_document_that_fails_says_why_and_the_others_are_ingested(forest: Forest) -> None:
    await forest.ingest("One.", name="taken", document_id="elsewhere")
    request = pb.IngestDocumentsRequest(
        workspace=forest.world.workspace,
        documents=[
            pb.NewDocument(name="good", document_id="good", text="Good."),
            pb.NewDocument(name="broken", document_id="broken", file=b"%PDF-1.7 broken"),
            pb.NewDocument(name="taken", document_id="new", text="Two."),
            pb.NewDocument(name="good again", document_id="good", text="Again."),
            pb.NewDocument(name="empty", document_id="empty"),
            pb.NewDocument(name="good", document_id="other", text="The same name."),
            pb.NewDocument(name="x\ny", document_id="lines", text="A name of two lines."),
            pb.NewDocument(name="last", document_id="last", text="Last."),
        ],
    )
    job = [event async for event in forest.batches.ingest_documents(request)][-1].job
    assert job.state == SUCCEEDED
    told = [(each.document_id, each.reason) for each in job.batch_ingestion.documents]
    assert [each.name for each in job.batch_ingestion.documents] == [each.name for each in request.documents]
    assert told[0] == ("good", "")
    assert told[1][1] == "DAMAGED_PDF"
    assert told[2] == ("new", "DOCUMENT_NAME_TAKEN")
    assert told[3] == ("good", "DOCUMENT_GIVEN_TWICE")
    assert told[5] == ("other", "DOCUMENT_NAME_TAKEN")
    assert told[7] == ("last", "")
    assert "document: is needed" in job.batch_ingestion.documents[4].message
    assert "must be one line" in job.batch_ingestion.documents[6].message
    failed = [each for each in job.batch_ingestion.documents if each.reason]
    assert len(failed) == 6
    assert all(each.message and not each.HasField("ingestion") for each in failed)
    assert forest.commits()[0] == "Ingest 2 documents"


async def test_a_defect_that_one_document_meets_does_not_stop_the_others(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = planning.split

    def split(document: Any, size: int) -> Any:
        if "This is b." in document.text:
            raise ZeroDivisionError
        return real(document, size)

    monkeypatch.setattr(planning, "split", split)
    found = await forest.ingest_all(THREE)
    assert [name for name, each in found.items() if each.reason] == ["papers/b.md"]
    assert found["papers/b.md"].reason == "INTERNAL"
    assert (await texts(forest, found)).keys() == {"papers/a.md", "papers/c.md"}


async def test_a_document_that_cannot_be_committed_does_not_take_the_others_along(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = batch_run.commit

    async def commit(store: Any, workspace_id: str, branch: str, changeset: Any, limits: Any) -> str:
        if any(change.after is not None and change.after.id == bad for change in changeset.changes.values()):
            raise InvalidInputError.at("title", "is refused in this test.")
        return await real(store, workspace_id, branch, changeset, limits)

    bad = (await forest.ingest_all(THREE))["papers/b.md"].ingestion.archive_id
    monkeypatch.setattr(batch_run, "commit", commit)
    changed = {name: f"{text} More." for name, text in THREE.items()}
    found = await forest.ingest_all(changed)
    assert [name for name, each in found.items() if each.reason] == ["papers/b.md"]
    kept = await texts(forest, found)
    assert kept == {name: changed[name] for name in kept}
    assert len(kept) == 2


async def test_too_few_or_many_documents_and_wrong_options_are_refused_once_for_all(forest: Forest) -> None:
    for documents, options, field in (
        ({}, {}, "documents"),
        ({f"{number}": "Text." for number in range(MOST_DOCUMENTS + 1)}, {}, "documents"),
        (THREE, {"chunk_size": 1}, "chunk_size"),
        (THREE, {"agent": "a\nb"}, "agent"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            await forest.try_ingest_all(documents, **options)  # type: ignore[arg-type]
        assert [fault.field for fault in caught.value.violations] == [field]


# --- Stops, races, cancellation --------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-12", "SERVE-6")
async def test_a_job_that_stops_commits_what_is_ready_and_goes_on_with_the_rest(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, planned = planning.DocumentPlanner.plan, []

    async def plan(self: planning.DocumentPlanner, document: Any, *rest: Any) -> planning.Plan:
        planned.append(document.text.splitlines()[-1])
        if planned.count("This is c.") == 1 and planned[-1] == "This is c.":
            raise BudgetExhaustedError("The limit of model tokens is reached. Resume the job with another.")
        return await real(self, document, *rest)

    monkeypatch.setattr(planning.DocumentPlanner, "plan", plan)
    stopped = await forest.try_ingest_all(THREE)
    assert (stopped.state, stopped.reason) == (STOPPED, "MODEL_BUDGET_EXHAUSTED")
    first = await forest.world.head()
    assert forest.commits()[0] == "Ingest 2 documents"
    job = await forest.resume(stopped.id)
    found = {each.name: each for each in job.batch_ingestion.documents}
    assert forest.commits()[:2] == ["Ingest papers/c.md", "Ingest 2 documents"]
    assert [each.ingestion.commit_id for each in found.values()] == [first, first, await forest.world.head()]
    assert all(each.ingestion.created_leaves for each in found.values()), "the result is of both attempts"
    assert await texts(forest, found) == THREE


async def test_another_commit_during_the_job_is_kept(forest: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await forest.ingest_all(THREE)
    (root, *_) = await forest.versions(first["papers/b.md"].ingestion.archive_id)
    real, planned = planning.find_affected_nodes, []

    async def meanwhile(*arguments: Any) -> Any:
        made = await real(*arguments)
        planned.append(arguments[3].document_id)
        if planned == ["papers/a.md", "papers/b.md"]:  # a commit to a node that the job is about to write
            await forest.commit_change(node_service_pb2.UpdateNodeRequest(node_id=root.entry_id, tags=["seen"]))
        return made

    monkeypatch.setattr(planning, "find_affected_nodes", meanwhile)
    changed = {name: f"To begin with. {text}" for name, text in THREE.items()}
    found = await forest.ingest_all(changed)
    assert await texts(forest, found) == changed
    assert (await forest.node(root.entry_id)).tags == ["seen"]
    assert planned.count("papers/a.md") == planned.count("papers/c.md") == 1, "only what was raced is planned again"
    assert [subject.split()[0] for subject in forest.commits()[:2]] == ["Update", "Change"]


@pytest.mark.requirement("CANVAS-8", "STORE-2")
async def test_a_cancelled_job_commits_nothing_and_can_go_on(forest: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, release = asyncio.Event(), asyncio.Event()
    real = planning.DocumentPlanner.plan

    async def plan(self: planning.DocumentPlanner, document: Any, *rest: Any) -> planning.Plan:
        if "This is c." in document.text and not release.is_set():
            reached.set()
            await release.wait()
        return await real(self, document, *rest)

    monkeypatch.setattr(planning.DocumentPlanner, "plan", plan)
    head = await forest.world.head()
    running = asyncio.create_task(forest.try_ingest_all(THREE))
    await reached.wait()
    (job,) = (await forest.jobs.list_jobs(job_service_pb2.ListJobsRequest(workspace=forest.world.workspace))).jobs
    await forest.jobs.cancel_job(job_service_pb2.CancelJobRequest(job_id=job.id))
    assert (await running).state == job_service_pb2.JOB_STATE_CANCELLED
    assert await forest.world.head() == head
    release.set()
    assert (await forest.resume(job.id)).state == SUCCEEDED
    assert forest.commits()[0] == "Ingest 3 documents"
