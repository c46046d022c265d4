"""Plans the ingestion of one document: which entries of the branch change, and what the result is. Commits nothing.

The same plan is made each time a job is restarted: the answers of models are in the cache, and the ids of new nodes are
derived from the job's id.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from memotree_storage.model.attribute_names import DOCUMENT_ID, INGESTION, MEDIA_TYPE, SHA256, SUMMARY_PENDING
from memotree_storage.model.node import SUMMARY_TYPE, Archive, Entry, Node, derived_id
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.depth import too_deep
from memotree.forest.chunking.splitting import split
from memotree.forest.documents import Document
from memotree.forest.ingestion.affected_nodes import find_affected_nodes
from memotree.forest.ingestion.existing_tree import is_own
from memotree.forest.ingestion.known_document import (
    DocumentIndex,
    DocumentNameTakenError,
    KnownDocument,
    align_with,
    read_existing_tree,
    read_versions,
)
from memotree.forest.ingestion.request_parsing import tag_attribute, tags_of
from memotree.forest.ingestion.tree_update import TreeUpdate, TreeUpdater
from memotree.forest.service_commit import Change
from memotree.forest.tree_building.builder import BuildContext, TreeBuilder
from memotree.forest.tree_building.merging import MERGED_LEVELS
from memotree.forest.tree_building.options import ChunkingOptions
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ingestion of one document changes.

    Attributes:
        result: The result, which has no commit yet.
        name: The name of the document's archive.
        is_new: Whether the document had no tree yet.
        changes: Every entry that changes; empty if the document has not changed, or is committed already.
        committed: The commit that an earlier attempt of the same job made for it, or ``""``.
    """

    result: job_service_pb2.IngestionResult
    name: str
    is_new: bool = False
    changes: Mapping[str, Change] = field(default_factory=dict)
    committed: str = ""

    @property
    def archive_names(self) -> set[str]:
        """The names that archives have after the commit of this plan."""
        return {change.after.name for change in self.changes.values() if isinstance(change.after, Archive)}


@dataclass(frozen=True, slots=True)
class Planning:
    """What the plans of one attempt at a job share.

    Attributes:
        store: The store.
        models: The models that make summaries and vectors.
        job_id: The job.
        meter: Counts the calls to models.
        max_depth: The greatest depth of a node.
        report: Called with the name of the step, the units done and the units in total.
    """

    store: Store
    models: Models
    job_id: str
    meter: Meter
    report: Callable[[str, int, int], Awaitable[None]]
    max_depth: int


class DocumentPlanner:
    """Plans the ingestion of one document.

    Args:
        planning: What the plans of the job share.
        request: The request for this document; its content is not read.
        seed: The ids of new nodes are derived from it; another one for each document of a job.
    """

    def __init__(self, planning: Planning, request: pb.IngestDocumentRequest, seed: str) -> None:
        self._planning = planning
        self._request = request
        self._seed = seed

    @property
    def document_id(self) -> str:
        """The id of the document."""
        return self._request.document_id or derived_id(self._seed, "document", 0)

    async def plan(self, document: Document, state: State, index: DocumentIndex, taken: Collection[str] = ()) -> Plan:
        """Returns the plan for a document.

        Args:
            document: The document.
            state: The head of the branch.
            index: The documents of that state.
            taken: Names of archives that other documents of the same commit take.

        Raises:
            DocumentNameTakenError: If another archive has the name.
            TooDeepError: If its sections would be too deep in the tree.
            BudgetExhaustedError: If the meter's limit is reached.
            ModelUnavailableError: If the embedding model does not answer.
        """
        known = await index.find(self.document_id)
        if known is None:
            return await self._build_new(document, index, taken)
        if known.facts.get(INGESTION) == self._planning.job_id:  # an earlier attempt was cut off behind its commit
            result = job_service_pb2.IngestionResult(commit_id=known.holder.commit_id or "")
            return Plan(result, known.name, committed=result.commit_id)
        return await self._update_existing(state, document, known, index, taken)

    def _builder(self, archive_id: str, options: ChunkingOptions, tags: Iterable[str], levels: int) -> TreeBuilder:
        context = BuildContext(self._seed, archive_id, self.document_id, tuple(tags), options, levels)
        return TreeBuilder(self._planning.models, self._planning.meter, context, self._planning.report)

    def _levels(self, document: Document, depth: int) -> int:
        """Returns the most levels that merging may make below a section; ``depth`` is that of the document's roots.

        Raises:
            TooDeepError: If the sections alone would exceed the greatest depth.
        """
        deepest = depth + max((section.level for section in document.outline), default=0)
        if deepest > self._planning.max_depth:
            raise too_deep("document", deepest, self._planning.max_depth)
        return min(MERGED_LEVELS, self._planning.max_depth - deepest)

    def _facts(self, document: Document, options: ChunkingOptions, tags: Iterable[str]) -> dict[str, str]:
        """Returns the attributes of the document's archive (or of its node in a joined archive)."""
        return {
            DOCUMENT_ID: self.document_id,
            MEDIA_TYPE: document.media_type,
            SHA256: hashlib.sha256(document.text.encode()).hexdigest(),
            INGESTION: self._planning.job_id,
            **options.attributes(),
            **tag_attribute(tags),
        }

    # --- A new document ----------------------------------------------------------------------------------------------

    async def _build_new(self, document: Document, index: DocumentIndex, taken: Collection[str]) -> Plan:
        options, tags = ChunkingOptions.from_request(self._request, document), self._request.tags
        name = self._request.name or await index.free_name(document.title or self.document_id, taken)
        await _check_name(index, taken, name)
        archive = Archive(
            id=derived_id(self._seed, "archive", 0),
            name=name,
            model_id=self._request.model_id,
            attributes=await asyncio.to_thread(self._facts, document, options, tags),
        )
        await self._planning.report("split", 0, 0)
        pieces = await asyncio.to_thread(split, document, options.chunk_size)
        builder = self._builder(archive.id, options, tags, self._levels(document, depth=0))
        nodes = await builder.build(document, pieces)

        def planned() -> Plan:
            result = job_service_pb2.IngestionResult(
                archive_id=archive.id,
                document_id=self.document_id,
                created_leaves=len(pieces),
                summary_nodes=len(nodes) - len(pieces),
                roots=sum(node.parent_id is None for node in nodes),
                pending_summaries=sum(SUMMARY_PENDING in node.attributes for node in nodes),
            )
            entries: list[Entry] = [archive, *nodes]
            return Plan(result, name, is_new=True, changes={entry.id: Change(None, entry) for entry in entries})

        return await asyncio.to_thread(planned)

    # --- A new version of a known one --------------------------------------------------------------------------------

    async def _update_existing(
        self, state: State, document: Document, known: KnownDocument, index: DocumentIndex, taken: Collection[str]
    ) -> Plan:
        options = ChunkingOptions.from_request(self._request, document, known.facts)
        tags = self._request.tags or tags_of(known.facts)
        facts = {**known.facts, **await asyncio.to_thread(self._facts, document, options, tags)}
        holder = self._renamed(known, facts)
        result = job_service_pb2.IngestionResult(
            archive_id=known.holder.archive_id or known.holder.entry_id, document_id=self.document_id
        )
        if isinstance(holder, Archive):
            await _check_name(index, taken, holder.name, holder.id)
        store, is_same = self._planning.store, _same(facts, known.facts) and holder == known.entry(facts)
        async with store.database.connection() as conn:
            if is_same:
                versions = await read_versions(Snapshot(conn, state), known)
                return Plan(await asyncio.to_thread(_counted, result, known, versions), known.name)
            existing = await read_existing_tree(store, Snapshot(conn, state), known)
            above = await tree.ancestors(Snapshot(conn, state), [known.top] if known.top else [])
        depth = len(above[known.top]) + 1 if known.top else 0
        await self._planning.report("compare", 0, 0)
        kept = await asyncio.to_thread(align_with, document, existing)
        builder = self._builder(result.archive_id, options, tags, self._levels(document, depth))
        updater = await asyncio.to_thread(TreeUpdater, builder, existing, document, kept, self._request.tags)
        tree_update = await updater.update()
        await self._planning.report("renew summaries", 0, 0)
        top = holder if isinstance(holder, Node) else None
        shared = self._planning
        affected = await find_affected_nodes(
            shared.store, shared.models, state, existing, tree_update, top, shared.meter
        )
        changes = dict(affected.changes)
        if top is None:
            changes[holder.id] = Change(known.holder, holder)
        counted = await asyncio.to_thread(_counted, result, known, affected.versions, tree_update)
        return Plan(counted, known.name, changes=changes)

    def _renamed(self, known: KnownDocument, facts: Mapping[str, str]) -> Entry:
        """Returns the document's archive or node with new facts, and with the name and model of the request."""
        entry = known.entry(facts)
        if isinstance(entry, Archive):
            name = self._request.name or entry.name
            return replace(entry, name=name, model_id=self._request.model_id or entry.model_id)
        return entry


async def _check_name(index: DocumentIndex, taken: Collection[str], name: str, archive_id: str = "") -> None:
    """Checks that neither an archive nor another document of the same commit has this name."""
    await index.check_name(name, archive_id)
    if name in taken:
        raise DocumentNameTakenError(name, "of the same call")


def _same(facts: Mapping[str, str], before: Mapping[str, str]) -> bool:
    """Whether nothing but the job differs."""
    return {**facts, INGESTION: ""} == {**before, INGESTION: ""}


def _counted(
    result: job_service_pb2.IngestionResult,
    known: KnownDocument,
    now: Mapping[str, Version],
    update: TreeUpdate | None = None,
) -> job_service_pb2.IngestionResult:
    """Fills the counts of a document's trees into the result and returns it; without an update, all leaves are kept."""
    own = [version for version in now.values() if is_own(version, known.document_id)]
    result.summary_nodes = sum(version.type == SUMMARY_TYPE for version in own)
    result.roots = sum(version.parent_id in {"", known.top} for version in own)
    result.pending_summaries = sum(SUMMARY_PENDING in version.attributes for version in own)
    result.created_leaves = update.created if update else 0
    result.kept_leaves = update.kept if update else len(own) - result.summary_nodes
    result.removed_leaves = update.removed if update else 0
    return result
