"""The forest of the fake server: documents become archives of one node each, and every question has one answer."""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

from collections import deque
from collections.abc import Iterator
from typing import Any

from unit.client.fake_state import FakeWorkspace, fresh_id, state_of

from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2 as jobs
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import types_pb2 as types
from memotree.v1.forest_service_pb2_grpc import ForestServiceServicer


class FakeForest(ForestServiceServicer):
    """ForestService over the fake's states.

    Attributes:
        ingestions: How the next ingestions end; success if empty.
        refusals: Error code and reason of the documents that fail in a batch, by id.
    """

    ingestions: deque[jobs.Job]
    refusals: dict[str, tuple[str, str]]

    def space(self, name: str) -> FakeWorkspace:
        """The workspace of that name or id."""
        raise NotImplementedError

    def IngestDocument(self, request: Any, context: Any) -> Iterator[Any]:
        state = state_of(self.space(request.workspace), request.branch)
        job = jobs.Job(id=fresh_id(), kind="ingest", subject=request.name, state=jobs.JOB_STATE_RUNNING)
        yield pb.IngestDocumentResponse(job=job)
        yield pb.IngestDocumentResponse(progress=maintenance.Progress(step="summaries", done=1, total=1))
        if self.ingestions:
            job.MergeFrom(self.ingestions.popleft())
            yield pb.IngestDocumentResponse(job=job)
            return
        job.state = jobs.JOB_STATE_SUCCEEDED
        job.ingestion.CopyFrom(self._ingested(state, request, request.model_id))
        yield pb.IngestDocumentResponse(job=job)

    def IngestDocuments(self, request: Any, context: Any) -> Iterator[Any]:
        state = state_of(self.space(request.workspace), request.branch)
        count = len(request.documents)
        subject = f"{count} documents" if count > 1 else request.documents[0].name
        job = jobs.Job(id=fresh_id(), kind="ingest_documents", subject=subject, state=jobs.JOB_STATE_RUNNING)
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
        job.state = jobs.JOB_STATE_SUCCEEDED
        yield pb.IngestDocumentsResponse(job=job)

    @staticmethod
    def _ingested(state: Any, asked: Any, model_id: str) -> jobs.IngestionResult:
        held = (each for each in state.archives.values() if each.attributes["document_id"] == asked.document_id)
        known = next(held, None)
        if known is None:
            known = types.Archive(id=fresh_id(), name=asked.name, model_id=model_id)
            state.archives[known.id] = known
        text = asked.text or asked.file.decode()
        is_same = known.attributes["text"] == text
        known.attributes.update(document_id=asked.document_id, text=text, media_type="text/markdown")
        return jobs.IngestionResult(
            archive_id=known.id,
            document_id=asked.document_id,
            commit_id="" if is_same else "c" * 40,
            created_leaves=0 if is_same else 2,
            kept_leaves=2 if is_same else 0,
        )

    def Recall(self, request: Any, context: Any) -> Any:
        nodes = [
            self._recalled(node) for node in state_of(self.space(request.workspace), request.revision).nodes.values()
        ]
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
        return pb.RecallResponse(nodes=nodes)

    @staticmethod
    def _recalled(node: types.Node) -> pb.RecalledNode:
        trace = pb.RecallTrace(
            signals=[pb.RecallSignal(name="words", score=0.9)], reason="Its words are the question's."
        )
        return pb.RecalledNode(node=node, score=0.9, citation=FakeForest._cited(node), trace=trace)

    @staticmethod
    def _cited(node: types.Node) -> pb.Citation:
        source = types.Source(document_id="d1", start=3, end=9, page=2)
        return pb.Citation(node_id=node.id, title=node.title, commit_id="c" * 40, archive_name="notes", source=source)

    def DrillDown(self, request: Any, context: Any) -> Any:
        state = state_of(self.space(request.workspace), request.revision)
        below = state.children(state.find(request.node_id).id)
        return pb.DrillDownResponse(
            nodes=[
                pb.DrilledNode(node=node, score=0.8 - number / 10, citation=self._cited(node))
                for number, node in enumerate(reversed(below))
            ],
            below_threshold=1,
        )

    def Ask(self, request: Any, context: Any) -> Iterator[Any]:
        nodes = list(state_of(self.space(request.workspace), request.revision).nodes.values())
        yield pb.AskResponse(step=pb.AskStep(number=1, action="recall", nodes=nodes))
        if nodes:
            step = pb.AskStep(
                number=2, action="explore", node_id=nodes[0].id, reasoning="more is needed", nodes=nodes[1:]
            )
            yield pb.AskResponse(step=step)
        yield pb.AskResponse(
            answer=pb.Answer(
                text="In 1784.",
                citations=[self._cited(node) for node in nodes[:1]],
                warnings=["It is a fake."],
                usage=[types.ModelUsage(kind="chat", model="m", calls=2)],
            )
        )

    def SuggestArchiveMerges(self, request: Any, context: Any) -> Any:
        archives = list(state_of(self.space(request.workspace), request.revision).archives.values())
        found = [pb.ArchiveMergeSuggestion(archives=archives, similarity=0.75, reason="Alike.")] if archives[1:] else []
        return pb.SuggestArchiveMergesResponse(suggestions=found)

    def MergeArchives(self, request: Any, context: Any) -> Any:
        archive = types.Archive(id=fresh_id(), name=request.name)
        root = types.Node(id=fresh_id(), title=request.name)
        return pb.MergeArchivesResponse(archive=archive, root=root, commit_id="c" * 40, moved_nodes=7)

    def ListStaleSummaries(self, request: Any, context: Any) -> Any:
        nodes = list(state_of(self.space(request.workspace), request.revision).nodes.values())
        found = [pb.StaleSummary(node=node, reason=pb.STALE_REASON_CHILDREN) for node in nodes[:1]]
        return pb.ListStaleSummariesResponse(summaries=found, total=len(nodes))

    def RenewSummaries(self, request: Any, context: Any) -> Any:
        return pb.RenewSummariesResponse(
            job=jobs.Job(id=fresh_id(), kind="renew_summaries", state=jobs.JOB_STATE_QUEUED)
        )
