"""Updates the trees of a document to a new version, and keeps the nodes whose text is in both versions.

1. `align` finds the leaves whose texts occur in the new version, in their order. They keep their ids and their files. A
   leaf that a person has edited stays, too, if the text it was made from is still there.
2. The text between them is split again. Each run of new leaves is merged within itself and put where the leaves were
   that it replaces.
3. Sections are recognised by the leaves they keep, else by their headings. Nodes without any leaf left are deleted.
4. Positions change only where the order does, and only ancestors of changed nodes are summarised again.

Nodes that people have added to the tree stay. If the parent of such a node is deleted, the node moves up.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memotree_storage.model.attribute_names import SECTION, TABLE_HEADER
from memotree_storage.model.node import Node
from memotree_storage.model.titles import own_title

from memotree.forest.chunking.splitting import Piece, split, stretches
from memotree.forest.documents import Document
from memotree.forest.ingestion.existing_tree import (
    TOP,
    ExistingTree,
    Run,
    keep_edited,
    known_sections,
    leaf_neighbours,
    runs_between,
    section_at,
    used_sections,
    whole_parents,
)
from memotree.forest.ingestion.leaf_alignment import Kept
from memotree.forest.ingestion.positions import new_positions
from memotree.forest.tree_building.builder import MergedPieces, TreeBuilder, table_header
from memotree.forest.tree_building.plan import Group, PlannedInner, PlannedLeaf, piece_title, title_of_section
from memotree.forest.tree_building.titles import header_title, leaf_title, merged_title
from memotree.models.chat_answers import Summary

_NO_SUMMARY = Summary("", "")


@dataclass(frozen=True, slots=True)
class TreeUpdate:
    """What a new version of a document changes in its trees.

    Attributes:
        after: Every node that is new or changed, by id; nodes that are not the document's own lack their contents.
        gone: The ids of the nodes to delete.
        created: The number of new leaves.
        kept: The number of leaves that stay.
        removed: The number of leaves to delete.
    """

    after: Mapping[str, Node]
    gone: frozenset[str]
    created: int
    kept: int
    removed: int


class TreeUpdater:
    """Updates the trees of one document; to make one takes a thread, since it reads the whole document.

    Args:
        builder: Makes new nodes.
        existing: The existing trees.
        document: The new version.
        kept: The leaves whose text occurs in it.
        tags: Tags that are added to the document's nodes that stay.
    """

    def __init__(
        self,
        builder: TreeBuilder,
        existing: ExistingTree,
        document: Document,
        kept: Sequence[Kept],
        tags: Iterable[str] = (),
    ) -> None:
        self._builder = builder
        self._tags = frozenset(tags)
        self._existing = existing
        self._document = document
        self._kept = keep_edited(existing, document.text, kept)
        self._stretches = stretches(document)
        self._section = {item.id: section_at(self._stretches, item.start) for item in self._kept}
        self._start = {item.id: item.start for item in self._kept}
        self._neighbours = leaf_neighbours(self._kept)
        self._whole = whole_parents(existing, self._section)
        self._parent: dict[str, str] = {}
        self._new: dict[str, Node] = {}
        self._section_node: dict[int, str] = {}

    async def update(self) -> TreeUpdate:
        """Returns the changes; the summaries of the ancestors of changed nodes are not renewed here."""
        pieces, groups, levels = await asyncio.to_thread(self._split)
        merged_pieces = await self._builder.merge_pieces(self._document, pieces, [group for group, _ in groups], levels)
        return await asyncio.to_thread(self._update, pieces, groups, merged_pieces)

    def _split(self) -> tuple[Sequence[Piece], list[tuple[Group, Run]], list[int]]:
        """Splits the text between kept leaves, and finds the sections and the parents of what is kept.

        Returns the pieces, their groups, and the most levels that merging may make of each group.
        """
        runs = runs_between(self._existing, self._kept, len(self._document.text))
        filled = [run for run in runs if run.end > run.start]
        gaps = [(run.start, run.end) for run in filled]
        pieces = split(self._document, self._builder.context.options.chunk_size, gaps)
        self._name_sections(pieces)
        self._set_kept_parents()
        groups = _groups(pieces, filled)
        return pieces, groups, [self._levels_for(run, group.section) for group, run in groups]

    def _update(
        self, pieces: Sequence[Piece], groups: Sequence[tuple[Group, Run]], merged_pieces: MergedPieces
    ) -> TreeUpdate:
        for number, (group, run) in enumerate(groups):
            self._add_group(pieces, group, number, merged_pieces, self._parent_of_run(run, group.section))
        gone = self._gone()
        self._set_foreign_parents(gone)
        return TreeUpdate(
            self._changed(), gone, len(pieces), len(self._kept), len(self._existing.leaves) - len(self._kept)
        )

    # --- Sections ----------------------------------------------------------------------------------------------------

    def _name_sections(self, pieces: Sequence[Piece]) -> None:
        """Finds or makes the node of every section that has text."""
        known = known_sections(self._existing, self._document, self._section)
        for section in used_sections(self._document, [*self._section.values(), *(piece.section for piece in pieces)]):
            outlined = self._document.outline[section]
            parent = self._section_node.get(outlined.parent, TOP)
            node_id = known.get(section)
            if node_id is None:
                title = title_of_section(self._document, section)
                planned = self._planned(title, outlined.start, outlined.end, section)
                node_id = self._builder.context.new_id("section", section)
                self._new[node_id] = self._builder.inner(self._document, planned, node_id, _NO_SUMMARY, (), None, "")
                self._start[node_id] = outlined.start
            self._section_node[section] = node_id
            self._parent[node_id] = parent

    def _planned(self, title: str, start: int, end: int, section: int, merged: int | None = None) -> PlannedInner:
        digest = hashlib.sha256(self._document.text[start:end].encode()).hexdigest()
        heading, page = self._document.heading_path(section), self._document.page_at(start)
        return PlannedInner(
            None, title, start, end, page, heading, digest, (), section if merged is None else None, merged=merged
        )

    def _node_of(self, section: int) -> str:
        return self._section_node.get(section, TOP)

    # --- Parents -----------------------------------------------------------------------------------------------------

    def _set_kept_parents(self) -> None:
        """Puts kept leaves and merged nodes below their nearest merged ancestor that stays, else their section."""
        for node_id, section in (*self._section.items(), *self._whole.items()):
            self._parent[node_id] = self._whole_above(node_id, section) or self._node_of(section)

    def _whole_above(self, node_id: str, section: int) -> str:
        for above in self._existing.above(node_id):
            if self._existing.is_section(above):
                break
            if self._whole.get(above) == section:
                return above
        return ""

    def _parent_of_run(self, run: Run, section: int) -> str:
        """Returns the parent for the roots of a run's new leaves."""
        for node_id in run.removed:
            above = self._whole_above(node_id, section)
            if above:
                return above
        for neighbour in self._neighbours[run.start]:
            if neighbour and self._section[neighbour] == section:
                return self._parent[neighbour]
        return self._node_of(section)

    def _levels_for(self, run: Run, section: int) -> int:
        """Returns the most levels of the nodes merged from a run; otherwise each update of one place adds some."""
        above, levels = self._parent_of_run(run, section), self._builder.context.levels
        while above in self._whole and levels > 0:
            above, levels = self._parent[above], levels - 1
        return levels

    def _add_group(
        self, pieces: Sequence[Piece], group: Group, number: int, merged_pieces: MergedPieces, top: str
    ) -> None:
        """Puts a run's leaves and the nodes merged from them below the node ``top``."""
        merging = merged_pieces.mergings[number]
        nodes = [self._leaf(pieces, index, merged_pieces.summaries[index]) for index in group_indexes(group)]
        spans = [(pieces[index].start, pieces[index].end) for index in group_indexes(group)]
        for parent, (left, right) in enumerate(merging.pairs, merging.leaves):
            spans.append((spans[left][0], spans[right][1]))
            below = (nodes[left], nodes[right])
            nodes.append(
                self._merged(group, parent, spans[-1], merged_pieces.parents[number][parent - merging.leaves], below)
            )
            for child in below:
                self._parent[child.id] = nodes[-1].id
        for root in merging.roots:
            self._parent[nodes[root].id] = top
        self._new.update((node.id, node) for node in nodes)
        self._start.update((node.id, span[0]) for node, span in zip(nodes, spans, strict=True))

    def _leaf(self, pieces: Sequence[Piece], index: int, summary: Summary) -> Node:
        piece = pieces[index]
        text = self._document.text[piece.start : piece.end]
        digest = hashlib.sha256(text.encode()).hexdigest()
        heading, page = self._document.heading_path(piece.section), self._document.page_at(piece.start)
        title = piece_title(self._document, piece, index)
        planned = PlannedLeaf(None, title, piece.start, piece.end, page, heading, digest, index, piece.turn)
        return self._builder.leaf(self._document, planned, summary, None, "")

    def _merged(
        self, group: Group, number: int, span: tuple[int, int], summary: Summary, below: tuple[Node, Node]
    ) -> Node:
        start, end = span
        text = self._document.text
        title = merged_title(
            text[start:end],
            text[start:end][-2000:],
            f"Parts {number}",
            is_code=bool(self._document.language),
            is_turn=bool(self._document.turns),
        )
        planned = self._planned(title, start, end, group.section, number)
        node_id = self._builder.context.new_id(f"merged {start}", end)
        return self._builder.inner(self._document, planned, node_id, summary, below, None, "")

    # --- Nodes to delete, and nodes that people added ----------------------------------------------------------------

    def _gone(self) -> frozenset[str]:
        own = {node_id for node_id in self._existing.order if self._existing.is_own(node_id)}
        return frozenset(own - self._parent.keys())

    def _set_foreign_parents(self, gone: frozenset[str]) -> None:
        for node_id in self._existing.order:
            if node_id not in self._parent and node_id not in gone:
                above = (above for above in self._existing.above(node_id) if above not in gone)
                self._parent[node_id] = next(above, TOP)

    # --- Order -------------------------------------------------------------------------------------------------------

    def _changed(self) -> dict[str, Node]:
        """Returns every node that is new or differs from before, such as in its parent, position, title or tags."""
        positions = self._positions(self._first_offsets())
        changed: dict[str, Node] = {}
        context = self._builder.context
        top = self._existing.top or None
        for node_id, own_parent in self._parent.items():
            parent = own_parent or top
            if node_id in self._new:
                changed[node_id] = replace(self._new[node_id], parent_id=parent, position=positions[node_id])
                continue
            before = self._existing.leaves.get(node_id) or self._existing.versions[node_id].to_node()
            position = positions.get(node_id, before.position)
            tags = tuple(sorted(self._tags.union(before.tags))) if self._existing.is_own(node_id) else before.tags
            now = replace(before, parent_id=parent, position=position, archive_id=context.archive_id, tags=tags)
            changed[node_id] = self._with_header(now) if node_id in self._section else now
        for section, node_id in self._section_node.items():
            outlined = self._document.outline[section]
            node = changed[node_id]
            attributes = {**node.attributes, SECTION: str(outlined.level)}
            title = title_of_section(self._document, section)
            changed[node_id] = replace(node, title=title, attributes=attributes)
        return {node_id: node for node_id, node in changed.items() if self._differs(node)}

    def _with_header(self, leaf: Node) -> Node:
        """Returns a kept leaf with the header that its table has now, and a title that follows it."""
        before = leaf.attributes.get(TABLE_HEADER, "")
        now = table_header(self._document, self._start[leaf.id])
        if now == before:
            return leaf
        attributes = {name: value for name, value in leaf.attributes.items() if name != TABLE_HEADER}
        was_made = (
            leaf.title == header_title(before, leaf.content)
            if before
            else not own_title(leaf.title, leaf.type, leaf.content)
        )
        if not was_made:  # a person has given the title
            title = leaf.title
        elif now:
            title = header_title(now, leaf.content)
        else:
            title = leaf_title(leaf.content, "Part 1")
        return replace(leaf, title=title, attributes={**attributes, **({TABLE_HEADER: now} if now else {})})

    def _differs(self, node: Node) -> bool:
        if node.id in self._new:
            return True
        before = self._existing.leaves.get(node.id) or self._existing.versions[node.id].to_node()
        return node != before

    def _first_offsets(self) -> dict[str, int]:
        """Returns the offset at which the text of each of the document's nodes begins."""
        first = {node_id: start for node_id, start in self._start.items() if node_id in self._parent}
        for node_id, start in list(first.items()):
            above = self._parent[node_id]
            while above != TOP and first.get(above, start + 1) > start:
                first[above] = start
                above = self._parent.get(above, TOP)
        return first

    def _positions(self, first: Mapping[str, int]) -> dict[str, str]:
        """Returns the positions that change; a node that people added stays after the sibling it was after."""
        families: dict[str, list[str]] = defaultdict(list)
        for node_id, parent in self._parent.items():
            families[parent].append(node_id)
        found: dict[str, str] = {}
        rank = {node_id: index for index, node_id in enumerate(self._existing.order)}
        for parent, members in families.items():
            ordered = sorted((node_id for node_id in members if node_id in first), key=lambda own: (first[own], own))
            for node_id in sorted((other for other in members if other not in first), key=lambda other: rank[other]):
                ordered.insert(self._index_after(node_id, ordered, rank), node_id)
            found |= new_positions([(node_id, self._present(node_id, parent)) for node_id in ordered])
        return found

    @staticmethod
    def _index_after(node_id: str, ordered: Sequence[str], rank: Mapping[str, int]) -> int:
        """Returns the index after the last sibling that was before a node."""
        before = [index for index, other in enumerate(ordered) if other in rank and rank[other] < rank[node_id]]
        return before[-1] + 1 if before else 0

    def _present(self, node_id: str, parent: str) -> str | None:
        if node_id in self._new or self._existing.parent(node_id) != parent:
            return None
        return self._existing.versions[node_id].position


def group_indexes(group: Group) -> range:
    """Returns the indexes of a group's pieces."""
    return range(group.first, group.first + group.count)


def _groups(pieces: Sequence[Piece], runs: Sequence[Run]) -> list[tuple[Group, Run]]:
    """Groups the new pieces by run and section, and returns each group with the run it fills."""
    groups: list[tuple[Group, Run]] = []
    remaining = iter(runs)
    run: Run | None = None
    for index, piece in enumerate(pieces):
        while run is None or piece.start >= run.end:
            run = next(remaining)
        group, last = groups[-1] if groups else (None, None)
        if group is not None and run is last and group.section == piece.section:
            groups[-1] = (replace(group, count=group.count + 1), run)
        else:
            groups.append((Group(piece.section, index, 1), run))
    return groups
