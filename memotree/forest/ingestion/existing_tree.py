"""The existing trees of a document, and which of their nodes a new version keeps. Pure (no I/O).

A document's own nodes are the leaves and summary nodes whose source names it. A summary node with the attribute
`SECTION` is the node of a section; the others were made by merging neighbours.
"""

import hashlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from memotree_storage.model.attribute_names import SECTION
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE, Node
from memotree_storage.postgres.rows import Version

from memotree.forest.chunking.splitting import Stretch
from memotree.forest.documents import Document
from memotree.forest.documents.document import NO_SECTION
from memotree.forest.ingestion.leaf_alignment import Kept

TOP: Final = ""
"""Means the parent of the document's roots: the archive, or the document's node in a joined archive."""


@dataclass(frozen=True, slots=True)
class ExistingTree:
    """The existing trees of a document.

    Attributes:
        document_id: The document.
        order: The ids of all nodes below the top in pre-order, including nodes that people added.
        versions: The version of each of these nodes, by id.
        leaves: The document's own leaves with their contents, by id.
        top: The parent of the document's roots, or `TOP` for the archive itself.
    """

    document_id: str
    order: Sequence[str]
    versions: Mapping[str, Version]
    leaves: Mapping[str, Node]
    top: str = TOP

    def is_own(self, node_id: str) -> bool:
        """Whether ingestion made a node from the document."""
        return is_own(self.versions[node_id], self.document_id)

    def is_section(self, node_id: str) -> bool:
        """Whether a node is the node of a section."""
        version = self.versions[node_id]
        return version.type == SUMMARY_TYPE and SECTION in version.attributes and self.is_own(node_id)

    def parent(self, node_id: str) -> str:
        """Returns the id of a node's parent, or `TOP`."""
        parent_id = self.versions[node_id].parent_id
        return parent_id if parent_id in self.versions and parent_id != self.top else TOP

    def above(self, node_id: str) -> Iterator[str]:
        """Yields the ids of a node's ancestors, nearest first, without `TOP`."""
        while (node_id := self.parent(node_id)) != TOP:
            yield node_id

    def section_of(self, node_id: str) -> str:
        """Returns the id of the nearest section above a node, or `TOP`."""
        return next((above for above in self.above(node_id) if self.is_section(above)), TOP)


def is_own(version: Version, document_id: str) -> bool:
    """Whether ingestion made a node from a document."""
    return (version.source or {}).get("document_id") == document_id and version.type in {LEAF_TYPE, SUMMARY_TYPE}


@dataclass(frozen=True, slots=True)
class Run:
    """A span of the new text between kept leaves (maybe empty), and the ids of the leaves that it replaces."""

    start: int
    end: int
    removed: tuple[str, ...] = ()


def runs_between(existing: ExistingTree, kept: Sequence[Kept], length: int) -> list[Run]:
    """Returns the runs before, between and after the kept leaves, without those that have no text and no old leaf."""
    staying = {item.id: index for index, item in enumerate(kept)}
    removed: dict[int, list[str]] = defaultdict(list)
    at = 0
    for node_id in existing.order:
        if node_id in staying:
            at = staying[node_id] + 1
        elif node_id in existing.leaves:
            removed[at].append(node_id)
    edges = [0, *(edge for item in kept for edge in (item.start, item.end)), length]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))
    return [
        Run(start, end, tuple(removed[index]))
        for index, (start, end) in enumerate(gaps)
        if end > start or removed[index]
    ]


def keep_edited(existing: ExistingTree, text: str, kept: Sequence[Kept]) -> list[Kept]:
    """Returns the kept leaves, and those that a person edited and whose source text is still at an end of their run."""
    found = list(kept)
    for run in runs_between(existing, kept, len(text)):
        start, end = run.start, run.end
        waiting = list(run.removed)
        while waiting and (size := _edited_here(existing, waiting[0], text, start, end, at_end=False)):
            found.append(Kept(waiting.pop(0), start, start + size))
            start += size
        while waiting and (size := _edited_here(existing, waiting[-1], text, start, end, at_end=True)):
            found.append(Kept(waiting.pop(), end - size, end))
            end -= size
    return sorted(found, key=lambda item: item.start)


def _edited_here(existing: ExistingTree, node_id: str, text: str, start: int, end: int, *, at_end: bool) -> int:
    """Returns the length of an edited leaf's source text if the run begins (or ends) with that text, else 0."""
    node = existing.leaves[node_id]
    source = node.source
    if source is None or source.sha256 == _hash(node.content):
        return 0
    size = source.end - source.start
    if not 0 < size <= end - start:
        return 0
    piece = text[end - size : end] if at_end else text[start : start + size]
    return size if _hash(piece) == source.sha256 else 0


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def section_at(stretches: Sequence[Stretch], offset: int) -> int:
    """Returns the index of the section whose own text contains an offset."""
    index = bisect_right(stretches, offset, key=lambda stretch: stretch.start) - 1
    return stretches[max(index, 0)].section if stretches else NO_SECTION


def known_sections(existing: ExistingTree, document: Document, sections: Mapping[str, int]) -> dict[int, str]:
    """Returns the existing node of each section of the new outline that is recognised.

    A section is recognised by the kept leaves that it shares with an existing one (most leaves first), else by its
    headings.

    Args:
        existing: The existing tree.
        document: The new version.
        sections: The section of each kept leaf.
    """
    votes: Counter[tuple[int, str]] = Counter()
    for leaf, section in sections.items():
        old = existing.section_of(leaf)
        if old != TOP and section != NO_SECTION:
            votes[section, old] += 1
    found: dict[int, str] = {}
    taken: set[str] = set()
    for (section, old), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if section not in found and old not in taken:
            found[section] = old
            taken.add(old)
    by_heading: dict[str, list[str]] = defaultdict(list)
    for node_id in existing.order:
        if existing.is_section(node_id) and node_id not in taken:
            by_heading[(existing.versions[node_id].source or {}).get("heading", "")].append(node_id)
    for section in range(len(document.outline)):
        same = by_heading.get(document.heading_path(section))
        if section not in found and same:
            found[section] = same.pop(0)
    return found


def whole_parents(existing: ExistingTree, sections: Mapping[str, int]) -> dict[str, int]:
    """Returns the merged nodes whose kept leaves are all in one section of the new version, with that section.

    These nodes stay.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for leaf, section in sections.items():
        for above in existing.above(leaf):
            if existing.is_section(above) or not existing.is_own(above):
                break
            found[above].add(section)
    return {node_id: next(iter(inside)) for node_id, inside in found.items() if len(inside) == 1}


def used_sections(document: Document, sections: Sequence[int]) -> list[int]:
    """Returns the given sections and their ancestors, parents first."""
    used: set[int] = set()
    for own in sections:
        section = own
        while section != NO_SECTION and section not in used:
            used.add(section)
            section = document.outline[section].parent
    return sorted(used)


def leaf_neighbours(kept: Sequence[Kept]) -> Mapping[int, tuple[str, str]]:
    """Returns the kept leaves on both sides of each gap, by the gap's first offset (``""`` if there is none)."""
    ends = [Kept("", 0, 0), *kept, Kept("", 0, 0)]
    return {left.end: (left.id, right.id) for left, right in pairwise(ends)}
