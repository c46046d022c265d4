"""Search corpora: the leaves of several archive snapshots of one state in one leaf index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np
from memotree_storage.model.node import ID_LENGTH
from numpy.typing import NDArray

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot, Validity
from memotree.forest.recall.scoring.leaf_index import JoinedRows, LeafIndex, concatenate
from memotree.forest.recall.scoring.leaf_rows import LeafRows, Segment
from memotree.forest.recall.scoring.splicing import spliced
from memotree.forest.recall.superseded import Superseded

_MOST_SPLICED: Final = 16
"""With more changed archives than this the whole corpus is made again."""


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
    def own_weight(self) -> int:
        """Size in bytes without the segments of the leaf index; the archive snapshots count themselves."""
        return self.leaf_index.own_weight + (0 if self.validity is None else self.validity.weight)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What it may share with others."""
        return self.leaf_index.segments

    def place(self, leaf: int) -> tuple[ArchiveSnapshot, int]:
        """Returns the archive snapshot of a leaf of the corpus, and the leaf's number in it."""
        owner = int(np.searchsorted(self.starts, leaf, side="right")) - 1
        return self.snapshots[owner], leaf - int(self.starts[owner])


def make_corpus(
    snapshots: Sequence[ArchiveSnapshot],
    dimensions: int,
    ended: Mapping[str, Superseded] = MappingProxyType({}),
    rows: JoinedRows | None = None,
) -> SearchCorpus:
    """Returns a corpus of archive snapshots; the vectors of its snapshots are slices of the corpus's.

    Args:
        snapshots: The archive snapshots.
        dimensions: Length of a vector.
        ended: The superseded nodes of this state by id.
        rows: The rows of all leaves, if they are known; the vectors of the snapshots are slices of theirs then.
    """
    starts = np.cumsum([0, *(len(each) for each in snapshots)], dtype=np.int64)
    full = [each.leaf_index for each in snapshots if len(each)]
    if len(full) == 1:
        return SearchCorpus(tuple(snapshots), starts, full[0], _validity(snapshots, ended))
    if rows is not None:
        whole = concatenate(full, dimensions, rows)
        return SearchCorpus(tuple(snapshots), starts, whole, _validity(snapshots, ended))
    packed = [replace(each, leaf_index=each.leaf_index.packed()) for each in snapshots]
    whole = concatenate([each.leaf_index for each in packed], dimensions)
    return SearchCorpus(tuple(_sharing(packed, whole, starts)), starts, whole, _validity(snapshots, ended))


def _sharing(packed: Sequence[ArchiveSnapshot], whole: LeafIndex, starts: NDArray[np.int64]) -> list[ArchiveSnapshot]:
    """Returns snapshots with plain rows whose vectors are slices of those of an index of all of them."""
    found = []
    for each, start in zip(packed, starts.tolist(), strict=False):
        vectors = whole.vectors[start : start + len(each)]
        rows = LeafRows.plain(Segment(vectors, each.leaf_index.text))
        found.append(replace(each, leaf_index=replace(each.leaf_index, text_rows=rows)))
    return found


def changed_corpus(
    old: SearchCorpus, snapshots: Sequence[ArchiveSnapshot], ended: Mapping[str, Superseded]
) -> SearchCorpus | None:
    """Returns the corpus of snapshots, made from that of earlier snapshots of the same archives.

    The cost is that of the archives that differ. Returns ``None`` if they are too many, or if it is not known how they
    differ.

    Args:
        old: The corpus before.
        snapshots: The archive snapshots, in the same order.
        ended: The superseded nodes of this state by id.
    """
    if [each.archive_id for each in snapshots] != [each.archive_id for each in old.snapshots]:
        return None
    pairs = zip(old.snapshots, snapshots, strict=True)
    changed = [place for place, (one, other) in enumerate(pairs) if one.number != other.number]
    several = islice((each for each in snapshots if len(each)), 2)
    if len(changed) > _MOST_SPLICED or len(list(several)) <= 1:
        return None
    starts, index = old.starts, old.leaf_index
    for place in changed:
        now = snapshots[place]
        if now.change is None or now.change.of != old.snapshots[place].number:
            return None
        start, end = starts[place : place + 2].tolist()
        index = spliced(index, start, end, now.leaf_index, now.change.text, now.change.headings)
        starts = starts.copy()
        starts[place + 1 :] += len(now) - (end - start)
    return SearchCorpus(tuple(snapshots), starts, index, _validity(snapshots, ended))


def _validity(snapshots: Sequence[ArchiveSnapshot], ended: Mapping[str, Superseded]) -> Validity | None:
    """Returns when the leaves of some snapshots hold, with the ends of superseded ones."""
    if not ended and all(each.validity is None for each in snapshots):
        return None
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
