"""Plans the shape of a tree: sections at the top, merged nodes below each section, leaves at the bottom.

The direct children of a section's node are the merged roots of its own text and its subsections, in document order.
If a section has no subsections and its own text merged into one node, that node is the section's node. Text before the
first section, or of a document without an outline, gets roots of its own; no common root is added above them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from memotree.forest.chunking.splitting import Piece
from memotree.forest.documents.canonical import title_or
from memotree.forest.documents.document import NO_SECTION, Document
from memotree.forest.tree_building.merging import Merging
from memotree.forest.tree_building.titles import header_title, leaf_title, merged_title, section_title

_LOOK: Final = 4000
"""How far into a section its first words are looked for, in characters."""


@dataclass(frozen=True, slots=True)
class Group:
    """The pieces of one section's own text. Only pieces of the same group are merged.

    Attributes:
        section: Index of the section, or `NO_SECTION`.
        first: Index of the first piece.
        count: The number of consecutive pieces.
    """

    section: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class PlannedLeaf:
    """A planned leaf.

    Attributes:
        parent: Index of its parent in the plan, or ``None``.
        title: A title from its first words.
        start: Offset of its first character.
        end: Offset after its last character.
        page: The page, from 1, on which it starts; 0 without pages.
        heading: The headings above it, outermost first, joined by `` > ``.
        sha256: Hash of its text in hex.
        piece: Index of its piece.
        turn: Index of the turn it belongs to, or ``None``.
    """

    parent: int | None
    title: str
    start: int
    end: int
    page: int
    heading: str
    sha256: str
    piece: int
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedInner:
    """A planned inner node: a section, the parent of merged neighbours, or both.

    Attributes:
        parent: Index of its parent in the plan, or ``None``.
        title: The heading of a section, else one from the first words of its first and last leaf.
        start: Offset of the first character of its leaves.
        end: Offset after the last character of its leaves.
        page: The page, from 1, on which it starts; 0 without pages.
        heading: The headings above it and, for a section, its own, joined by `` > ``.
        sha256: Hash of the text of its whole span in hex.
        children: Indexes of its children in the plan, in document order.
        section: Index of the section whose node it is, or ``None`` if it is only a merged node.
        group: Index of its group if a merge made it, else ``None``.
        merged: Its number in the `Merging` of that group, else ``None``.
    """

    parent: int | None
    title: str
    start: int
    end: int
    page: int
    heading: str
    sha256: str
    children: tuple[int, ...]
    section: int | None = None
    group: int | None = None
    merged: int | None = None


PlannedNode = PlannedLeaf | PlannedInner


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The nodes of one or more trees, each before its descendants (so a parent has a smaller index than its children).

    Attributes:
        nodes: In pre-order, which is document order for the leaves.
        roots: Indexes of the nodes without a parent, in document order.
        leaves: The index of each piece's leaf.
    """

    nodes: tuple[PlannedNode, ...]
    roots: tuple[int, ...]
    leaves: tuple[int, ...]


def group_pieces(pieces: Sequence[Piece]) -> list[Group]:
    """Groups consecutive pieces by their section, in document order."""
    groups: list[Group] = []
    for index, piece in enumerate(pieces):
        if groups and groups[-1].section == piece.section:
            groups[-1] = replace(groups[-1], count=groups[-1].count + 1)
        else:
            groups.append(Group(piece.section, index, 1))
    return groups


def piece_title(document: Document, piece: Piece, number: int) -> str:
    """Returns the title of a piece's leaf; ``number`` is the index of the piece, for the fallback title."""
    header = document.header_at(piece.start)
    if header:
        return title_or(header_title(header, document.text[piece.start : piece.end]), f"Part {number + 1}")
    heading = "" if piece.section == NO_SECTION else document.outline[piece.section].title
    text = document.text[piece.start : piece.end]
    is_code, is_turn = bool(document.language), piece.turn is not None
    return leaf_title(text, f"Part {number + 1}", heading, is_code=is_code, is_turn=is_turn)


def title_of_section(document: Document, section: int) -> str:
    """Returns the title of a section's node: its heading, with the words after it if it is a number alone."""
    outlined = document.outline[section]
    if document.turns:
        return outlined.title
    return section_title(outlined.title, document.text[outlined.start : document.own_end(section)][:_LOOK])


def plan_tree(document: Document, pieces: Sequence[Piece], mergings: Sequence[Merging]) -> TreePlan:
    """Returns the plan of a document's trees.

    Args:
        document: The document.
        pieces: All of its pieces, see `split`.
        mergings: The merging of each group of `group_pieces`, in the same order.

    Raises:
        ValueError: If the mergings do not match the groups.
    """
    groups = group_pieces(pieces)
    sizes = [group.count for group in groups]
    if sizes != [merging.leaves for merging in mergings]:
        leaves = [merging.leaves for merging in mergings]
        message = f"the mergings have {leaves} leaves, the groups {sizes} pieces; give the merging of each group"
        raise ValueError(message)
    return _Planner(document, pieces, groups, mergings).plan()


# A place in the planned tree: a section by its index, or a node of a group's merging.
@dataclass(frozen=True, slots=True)
class _Section:
    index: int


@dataclass(frozen=True, slots=True)
class _Merged:
    group: int
    node: int


_Place = _Section | _Merged


class _Planner:
    def __init__(
        self, document: Document, pieces: Sequence[Piece], groups: Sequence[Group], mergings: Sequence[Merging]
    ) -> None:
        self._document = document
        self._pieces = pieces
        self._groups = groups
        self._mergings = mergings
        self._below = self._children_of_sections()
        self._headings: dict[int, str] = {NO_SECTION: ""}

    def _children_of_sections(self) -> Mapping[int, list[_Place]]:
        """Returns the children of each section that has text in it or its subsections, in document order."""
        below: dict[int, list[_Place]] = defaultdict(list)
        attached = {NO_SECTION}
        for number, (group, merging) in enumerate(zip(self._groups, self._mergings, strict=True)):
            path: list[int] = []
            section = group.section
            while section not in attached:
                path.append(section)
                section = self._document.outline[section].parent
            for index in reversed(path):
                below[self._document.outline[index].parent].append(_Section(index))
                attached.add(index)
            below[group.section].extend(_Merged(number, root) for root in merging.roots)
        return below

    def plan(self) -> TreePlan:
        nodes: list[PlannedNode] = []
        children: dict[int, list[int]] = defaultdict(list)
        roots: list[int] = []
        leaves = [0] * len(self._pieces)
        waiting: list[tuple[_Place, int | None, int]] = [
            (place, None, NO_SECTION) for place in reversed(self._below[NO_SECTION])
        ]
        while waiting:  # a stack instead of recursion: a chain of merges may be as deep as there are leaves
            place, parent, section = waiting.pop()
            index = len(nodes)
            (roots if parent is None else children[parent]).append(index)
            node, below = self._node(place, parent, section)
            nodes.append(node)
            if isinstance(node, PlannedLeaf):
                leaves[node.piece] = index
            within = place.index if isinstance(place, _Section) else section
            waiting.extend((child, index, within) for child in reversed(below))
        self._close(nodes, children)
        return TreePlan(tuple(nodes), tuple(roots), tuple(leaves))

    def _node(self, place: _Place, parent: int | None, section: int) -> tuple[PlannedNode, Sequence[_Place]]:
        if isinstance(place, _Merged):
            group, merging = self._groups[place.group], self._mergings[place.group]
            if place.node < merging.leaves:
                return self._leaf(group.first + place.node, parent, section), ()
            inner = PlannedInner(parent, "", 0, 0, 0, self._heading(section), "", (), None, place.group, place.node)
            return inner, self._pair(place)
        below: Sequence[_Place] = self._below[place.index]
        title = title_of_section(self._document, place.index)
        inner = PlannedInner(parent, title, 0, 0, 0, self._heading(place.index), "", (), place.index)
        only = below[0] if len(below) == 1 else None
        if isinstance(only, _Merged) and only.node >= self._mergings[only.group].leaves:
            return replace(inner, group=only.group, merged=only.node), self._pair(only)
        return inner, below

    def _pair(self, place: _Merged) -> Sequence[_Place]:
        merging = self._mergings[place.group]
        return [_Merged(place.group, node) for node in merging.pairs[place.node - merging.leaves]]

    def _heading(self, section: int) -> str:
        if section not in self._headings:
            self._headings[section] = self._document.heading_path(section)
        return self._headings[section]

    def _leaf(self, number: int, parent: int | None, section: int) -> PlannedLeaf:
        piece = self._pieces[number]
        text = self._document.text[piece.start : piece.end]
        title = piece_title(self._document, piece, number)
        page = self._document.page_at(piece.start)
        heading = self._heading(section)
        return PlannedLeaf(parent, title, piece.start, piece.end, page, heading, _hash(text), number, piece.turn)

    def _close(self, nodes: list[PlannedNode], children: Mapping[int, list[int]]) -> None:
        """Fills in the children, spans, hashes and titles of the inner nodes, from the last to the first."""
        text = self._document.text
        first_leaf = list(range(len(nodes)))
        last_leaf = list(range(len(nodes)))
        for index in range(len(nodes) - 1, -1, -1):
            node = nodes[index]
            if isinstance(node, PlannedLeaf):
                continue
            below = children[index]
            first_leaf[index], last_leaf[index] = first_leaf[below[0]], last_leaf[below[-1]]
            first, last = nodes[first_leaf[index]], nodes[last_leaf[index]]
            nodes[index] = replace(
                node,
                title=node.title
                or merged_title(
                    text[first.start : first.end],
                    text[last.start : last.end],
                    f"Parts {index + 1}",
                    node.heading.rpartition(" > ")[2],
                    is_code=bool(self._document.language),
                    is_turn=bool(self._document.turns),
                ),
                start=first.start,
                end=last.end,
                page=first.page,
                sha256=_hash(text[first.start : last.end]),
                children=tuple(below),
            )


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
