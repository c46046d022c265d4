"""The forest, the memory calls and the jobs of the fake server.

Documents become archives of one node each, every question has one answer, and watching a job moves it one step on, to
the end that the test has set.
"""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

from collections import deque
from collections.abc import Iterator
from typing import Any

from unit.client.fake_state import FakeStates, State, fresh_id, listed, not_found, state_of, unmet

from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2 as job_pb
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import memory_service_pb2 as memory
from memotree.v1 import types_pb2 as types
from memotree.v1.forest_service_pb2_grpc import ForestServiceServicer
from memotree.v1.job_service_pb2_grpc import JobServiceServicer
from memotree.v1.memory_service_pb2_grpc import MemoryServiceServicer

_STEPS = 3


class FakeForest(FakeStates, ForestServiceServicer):
    """ForestService over the fake's states.

    Attributes:
        ingestions: How the next ingestions end; success if empty.
        refusals: Error code and reason of the documents that fail in a batch, by id.
    """

    ingestions: deque[job_pb.Job]
    refusals: dict[str, tuple[str, str]]

    def IngestDocument(self, request: Any, context: Any) -> Iterator[Any]:
        state = state_of(self.space(request.workspace), request.branch)
        job = job_pb.Job(id=fresh_id(), kind="ingest", subject=request.name, state=job_pb.JOB_STATE_RUNNING)
        yield pb.IngestDocumentResponse(job=job)
        yield pb.IngestDocumentResponse(progress=maintenance.Progress(step="summaries", done=1, total=1))
        job.state = job_pb.JOB_STATE_SUCCEEDED
        job.ingestion.CopyFrom(self._ingested(state, request, request.model_id))
        yield pb.IngestDocumentResponse(job=job)

    def IngestDocuments(self, request: Any, context: Any) -> Iterator[Any]:
        state = state_of(self.space(request.workspace), request.branch)
        count = len(request.documents)
        subject = f"{count} documents" if count > 1 else request.documents[0].name
        job = job_pb.Job(id=fresh_id(), kind="ingest_documents", subject=subject, state=job_pb.JOB_STATE_RUNNING)
        yield pb.IngestDocumentsResponse(job=job)
        if self.ingestions:
            job.MergeFrom(self.ingestions.popleft())
            yield pb.IngestDocumentsResponse(job=job)
            return
        for number, asked in enumerate(request.documents):
            progress = maintenance.Progress(step=f"summarise {asked.document_id}", done=number, total=count)
            yield pb.IngestDocumentsResponse(progress=progress)
            done = job.batch_ingestion.documents.add(name=asked.name, document_id=asked.document_id)
            if asked.document_id in self.refusals:
                done.reason, done.message = self.refusals[asked.document_id]
            else:
                done.ingestion.CopyFrom(self._ingested(state, asked, request.model_id))
        job.state = job_pb.JOB_STATE_SUCCEEDED
        yield pb.IngestDocumentsResponse(job=job)

    @staticmethod
    def _ingested(state: Any, asked: Any, model_id: str) -> job_pb.IngestionResult:
        held = (each for each in state.archives.values() if each.attributes["document_id"] == asked.document_id)
        known = next(held, None)
        if known is None:
            known = types.Archive(id=fresh_id(), name=asked.name, model_id=model_id)
            state.archives[known.id] = known
        text = asked.text or asked.file.decode()
        is_same = known.attributes["text"] == text
        known.attributes.update(document_id=asked.document_id, text=text, media_type="text/markdown")
        return job_pb.IngestionResult(
            archive_id=known.id,
            document_id=asked.document_id,
            commit_id="" if is_same else "c" * 40,
            created_leaves=0 if is_same else 2,
            kept_leaves=2 if is_same else 0,
        )

    def Recall(self, request: Any, context: Any) -> Any:
        nodes = [self._recalled(node) for node in self.state(request).nodes.values()]
        if request.strategy == pb.RECALL_STRATEGY_HYBRID:
            text = "".join(one.node.content for one in nodes)
            passage = pb.Passage(archive_name="notes", headings=["Top"], nodes=nodes, text=text, score=0.9)
            return pb.RecallResponse(
                passages=[passage],
                text=f"# notes\n\n{text}\n",
                tokens_used=3,
                token_budget=2000,
                confidence=types.CONFIDENCE_STRONG,
                likelihood=0.9,
                receipt=pb.RecallReceipt(method="recall-1", commit_id="c" * 40),
            )
        return pb.RecallResponse(nodes=nodes, warnings=[] if nodes else ["Nothing was found."])

    @staticmethod
    def _recalled(node: types.Node) -> pb.RecalledNode:
        words = pb.RecallSignal(name="words", score=0.9)
        trace = pb.RecallTrace(signals=[words], reason="Its words are the question's.")
        return pb.RecalledNode(node=node, score=0.9, citation=FakeForest._cited(node), trace=trace)

    @staticmethod
    def _cited(node: types.Node) -> pb.Citation:
        source = types.Source(document_id="d1", start=3, end=9, page=2)
        return pb.Citation(node_id=node.id, title=node.title, commit_id="c" * 40, archive_name="notes", source=source)

    def DrillDown(self, request: Any, context: Any) -> Any:
        state = self.state(request)
        below = state.children(state.find(request.node_id).id)
        drilled = [
            pb.DrilledNode(node=node, score=0.8 - number / 10, citation=self._cited(node))
            for number, node in enumerate(reversed(below))
        ]
        return pb.DrillDownResponse(nodes=drilled, below_threshold=1)

    def Ask(self, request: Any, context: Any) -> Iterator[Any]:
        nodes = list(self.state(request).nodes.values())
        yield pb.AskResponse(step=pb.AskStep(number=1, action="recall", nodes=nodes))
        if nodes:
            step = pb.AskStep(number=2, action="explore", node_id=nodes[0].id, reasoning="more", nodes=nodes[1:])
            yield pb.AskResponse(step=step)
        usage = types.ModelUsage(kind="chat", model="m", calls=2)
        citations = [self._cited(node) for node in nodes[:1]]
        answer = pb.Answer(text="In 1784.", citations=citations, warnings=["It is a fake."], usage=[usage])
        yield pb.AskResponse(answer=answer)

    def SuggestArchiveMerges(self, request: Any, context: Any) -> Any:
        archives = list(self.state(request).archives.values())
        found = [pb.ArchiveMergeSuggestion(archives=archives, similarity=0.75, reason="Alike.")] if archives[1:] else []
        return pb.SuggestArchiveMergesResponse(suggestions=found)

    def MergeArchives(self, request: Any, context: Any) -> Any:
        archive = types.Archive(id=fresh_id(), name=request.name)
        root = types.Node(id=fresh_id(), title=request.name)
        return pb.MergeArchivesResponse(archive=archive, root=root, commit_id="c" * 40, moved_nodes=7)

    def ListStaleSummaries(self, request: Any, context: Any) -> Any:
        nodes = list(self.state(request).nodes.values())
        found = [pb.StaleSummary(node=node, reason=pb.STALE_REASON_CHILDREN) for node in nodes[:1]]
        return pb.ListStaleSummariesResponse(summaries=found, total=len(nodes))

    def RenewSummaries(self, request: Any, context: Any) -> Any:
        job = job_pb.Job(id=fresh_id(), kind="renew_summaries", state=job_pb.JOB_STATE_QUEUED)
        return pb.RenewSummariesResponse(job=job)


class FakeMemory(FakeStates, MemoryServiceServicer):
    """Remember, Revise, Forget and Restore, and several of them in one commit."""

    def Remember(self, request: Any, context: Any) -> Any:
        result, done = self._one(request, memory.MemoryChange(remember=request))
        return memory.RememberResponse(**done, similar=result.similar)

    def Revise(self, request: Any, context: Any) -> Any:
        result, done = self._one(request, memory.MemoryChange(revise=request))
        return memory.ReviseResponse(**done, warnings=["It was short."], previous=result.previous)

    def Forget(self, request: Any, context: Any) -> Any:
        result, done = self._one(request, memory.MemoryChange(forget=request))
        return memory.ForgetResponse(**done, forgotten_ids=result.node_ids)

    def Restore(self, request: Any, context: Any) -> Any:
        result, done = self._one(request, memory.MemoryChange(restore=request))
        return memory.RestoreResponse(**done, restored_ids=result.node_ids)

    def BatchChangeMemory(self, request: Any, context: Any) -> Any:
        results, commit_id = self._all(request, list(request.changes))
        return memory.BatchChangeMemoryResponse(results=results, commit_id=commit_id, branch="main")

    def _one(self, request: Any, change: memory.MemoryChange) -> tuple[memory.MemoryResult, dict[str, Any]]:
        (result,), commit_id = self._all(request, [change])
        return result, {"node": result.node, "commit_id": commit_id, "branch": "main"}

    def _all(self, request: Any, changes: list[memory.MemoryChange]) -> tuple[list[memory.MemoryResult], str]:
        space = self.space(request.workspace)
        head = space.branches["main"]
        state = space.commits[head].state.copy()
        results = [self._apply(space, state, change) for change in changes]
        author = types.CommitAuthor(name=request.agent or "agent", email="agent@localhost")
        verb = (changes[0].WhichOneof("change") or "").capitalize()
        subject = request.message or f"{verb}: {results[0].node.title}"
        gone = space.commits[head].state.nodes.keys() - state.nodes.keys()
        deleted = [f"- {space.commits[head].state.nodes[each].title} ({each})" for each in sorted(gone)]
        text = "\n".join([subject, "", "Deleted:", *deleted]) if deleted else subject
        space.branches["main"] = space.commit([head], text, author, state, "")
        return results, space.branches["main"]

    def _apply(self, space: Any, state: State, change: memory.MemoryChange) -> memory.MemoryResult:
        kind = change.WhichOneof("change")
        if kind == "remember":
            return self._remember(state, change.remember)
        if kind == "revise":
            old = self._meant(state, change.revise)
            node = types.Node()
            node.CopyFrom(old)
            node.content = change.revise.text
            node.title = change.revise.title or node.title
            state.nodes[node.id] = node
            before = types.Node(id=old.id, title=old.title, summary=old.content)
            return memory.MemoryResult(node=node, node_ids=[node.id], previous=before)
        if kind == "forget":
            node = state.find(change.forget.node_id)
            gone = [each.id for each in state.below(node.id)]
            for node_id in gone:
                del state.nodes[node_id]
            return memory.MemoryResult(node=node, node_ids=gone)
        return self._restore(space, state, change.restore)

    def _remember(self, state: State, request: Any) -> memory.MemoryResult:
        name = request.archive or "notes"
        archive = next((each for each in state.archives.values() if name in (each.id, each.name)), None)
        if archive is None:
            archive = types.Archive(id=fresh_id(), name=name)
            state.archives[archive.id] = archive
        same = [node for node in state.nodes.values() if node.content == request.text]
        node = types.Node(
            id=fresh_id(),
            archive_id=archive.id,
            position=f"{len(state.nodes):06}",
            type="note",
            title=request.title or request.text[:80],
            content=request.text,
            tags=sorted(request.tags),
            attributes=request.attributes,
        )
        state.nodes[node.id] = node
        similar = [memory.SimilarNode(node=each, similarity=memory.SIMILARITY_DUPLICATE, score=1) for each in same]
        return memory.MemoryResult(node=node, similar=similar, node_ids=[node.id])

    def _meant(self, state: State, request: Any) -> types.Node:
        if request.node_id:
            return state.find(request.node_id)
        found = [node for node in state.nodes.values() if request.query.casefold() in node.title.casefold()]
        if len(found) != 1:
            message = f"{request.query!r} does not clearly mean one note."
            raise unmet(message, "UNCLEAR_QUERY", types.NodeList(nodes=found))
        return found[0]

    def _restore(self, space: Any, state: State, request: Any) -> memory.MemoryResult:
        states = [commit.state for commit in reversed(space.commits.values())]
        found = next(node for each in states for node in each.nodes.values() if node.id.startswith(request.node_id))
        state.nodes[found.id] = found
        return memory.MemoryResult(node=found, node_ids=[found.id])


class FakeJobs(FakeStates, JobServiceServicer):
    """JobService over a dictionary.

    Attributes:
        jobs: The jobs by id, the oldest first.
        ends: The results of the next jobs that are watched to their end; success if empty.
    """

    jobs: dict[str, job_pb.Job]
    ends: list[job_pb.Job]

    def build(self, **fields: Any) -> job_pb.Job:
        """The job with that id."""
        job = job_pb.Job(**{"id": fresh_id(), "kind": "rebuild", "state": job_pb.JOB_STATE_QUEUED, **fields})
        self.jobs[job.id] = job
        return job

    def _job(self, job_id: str) -> job_pb.Job:
        found = next((job for job in self.jobs.values() if job.id.startswith(job_id)), None)
        if found is None:
            raise not_found("job", job_id)
        return found

    def GetJob(self, request: Any, context: Any) -> Any:
        return job_pb.GetJobResponse(job=self._job(request.job_id))

    def ListJobs(self, request: Any, context: Any) -> Any:
        owner = self.space(request.workspace).message.id if request.workspace else ""
        found = [
            job
            for job in reversed(self.jobs.values())
            if (not owner or job.workspace_id == owner)
            and (not request.states or job.state in request.states)
            and request.kind in {"", job.kind}
        ]
        return listed(job_pb.ListJobsResponse, "jobs", found, request)

    def WatchJob(self, request: Any, context: Any) -> Iterator[Any]:
        job = self._job(request.job_id)
        yield job_pb.WatchJobResponse(job=job)
        if job.state not in {job_pb.JOB_STATE_QUEUED, job_pb.JOB_STATE_RUNNING}:
            return
        job.state, job.attempts = job_pb.JOB_STATE_RUNNING, job.attempts + 1
        for done in range(_STEPS):
            job.progress.CopyFrom(maintenance.Progress(step="index", done=done + 1, total=_STEPS))
            yield job_pb.WatchJobResponse(job=job)
        job.state = job_pb.JOB_STATE_SUCCEEDED
        if self.ends:
            job.MergeFrom(self.ends.pop(0))
        yield job_pb.WatchJobResponse(job=job)

    def CancelJob(self, request: Any, context: Any) -> Any:
        job = self._job(request.job_id)
        if job.state in {job_pb.JOB_STATE_QUEUED, job_pb.JOB_STATE_STOPPED}:
            job.state = job_pb.JOB_STATE_CANCELLED
        elif job.state == job_pb.JOB_STATE_RUNNING:  # it ends its step first
            self.ends.append(job_pb.Job(state=job_pb.JOB_STATE_CANCELLED))
        return job_pb.CancelJobResponse(job=job)

    def ResumeJob(self, request: Any, context: Any) -> Any:
        job = self._job(request.job_id)
        if job.state not in {job_pb.JOB_STATE_FAILED, job_pb.JOB_STATE_STOPPED, job_pb.JOB_STATE_CANCELLED}:
            raise unmet("The job cannot be resumed; watch it with WatchJob.", "JOB_NOT_RESUMABLE")
        job.state, job.reason, job.message = job_pb.JOB_STATE_QUEUED, "", ""
        return job_pb.ResumeJobResponse(job=job)

    def StartRebuild(self, request: Any, context: Any) -> Any:
        return job_pb.StartRebuildResponse(job=self._start("rebuild", request.workspace))

    def StartReindex(self, request: Any, context: Any) -> Any:
        return job_pb.StartReindexResponse(job=self._start("reindex", request.workspace))

    def _start(self, kind: str, workspace: str) -> job_pb.Job:
        space = self.space(workspace).message
        return self.build(kind=kind, workspace_id=space.id, subject=space.name)
