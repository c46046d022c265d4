"""Ingests documents as jobs: the request reads the document, the job splits, summarises, merges and commits it.

A job that is restarted (after a crash, an outage, or a limit) repeats the same steps and gets the same result: the
answers of models are in the cache, the ids of new nodes are derived from the job's id, and there is exactly one commit,
at the end.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

from memotree_storage import faults
from memotree_storage.commit.direct_import import retry_if_raced
from memotree_storage.model.attribute_names import DOCUMENT_ID, INGESTION, MEDIA_TYPE, SHA256, SUMMARY_PENDING
from memotree_storage.model.node import SUMMARY_TYPE, Archive, Entry, Node, derived_id
from memotree_storage.postgres import registry
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.chunking.splitting import split
from memotree.forest.documents import Document
from memotree.forest.ingestion.affected_nodes import find_affected_nodes
from memotree.forest.ingestion.existing_tree import ExistingTree, is_own
from memotree.forest.ingestion.known_document import (
    KnownDocument,
    align_with,
    check_name,
    find_document,
    free_name,
    read_existing_tree,
)
from memotree.forest.ingestion.request_parsing import (
    check_request,
    from_json,
    read,
    tag_attribute,
    tags_of,
    to_json,
)
from memotree.forest.ingestion.tree_update import TreeUpdate, TreeUpdater
from memotree.forest.service_commit import Change, Changeset, branch_head, commit
from memotree.forest.tree_building.builder import BuildContext, TreeBuilder
from memotree.forest.tree_building.options import ChunkingOptions
from memotree.forest.usage import meter_of, note
from memotree.jobs import JobContext, JobRunner
from memotree.jobs.operations import job_message
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import read_author
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2, maintenance_service_pb2

KIND: Final = "ingest"
_DOCUMENT: Final = "document"
_PLANNED: Final = "planned"
_TOOL: Final = "IngestDocument"


class IngestDocument:
    """Ingests documents.

    Args:
        store: The store.
        models: The gateway to the models.
        runner: Runs the jobs; `work` is registered with it for the kind `KIND`.
        limits: The limits of the service.
    """

    def __init__(self, store: Store, models: Models, runner: JobRunner, limits: ServiceLimits) -> None:
        self._store = store
        self._models = models
        self._runner = runner
        self._limits = limits
        runner.register(KIND, self.work)

    async def ingest_document(self, request: pb.IngestDocumentRequest) -> AsyncIterator[pb.IngestDocumentResponse]:
        """Queues a job for a document and streams its progress; the job continues if the caller disconnects."""
        check_request(request, self._limits)
        order = pb.IngestDocumentRequest()
        order.CopyFrom(request)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            order.branch = request.branch or workspace.default_branch
            state = await branch_head(conn, workspace.workspace_id, order.branch)
            if (
                request.name and not request.request_id
            ):  # with a request id, this may be a repeat of the call that took the name
                await check_name(Snapshot(conn, state), request.name, document_id=request.document_id)
            known = (
                await find_document(Snapshot(conn, state), request.document_id, joined=False)
                if request.document_id
                else None
            )
            subject = request.name or (known.holder.title if known else "")
        if request.HasField("author"):
            read_author(request.author, "author", self._limits.service_author())
        document = await read(request)
        order.ClearField("document")
        job = await self._runner.submit(
            workspace.workspace_id,
            KIND,
            order,
            subject=subject or document.title or request.document_id,
            lane=f"{workspace.workspace_id}/{order.branch}",
            request_id=request.request_id,
            inputs={_DOCUMENT: await asyncio.to_thread(to_json, document)},
        )
        yield pb.IngestDocumentResponse(job=job_message(job))
        reported: tuple[str, int, int] | None = None
        async with aclosing(self._runner.watch(job.id)) as changes:
            async for now in changes:
                job = now
                step = (job.step, job.done, job.total)
                if not job.over and job.step and step != reported:
                    progress = maintenance_service_pb2.Progress(step=job.step, done=job.done, total=job.total)
                    yield pb.IngestDocumentResponse(progress=progress)
                    reported = step
        yield pb.IngestDocumentResponse(job=job_message(job))

    async def work(self, context: JobContext) -> job_service_pb2.IngestionResult:
        """Ingests one document; the work of a job."""
        request = context.request(pb.IngestDocumentRequest)
        document = await asyncio.to_thread(from_json, await context.input(_DOCUMENT))
        meter = await meter_of(context, request.max_model_tokens)
        run = _IngestionRun(self._store, self._models, self._limits, context, request, meter)
        try:
            result = await run.ingest_with_retries(document)
        finally:
            note(context, meter)
        result.warnings.extend([*document.warnings, *meter.warnings])
        return result


class _IngestionRun:
    """The ingestion of one document by one job: reads the branch, makes the nodes, commits them."""

    def __init__(
        self,
        store: Store,
        models: Models,
        limits: ServiceLimits,
        context: JobContext,
        request: pb.IngestDocumentRequest,
        meter: Meter,
    ) -> None:
        self._store = store
        self._models = models
        self._limits = limits
        self._context = context
        self._request = request
        self._meter = meter
        self._workspace_id = context.job.workspace_id

    async def ingest_with_retries(self, document: Document) -> job_service_pb2.IngestionResult:
        """Ingests the document, and tries again if another commit changed the same nodes meanwhile.

        A retry is cheap, because the answers of models are in the cache.

        Raises:
            ImportRacedError: If every attempt lost the race.
        """
        return await retry_if_raced(partial(self._ingest, document))

    async def _ingest(self, document: Document) -> job_service_pb2.IngestionResult:
        async with self._store.database.connection() as conn:
            state = await branch_head(conn, self._workspace_id, self._request.branch)
            known = await find_document(
                Snapshot(conn, state), self._document_id, joined=bool(self._request.document_id)
            )
        if known is None:
            return await self._build_new(state, document)
        if known.facts.get(INGESTION) == self._context.job.id:  # an earlier attempt was cut off behind its commit
            planned = await self._context.kept(_PLANNED)
            result = job_service_pb2.IngestionResult.FromString(planned or b"")
            result.commit_id = known.holder.commit_id or ""
            return result
        return await self._update_existing(state, document, known)

    @property
    def _document_id(self) -> str:
        return self._request.document_id or derived_id(self._context.job.id, "document", 0)

    def _build_context(self, archive_id: str, options: ChunkingOptions, tags: Iterable[str]) -> BuildContext:
        return BuildContext(self._context.job.id, archive_id, self._document_id, tuple(tags), options)

    def _facts(self, document: Document, options: ChunkingOptions, tags: Iterable[str]) -> dict[str, str]:
        """Returns the attributes of the document's archive (or of its node in a joined archive)."""
        return {
            DOCUMENT_ID: self._document_id,
            MEDIA_TYPE: document.media_type,
            SHA256: hashlib.sha256(document.text.encode()).hexdigest(),
            INGESTION: self._context.job.id,
            **options.attributes(),
            **tag_attribute(tags),
        }

    # --- A new document ----------------------------------------------------------------------------------------------

    async def _build_new(self, state: State, document: Document) -> job_service_pb2.IngestionResult:
        options, tags = ChunkingOptions.from_request(self._request, document), self._request.tags
        async with self._store.database.connection() as conn:
            if self._request.name:
                await check_name(Snapshot(conn, state), self._request.name)
            name = self._request.name or await free_name(Snapshot(conn, state), document.title or self._document_id)
        archive = Archive(
            id=derived_id(self._context.job.id, "archive", 0),
            name=name,
            model_id=self._request.model_id,
            attributes=self._facts(document, options, tags),
        )
        await self._context.progress("split")
        pieces = await asyncio.to_thread(split, document, options.chunk_size)
        builder = TreeBuilder(self._models, self._meter, self._build_context(archive.id, options, tags), self._report)
        nodes = await builder.build(document, pieces)
        result = job_service_pb2.IngestionResult(
            archive_id=archive.id,
            document_id=self._document_id,
            created_leaves=len(pieces),
            summary_nodes=len(nodes) - len(pieces),
            roots=sum(node.parent_id is None for node in nodes),
            pending_summaries=sum(SUMMARY_PENDING in node.attributes for node in nodes),
        )
        entries: list[Entry] = [archive, *nodes]
        changes = {entry.id: Change(None, entry) for entry in entries}
        return await self._commit(changes, f"Ingest {archive.name}", result)

    # --- A new version of a known one --------------------------------------------------------------------------------

    async def _update_existing(
        self, state: State, document: Document, known: KnownDocument
    ) -> job_service_pb2.IngestionResult:
        options = ChunkingOptions.from_request(self._request, document, known.facts)
        tags = self._request.tags or tags_of(known.facts)
        facts = {**known.facts, **self._facts(document, options, tags)}
        holder = self._renamed(known, facts)
        result = job_service_pb2.IngestionResult(
            archive_id=known.holder.archive_id or known.holder.entry_id, document_id=self._document_id
        )
        async with self._store.database.connection() as conn:
            if isinstance(holder, Archive):
                await check_name(Snapshot(conn, state), holder.name, holder.id)
            existing = await read_existing_tree(self._store, Snapshot(conn, state), known)
        if _same(facts, known.facts) and holder == known.entry(facts):
            return _counted(
                result, TreeUpdate({}, frozenset(), 0, len(existing.leaves), 0), existing, existing.versions
            )
        await self._context.progress("compare")
        kept = await asyncio.to_thread(align_with, document, existing)
        builder = TreeBuilder(
            self._models, self._meter, self._build_context(result.archive_id, options, tags), self._report
        )
        tree_update = await TreeUpdater(builder, existing, document, kept, self._request.tags).update()
        await self._context.progress("renew summaries")
        top = holder if isinstance(holder, Node) else None
        affected = await find_affected_nodes(self._store, self._models, state, existing, tree_update, top, self._meter)
        changes = dict(affected.changes)
        if top is None:
            changes[holder.id] = Change(known.holder, holder)
        result = _counted(result, tree_update, existing, affected.versions)
        return await self._commit(changes, f"Update {known.holder.title}", result)

    def _renamed(self, known: KnownDocument, facts: Mapping[str, str]) -> Entry:
        """Returns the document's archive or node with new facts, and with the name and model of the request."""
        entry = known.entry(facts)
        if isinstance(entry, Archive):
            name = self._request.name or entry.name
            return replace(entry, name=name, model_id=self._request.model_id or entry.model_id)
        return entry

    # --- The commit --------------------------------------------------------------------------------------------------

    async def _commit(
        self, changes: Mapping[str, Change], subject: str, result: job_service_pb2.IngestionResult
    ) -> job_service_pb2.IngestionResult:
        faults.point("ingest.planned")
        await self._context.keep(_PLANNED, result.SerializeToString())
        await self._context.progress("commit", 0, len(changes))
        author = self._limits.service_author()
        if self._request.HasField("author"):
            author = read_author(self._request.author, "author", author)
        changeset = Changeset(changes, self._request.message or subject, _TOOL, self._context.job.id, author)
        result.commit_id = await commit(self._store, self._workspace_id, self._request.branch, changeset, self._limits)
        faults.point("ingest.committed")
        await self._context.progress("commit", len(changes), len(changes))
        return result

    async def _report(self, step: str, done: int, total: int) -> None:
        note(self._context, self._meter)
        await self._context.progress(step, done, total)


def _same(facts: Mapping[str, str], before: Mapping[str, str]) -> bool:
    """Whether nothing but the job differs."""
    return {**facts, INGESTION: ""} == {**before, INGESTION: ""}


def _counted(
    result: job_service_pb2.IngestionResult, tree_update: TreeUpdate, existing: ExistingTree, now: Mapping[str, Version]
) -> job_service_pb2.IngestionResult:
    """Fills the counts of the updated trees into the result and returns it."""
    own = [version for version in now.values() if is_own(version, existing.document_id)]
    result.created_leaves = tree_update.created
    result.kept_leaves = tree_update.kept
    result.removed_leaves = tree_update.removed
    result.summary_nodes = sum(version.type == SUMMARY_TYPE for version in own)
    result.roots = sum(version.parent_id in {"", existing.top} for version in own)
    result.pending_summaries = sum(SUMMARY_PENDING in version.attributes for version in own)
    return result
