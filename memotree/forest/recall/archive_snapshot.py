"""Archive snapshots: one archive at one state as recall needs it, its nodes in tree order and its leaves' features.

A leaf here is any node with content of its own, wherever it is in the tree. Strings are kept in arrays of fixed width,
because a workspace may have hundreds of thousands of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Final

import numpy as np
from memotree_storage.index.leaf_features import LeafFeatureBlock, LeafFeatures
from memotree_storage.model.attribute_names import VALID_FROM, VALID_TO
from memotree_storage.model.node import ID_LENGTH, SUMMARY_TYPE
from memotree_storage.model.times import read_time
from memotree_storage.model.validity import period
from memotree_storage.postgres.archive_trees import TreeNode
from numpy.typing import NDArray

from memotree.forest.recall.filters import Filter
from memotree.forest.recall.headings import HeadingTree
from memotree.forest.recall.leaf_blocks import block_of, joined_blocks, picked
from memotree.forest.recall.scoring.leaf_index import LeafIndex, make_leaf_index
from memotree.forest.recall.scoring.leaf_rows import RowChange, Segment
from memotree.forest.recall.scoring.row_blocks import RowBlocks
from memotree.forest.recall.tree_spans import document_spans

BLOB_LENGTH: Final = 40

LONGEST_POSITION: Final = 32
"""The longest position, in characters, of an archive that changes are put in order of; most have 7 or less."""

_LATE: Final = float("inf")

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Validity:
    """From when (``begins``, inclusive) to when (``ends``, exclusive) each of some leaves holds, in seconds since 1970.

    Infinite for a leaf that does not say. ``over`` marks superseded leaves that do not hold now, whatever ``ends`` is.
    """

    begins: NDArray[np.float64]
    ends: NDArray[np.float64]
    over: Mask

    @property
    def weight(self) -> int:
        """Size in bytes."""
        return self.begins.nbytes + self.ends.nbytes + self.over.nbytes

    @property
    def says(self) -> bool:
        """Whether any leaf says something."""
        return bool(np.isfinite(self.begins).any() or np.isfinite(self.ends).any())

    def admitted(self, wanted: Filter) -> Mask:
        """Returns a mask of the leaves that hold as the filter demands."""
        holds: Mask = self.ends > wanted.moment
        return holds & (self.begins <= wanted.moment if wanted.is_dated else ~self.over)


@dataclass(frozen=True, slots=True, eq=False)
class OrderFacts:
    """What the order of an archive's nodes and the documents of its leaves come from.

    Attributes:
        positions: For each node its position among its siblings.
        headings: The distinct headings; the first one is "".
        heading_of: For each node the index of its heading; 0 for none.
        documents: The distinct documents that leaves were cut from, each with whether it is a conversation.
        document_of: For each leaf the index of its document; -1 for a leaf that is a document of its own.
        is_clear: Whether each node stands where its file says, and no position is very long. Else a change to the
            archive does not say which nodes stand where.
    """

    positions: NDArray[np.bytes_]
    headings: tuple[str, ...]
    heading_of: NDArray[np.int32]
    documents: tuple[tuple[str, bool], ...]
    document_of: NDArray[np.int32]
    is_clear: bool

    @property
    def weight(self) -> int:
        """Size in bytes."""
        return self.positions.nbytes + self.heading_of.nbytes + self.document_of.nbytes + 200 * len(self.headings)


@dataclass(frozen=True, slots=True, eq=False)
class LeafChange:
    """How the rows of a snapshot's leaves follow from those of the snapshot with the number ``of``."""

    of: int
    text: RowChange
    headings: RowChange


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveSnapshot:
    """One archive at one state.

    Attributes:
        archive_id: The archive.
        ids: The ids of all its alive nodes in pre-order.
        parents: For each node the index of its parent in ``ids``; -1 for a root.
        ends: For each node the index after its last descendant.
        places: For each leaf its index in ``ids``, ascending.
        blobs: For each leaf the blob id of its version's file.
        types: The node types of the leaves.
        type_of: For each leaf the index of its type in ``types``.
        tag_sets: The distinct sets of tags of the leaves.
        tags_of: For each leaf the index of its set in ``tag_sets``.
        moments: For each leaf its attribute `time`, else the time of the commit of its version, in seconds since 1970;
            infinity for a staged leaf without that attribute.
        validity: From when to when each leaf says that it holds; ``None`` if no leaf says anything.
        leaf_index: The leaves as they are scored, in the same order.
        order: What a change to the archive is put in order by.
        number: Another one for each snapshot of this process.
        change: How the rows of its leaves follow from those of an earlier snapshot, if it was made from one.
    """

    archive_id: str
    ids: NDArray[np.bytes_]
    parents: NDArray[np.int32]
    ends: NDArray[np.int32]
    places: NDArray[np.int32]
    blobs: RowBlocks
    types: tuple[str, ...]
    type_of: NDArray[np.int16]
    tag_sets: tuple[frozenset[str], ...]
    tags_of: NDArray[np.int32]
    moments: NDArray[np.float64]
    validity: Validity | None
    leaf_index: LeafIndex
    order: OrderFacts
    number: int = field(default_factory=count(1).__next__)
    change: LeafChange | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def own_weight(self) -> int:
        """Size in bytes without the segments of its leaf index."""
        own = (self.ids, self.parents, self.ends, self.places, self.blobs, self.type_of, self.tags_of, self.moments)
        weight = 2000 + sum(array.nbytes for array in own) + self.leaf_index.own_weight + self.order.weight
        return weight if self.validity is None else weight + self.validity.weight

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What it may share with other snapshots."""
        return self.leaf_index.segments

    def leaf_id(self, number: int) -> str:
        """Returns the id of a leaf."""
        return bytes(self.ids[self.places[number]]).decode()

    def blob(self, number: int) -> str:
        """Returns the blob id of a leaf's version."""
        return bytes(self.blobs.row(number)).decode()

    def child_count(self, number: int) -> int:
        """Returns the number of children of a leaf."""
        place = int(self.places[number])
        return int(np.count_nonzero(self.parents[place + 1 : self.ends[place]] == place))

    def above(self, number: int) -> list[str]:
        """Returns the ids of a leaf's ancestors, root first."""
        path, place = list[str](), int(self.parents[self.places[number]])
        while place >= 0:
            path.append(bytes(self.ids[place]).decode())
            place = int(self.parents[place])
        return path[::-1]

    def admitted(self, wanted: Filter) -> Mask | None:
        """Returns a mask of the leaves that a filter admits, or ``None`` for all. Ignores the filter's archives."""
        parts: list[Mask] = []
        if wanted.types:
            parts.append(np.array([name in wanted.types for name in self.types], dtype=bool)[self.type_of])
        if wanted.tags:
            parts.append(np.array([wanted.tags <= tags for tags in self.tag_sets], dtype=bool)[self.tags_of])
        if wanted.since is not None:
            parts.append(self.moments >= wanted.since.timestamp())
        if wanted.until is not None:
            parts.append(self.moments < wanted.until.timestamp())
        if wanted.scope_id:
            parts.append(self._within(wanted.scope_id))
        both: Mask | None = None
        for part in parts:
            both = part if both is None else both & part
        return both

    def _within(self, top: str) -> Mask:
        found = np.flatnonzero(self.ids == top.encode())
        if not len(found):
            return np.zeros(len(self), dtype=bool)
        inside: Mask = (self.places >= found[0]) & (self.places < self.ends[found[0]])
        return inside


def is_leaf(node: TreeNode) -> bool:
    """Whether a node has content of its own."""
    return node.tokens > 0 and node.type != SUMMARY_TYPE


def make_snapshot(archive_id: str, nodes: Sequence[TreeNode], features: LeafFeatureBlock) -> ArchiveSnapshot:
    """Returns the snapshot of an archive.

    Args:
        archive_id: The archive.
        nodes: All its alive nodes in pre-order.
        features: The features of its leaves, in the same order.
    """
    number = {node.entry_id: place for place, node in enumerate(nodes)}
    parents = np.fromiter((number.get(node.parent_id, -1) for node in nodes), dtype=np.int32, count=len(nodes))
    ends = _ends(parents)
    places = np.array([place for place, node in enumerate(nodes) if is_leaf(node)], dtype=np.int32)
    leaves = [nodes[place] for place in places]
    types: dict[str, int] = {}
    sets: dict[frozenset[str], int] = {}
    order = _order_facts(nodes, leaves)
    starts = document_starts(order.document_of)
    tree = HeadingTree(parents, ends, places, starts, order.headings, order.heading_of)
    return ArchiveSnapshot(
        archive_id=archive_id,
        ids=np.array([node.entry_id for node in nodes], dtype=f"S{ID_LENGTH}"),
        parents=parents,
        ends=ends,
        places=places,
        blobs=RowBlocks.of(np.array([leaf.blob for leaf in leaves], dtype=f"S{BLOB_LENGTH}")),
        type_of=np.array([types.setdefault(leaf.type, len(types)) for leaf in leaves], dtype=np.int16),
        types=tuple(types),
        tags_of=np.array([sets.setdefault(frozenset(leaf.tags), len(sets)) for leaf in leaves], dtype=np.int32),
        tag_sets=tuple(sets),
        moments=np.array([moment_of(leaf) for leaf in leaves], dtype=np.float64),
        validity=own_validity(leaves),
        leaf_index=make_leaf_index(
            features,
            starts[:-1].tolist(),
            document_spans(ends, places, starts),
            [leaf.speaker or "" for leaf in leaves],
            [time_note(leaf.time) for leaf in leaves],
            tree.every(),
        ),
        order=order,
    )


def _order_facts(nodes: Sequence[TreeNode], leaves: Sequence[TreeNode]) -> OrderFacts:
    positions = np.array([node.position.encode() for node in nodes], dtype="S")
    headings = {"": 0}
    documents: dict[tuple[str, bool], int] = {}
    keys = [document_key(leaf) for leaf in leaves]
    heading_of = [headings.setdefault(node.heading or "", len(headings)) for node in nodes]
    document_of = [-1 if key is None else documents.setdefault(key, len(documents)) for key in keys]
    is_clear = positions.dtype.itemsize <= LONGEST_POSITION and not any(node.is_misplaced for node in nodes)
    return OrderFacts(
        positions if is_clear else positions[:0],
        tuple(headings),
        np.array(heading_of, dtype=np.int32),
        tuple(documents),
        np.array(document_of, dtype=np.int32),
        is_clear,
    )


def own_validity(leaves: Sequence[TreeNode]) -> Validity | None:
    """Returns from when to when leaves hold; ``None`` if none of them says anything that can be read."""
    if not any(leaf.valid_from or leaf.valid_to for leaf in leaves):
        return None
    periods = [period({VALID_FROM: leaf.valid_from or "", VALID_TO: leaf.valid_to or ""}) for leaf in leaves]
    both = np.array(periods, dtype=np.float64)
    found = Validity(both[:, 0], both[:, 1], np.zeros(len(leaves), dtype=bool))
    return found if found.says else None


def document_key(leaf: TreeNode) -> tuple[str, bool] | None:
    """Returns the document that a leaf is cut from; ``None`` for a note, which is a document of its own.

    Turns that somebody stored without a document are one conversation.
    """
    if leaf.document_id is None and not leaf.speaker:
        return None
    return leaf.document_id or "", leaf.document_id is None


def document_starts(document_of: NDArray[np.int32]) -> NDArray[np.int64]:
    """Returns the index of each document's first leaf, and the number of leaves; no window spans two documents.

    A joined archive has several documents.

    Args:
        document_of: For each leaf its document; -1 for a leaf that is a document of its own.
    """
    begins = np.ones(len(document_of), dtype=bool)
    begins[1:] = (document_of[1:] < 0) | (document_of[1:] != document_of[:-1])
    return np.append(np.flatnonzero(begins), len(document_of)).astype(np.int64)


@lru_cache(maxsize=1 << 14)
def time_note(time: str | None) -> str:
    """Returns words that make a time findable: as written, and with the month's name, as people write in questions."""
    when = read_time(time) if time else None
    return time or "" if when is None else f"{time} {when.day} {when:%B} {when.year}"


def _ends(parents: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the index after each node's last descendant; nodes are in pre-order."""
    ends = np.arange(1, len(parents) + 1, dtype=np.int32).tolist()
    above = parents.tolist()
    for place in range(len(above) - 1, -1, -1):
        if above[place] >= 0:
            ends[above[place]] = max(ends[above[place]], ends[place])
    return np.array(ends, dtype=np.int32)


def moment_of(leaf: TreeNode) -> float:
    """Returns the time of a leaf for filters, in seconds since 1970; see `ArchiveSnapshot.moments`."""
    when = (read_time(leaf.time) if leaf.time else None) or leaf.committed_at
    return _LATE if when is None else when.timestamp()


def make_snapshots(
    archive_ids: Iterable[str],
    nodes: Iterable[TreeNode],
    block: LeafFeatureBlock,
    extra: Mapping[str, LeafFeatures],
    dimensions: int,
) -> list[ArchiveSnapshot]:
    """Returns the snapshots of archives; an archive without nodes has an empty one.

    Args:
        archive_ids: The archives.
        nodes: All their alive nodes in pre-order.
        block: The features of versions, in any order.
        extra: The features of leaves whose version is not in the block, by blob.
        dimensions: Length of a vector.
    """
    row = {version_id: place for place, version_id in enumerate(block.version_ids.tolist())}
    size = len(row)
    extra_row = {blob: size + place for place, blob in enumerate(extra)}
    whole = joined_blocks(block, block_of(list(extra.values()), dimensions)) if extra else block
    by_archive: dict[str, list[TreeNode]] = {archive_id: [] for archive_id in archive_ids}
    for node in nodes:
        by_archive[node.archive_id].append(node)
    snapshots = []
    for archive_id, own in by_archive.items():
        rows = [
            extra_row[leaf.blob] if leaf.version_id not in row else row[leaf.version_id]
            for leaf in own
            if is_leaf(leaf)
        ]
        snapshots.append(make_snapshot(archive_id, own, picked(whole, rows) if rows else block_of([], dimensions)))
    return snapshots
