"""Builds the tree of a new document: leaves with summaries and vectors, merged neighbours, and sections."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypedDict

import numpy as np
from memotree_storage import faults
from memotree_storage.index.node_text import embedded_text
from memotree_storage.model.attribute_names import SECTION, SPEAKER, TABLE_HEADER, TIME, TURN_ID
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Node, Source, derived_id
from memotree_storage.model.position import many_between
from memotree_storage.model.provenance import PENDING_MODEL, hash_of_children, hash_of_content, with_provenance
from memotree_storage.model.tokens import spaced_length
from memotree_storage.ports import Vector

from memotree.forest.chunking.splitting import Piece
from memotree.forest.documents import Document
from memotree.forest.summaries.renewal import summarise_families, summarise_texts
from memotree.forest.tree_building.merging import MERGED_LEVELS, Merging, merge, merge_now
from memotree.forest.tree_building.options import ChunkingOptions
from memotree.forest.tree_building.plan import (
    Group,
    PlannedInner,
    PlannedLeaf,
    TreePlan,
    group_pieces,
    piece_title,
    plan_tree,
)
from memotree.forest.tree_building.titles import merged_title
from memotree.models.concurrent import finish_all
from memotree.models.extractive import brief_of
from memotree.models.gateway import Models, Summary
from memotree.models.meter import Meter

_AT_ONCE: Final = 256
_GROUPS_AT_ONCE: Final = 16
_HEADER_CHARS: Final = 1000

ReportProgress = Callable[[str, int, int], Awaitable[None]]
"""Called with the name of the step, the units done and the units in total."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What all nodes of one ingestion have in common.

    Attributes:
        job_id: The ids of new nodes are derived from it, so a job that is restarted makes the same ids.
        archive_id: The archive.
        document_id: The document.
        tags: Tags of every node.
        options: How the document is split and merged.
        levels: The most levels that merging makes below a section.
    """

    job_id: str
    archive_id: str
    document_id: str
    tags: tuple[str, ...] = ()
    options: ChunkingOptions = field(default_factory=ChunkingOptions)
    levels: int = MERGED_LEVELS

    def new_id(self, role: str, number: int) -> str:
        """Returns the id of a new node; the same arguments always give the same id."""
        return derived_id(self.job_id, role, number)


@dataclass(frozen=True, slots=True)
class MergedPieces:
    """The summaries and mergings of pieces, from which a tree is made.

    Attributes:
        summaries: The summary of each piece.
        mergings: The merging of each group of pieces.
        parents: For each merging the summaries of the parents it made, in the order of their numbers.
    """

    summaries: Sequence[Summary]
    mergings: Sequence[Merging]
    parents: Sequence[Sequence[Summary]]


class _Bounds(TypedDict):
    threshold: float
    limit: int


class _LeafGroup:
    """The leaves of one group, and the parents that merging adds above them.

    Args:
        texts: The texts of the leaves.
        leaves: The summaries of the leaves.
        vectors: The vectors of the leaves.
        levels: The most levels that merging makes.
    """

    def __init__(self, texts: Sequence[str], leaves: Sequence[Summary], vectors: Sequence[Vector], levels: int) -> None:
        self.texts = texts
        self.vectors = vectors
        self.levels = levels
        self.lengths = [spaced_length(text) for text in texts]
        self._summaries = list(leaves)
        self._ends = [(text, text) for text in texts]

    @property
    def parents(self) -> list[Summary]:
        """The summaries of the parents added so far."""
        return self._summaries[len(self.texts) :]

    def pair_summaries(self, left: int, right: int) -> list[str]:
        """Returns the texts of the summaries of two nodes."""
        return [self._summaries[left].text, self._summaries[right].text]

    def add_parent(self, left: int, right: int, summary: Summary) -> str:
        """Adds a parent above two nodes and returns the text to embed for it."""
        self._summaries.append(summary)
        self._ends.append((self._ends[left][0], self._ends[right][1]))
        return _text_to_embed(merged_title(*self._ends[-1], f"Parts {len(self._ends)}"), summary)


def _batches(leaf_groups: Sequence[_LeafGroup]) -> Iterator[list[_LeafGroup]]:
    """Yields consecutive groups in batches large enough to be worth the switch to a thread."""
    batch: list[_LeafGroup] = []
    for leaf_group in leaf_groups:
        batch.append(leaf_group)
        if sum(len(member.texts) for member in batch) >= _AT_ONCE or len(batch) >= _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


class _SharedFailure:
    """Shares the first failure among concurrent tasks, so that the others stop calling models."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records an exception of the block as the shared failure; raises at once if there is one already."""
        self.check()
        try:
            yield
        except Exception as error:
            self._error = self._error or error
            raise

    def check(self) -> None:
        """Raises the failure of another task, if there was one."""
        if self._error is not None:
            raise self._error


class TreeBuilder:
    """Makes the nodes of a document; all model calls are counted by one meter."""

    def __init__(self, models: Models, meter: Meter, context: BuildContext, report: ReportProgress) -> None:
        self._models = models.as_now()
        self._meter = meter
        self.context = context
        self._report = report
        self._bounds: _Bounds = {
            "threshold": context.options.similarity_threshold,
            "limit": context.options.merge_limit,
        }

    async def build(self, document: Document, pieces: Sequence[Piece]) -> list[Node]:
        """Returns the nodes of a document that has no tree yet, parents before children.

        Raises:
            BudgetExhaustedError: If the meter's limit is reached.
            ModelUnavailableError: If the embedding model does not answer.
        """
        groups = await asyncio.to_thread(group_pieces, pieces)
        merged_pieces = await self.merge_pieces(document, pieces, groups)
        plan = await asyncio.to_thread(plan_tree, document, pieces, merged_pieces.mergings)
        return await self._nodes(document, plan, merged_pieces)

    async def merge_pieces(
        self, document: Document, pieces: Sequence[Piece], groups: Sequence[Group], levels: Sequence[int] | None = None
    ) -> MergedPieces:
        """Summarises pieces and merges each group of them.

        Args:
            document: The document.
            pieces: Some pieces of it, in their order.
            groups: The groups of these pieces.
            levels: The most levels that merging makes of each group; those of the context if not given.
        """
        texts = await asyncio.to_thread(lambda: [document.text[piece.start : piece.end] for piece in pieces])
        summaries = await self.summaries(texts)
        vectors = await self._vectors(await asyncio.to_thread(_texts_to_embed, document, pieces, summaries))
        most = levels if levels is not None else [self.context.levels] * len(groups)
        results = await self._merge_all(texts, summaries, vectors, groups, most)
        return MergedPieces(summaries, [merging for merging, _ in results], [parents for _, parents in results])

    async def summaries(self, texts: Sequence[str]) -> list[Summary]:
        """Returns the summary of each text."""
        summaries: list[Summary] = []
        for start in range(0, len(texts), _AT_ONCE):
            batch = texts[start : start + _AT_ONCE]
            summaries += await summarise_texts(self._models, batch, self._meter)
            await self._report("summarise", len(summaries), len(texts))
            faults.point("ingest.summarised")
        return summaries

    async def _vectors(self, texts: Sequence[str]) -> Sequence[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), _AT_ONCE):
            vectors += list(await self._models.embed(texts[start : start + _AT_ONCE], self._meter))
            await self._report("embed", len(vectors), len(texts))
        return vectors

    async def _merge_all(
        self,
        texts: Sequence[str],
        leaves: Sequence[Summary],
        vectors: Sequence[Vector],
        groups: Sequence[Group],
        levels: Sequence[int],
    ) -> list[tuple[Merging, list[Summary]]]:
        """Merges each group. With remote models groups run concurrently; built-in ones run in sequence in a thread."""
        merged = 0
        parts = [slice(group.first, group.first + group.count) for group in groups]
        leaf_groups = await asyncio.to_thread(
            lambda: [
                _LeafGroup(texts[part], leaves[part], vectors[part], most)
                for part, most in zip(parts, levels, strict=True)
            ]
        )

        async def report_merged(count: int) -> None:
            nonlocal merged
            merged += count
            faults.point("ingest.merged")
            await self._report("merge", merged, len(texts))

        if self._models.is_built_in:
            results: list[tuple[Merging, list[Summary]]] = []
            for batch in _batches(leaf_groups):
                results += await asyncio.to_thread(
                    lambda now: [self._merge_now(leaf_group) for leaf_group in now], batch
                )
                await report_merged(sum(len(leaf_group.texts) for leaf_group in batch))
            return results
        free, stop = asyncio.Semaphore(_GROUPS_AT_ONCE), _SharedFailure()

        async def merge_one(leaf_group: _LeafGroup) -> tuple[Merging, list[Summary]]:
            async with free:
                with stop.recording():
                    result = await self._merge(leaf_group, stop)
            await report_merged(len(leaf_group.texts))
            return result

        return await finish_all(map(merge_one, leaf_groups))

    async def _merge(self, leaf_group: "_LeafGroup", stop: "_SharedFailure") -> tuple[Merging, list[Summary]]:
        async def make_parent(left: int, right: int) -> Vector:
            stop.check()
            summary = await self._models.summarise_children(leaf_group.pair_summaries(left, right), self._meter)
            text = leaf_group.add_parent(left, right, summary)
            return np.asarray((await self._models.embed([text], self._meter))[0])

        merging = await merge(
            leaf_group.vectors, leaf_group.lengths, make_parent, levels=leaf_group.levels, **self._bounds
        )
        return merging, leaf_group.parents

    def _merge_now(self, leaf_group: "_LeafGroup") -> tuple[Merging, list[Summary]]:
        def make_parent(left: int, right: int) -> Vector:
            summary = self._models.summarise_children_now(leaf_group.pair_summaries(left, right))
            text = leaf_group.add_parent(left, right, summary)
            return np.asarray(self._models.embed_now([text])[0])

        merging = merge_now(
            leaf_group.vectors, leaf_group.lengths, make_parent, levels=leaf_group.levels, **self._bounds
        )
        return merging, leaf_group.parents

    async def _nodes(self, document: Document, plan: TreePlan, merged_pieces: MergedPieces) -> list[Node]:
        """Returns the planned nodes; sections are summarised from their children, deepest level first."""
        ids, places, levels = await asyncio.to_thread(
            lambda: ([self._id(node) for node in plan.nodes], _positions(plan), _levels(plan))
        )
        made: dict[int, Node] = {}

        def make_level(level: Sequence[int], summed: Mapping[int, Summary]) -> None:
            for index in level:
                node, parent = plan.nodes[index], plan.nodes[index].parent
                parent_id = None if parent is None else ids[parent]
                if isinstance(node, PlannedLeaf):
                    made[index] = self.leaf(
                        document, node, merged_pieces.summaries[node.piece], parent_id, places[index]
                    )
                else:
                    below = [made[child] for child in node.children]
                    made[index] = self.inner(document, node, ids[index], summed[index], below, parent_id, places[index])

        for level in levels:
            inner = [index for index in level if isinstance(plan.nodes[index], PlannedInner)]
            summed = dict(zip(inner, await self._inner_summaries(plan, inner, made, merged_pieces), strict=True))
            await asyncio.to_thread(make_level, level, summed)
        return [made[index] for index in range(len(plan.nodes))]

    def _id(self, node: PlannedLeaf | PlannedInner) -> str:
        if isinstance(node, PlannedLeaf):
            return self.context.new_id("leaf", node.start)
        if node.section is not None:
            return self.context.new_id("section", node.section)
        return self.context.new_id(f"group {node.group}", node.merged or 0)

    async def _inner_summaries(
        self, plan: TreePlan, inner: Sequence[int], made: Mapping[int, Node], merged_pieces: MergedPieces
    ) -> list[Summary]:
        merged: dict[int, Summary] = {}
        sections: list[int] = []

        def families() -> list[list[Node]]:
            for index in inner:
                node = plan.nodes[index]
                assert isinstance(node, PlannedInner)  # noqa: S101 - for the type checker
                if node.group is not None and node.merged is not None:
                    merged[index] = merged_pieces.parents[node.group][
                        node.merged - merged_pieces.mergings[node.group].leaves
                    ]
                else:
                    sections.append(index)
            return [[made[child] for child in _children(plan, index)] for index in sections]

        below = await asyncio.to_thread(families)
        merged |= dict(zip(sections, await summarise_families(self._models, below, self._meter), strict=True))
        return [merged[index] for index in inner]

    def leaf(
        self, document: Document, node: PlannedLeaf, summary: Summary, parent_id: str | None, position: str
    ) -> Node:
        """Returns the node of a planned leaf."""
        text = document.text[node.start : node.end]
        return Node(
            id=self.context.new_id("leaf", node.start),
            archive_id=self.context.archive_id,
            parent_id=parent_id,
            position=position,
            type=LEAF_TYPE,
            title=node.title,
            summary=summary.text,
            content=text,
            tags=self.context.tags,
            attributes=_with_provenance(leaf_attributes(document, node), summary, hash_of_content(text)),
            source=self._source(node),
        )

    def inner(
        self,
        document: Document,
        node: PlannedInner,
        node_id: str,
        summary: Summary,
        below: Iterable[Node],
        parent_id: str | None,
        position: str,
    ) -> Node:
        """Returns the node of a planned section or merged pair."""
        attributes = {} if node.section is None else {SECTION: str(document.outline[node.section].level)}
        made_of = hash_of_children((child.id, child.summary) for child in below)
        return Node(
            id=node_id,
            archive_id=self.context.archive_id,
            parent_id=parent_id,
            position=position,
            type=SUMMARY_TYPE,
            title=node.title,
            brief=brief_of(node.title, summary.text),
            summary=summary.text,
            tags=self.context.tags,
            attributes=_with_provenance(attributes, summary, made_of),
            source=self._source(node),
        )

    def _source(self, node: PlannedLeaf | PlannedInner) -> Source:
        return Source(self.context.document_id, node.start, node.end, node.page, node.heading, node.sha256)


def _text_to_embed(title: str, summary: Summary) -> str:
    """Returns the text that is embedded for a node.

    The vector index embeds exactly the same text, so its call is answered from the cache and paid only once.
    """
    return embedded_text(Node("", "", None, "", title=title, summary=summary.text))


def leaf_attributes(document: Document, leaf: PlannedLeaf) -> dict[str, str]:
    """Returns what is known about a leaf besides its text: its turn, and the header of the table it goes on with."""
    told = {TABLE_HEADER: table_header(document, leaf.start)}
    if leaf.turn is not None:
        spoken = document.turns[leaf.turn]
        told |= {SPEAKER: spoken.speaker, TIME: spoken.time, TURN_ID: spoken.id}
    return {name: value for name, value in told.items() if value}


def table_header(document: Document, start: int) -> str:
    """Returns the header of the table that a leaf at ``start`` goes on with, as it is in the text."""
    return document.header_at(start)[:_HEADER_CHARS]


def _with_provenance(attributes: Mapping[str, str], summary: Summary, made_of: str) -> dict[str, str]:
    return with_provenance(attributes, summary.made_by, made_of, PENDING_MODEL if summary.pending else "")


def _texts_to_embed(document: Document, pieces: Sequence[Piece], summaries: Sequence[Summary]) -> list[str]:
    """Returns the text to embed for each piece: its title and its summary."""
    return [
        _text_to_embed(piece_title(document, piece, number), summary)
        for number, (piece, summary) in enumerate(zip(pieces, summaries, strict=True))
    ]


def _positions(plan: TreePlan) -> dict[int, str]:
    """Returns the position of each planned node among its siblings."""
    positions: dict[int, str] = {}
    families = [plan.roots, *(node.children for node in plan.nodes if isinstance(node, PlannedInner))]
    for family in families:
        positions |= dict(zip(family, many_between(None, None, len(family)), strict=True))
    return positions


def _children(plan: TreePlan, index: int) -> Sequence[int]:
    node = plan.nodes[index]
    return node.children if isinstance(node, PlannedInner) else ()


def _levels(plan: TreePlan) -> list[list[int]]:
    """Returns the indexes of the nodes by depth, the deepest level first."""
    depths: list[int] = []
    levels: list[list[int]] = []
    for index, node in enumerate(plan.nodes):
        depths.append(0 if node.parent is None else depths[node.parent] + 1)
        if depths[-1] == len(levels):
            levels.append([])
        levels[depths[-1]].append(index)
    return levels[::-1]
