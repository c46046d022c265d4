"""A new tree from a document: leaves with summaries and vectors, neighbours merged, sections above."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from memotree_storage import faults
from memotree_storage.indexer import embedded_text
from memotree_storage.node import ID_ALPHABET, ID_LENGTH, Node, Source
from memotree_storage.ports import Vector
from memotree_storage.position import many_between

from memotree.forest.documents import Document
from memotree.forest.growth.merging import Merging, merge, unmerged
from memotree.forest.growth.plan import Group, PlannedInner, PlannedLeaf, TreePlan, group_pieces, plan_tree
from memotree.forest.growth.splitting import Piece
from memotree.forest.growth.titles import leaf_title, merged_title
from memotree.forest.intake import Cutting
from memotree.forest.renewal import summarise_children, summarise_text
from memotree.forest.staleness import DERIVED_TYPE
from memotree.models.extractive import brief_of
from memotree.models.gateway import Models, Summary
from memotree.models.meter import Meter
from memotree.provenance import PENDING_MODEL, hash_of_children, hash_of_content, with_provenance

LEAF_TYPE: Final = "leaf_chunk"
SECTION: Final = "section"
"""The attribute of a node that stands for a heading of the document: its level, 1 for the outermost."""

_AT_ONCE: Final = 256
_GROUPS_AT_ONCE: Final = 16

Tell = Callable[[str, int, int], Awaitable[None]]
"""Told the step, and how much of it is done, of how much."""


@dataclass(frozen=True, slots=True)
class Soil:
    """What every node of one ingestion has in common.

    Attributes:
        job_id: The ids of new nodes come from it, so that a job that begins again makes the same ones.
        archive_id: The archive.
        document_id: The document.
        tags: Tags of every node.
        cutting: How the document is split and merged.
    """

    job_id: str
    archive_id: str
    document_id: str
    tags: tuple[str, ...] = ()
    cutting: Cutting = field(default_factory=Cutting)

    def new_id(self, role: str, number: int) -> str:
        """The id of one new node."""
        return derived_id(self.job_id, role, number)


def derived_id(job_id: str, role: str, number: int) -> str:
    """An id that a job, a role and a number decide: as random as others, and the same when the job begins again."""
    digest = hashlib.sha256(f"{job_id}/{role}/{number}".encode()).digest()
    value = int.from_bytes(digest[:10], "big")
    return "".join(ID_ALPHABET[(value >> shift) & 31] for shift in range(5 * (ID_LENGTH - 1), -1, -5))


@dataclass(frozen=True, slots=True)
class Grafting:
    """Pieces that were summed up and merged: what a tree is made of.

    Attributes:
        summaries: Of each piece.
        mergings: Of each group of pieces.
        parents: The summaries of the parents that each merging made, in their order.
    """

    summaries: Sequence[Summary]
    mergings: Sequence[Merging]
    parents: Sequence[Sequence[Summary]]


class Planter:
    """Makes the nodes of a document, paying models through one meter."""

    def __init__(self, models: Models, meter: Meter, soil: Soil, tell: Tell) -> None:
        self._models = models
        self._meter = meter
        self.soil = soil
        self._tell = tell

    async def plant(self, document: Document, pieces: Sequence[Piece]) -> list[Node]:
        """The nodes of a document that has no tree yet, parents before children.

        Raises:
            BudgetExhaustedError: The meter's limit is reached.
            ModelUnavailableError: The embedding model does not answer.
        """
        groups = group_pieces(pieces)
        grafted = await self.graft(document, pieces, groups)
        plan = await asyncio.to_thread(plan_tree, document, pieces, grafted.mergings)
        return await self._nodes(document, plan, grafted)

    async def graft(self, document: Document, pieces: Sequence[Piece], groups: Sequence[Group]) -> Grafting:
        """Sum pieces up and merge each group of them."""
        texts = [document.text[piece.start : piece.end] for piece in pieces]
        summaries = await self.summaries(texts)
        titles = [leaf_title(text, f"Part {number}") for number, text in enumerate(texts, 1)]
        vectors = await self._vectors(titles, summaries)
        merged = 0
        free = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def one(group: Group) -> tuple[Merging, list[Summary]]:
            nonlocal merged
            part = slice(group.first, group.first + group.count)
            async with free:
                result = await self._merge(texts[part], summaries[part], vectors[part])
            merged += group.count
            faults.point("ingest.merged")
            await self._tell("merge", merged, len(pieces))
            return result

        results = await asyncio.gather(*map(one, groups))
        return Grafting(summaries, [merging for merging, _ in results], [parents for _, parents in results])

    async def summaries(self, texts: Sequence[str]) -> list[Summary]:
        """The summary of each text."""
        made: list[Summary] = []
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            made += await asyncio.gather(*(summarise_text(self._models, text, self._meter) for text in some))
            await self._tell("summarise", len(made), len(texts))
            faults.point("ingest.summarised")
        return made

    async def _vectors(self, titles: Sequence[str], summaries: Sequence[Summary]) -> Sequence[Vector]:
        found: list[Vector] = []
        asked = [_asked(title, summary) for title, summary in zip(titles, summaries, strict=True)]
        for start in range(0, len(asked), _AT_ONCE):
            found += list(await self._models.embed(asked[start : start + _AT_ONCE], self._meter))
            await self._tell("embed", len(found), len(asked))
        return found

    async def _merge(
        self, texts: Sequence[str], leaves: Sequence[Summary], vectors: Sequence[Vector]
    ) -> tuple[Merging, list[Summary]]:
        if len(texts) == 1:
            return unmerged(1), []
        summaries = list(leaves)
        ends = [(text, text) for text in texts]

        async def make_parent(left: int, right: int) -> Vector:
            summary = await self._models.summarise_children([summaries[left].text, summaries[right].text], self._meter)
            summaries.append(summary)
            ends.append((ends[left][0], ends[right][1]))
            title = merged_title(*ends[-1], f"Parts {len(ends)}")
            vector: Vector = np.asarray((await self._models.embed([_asked(title, summary)], self._meter))[0])
            return vector

        cutting = self.soil.cutting
        merging = await merge(
            vectors,
            [len(text) for text in texts],
            make_parent,
            threshold=cutting.similarity_threshold,
            limit=cutting.merge_limit,
        )
        return merging, summaries[len(leaves) :]

    async def _nodes(self, document: Document, plan: TreePlan, grafted: Grafting) -> list[Node]:
        """The planned nodes; sections get their summaries from below."""
        ids = [self._id(node) for node in plan.nodes]
        places = _positions(plan)
        made: dict[int, Node] = {}
        for level in _levels(plan):
            inner = [index for index in level if isinstance(plan.nodes[index], PlannedInner)]
            summed = dict(zip(inner, await self._of_children(plan, inner, made, grafted), strict=True))
            for index in level:
                node, parent = plan.nodes[index], plan.nodes[index].parent
                parent_id = None if parent is None else ids[parent]
                if isinstance(node, PlannedLeaf):
                    made[index] = self.leaf(document, node, grafted.summaries[node.piece], parent_id, places[index])
                else:
                    below = [made[child] for child in node.children]
                    made[index] = self.inner(document, node, ids[index], summed[index], below, parent_id, places[index])
        return [made[index] for index in range(len(plan.nodes))]

    def _id(self, node: PlannedLeaf | PlannedInner) -> str:
        if isinstance(node, PlannedLeaf):
            return self.soil.new_id("leaf", node.start)
        if node.section is not None:
            return self.soil.new_id("section", node.section)
        return self.soil.new_id(f"group {node.group}", node.merged or 0)

    async def _of_children(
        self, plan: TreePlan, inner: Sequence[int], made: Mapping[int, Node], grafted: Grafting
    ) -> list[Summary]:
        async def one(index: int) -> Summary:
            node = plan.nodes[index]
            assert isinstance(node, PlannedInner)  # noqa: S101 - for the type checker
            if node.group is not None and node.merged is not None:
                return grafted.parents[node.group][node.merged - grafted.mergings[node.group].leaves]
            return await summarise_children(self._models, [made[child] for child in node.children], self._meter)

        return list(await asyncio.gather(*map(one, inner)))

    def leaf(
        self, document: Document, node: PlannedLeaf, summary: Summary, parent_id: str | None, position: str
    ) -> Node:
        """The node of a planned leaf."""
        text = document.text[node.start : node.end]
        return Node(
            id=self.soil.new_id("leaf", node.start),
            archive_id=self.soil.archive_id,
            parent_id=parent_id,
            position=position,
            type=LEAF_TYPE,
            title=node.title,
            summary=summary.text,
            content=text,
            tags=self.soil.tags,
            attributes=_made(_spoken(document, node.turn), summary, hash_of_content(text)),
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
        """The node of a planned section or merged pair."""
        told = {} if node.section is None else {SECTION: str(document.outline[node.section].level)}
        made_of = hash_of_children((child.id, child.summary) for child in below)
        return Node(
            id=node_id,
            archive_id=self.soil.archive_id,
            parent_id=parent_id,
            position=position,
            type=DERIVED_TYPE,
            title=node.title,
            brief=brief_of(node.title, summary.text),
            summary=summary.text,
            tags=self.soil.tags,
            attributes=_made(told, summary, made_of),
            source=self._source(node),
        )

    def _source(self, node: PlannedLeaf | PlannedInner) -> Source:
        return Source(self.soil.document_id, node.start, node.end, node.page, node.heading, node.sha256)


def _asked(title: str, summary: Summary) -> str:
    """The text whose vector stands for a node: the very one that the index will ask for, so that it is paid once."""
    return embedded_text(Node("", "", None, "", title=title, summary=summary.text))


def _spoken(document: Document, turn: int | None) -> dict[str, str]:
    if turn is None:
        return {}
    spoken = document.turns[turn]
    told = {"speaker": spoken.speaker, "time": spoken.time, "turn_id": spoken.id}
    return {name: value for name, value in told.items() if value}


def _made(told: Mapping[str, str], summary: Summary, made_of: str) -> dict[str, str]:
    return with_provenance(told, summary.made_by, made_of, PENDING_MODEL if summary.pending else "")


def _positions(plan: TreePlan) -> dict[int, str]:
    """The place of each planned node among its siblings."""
    found: dict[int, str] = {}
    families = [plan.roots, *(node.children for node in plan.nodes if isinstance(node, PlannedInner))]
    for family in families:
        found |= dict(zip(family, many_between(None, None, len(family)), strict=True))
    return found


def _levels(plan: TreePlan) -> list[list[int]]:
    """The nodes by depth, the deepest first."""
    depths: list[int] = []
    levels: list[list[int]] = []
    for index, node in enumerate(plan.nodes):
        depths.append(0 if node.parent is None else depths[node.parent] + 1)
        if depths[-1] == len(levels):
            levels.append([])
        levels[depths[-1]].append(index)
    return levels[::-1]
