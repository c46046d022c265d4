"""Makes the leaf index of changed leaves from the one before, at the cost of what changed.

A window or a tree node counts for a leaf only up to the largest scale, so a change affects the leaves within that many
tokens of it: their windows, nodes and norms are computed again, from the same functions as those of a whole index.
Everything else is copied, and rows of vectors and terms are shared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring import windows
from memotree.forest.recall.scoring.leaf_index import AT_ONCE, LeafIndex, norms_around, reach_of, running, spoken
from memotree.forest.recall.scoring.leaf_rows import LeafRows, RowChange
from memotree.forest.recall.scoring.windows import Floats, Ints

_FAR: Final = windows.SCALES[-1]
"""How many tokens around a change are computed again."""

_MOST_RUNS: Final = 200
"""More runs of neighbours than these are copied leaf by leaf."""

Mask = NDArray[np.bool_]

_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class FreshLeaves:
    """What is short about the fresh leaves, in their order: tokens, words, and labels ("" for none)."""

    tokens: Floats
    lengths: Floats
    labels: Sequence[str]


class Ranges(NamedTuple):
    """Ranges of leaves: the first leaf of each, and the leaf after its last one."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Neighbours:
    """Which leaves (or nodes) are neighbours as before.

    Attributes:
        source: For each leaf the leaf before; -1 for a fresh one.
        fresh: The fresh leaves.
        runs: The first leaf of each run of neighbours, and the number of leaves.
        broken: For each leaf and the end, whether the leaf before it is another one than before.
    """

    def __init__(self, source: Ints, before: int) -> None:
        self.source = source
        self.fresh = np.flatnonzero(source < 0)
        self.broken = np.zeros(len(source) + 1, dtype=bool)
        if len(source):
            self.broken[1:-1] = source[1:] != source[:-1] + 1
            self.broken[0], self.broken[-1] = source[0] != 0, source[-1] != before - 1
            self.broken[self.fresh] = self.broken[self.fresh + 1] = True
        self.runs = np.unique([0, *np.flatnonzero(self.broken).tolist(), len(source)]).tolist()

    def copied(self, old: NDArray[_Kind], fresh: NDArray[_Kind], *, shift: bool = False) -> NDArray[_Kind]:
        """Returns an array along the leaves (the last axis) from that before and the values of fresh leaves.

        With ``shift`` the values are numbers of leaves, which move with them; fresh values are not shifted.
        """
        new = np.empty((*old.shape[:-1], len(self.source)), dtype=np.result_type(old, fresh))
        if len(self.runs) > _MOST_RUNS:
            kept = np.flatnonzero(self.source >= 0)
            new[..., kept] = old[..., self.source[kept]]
            if shift:
                new[..., kept] += (kept - self.source[kept]).astype(old.dtype)
        else:
            for start, end, first in self._kept_runs():
                if shift and start != first:
                    np.add(old[..., first : first + end - start], old.dtype.type(start - first), new[..., start:end])
                else:
                    new[..., start:end] = old[..., first : first + end - start]
        new[..., self.fresh] = fresh
        return new

    def _kept_runs(self) -> Iterator[tuple[int, int, int]]:
        """Yields the first leaf of each run of neighbours, the leaf after its last one, and the first one before."""
        for start, end in pairwise(self.runs):
            first = int(self.source[start])
            if first >= 0:
                yield start, end, first

    def unchanged(self, ranges: Ranges, ranges_before: Ranges) -> NDArray[np.int64]:
        """Returns for each range of leaves the number of the same range before; -1 if there was none.

        Args:
            ranges: The ranges, ascending and apart from each other.
            ranges_before: The same before.
        """
        if not len(ranges_before.starts):
            return np.full(len(ranges.starts), -1, dtype=np.int64)
        if len(self.runs) > _MOST_RUNS:
            return self._unchanged_one_by_one(ranges, ranges_before)
        found = np.full(len(ranges.starts), -1, dtype=np.int64)
        for start, end, first in self._kept_runs():
            low, high = np.searchsorted(ranges.starts, [start, end]).tolist()
            high = low + int(np.searchsorted(ranges.ends[low:high], end, side="right"))
            number = int(np.searchsorted(ranges_before.starts, ranges.starts[low] + first - start)) if low < high else 0
            here, there = slice(low, high), slice(number, number + high - low)
            shift = first - start
            if (
                len(ranges_before.starts[there]) == high - low
                and (ranges.starts[here] + shift == ranges_before.starts[there]).all()
                and (ranges.ends[here] + shift == ranges_before.ends[there]).all()
            ):
                found[here] = np.arange(number, number + high - low)
            else:
                found[here] = self._unchanged_one_by_one(Ranges(ranges.starts[here], ranges.ends[here]), ranges_before)
        return found

    def _unchanged_one_by_one(self, ranges: Ranges, ranges_before: Ranges) -> NDArray[np.int64]:
        starts, ends = ranges.starts, ranges.ends
        count = np.cumsum(self.broken)
        first = self.source[starts].astype(np.int64)
        number = np.searchsorted(ranges_before.starts, np.maximum(first, 0))
        number = np.minimum(number, len(ranges_before.starts) - 1)
        same = (first >= 0) & (count[ends - 1] == count[starts]) & (ranges_before.starts[number] == first)
        return np.where(same & (ranges_before.ends[number] == first + ends - starts), number, -1)


def changed_index(
    old: LeafIndex,
    text: RowChange,
    headings: RowChange,
    fresh: FreshLeaves,
    starts: NDArray[np.int64],
    spans: NDArray[np.int64],
    borders: NDArray[np.int64],
) -> LeafIndex:
    """Returns the index of changed leaves.

    Args:
        old: The index before.
        text: The rows of their texts and vectors.
        headings: The rows of the headings above them.
        fresh: The leaves with a fresh row of text.
        starts: Index of each document's first leaf, and the number of leaves at the end.
        spans: The inner nodes of the trees as ranges of leaves, shape (nodes, 2).
        borders: The leaves before which a node that is new or has moved begins or ends: what is above leaves can change
            although their order does not.
    """
    near = Neighbours(text.source, len(old))
    tokens = near.copied(old.tokens, fresh.tokens)
    lengths = near.copied(old.lengths, fresh.lengths)
    names = {label: number for number, label in enumerate(old.labels)}
    fresh_labels = np.array([names.setdefault(label, len(names)) for label in fresh.labels], dtype=np.int32)
    label_of = near.copied(old.label_of, fresh_labels)
    rows = old.text_rows.replaced(text)
    has_tree = windows.in_trees(spans, starts)
    in_tree = np.repeat(has_tree, np.diff(starts))
    nothing = np.zeros(1, dtype=np.int32)
    low, high, node_low, node_high = (
        near.copied(getattr(old, name), nothing, shift=True) for name in ("low", "high", "node_low", "node_high")
    )
    norms, node_norms = (near.copied(each, nothing.astype(np.float32)) for each in (old.norms, old.node_norms))
    edges = running(tokens)
    before = near.copied(np.repeat(old.has_tree, np.diff(old.starts)), np.zeros(1, dtype=bool))
    for start, end in _affected(edges, np.union1d(np.flatnonzero(near.broken), borders), before != in_tree):
        first, behind = _around(edges, start, end)
        inside = spans[(spans[:, 0] >= first) & (spans[:, 1] <= behind)] - first
        inner = starts[(starts > first) & (starts < behind)] - first
        low_here, high_here = windows.windows(tokens[first:behind], np.array([0, *inner, behind - first]))
        nodes = windows.nodes(tokens[first:behind], inside, in_tree[first:behind], low_here, high_here)
        here, there = slice(start, end), slice(start - first, end - first)
        low[:, here], high[:, here] = low_here[:, there] + first, high_here[:, there] + first
        node_low[:, here], node_high[:, here] = nodes[0][:, there] + first, nodes[1][:, there] + first
        norms[:, here], node_norms[:, here] = norms_around(
            rows, lengths, low[:, here], high[:, here], node_low[:, here], node_high[:, here]
        )
    return LeafIndex(
        starts=starts,
        tokens=tokens,
        lengths=lengths,
        words_before=running(lengths),
        text_rows=rows,
        heading_rows=old.heading_rows.replaced(headings),
        low=low,
        high=high,
        norms=norms,
        node_low=node_low,
        node_high=node_high,
        node_norms=node_norms,
        has_tree=has_tree,
        reach=_reach(old, rows, lengths, tokens, starts, near),
        spoken=spoken(label_of, starts),
        labels=tuple(names),
        label_of=label_of,
    )


def spliced(whole: LeafIndex, start: int, end: int, part: LeafIndex, text: RowChange, headings: RowChange) -> LeafIndex:
    """Returns an index with those leaves of another index that are between two documents replaced.

    Args:
        whole: The index.
        start: Its first leaf that is replaced.
        end: The leaf after the last one.
        part: The index of the leaves that come there.
        text: How their rows follow from those of the leaves that are replaced.
        headings: The same for the rows of headings.
    """
    size, shift = len(whole), len(part) - (end - start)
    names = {label: number for number, label in enumerate(whole.labels)}
    numbers = np.array([names.setdefault(label, len(names)) for label in part.labels], dtype=np.int32)
    first, behind = np.searchsorted(whole.starts[:-1], [start, end]).tolist()

    def values(name: str) -> Any:
        old, new = getattr(whole, name), getattr(part, name)
        return np.concatenate([old[..., :start], new, old[..., end:]], axis=-1)

    def places(name: str) -> Any:
        found = values(name)
        found[:, start : start + len(part)] += np.int32(start)
        if shift:
            found[:, start + len(part) :] += np.int32(shift)
        return found

    def documents(name: str) -> Any:
        old, new = getattr(whole, name), getattr(part, name)
        return np.concatenate([old[:first], new, old[behind:]])

    lengths = values("lengths")
    return replace(
        whole,
        starts=np.concatenate([whole.starts[:first], part.starts[:-1] + start, whole.starts[behind:] + shift]),
        tokens=values("tokens"),
        lengths=lengths,
        words_before=running(lengths),
        text_rows=whole.text_rows.replaced(text.within(start, end, size)),
        heading_rows=whole.heading_rows.replaced(headings.within(start, end, size)),
        **{name: places(name) for name in ("low", "high", "node_low", "node_high")},
        **{name: values(name) for name in ("norms", "node_norms")},
        **{name: documents(name) for name in ("has_tree", "reach", "spoken")},
        labels=tuple(names),
        label_of=np.concatenate([whole.label_of[:start], numbers[part.label_of], whole.label_of[end:]]),
    )


def _affected(edges: NDArray[np.float64], changes: NDArray[np.int64], also: Mask) -> list[tuple[int, int]]:
    """Returns the ranges of leaves whose windows or nodes may be others than before.

    Args:
        edges: The tokens before each leaf, and of all leaves.
        changes: The leaves before which something changed.
        also: Other leaves that may have other ones.
    """
    size = len(edges) - 1
    marks = np.zeros(size + 1, dtype=np.int32)
    for place in changes.tolist():
        start, end = _around(edges, place, place)
        marks[start] += 1
        marks[end] -= 1
    affected = (np.cumsum(marks)[:-1] > 0) | also
    borders = np.flatnonzero(np.diff(np.concatenate([[False], affected, [False]])))
    return [
        (start, min(start + AT_ONCE, end))
        for first, end in borders.reshape(-1, 2).tolist()
        for start in range(first, end, AT_ONCE)
    ]


def _around(edges: NDArray[np.float64], start: int, end: int) -> tuple[int, int]:
    """Returns the range of leaves that begin or end within the largest scale of a range of leaves."""
    first = int(np.searchsorted(edges, edges[start] - _FAR, side="left")) - 1
    behind = int(np.searchsorted(edges, edges[end] + _FAR, side="right"))
    return max(first, 0), min(behind, len(edges) - 1)


def _reach(
    old: LeafIndex, rows: LeafRows, lengths: Floats, tokens: Floats, starts: NDArray[np.int64], near: Neighbours
) -> Floats:
    """Returns the topic reach of each document; only of those whose first leaves changed it is computed again."""
    same = near.unchanged(_sampled(starts), _sampled(old.starts))
    found = np.empty(len(same), dtype=np.float32)
    found[same >= 0] = old.reach[same[same >= 0]]
    for number in np.flatnonzero(same < 0).tolist():
        found[number] = reach_of(rows, lengths, tokens, int(starts[number]), int(starts[number + 1]))
    return found


def _sampled(starts: NDArray[np.int64]) -> Ranges:
    """Returns the leaves of each document that its topic reach is estimated from, as ranges."""
    return Ranges(starts[:-1], np.minimum(starts[1:], starts[:-1] + windows.MOST_SAMPLED))
