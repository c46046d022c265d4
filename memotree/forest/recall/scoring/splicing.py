"""Makes the leaf index of changed leaves from the one before, at the cost of what changed.

A window or a tree node counts for a leaf only up to the largest scale, so a change affects the leaves within that many
tokens of it: their windows, nodes and norms are computed again, from the same functions as those of a whole index.
Everything else is copied, and rows of vectors and terms are shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring import windows
from memotree.forest.recall.scoring.leaf_index import AT_ONCE, LeafIndex, norms_around, reach_of, spoken
from memotree.forest.recall.scoring.leaf_rows import LeafRows, RowChange
from memotree.forest.recall.scoring.runs import Runs
from memotree.forest.recall.scoring.windows import Floats, Ints

_FAR: Final = windows.SCALES[-1]
"""How many tokens around a change are computed again."""

_MOST_RUNS: Final = 200
"""With more runs of neighbours than these, ranges are looked up one by one."""

Mask = NDArray[np.bool_]

_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class FreshLeaves:
    """What is short about the fresh leaves, in their order: tokens, words, and labels ("" for none)."""

    tokens: Floats
    lengths: Floats
    labels: Sequence[str]


class TreeSpans(Protocol):
    """The inner nodes of the trees of changed leaves, as ranges of leaves within one document, shape (nodes, 2)."""

    @property
    def are_as_before(self) -> bool:
        """Whether they are those of before."""
        ...

    def every(self) -> NDArray[np.int64]:
        """Returns all of them."""
        ...

    def between(self, first: int, behind: int) -> NDArray[np.int64]:
        """Returns those within a range of leaves."""
        ...


class Ranges(NamedTuple):
    """Ranges of leaves: the first leaf of each, and the leaf after its last one."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Neighbours:
    """Which leaves (or nodes) are neighbours as before.

    Attributes:
        runs: What each leaf was before.
        fresh: The fresh leaves.
        broken: The leaves whose neighbour before them is another one than before, ascending; the number of leaves
            counts as one.
        is_in_place: Whether each leaf that is not fresh has the number that it had.
    """

    def __init__(self, runs: Runs, before: int) -> None:
        self.runs = runs
        self.fresh = runs.fresh
        self.is_in_place = runs.in_place(before)
        ends = list[int]()
        if len(runs):
            first, last = runs.source_at(np.array([0, len(runs) - 1])).tolist()
            ends = [0] * (first != 0) + [len(runs)] * (last != before - 1)
        self.broken = np.unique(np.concatenate([runs.borders[1:-1], self.fresh, self.fresh + 1, ends])).astype(np.int64)

    def copied(self, old: NDArray[_Kind], fresh: NDArray[_Kind]) -> NDArray[_Kind]:
        """Returns an array along the leaves from that before and the values of fresh leaves; that before if equal."""
        kind = np.result_type(old, fresh)
        if self.is_in_place and kind == old.dtype and bool((old[self.fresh] == fresh).all()):
            return old
        new = np.empty(len(self.runs), dtype=kind)
        for start, end, first in self.runs.kept():
            new[start:end] = old[first : first + end - start]
        new[self.fresh] = fresh
        return new

    def running(self, before: NDArray[np.float64], values: Floats) -> NDArray[np.float64]:
        """Returns the sums before each value, and of all of them, from those before; values are whole numbers."""
        new, total = np.zeros(len(self.runs) + 1), 0.0
        for start, end, first in self.runs.each():
            if first < 0:
                np.cumsum(values[start:end], dtype=np.float64, out=new[start + 1 : end + 1])
                new[start + 1 : end + 1] += total
            else:
                old = before[first + 1 : first + 1 + end - start]
                np.add(old, total - before[first], out=new[start + 1 : end + 1])
            total = float(new[end])
        return new

    def unchanged(self, ranges: Ranges, ranges_before: Ranges) -> NDArray[np.int64]:
        """Returns for each range of leaves the number of the same range before; -1 if there was none.

        Args:
            ranges: The ranges, ascending and apart from each other.
            ranges_before: The same before.
        """
        if not len(ranges_before.starts):
            return np.full(len(ranges.starts), -1, dtype=np.int64)
        if len(self.runs.firsts) > _MOST_RUNS:
            return self.unchanged_one_by_one(ranges, ranges_before)
        found = np.full(len(ranges.starts), -1, dtype=np.int64)
        for start, end, first in self.runs.kept():
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
                found[here] = self.unchanged_one_by_one(Ranges(ranges.starts[here], ranges.ends[here]), ranges_before)
        return found

    def unchanged_one_by_one(self, ranges: Ranges, ranges_before: Ranges) -> NDArray[np.int64]:
        """Returns the same as `unchanged`, faster for few ranges among many before."""
        if not len(ranges_before.starts):
            return np.full(len(ranges.starts), -1, dtype=np.int64)
        starts, ends = ranges.starts, ranges.ends
        count = np.searchsorted(self.broken, np.stack([starts, ends - 1]), side="right")
        first = self.runs.source_at(starts)
        number = np.searchsorted(ranges_before.starts, np.maximum(first, 0))
        number = np.minimum(number, len(ranges_before.starts) - 1)
        same = (first >= 0) & (count[0] == count[1]) & (ranges_before.starts[number] == first)
        return np.where(same & (ranges_before.ends[number] == first + ends - starts), number, -1)


class Documents:
    """The documents of changed leaves, and which of them there were before.

    Attributes:
        near: Which leaves are neighbours as before.
        starts: Index of each document's first leaf, and the number of leaves at the end.
        same: For each document the number of the one before that had the same leaves; -1 for a changed one.
        changed: The numbers of the changed ones.
    """

    def __init__(self, near: Neighbours, starts: NDArray[np.int64], starts_before: NDArray[np.int64]) -> None:
        self.near, self.starts = near, starts
        self._before = starts_before
        if near.is_in_place and starts is starts_before:
            self.changed = np.unique(np.searchsorted(starts, near.fresh, side="right") - 1)
            self.same = np.arange(len(starts) - 1)
            self.same[self.changed] = -1
        else:
            self.same = near.unchanged(Ranges(starts[:-1], starts[1:]), Ranges(starts_before[:-1], starts_before[1:]))
            self.changed = np.flatnonzero(self.same < 0)

    @property
    def sampled_before(self) -> Ranges:
        """The leaves of the documents before that their topic reach was estimated from."""
        return _sampled(self._before[:-1], self._before[1:])

    def copied(self, old: NDArray[_Kind]) -> NDArray[_Kind]:
        """Returns a new array along the documents from that before; what it has for changed ones is arbitrary."""
        if not len(old):
            return np.zeros(len(self.same), dtype=old.dtype)
        return old.take(self.same, mode="clip")

    def homes(self, document: int) -> list[int]:
        """Returns the documents that the leaves of a document were in before; fresh leaves were in none.

        Only the first and the last leaf of each run of neighbours are looked up.
        """
        start, end = self.starts[document : document + 2].tolist()
        inner = self.near.runs.borders
        borders = [start, *inner[(inner > start) & (inner < end)].tolist(), end]
        places = np.array([place for run in pairwise(borders) for place in (run[0], run[1] - 1)])
        source = self.near.runs.source_at(places)
        homes = np.searchsorted(self._before, source[source >= 0], side="right") - 1
        return sorted(set(homes.tolist()))

    def with_another(self, value: Mask, before: Mask) -> list[tuple[int, int]]:
        """Returns the ranges of leaves of documents that have another value than before, given for each document."""
        if value is before and self.near.is_in_place:
            return []
        other = (value != self.copied(before)) & (self.same >= 0)
        numbers = np.flatnonzero(other).tolist()
        numbers += [
            number
            for number in self.changed.tolist()
            if any(before[home] != value[number] for home in self.homes(number))
        ]
        return [(int(self.starts[number]), int(self.starts[number + 1])) for number in numbers]


def changed_index(
    old: LeafIndex,
    documents: Documents,
    text: RowChange,
    headings: RowChange,
    fresh: FreshLeaves,
    trees: TreeSpans,
    borders: NDArray[np.int64],
) -> LeafIndex:
    """Returns the index of changed leaves.

    Args:
        old: The index before.
        documents: The documents, and which leaves are neighbours as before.
        text: The rows of their texts and vectors.
        headings: The rows of the headings above them.
        fresh: The leaves with a fresh row of text.
        trees: The inner nodes of the trees as ranges of leaves.
        borders: The leaves before which a node that is new or has moved begins or ends: what is above leaves can change
            although their order does not.
    """
    near, starts = documents.near, documents.starts
    tokens = near.copied(old.tokens, fresh.tokens)
    lengths = near.copied(old.lengths, fresh.lengths)
    names = {label: number for number, label in enumerate(old.labels)}
    fresh_labels = np.array([names.setdefault(label, len(names)) for label in fresh.labels], dtype=np.int32)
    label_of = near.copied(old.label_of, fresh_labels)
    rows = old.text_rows.replaced(text)
    has_tree = old.has_tree if trees.are_as_before else windows.in_trees(trees.every(), starts)
    edges = old.tokens_before if tokens is old.tokens else near.running(old.tokens_before, tokens)
    made = list[tuple[int, Sequence[Ints], Sequence[Floats]]]()
    others = documents.with_another(has_tree, old.has_tree)
    for start, end in _affected(edges, np.union1d(near.broken, borders), others):
        first, behind = _around(edges, start, end)
        inside = trees.between(first, behind) - first
        inner = starts[np.searchsorted(starts, first, "right") : np.searchsorted(starts, behind)] - first
        low, high = windows.windows(tokens[first:behind], np.array([0, *inner.tolist(), behind - first]))
        in_tree = has_tree[np.searchsorted(starts, np.arange(first, behind), side="right") - 1]
        nodes = windows.nodes(tokens[first:behind], inside, in_tree, low, high)
        here = [each[:, start - first : end - first] + first for each in (low, high, *nodes)]
        made.append((start, here, norms_around(rows, lengths, *here)))
    return LeafIndex(
        starts=starts,
        tokens=tokens,
        lengths=lengths,
        tokens_before=edges,
        words_before=old.words_before if lengths is old.lengths else near.running(old.words_before, lengths),
        text_rows=rows,
        heading_rows=old.heading_rows.replaced(headings),
        windows=old.windows.of_runs(near.runs).with_intervals(made),
        has_tree=has_tree,
        reach=_reach(old, documents, rows, lengths, tokens),
        spoken=_spoken(old, documents, label_of),
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
        return np.concatenate([old[:start], new, old[end:]])

    def sums(name: str) -> Any:
        old, new = getattr(whole, name), getattr(part, name)
        behind = old[end:] + (old[start] + new[-1] - old[end])
        return np.concatenate([old[:start], new[:-1] + old[start], behind])

    def documents(name: str) -> Any:
        old, new = getattr(whole, name), getattr(part, name)
        return np.concatenate([old[:first], new, old[behind:]])

    return replace(
        whole,
        starts=np.concatenate([whole.starts[:first], part.starts[:-1] + start, whole.starts[behind:] + shift]),
        **{name: values(name) for name in ("tokens", "lengths")},
        **{name: sums(name) for name in ("tokens_before", "words_before")},
        text_rows=whole.text_rows.replaced(text.within(start, end, size)),
        heading_rows=whole.heading_rows.replaced(headings.within(start, end, size)),
        windows=whole.windows.replaced(start, end, part.windows),
        **{name: documents(name) for name in ("has_tree", "reach", "spoken")},
        labels=tuple(names),
        label_of=np.concatenate([whole.label_of[:start], numbers[part.label_of], whole.label_of[end:]]),
    )


def _affected(
    edges: NDArray[np.float64], changes: NDArray[np.int64], others: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Returns the ranges of leaves whose windows or nodes may be others than before.

    Args:
        edges: The tokens before each leaf, and of all leaves.
        changes: The leaves before which something changed.
        others: Other ranges of leaves that may have other ones.
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted([*(_around(edges, place, place) for place in changes.tolist()), *others]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return [(start, min(start + AT_ONCE, end)) for first, end in joined for start in range(first, end, AT_ONCE)]


def _around(edges: NDArray[np.float64], start: int, end: int) -> tuple[int, int]:
    """Returns the range of leaves that begin or end within the largest scale of a range of leaves."""
    first = int(np.searchsorted(edges, edges[start] - _FAR, side="left")) - 1
    behind = int(np.searchsorted(edges, edges[end] + _FAR, side="right"))
    return max(first, 0), min(behind, len(edges) - 1)


def _reach(old: LeafIndex, documents: Documents, rows: LeafRows, lengths: Floats, tokens: Floats) -> Floats:
    """Returns the topic reach of each document; only of those whose first leaves changed it is computed again."""
    near, starts = documents.near, documents.starts
    found = documents.copied(old.reach)
    changed = documents.changed
    same = near.unchanged_one_by_one(_sampled(starts[changed], starts[changed + 1]), documents.sampled_before)
    found[changed[same >= 0]] = old.reach[same[same >= 0]]
    for number in changed[same < 0].tolist():
        found[number] = reach_of(rows, lengths, tokens, int(starts[number]), int(starts[number + 1]))
    return found


def _spoken(old: LeafIndex, documents: Documents, label_of: Ints) -> NDArray[np.bool_]:
    """Returns for each document whether it is a conversation; only changed ones are looked at."""
    found = documents.copied(old.spoken)
    for number in documents.changed.tolist():
        start, end = documents.starts[number : number + 2].tolist()
        found[number] = spoken(label_of[start:end], np.array([0, end - start]))[0]
    return found


def _sampled(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Ranges:
    """Returns the leaves of documents that their topic reach is estimated from, as ranges."""
    return Ranges(starts, np.minimum(ends, starts + windows.MOST_SAMPLED))
