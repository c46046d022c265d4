"""A forest for tests: documents are ingested by jobs on real stores, and the results are read as by a client."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from endpoints import ModelEndpoint
from integration.histories import git
from integration.worlds import World
from memotree_storage.postgres import archive_versions, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas import NodeOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.forest.documents.reader import DocumentReader
from memotree.forest.ingestion.batch_job import IngestDocuments
from memotree.forest.ingestion.job import IngestDocument
from memotree.forest.joining.join import ArchiveJoin
from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.jobs import JobOperations, JobRunner
from memotree.models.gateway import Models
from memotree.models.model_errors import RetryPolicy
from memotree.sessions import SessionOperations
from memotree.settings import load_settings
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2 as jobs_pb
from memotree.v1 import node_service_pb2, session_service_pb2, types_pb2

IMPATIENT: Final = RetryPolicy(timeout=5, attempts=2, first_wait=0.001, longest_wait=0.002, failures=1000, cool_down=60)
SUCCEEDED: Final = jobs_pb.JOB_STATE_SUCCEEDED
STOPPED: Final = jobs_pb.JOB_STATE_STOPPED
FAILED: Final = jobs_pb.JOB_STATE_FAILED


@dataclass(frozen=True, slots=True)
class Told:
    """The events of an ingestion: the job at first and at last, and the steps between."""

    first: jobs_pb.Job
    last: jobs_pb.Job
    steps: list[tuple[str, int, int]]

    @property
    def result(self) -> jobs_pb.IngestionResult:
        assert self.last.state == SUCCEEDED, (self.last.reason, self.last.message)
        return self.last.ingestion


class Forest:
    """The operations on documents over the stores of a world."""

    def __init__(self, world: World, models: Models, *, background: bool = False) -> None:
        self.world = world
        self.models = models
        store = world.store
        self.runner = JobRunner(store.database, concurrency=2, pauses=())
        self.summaries = SummaryRenewal(
            store, models, self.runner, world.limits, background=background, gather=timedelta(milliseconds=10)
        )
        self.reader = DocumentReader()
        self.ingestion = IngestDocument(store, models, self.runner, world.limits, self.reader)
        self.batches = IngestDocuments(store, models, self.runner, world.limits, self.reader)
        self.sessions = SessionOperations(
            store, world.pages, world.limits, self.summaries, resolver=ConflictResolution(store, world.limits)
        )
        self.nodes = NodeOperations(store, world.pages, world.limits)
        self.joining = ArchiveJoin(store, models, world.limits)
        self.jobs = JobOperations(store, world.pages, self.runner)

    # --- Documents ---------------------------------------------------------------------------------------------------

    async def try_ingest(
        self, text: str | None = None, *, on_step: Callable[[str], None] = lambda _: None, **fields: Any
    ) -> Told:
        """Ingest a document and read the events to the end, which may be a failure."""
        if text is not None:
            fields["text"] = text
        request = pb.IngestDocumentRequest(workspace=self.world.workspace, **fields)
        events = []
        async for event in self.ingestion.ingest_document(request):
            events.append(event)
            on_step(event.progress.step)
        steps = [(event.progress.step, event.progress.done, event.progress.total) for event in events[1:-1]]
        return Told(events[0].job, events[-1].job, steps)

    async def ingest(self, text: str | None = None, **fields: Any) -> jobs_pb.IngestionResult:
        """Ingest a document; it has to succeed."""
        return (await self.try_ingest(text, **fields)).result

    async def try_ingest_all(self, documents: Mapping[str, str], **fields: Any) -> jobs_pb.Job:
        """Ingest texts by name in one job, under their names as ids, and return the job at its end."""
        request = pb.IngestDocumentsRequest(
            workspace=self.world.workspace,
            documents=[pb.NewDocument(name=name, document_id=name, text=text) for name, text in documents.items()],
            **fields,
        )
        return [event async for event in self.batches.ingest_documents(request)][-1].job

    async def ingest_all(self, documents: Mapping[str, str], **fields: Any) -> dict[str, jobs_pb.IngestedDocument]:
        """Ingest texts by name in one job, which has to succeed; return what became of each."""
        job = await self.try_ingest_all(documents, **fields)
        assert job.state == SUCCEEDED, (job.reason, job.message)
        return {each.name: each for each in job.batch_ingestion.documents}

    async def resume(self, job_id: str, **fields: Any) -> jobs_pb.Job:
        """Resume a job and wait for its end."""
        await self.jobs.resume_job(jobs_pb.ResumeJobRequest(job_id=job_id, **fields))
        return await self.over(job_id)

    async def over(self, job_id: str) -> jobs_pb.Job:
        """The job at its end."""
        job = jobs_pb.Job()
        async for event in self.jobs.watch_job(jobs_pb.WatchJobRequest(job_id=job_id)):
            job = event.job
        return job

    # --- Trees -------------------------------------------------------------------------------------------------------

    async def versions(self, archive_id: str, branch: str = "main") -> list[Version]:
        """All nodes of an archive, in pre-order."""
        state = State(self.world.workspace, await self.world.head(branch))
        async with self.world.store.database.connection() as conn:
            order = [item.entry_id for item in await tree.archive_tree(Snapshot(conn, state), archive_id)]
            found: dict[str, Version] = {}
            for start in range(0, len(order), 2000):
                found |= await tree.versions(Snapshot(conn, state), order[start : start + 2000])
        return [found[node_id] for node_id in order]

    async def leaves(self, archive_id: str, branch: str = "main") -> dict[str, str]:
        """The content of each leaf, in order."""
        found = [version for version in await self.versions(archive_id, branch) if version.type == "leaf_chunk"]
        nodes = await self.world.store.entries.load(self.world.workspace, found)
        return {version.entry_id: nodes[version.blob].content for version in found}  # type: ignore[union-attr]

    async def text(self, archive_id: str, branch: str = "main") -> str:
        """The contents of the leaves, joined."""
        return "".join((await self.leaves(archive_id, branch)).values())

    async def node(self, node_id: str, revision: str = "") -> types_pb2.Node:
        """A node with its content."""
        request = node_service_pb2.GetNodeRequest(workspace=self.world.workspace, node_id=node_id, revision=revision)
        return (await self.nodes.get_node(request)).node

    async def shape(self, archive_id: str) -> list[tuple[int, str, str]]:
        """Depth, type and title of each node, in pre-order."""
        depths: dict[str, int] = {}
        found = []
        for version in await self.versions(archive_id):
            depths[version.entry_id] = depths.get(version.parent_id, -1) + 1
            found.append((depths[version.entry_id], version.type, version.title))
        return found

    async def archive(self, archive_id: str) -> Version:
        """An archive."""
        state = State(self.world.workspace, await self.world.head())
        async with self.world.store.database.connection() as conn:
            return (await tree.versions(Snapshot(conn, state), [archive_id]))[archive_id]

    async def check_sources(self, archive_id: str, text: str) -> None:
        """Check that every node's source has the span of its text, and the hash."""
        versions = await self.versions(archive_id)
        assert versions
        for version in versions:
            node = await self.node(version.entry_id)
            source = node.source
            piece = text[source.start : source.end]
            assert node.content == piece, "the content of an inner node is that of its leaves"
            assert sha256(piece.encode()).hexdigest() == source.sha256
        leaves = [version.source for version in versions if version.type == "leaf_chunk"]
        spans = [(source["start"], source["end"]) for source in leaves if source]
        assert (spans[0][0], spans[-1][1]) == (0, len(text))
        assert all(left[1] == right[0] for left, right in pairwise(spans)), "one leaf begins where the other ends"

    # --- Changes -----------------------------------------------------------------------------------------------------

    async def session(self) -> str:
        """A new session on the default branch."""
        request = session_service_pb2.OpenSessionRequest(workspace=self.world.workspace, agent="tester")
        return (await self.sessions.open_session(request)).session.id

    async def change(self, session: str, *changes: Any) -> None:
        """Stage requests of the node tools."""
        calls = {
            node_service_pb2.CreateNodeRequest: self.nodes.create_node,
            node_service_pb2.UpdateNodeRequest: self.nodes.update_node,
            node_service_pb2.DeleteNodeRequest: self.nodes.delete_node,
            node_service_pb2.MoveNodeRequest: self.nodes.move_node,
        }
        for change in changes:
            change.workspace, change.session_id = self.world.workspace, session
            await calls[type(change)](change)  # type: ignore[operator]

    async def commit(self, session: str, **fields: Any) -> str:
        """Commit a session."""
        request = session_service_pb2.CommitChangesRequest(
            workspace=self.world.workspace, session_id=session, **{"message": "Change something"} | fields
        )
        return (await self.sessions.commit_changes(request)).commit_id

    async def commit_change(self, *changes: Any, **fields: Any) -> str:
        """Stage requests of the node tools in a new session, and commit it."""
        session = await self.session()
        await self.change(session, *changes)
        return await self.commit(session, **fields)

    async def commit_change_of_name(self, archive: str, name: str) -> None:
        """Give an archive another name."""
        state = State(self.world.workspace, await self.world.head())
        async with self.world.store.database.connection() as conn:
            (found,) = [each for each in await archive_versions.archives(Snapshot(conn, state)) if each.name == archive]
        await self.world.put(replace(found.archive, name=name))

    # --- Summaries ---------------------------------------------------------------------------------------------------

    async def stale(self, **fields: Any) -> list[tuple[str, int]]:
        """The ids of the nodes with stale summaries, each with the reason."""
        request = pb.ListStaleSummariesRequest(workspace=self.world.workspace, **fields)
        answer = await self.summaries.list_stale_summaries(request)
        if not fields:
            assert answer.total == len(answer.summaries)
        return [(item.node.id, item.reason) for item in answer.summaries]

    async def renew(self, **fields: Any) -> jobs_pb.Job:
        """Renew the stale summaries, as a job."""
        request = pb.RenewSummariesRequest(workspace=self.world.workspace, **fields)
        return await self.over((await self.summaries.renew_summaries(request)).job.id)

    # --- Git ---------------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The repository."""
        return self.world.repository.path

    def git(self, *arguments: str) -> str:
        """The output of the git program in the repository."""
        return git(self.world, *arguments)

    def commits(self, branch: str = "main") -> list[str]:
        """The subjects of all commits, the newest first."""
        return self.git("log", "--format=%s", branch).splitlines()

    def files(self, revision: str = "main") -> dict[str, str]:
        """The id of each entry that a commit changes, with git's status letter (a new title: changed)."""
        lines = self.git("show", "--format=", "--no-renames", "--name-status", revision).splitlines()
        found: dict[str, str] = {}
        for letter, path in (line.split("\t") for line in lines if line):
            entry_id = Path(path).stem.partition("-")[0]
            found[entry_id] = "M" if entry_id in found else letter
        return found


def loaded(models: Models, world: World) -> Models:
    """The models with the weights that the store has read already; to read them takes a tenth of a second."""
    models.embeddings.builtin._loaded = world.store.embedder._loaded  # type: ignore[attr-defined]
    return models


@asynccontextmanager
async def forest_of(
    world: World,
    endpoint: ModelEndpoint | None = None,
    kinds: Iterable[str] = ("chat",),
    retry_policy: RetryPolicy = IMPATIENT,
    **fields: Any,
) -> AsyncIterator[Forest]:
    """A forest over a world, with built-in models or those of an endpoint."""
    named = endpoint.settings(*kinds) if endpoint else {}
    models = Models.from_settings(
        load_settings(data_folder=world.store.data_folder, **named), world.store.database, retry_policy
    )
    await models.open()
    forest = Forest(world, loaded(models, world), **fields)
    await forest.runner.start()
    forest.summaries.start()
    try:
        yield forest
    finally:
        await forest.summaries.stop()
        await forest.runner.stop()
        await forest.reader.close()
        await forest.sessions.finish()
        await models.close()
