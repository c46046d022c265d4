"""Archive snapshots: one archive at one state as recall needs it, its nodes in tree order and its leaves' features.

A leaf here is any node with content of its own, wherever it is in the tree. Strings are kept in arrays of fixed width,
because a workspace may have hundreds of thousands of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import lru_cache
from math import inf
from types import MappingProxyType
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
from memotree.forest.recall.scoring.leaf_index import LeafIndex, concatenate, make_leaf_index
from memotree.forest.recall.superseded import Superseded

_BLOB: Final = 40
_CLOSE: Final = 1e-3
_NO_VERSION: Final = -1
_LATE: Final = float("inf")

_MOST_HEADINGS: Final = 8
"""The most headings above a leaf that count; notes can be nested without limit."""

_WHOLE: Final = 0.9
"""A heading over this share of a document's leaves is its title, and tells no two of them apart."""

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

    def admitted(self, wanted: Filter) -> Mask:
        """Returns a mask of the leaves that hold as the filter demands."""
        holds: Mask = self.ends > wanted.moment
        return holds & (self.begins <= wanted.moment if wanted.is_dated else ~self.over)


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
    """

    archive_id: str
    ids: NDArray[np.bytes_]
    parents: NDArray[np.int32]
    ends: NDArray[np.int32]
    places: NDArray[np.int32]
    blobs: NDArray[np.bytes_]
    types: tuple[str, ...]
    type_of: NDArray[np.int16]
    tag_sets: tuple[frozenset[str], ...]
    tags_of: NDArray[np.int32]
    moments: NDArray[np.float64]
    validity: Validity | None
    leaf_index: LeafIndex

    def __len__(self) -> int:
        return len(self.places)

    @property
    def weight(self) -> int:
        """Size in bytes. Vectors that are a slice of a corpus's are counted there and not here."""
        own = (self.ids, self.parents, self.ends, self.places, self.blobs, self.type_of, self.tags_of, self.moments)
        vectors = self.leaf_index.vectors
        shared = 0 if vectors.base is None else vectors.nbytes
        weight = 2000 + sum(array.nbytes for array in own) + self.leaf_index.weight - shared
        return weight if self.validity is None else weight + self.validity.weight

    def leaf_id(self, number: int) -> str:
        """Returns the id of a leaf."""
        return bytes(self.ids[self.places[number]]).decode()

    def blob(self, number: int) -> str:
        """Returns the blob id of a leaf's version."""
        return bytes(self.blobs[number]).decode()

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


@dataclass(frozen=True, slots=True, eq=False)
class SearchCorpus:
    """Several archive snapshots of one state, and one leaf index with the leaves of all of them, in that order.

    ``validity`` also has the ends of the leaves that are superseded at this state, in whichever archive by; it is
    ``None`` if every leaf always holds.
    """

    snapshots: tuple[ArchiveSnapshot, ...]
    starts: NDArray[np.int64]
    leaf_index: LeafIndex
    validity: Validity | None = None

    @property
    def weight(self) -> int:
        """Size of the leaf index in bytes; the archive snapshots count themselves."""
        return self.leaf_index.weight + (0 if self.validity is None else self.validity.weight)

    def place(self, leaf: int) -> tuple[ArchiveSnapshot, int]:
        """Returns the archive snapshot of a leaf of the corpus, and the leaf's number in it."""
        owner = int(np.searchsorted(self.starts, leaf, side="right")) - 1
        return self.snapshots[owner], leaf - int(self.starts[owner])


def make_corpus(
    snapshots: Sequence[ArchiveSnapshot], dimensions: int, ended: Mapping[str, Superseded] = MappingProxyType({})
) -> SearchCorpus:
    """Returns a corpus of archive snapshots; the vectors of its snapshots are slices of the corpus's.

    Args:
        snapshots: The archive snapshots.
        dimensions: Length of a vector.
        ended: The superseded nodes of this state by id.
    """
    starts = np.cumsum([0, *(len(each) for each in snapshots)], dtype=np.int64)
    whole = concatenate([each.leaf_index for each in snapshots], dimensions)
    shared = tuple(
        replace(each, leaf_index=replace(each.leaf_index, vectors=whole.vectors[start : start + len(each)]))
        for each, start in zip(snapshots, starts.tolist(), strict=False)
    )
    return SearchCorpus(shared, starts, whole, _validity(snapshots, ended))


def _validity(snapshots: Sequence[ArchiveSnapshot], ended: Mapping[str, Superseded]) -> Validity | None:
    """Returns when the leaves of some snapshots hold, with the ends of superseded ones."""
    size = sum(len(each) for each in snapshots)
    begins, ends, over = np.full(size, -inf), np.full(size, inf), np.zeros(size, dtype=bool)
    start, says = 0, False
    gone = np.array(sorted(ended), dtype=f"S{ID_LENGTH}")
    for each in snapshots:
        if each.validity is not None:
            begins[start : start + len(each)] = each.validity.begins
            ends[start : start + len(each)] = each.validity.ends
            says = True
        if len(gone) and len(each):
            ids = each.ids[each.places]
            places = np.minimum(np.searchsorted(gone, ids), len(gone) - 1)
            for number in np.flatnonzero(gone[places] == ids).tolist():
                found = ended[bytes(ids[number]).decode()]
                ends[start + number] = min(ends[start + number], found.at)
                over[start + number] = found.is_over
                says = True
        start += len(each)
    return Validity(begins, ends, over) if says else None


def is_leaf(node: TreeNode) -> bool:
    """Whether a node has content of its own."""
    return node.tokens > 0 and node.type != SUMMARY_TYPE


def same(one: object, other: object) -> bool:
    """Whether two archive snapshots, or parts of them, have equal values in all fields.

    Vectors, and what is made of them, may differ as those of one text by one model do in another batch.
    """
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        close = one.dtype == np.float32 and np.allclose(one, other, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
        return close or bool(np.array_equal(one, other))
    if is_dataclass(one) and type(one) is type(other):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
    return bool(one == other)


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
    starts = _starts(leaves)
    sizes = np.repeat(np.diff([*starts, len(leaves)]), np.diff([*starts, len(leaves)])).tolist()
    types: dict[str, int] = {}
    sets: dict[frozenset[str], int] = {}
    return ArchiveSnapshot(
        archive_id=archive_id,
        ids=np.array([node.entry_id for node in nodes], dtype=f"S{ID_LENGTH}"),
        parents=parents,
        ends=ends,
        places=places,
        blobs=np.array([leaf.blob for leaf in leaves], dtype=f"S{_BLOB}"),
        type_of=np.array([types.setdefault(leaf.type, len(types)) for leaf in leaves], dtype=np.int16),
        types=tuple(types),
        tags_of=np.array([sets.setdefault(frozenset(leaf.tags), len(sets)) for leaf in leaves], dtype=np.int32),
        tag_sets=tuple(sets),
        moments=np.array([_moment(leaf.time, leaf.committed_at) for leaf in leaves], dtype=np.float64),
        validity=_own_validity(leaves),
        leaf_index=make_leaf_index(
            features,
            starts,
            _spans(ends, places, starts),
            [leaf.speaker or "" for leaf in leaves],
            [_note(leaf.time) for leaf in leaves],
            _headings(nodes, parents, _widths(ends, places), places, sizes),
        ),
    )


def _own_validity(leaves: Sequence[TreeNode]) -> Validity | None:
    if not any(leaf.valid_from or leaf.valid_to for leaf in leaves):
        return None
    periods = [period({VALID_FROM: leaf.valid_from or "", VALID_TO: leaf.valid_to or ""}) for leaf in leaves]
    both = np.array(periods, dtype=np.float64)
    return Validity(both[:, 0], both[:, 1], np.zeros(len(leaves), dtype=bool))


def _starts(leaves: Sequence[TreeNode]) -> list[int]:
    """Returns the index of each document's first leaf; no window spans two documents.

    A joined archive has several documents. Turns that somebody stored without a document are one conversation. Every
    other leaf without a document is a note, and so a document of its own.
    """
    keys = [_document_of(leaf) for leaf in leaves]
    return [place for place, key in enumerate(keys) if key is None or place == 0 or key != keys[place - 1]]


def _document_of(leaf: TreeNode) -> tuple[str, bool] | None:
    if leaf.document_id is None and not leaf.speaker:
        return None
    return leaf.document_id or "", leaf.document_id is None


def _widths(ends: NDArray[np.int32], places: NDArray[np.int32]) -> list[int]:
    """Returns the number of leaves at and below each node."""
    widths: list[int] = (np.searchsorted(places, ends) - np.searchsorted(places, np.arange(len(ends)))).tolist()
    return widths


def _headings(
    nodes: Sequence[TreeNode],
    parents: NDArray[np.int32],
    widths: Sequence[int],
    places: NDArray[np.int32],
    sizes: Sequence[int],
) -> list[tuple[str, ...]]:
    """Returns the nearest headings above each leaf, outermost first, without those over its whole document.

    Args:
        nodes: All nodes in pre-order.
        parents: For each node the index of its parent; -1 for a root.
        widths: For each node the number of leaves at and below it.
        places: The index of each leaf.
        sizes: For each leaf the number of leaves of its document.
    """
    above: list[tuple[tuple[str, int], ...]] = []
    for parent in parents.tolist():
        if parent < 0:
            above.append(())
            continue
        heading = nodes[parent].heading
        path = (*above[parent], (heading, widths[parent])) if heading else above[parent]
        above.append(path[-_MOST_HEADINGS:])
    return [
        tuple(heading for heading, width in above[place] if size == 1 or width < _WHOLE * size)
        for place, size in zip(places.tolist(), sizes, strict=True)
    ]


def _spans(ends: NDArray[np.int32], places: NDArray[np.int32], starts: Sequence[int]) -> NDArray[np.int64]:
    """Returns the range of leaves of each inner node within one document, as (first, after the last)."""
    inner = np.flatnonzero(ends > np.arange(len(ends)) + 1)
    spans = np.stack([np.searchsorted(places, inner), np.searchsorted(places, ends[inner])], axis=1)
    spans = spans[spans[:, 1] > spans[:, 0]].astype(np.int64)
    homes = np.searchsorted(starts, np.stack([spans[:, 0], spans[:, 1] - 1]), side="right")
    inside: NDArray[np.int64] = spans[homes[0] == homes[1]]
    return inside


@lru_cache(maxsize=1 << 14)
def _note(time: str | None) -> str:
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


def _moment(written: str | None, committed_at: datetime | None) -> float:
    when = (read_time(written) if written else None) or committed_at
    return _LATE if when is None else when.timestamp()


# --- Features --------------------------------------------------------------------------------------------------------


def picked(block: LeafFeatureBlock, rows: Sequence[int] | Places) -> LeafFeatureBlock:
    """Returns a new block with the given rows, in the given order."""
    chosen = np.asarray(rows, dtype=np.int64)
    sizes = block.offsets[chosen + 1] - block.offsets[chosen]
    offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    # The source index of each term: the start of its row, repeated for each term, plus its offset within the row.
    source = np.repeat(block.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return LeafFeatureBlock(
        version_ids=block.version_ids[chosen],
        tokens=block.tokens[chosen],
        lengths=block.lengths[chosen],
        offsets=offsets,
        terms=block.terms[source],
        counts=block.counts[source],
        vectors=block.vectors[chosen],
    )


def block_of(features: Sequence[LeafFeatures], dimensions: int) -> LeafFeatureBlock:
    """Returns a block of features that belong to no committed version."""
    offsets = np.zeros(len(features) + 1, dtype=np.int64)
    np.cumsum([len(leaf.terms) for leaf in features], out=offsets[1:])
    return LeafFeatureBlock(
        version_ids=np.full(len(features), _NO_VERSION, dtype=np.int64),
        tokens=np.array([leaf.tokens for leaf in features], dtype=np.int32),
        lengths=np.array([leaf.length for leaf in features], dtype=np.int32),
        offsets=offsets,
        terms=np.concatenate([np.zeros(0, dtype=np.uint32), *(leaf.terms for leaf in features)]),
        counts=np.concatenate([np.zeros(0, dtype=np.uint16), *(leaf.counts for leaf in features)]),
        vectors=np.array([leaf.vector for leaf in features], dtype=np.float32).reshape(len(features), dimensions),
    )


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
    whole = _joined(block, block_of(list(extra.values()), dimensions)) if extra else block
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


def _joined(one: LeafFeatureBlock, other: LeafFeatureBlock) -> LeafFeatureBlock:
    if not len(one.version_ids):
        return other
    return LeafFeatureBlock(
        version_ids=np.concatenate([one.version_ids, other.version_ids]),
        tokens=np.concatenate([one.tokens, other.tokens]),
        lengths=np.concatenate([one.lengths, other.lengths]),
        offsets=np.concatenate([one.offsets[:-1], one.offsets[-1] + other.offsets]),
        terms=np.concatenate([one.terms, other.terms]),
        counts=np.concatenate([one.counts, other.counts]),
        vectors=np.concatenate([one.vectors, other.vectors]),
    )
