"""Calls to the memory forest of a workspace: ingest documents into trees, and recall, explore and ask questions."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from memotree.client.enums import RecallStrategy, RecallStrategyName, to_wire
from memotree.client.forest_values import (
    Answer,
    ArchiveMerge,
    ArchiveMergeSuggestion,
    AskStep,
    DrillDownResult,
    RecallResult,
    Receipt,
    StaleSummaries,
    Turn,
)
from memotree.client.history_values import Author
from memotree.client.jobs import Job
from memotree.client.lists import several
from memotree.client.node_values import ArchiveRef, NodeRef, archive_id, node_id
from memotree.client.transport import Transport
from memotree.client.workspace_values import Progress
from memotree.v1 import forest_service_pb2 as wire


class AsyncForestQueries:
    """The reading calls of the forest, at one revision of a workspace."""

    _transport: Transport
    _workspace: str
    _revision: str

    async def recall(
        self,
        query: str,
        *,
        strategy: RecallStrategyName | None = None,
        top_k: int = 0,
        token_budget: int = 0,
        archives: Iterable[ArchiveRef] = (),
        model_id: str = "",
        tags: Iterable[str] = (),
        node_types: Iterable[str] = (),
        since: datetime | str = "",
        until: datetime | str = "",
        under: NodeRef | None = None,
        valid_at: datetime | str = "",
        include_outdated: bool = False,
        include_trace: bool = False,
        budget_covers_text: bool = False,
        receipt: Receipt | None = None,
    ) -> RecallResult:
        """Finds the text in the trees that is relevant to a question.

        Args:
            query: The question, at most 8192 characters. Plain text; no query operators.
            strategy: The strategy; HYBRID if ``None``.
            top_k: How many nodes LCA and COLLAPSED start from; 10 if 0.
            token_budget: The most tokens of the answer; if 0, 2000 for HYBRID and no limit for the others.
            archives: Only these archives.
            model_id: Only archives of this model.
            tags: Only nodes with all of these tags.
            node_types: Only nodes of one of these types.
            since: Only nodes from this time or later.
            until: Only nodes from before this time.
            under: Only this node and the nodes below it.
            valid_at: Only nodes that hold at this time; without it, those that do not hold any more are left out.
            include_outdated: Whether to consider nodes that do not hold, too.
            include_trace: Whether to return how each part was found: its signals and the nodes above it.
            budget_covers_text: Whether the budget counts headings and ids, too; else the texts of the nodes alone.
            receipt: The receipt of an earlier answer to the same question, to get that answer again. Everything else
                but ``include_trace`` comes from it.
        """
        request = wire.RecallRequest(
            workspace=self._workspace,
            revision=self._revision,
            query=query,
            strategy=to_wire(RecallStrategy, strategy),
            top_k=top_k,
            token_budget=token_budget,
            filter=filtered(archives, model_id, tags, node_types, since, until, under, valid_at, include_outdated),
            include_trace=include_trace,
            budget_covers_text=budget_covers_text,
        )
        if receipt is not None:
            request.ClearField("revision")
            request.receipt.CopyFrom(receipt.to_wire())
        return RecallResult.from_wire(await self._transport.call(request, wire.RecallResponse))

    async def drill_down(self, node: NodeRef, query: str, *, threshold: float | None = None) -> DrillDownResult:
        """Goes one level down: the children whose score is at least ``threshold`` (0.5), best first.

        For a leaf, the result is the leaf itself with score 1.
        """
        request = wire.DrillDownRequest(
            workspace=self._workspace,
            revision=self._revision,
            node_id=node_id(node),
            query=query,
            threshold=threshold,
        )
        return DrillDownResult.from_wire(await self._transport.call(request, wire.DrillDownResponse))

    async def ask(
        self,
        query: str,
        *,
        strategy: RecallStrategyName | None = None,
        max_steps: int = 0,
        token_budget: int = 0,
        archives: Iterable[ArchiveRef] = (),
        model_id: str = "",
        tags: Iterable[str] = (),
        node_types: Iterable[str] = (),
        since: datetime | str = "",
        until: datetime | str = "",
        under: NodeRef | None = None,
        valid_at: datetime | str = "",
        include_outdated: bool = False,
    ) -> AsyncIterator[AskStep | Answer]:
        """Answers a question with citations; yields each step as it is taken, and the answer last.

        Args:
            query: The question, at most 8192 characters.
            strategy: How the first nodes are found; HYBRID if ``None``.
            max_steps: How many decisions the chat model may take; 5 if 0, at most 20.
            token_budget: The most tokens of context for one decision; 4000 if 0.
            archives: Only these archives.
            model_id: Only archives of this model.
            tags: Only nodes with all of these tags.
            node_types: Only nodes of one of these types.
            since: Only nodes from this time or later.
            until: Only nodes from before this time.
            under: Only this node and the nodes below it.
            valid_at: Only nodes that hold at this time; without it, those that do not hold any more are left out.
            include_outdated: Whether to consider nodes that do not hold, too.
        """
        request = wire.AskRequest(
            workspace=self._workspace,
            revision=self._revision,
            query=query,
            filter=filtered(archives, model_id, tags, node_types, since, until, under, valid_at, include_outdated),
            max_steps=max_steps,
            token_budget=token_budget,
            strategy=to_wire(RecallStrategy, strategy),
        )
        async for event in self._transport.stream(request, wire.AskResponse):
            if event.HasField("answer"):
                yield Answer.from_wire(event.answer)
            else:
                yield AskStep.from_wire(event.step)

    async def suggest_archive_merges(
        self, *, model_id: str = "", threshold: float | None = None
    ) -> list[ArchiveMergeSuggestion]:
        """Groups of archives of one model with the same topic, the most similar first.

        Args:
            model_id: Only archives of this model; if empty, each model is considered separately.
            threshold: How similar their roots must be, from 0 to 1; 0.6 if ``None``.
        """
        request = wire.SuggestArchiveMergesRequest(
            workspace=self._workspace, revision=self._revision, model_id=model_id, threshold=threshold
        )
        answer = await self._transport.call(request, wire.SuggestArchiveMergesResponse)
        return [ArchiveMergeSuggestion.from_wire(suggestion) for suggestion in answer.suggestions]

    async def stale_summaries(self, *, archive: ArchiveRef | None = None, max_results: int = 0) -> StaleSummaries:
        """Nodes whose summary is stale or a substitute for a failed model's; at most ``max_results`` (100 if 0)."""
        request = wire.ListStaleSummariesRequest(
            workspace=self._workspace, revision=self._revision, archive=archive_id(archive), max_results=max_results
        )
        return StaleSummaries.from_wire(await self._transport.call(request, wire.ListStaleSummariesResponse))


class AsyncForestChanges(AsyncForestQueries):
    """The calls that change the forest of a workspace: they commit to a branch directly, without a session."""

    async def ingest(
        self,
        document: str | bytes | Iterable[Turn],
        *,
        name: str,
        model_id: str = "",
        document_id: str = "",
        branch: str = "",
        media_type: str = "",
        chunk_size: int = 0,
        similarity_threshold: float | None = None,
        merge_limit: int = 0,
        tags: Iterable[str] = (),
        message: str = "",
        author: Author | None = None,
        max_model_tokens: int = 0,
        request_id: str = "",
        agent: str = "",
    ) -> AsyncIterator[Job | Progress]:
        """Builds the tree of a document, or updates the tree of a known document, as a job on the server.

        Yields the job when it has begun, then progress, then the job again when it has ended. The job continues if you
        disconnect.

        Args:
            document: A text, a file's bytes, or the turns of a conversation.
            name: The name of the document and of its archive.
            model_id: The agent or model that the archive belongs to.
            document_id: The id of the document: ingesting the same id again updates its tree.
            branch: The branch that gets the commit; the default branch if empty.
            media_type: The media type of the document; detected if empty.
            chunk_size: The largest leaf, in characters, of which one of an unspaced script counts as four; if 0, 400
                for a text, 1000 for turns and code.
            similarity_threshold: Neighbours merge only if their similarity exceeds this; 0.5 if ``None``.
            merge_limit: The most characters of a merged node's leaves; eight times ``chunk_size`` if 0.
            tags: Tags for every node.
            message: The message of the commit; if empty, one that names the document.
            author: The author of the commit; the agent if ``None``.
            max_model_tokens: The most tokens that models may read and write; no limit if 0.
            request_id: An id of your choice: calls with the same id start only one job.
            agent: The name of the agent or person who ingests; ``MEMOTREE_AGENT``, else your login name, if empty.
        """
        request = wire.IngestDocumentRequest(
            workspace=self._workspace,
            branch=branch,
            name=name,
            model_id=model_id,
            document_id=document_id,
            media_type=media_type,
            chunk_size=chunk_size,
            similarity_threshold=similarity_threshold,
            merge_limit=merge_limit,
            tags=several("tags", tags),
            message=message,
            author=author.to_wire() if author else None,
            max_model_tokens=max_model_tokens,
            request_id=request_id,
            agent=agent,
        )
        if isinstance(document, str):
            request.text = document
        elif isinstance(document, bytes):
            request.file = document
        else:
            request.conversation.turns.extend(turn.to_wire() for turn in document)
        async for event in self._transport.stream(request, wire.IngestDocumentResponse):
            if event.HasField("job"):
                yield Job.from_wire(event.job)
            else:
                yield Progress.from_wire(event.progress)

    async def merge_archives(
        self,
        archives: Iterable[ArchiveRef],
        name: str,
        *,
        branch: str = "",
        message: str = "",
        author: Author | None = None,
        request_id: str = "",
    ) -> ArchiveMerge:
        """Joins archives of one model under a new root, in one commit; nodes keep their ids and their history.

        Args:
            archives: Two or more archives.
            name: The name of the joined archive.
            branch: The branch that gets the commit; the default branch if empty.
            message: The message of the commit; if empty, one that names the archives.
            author: The author of the commit; the service itself if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = wire.MergeArchivesRequest(
            workspace=self._workspace,
            branch=branch,
            archives=[archive_id(archive) for archive in several("archives", archives)],
            name=name,
            message=message,
            author=author.to_wire() if author else None,
            request_id=request_id,
        )
        return ArchiveMerge.from_wire(await self._transport.call(request, wire.MergeArchivesResponse))

    async def renew_summaries(
        self, *, branch: str = "", archive: ArchiveRef | None = None, max_model_tokens: int = 0, request_id: str = ""
    ) -> Job:
        """Renews stale and pending summaries, as a job with one commit at its end.

        Args:
            branch: The branch that gets the commit; the default branch if empty.
            archive: Only this archive.
            max_model_tokens: The most tokens that models may read and write; no limit if 0.
            request_id: An id of your choice: calls with the same id start only one job.
        """
        request = wire.RenewSummariesRequest(
            workspace=self._workspace,
            branch=branch,
            archive=archive_id(archive),
            max_model_tokens=max_model_tokens,
            request_id=request_id,
        )
        return Job.from_wire((await self._transport.call(request, wire.RenewSummariesResponse)).job)


def filtered(
    archives: Iterable[ArchiveRef],
    model_id: str,
    tags: Iterable[str],
    node_types: Iterable[str],
    since: datetime | str,
    until: datetime | str,
    under: NodeRef | None,
    valid_at: datetime | str,
    include_outdated: bool,
) -> wire.RecallFilter:
    """The filter of a request; see `AsyncForestQueries.recall`."""
    return wire.RecallFilter(
        archives=[archive_id(archive) for archive in several("archives", archives)],
        model_id=model_id,
        tags=several("tags", tags),
        node_types=several("node_types", node_types),
        since=_written(since),
        until=_written(until),
        scope_node_id=node_id(under),
        valid_at=_written(valid_at),
        include_outdated=include_outdated,
    )


def _written(time: datetime | str) -> str:
    """A time in the format of the contract; one without a zone is local time."""
    return time.astimezone().isoformat() if isinstance(time, datetime) else time
