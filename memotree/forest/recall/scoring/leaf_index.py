"""A leaf index: the leaves of one or more documents as arrays, with everything that scoring needs.

Everything that does not depend on a question is computed once: the window around each leaf at every scale, the tree
node that contains each leaf at every scale, the norms of their vectors, and the topic reach of each document. Windows
and nodes are intervals of leaves in document order, so a sum over one is the difference of two prefix sums. Indexes are
built separately for each archive and joined by `concatenate`, which copies but recomputes nothing. An index never
changes: when leaves do, `splicing` makes the next one, which shares with it what is large.

A note is a document of its own, of one leaf: what stands beside it in its archive says nothing about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Final, Protocol, TypeAlias

import numpy as np
from memotree_storage.index.terms import count_terms
from memotree_storage.model.tokens import count_tokens
from numpy.typing import NDArray

from memotree.forest.recall.scoring import windows
from memotree.forest.recall.scoring.leaf_rows import LeafRows, Segment
from memotree.forest.recall.scoring.leaf_windows import LeafWindows
from memotree.forest.recall.scoring.postings import Postings, joined_postings, sorted_postings
from memotree.forest.recall.scoring.windows import TYPICAL_REACH, Floats, Ints

AT_ONCE: Final = 2048
"""The leaves whose norms are computed at once: about twenty megabytes."""

Spans: TypeAlias = Sequence[tuple[int, int]] | NDArray[np.integer]

JoinedRows: TypeAlias = tuple[LeafRows, LeafRows]
"""The rows of the texts of several indexes, and those of the headings above them."""


class FeatureArrays(Protocol):
    """The features of leaves as flat arrays: leaf ``i`` has the terms from ``offsets[i]`` until ``offsets[i + 1]``."""

    @property
    def tokens(self) -> NDArray[np.int32]:
        """Number of tokens of each leaf."""
        ...

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of words of each leaf."""
        ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Shape (leaves + 1,)."""
        ...

    @property
    def terms(self) -> NDArray[np.uint32]:
        """Ids of the terms of all leaves, leaf by leaf."""
        ...

    @property
    def counts(self) -> NDArray[np.uint16]:
        """How often each term occurs in its leaf."""
        ...

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Shape (leaves, dimensions)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LeafFeatureArrays:
    """Features computed from texts in this module (see `FeatureArrays`)."""

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]
    offsets: NDArray[np.int64]
    terms: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LeafIndex:
    """The leaves of documents, document by document.

    Attributes:
        starts: Index of each document's first leaf, and the number of leaves at the end.
        tokens: Number of tokens of each leaf.
        lengths: Number of words of each leaf.
        tokens_before: Prefix sums of the tokens: tokens before each leaf, and of all leaves at the end.
        words_before: The same of the lengths.
        text_rows: The vector of each leaf, and the terms of its own text.
        heading_rows: The terms of the headings above each leaf; their vectors have no dimensions.
        windows: The windows around the leaves and the tree nodes that contain them.
        has_tree: For each document, whether it has tree nodes.
        reach: For each document, over how many tokens a topic lasts.
        spoken: For each document, whether it is a conversation.
        labels: The distinct labels of leaves, such as names of speakers; the first one is empty.
        label_of: For each leaf the index of its label.
    """

    starts: NDArray[np.int64]
    tokens: Floats
    lengths: Floats
    tokens_before: NDArray[np.float64]
    words_before: NDArray[np.float64]
    text_rows: LeafRows
    heading_rows: LeafRows
    windows: LeafWindows
    has_tree: NDArray[np.bool_]
    reach: Floats
    spoken: NDArray[np.bool_]
    labels: tuple[str, ...]
    label_of: Ints

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def alone(self) -> NDArray[np.int64]:
        """The leaves that are a whole document, such as notes."""
        found: NDArray[np.int64] = self.starts[:-1][np.diff(self.starts) == 1]
        return found

    def document_of(self, leaf: int) -> int:
        """The first leaf of a leaf's document."""
        return int(self.starts[np.searchsorted(self.starts, leaf, side="right") - 1])

    @property
    def vectors(self) -> Floats:
        """The vector of each leaf, shape (leaves, dimensions)."""
        return self.text_rows.vectors

    @property
    def text(self) -> Postings:
        """The terms of the leaves' own texts."""
        return self.text_rows.terms

    @property
    def headings(self) -> Postings:
        """The terms of the headings above each leaf."""
        return self.heading_rows.terms

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What it may share with other indexes."""
        return (*self.text_rows.segments, *self.heading_rows.segments)

    @property
    def own_weight(self) -> int:
        """Size in bytes without the segments."""
        values = (getattr(self, field.name) for field in fields(self))
        arrays = sum(value.nbytes for value in values if isinstance(value, np.ndarray | LeafWindows))
        return 2000 + arrays + self.text_rows.own_weight + self.heading_rows.own_weight

    def packed(self) -> "LeafIndex":
        """Returns the same index with plain rows."""
        return replace(self, text_rows=self.text_rows.packed(), heading_rows=self.heading_rows.packed())


# --- Features from texts ---------------------------------------------------------------------------------------------


def leaf_features(texts: Sequence[str], vectors: NDArray[np.float32]) -> LeafFeatureArrays:
    """Returns the features of leaves with these texts.

    Args:
        texts: The texts of the leaves, in document order.
        vectors: Their embeddings, shape (leaves, dimensions).
    """
    counted = [count_terms(text) for text in texts]
    sizes = [len(each.frequencies) for each in counted]
    return LeafFeatureArrays(
        tokens=np.array([count_tokens(text) for text in texts], dtype=np.int32),
        lengths=np.array([each.length for each in counted], dtype=np.int32),
        offsets=np.cumsum([0, *sizes], dtype=np.int64),
        terms=np.array([term for each in counted for term in each.frequencies], dtype=np.uint32),
        counts=np.array([times for each in counted for times in each.frequencies.values()], dtype=np.uint16),
        vectors=np.asarray(vectors, dtype=np.float32),
    )


# --- Building indexes ------------------------------------------------------------------------------------------------


def make_leaf_index(
    features: FeatureArrays,
    starts: Sequence[int] = (0,),
    spans: Spans = (),
    labels: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
    headings: Sequence[Sequence[str]] | None = None,
) -> LeafIndex:
    """Builds the index of some documents. Takes a second for tens of thousands of leaves: cache and `concatenate` it.

    Args:
        features: The features of all leaves, in document order.
        starts: Index of each document's first leaf; documents without leaves are dropped.
        spans: The inner nodes of the trees, each as (first leaf, after its last leaf), in any order.
        labels: For each leaf its source, such as the speaker; leaves of a speaker that a question names score higher.
            A document is a conversation if most of its leaves have one.
        notes: For each leaf words that describe it but are not in its text, such as its time.
        headings: For each leaf the headings above it.
    """
    count = len(features.tokens)
    borders = np.unique(np.array([*starts, 0, count], dtype=np.int64))
    tokens = features.tokens.astype(np.float32)
    lengths = features.lengths.astype(np.float32)
    ranges = np.asarray(spans, dtype=np.int64).reshape(-1, 2)
    has_tree = windows.in_trees(ranges, borders)
    low, high = windows.windows(tokens, borders)
    node_low, node_high = windows.nodes(tokens, ranges, np.repeat(has_tree, np.diff(borders)), low, high)
    text = LeafRows.plain(text_segment(features, notes))
    norms, node_norms = np.zeros((2, *low.shape), dtype=np.float32)
    for start in range(0, count, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        norms[:, part], node_norms[:, part] = norms_around(
            text, lengths, low[:, part], high[:, part], node_low[:, part], node_high[:, part]
        )
    reach = np.full(len(borders) - 1, TYPICAL_REACH, dtype=np.float32)
    for number in np.flatnonzero(np.diff(borders) > 1).tolist():
        reach[number] = reach_of(text, lengths, tokens, int(borders[number]), int(borders[number + 1]))
    names, label_of = _labels(labels, count)
    return LeafIndex(
        starts=borders,
        tokens=tokens,
        lengths=lengths,
        tokens_before=running(tokens),
        words_before=running(lengths),
        text_rows=text,
        heading_rows=LeafRows.plain(heading_segment(headings or [()] * count)),
        windows=LeafWindows.of((low, high, node_low, node_high), (norms, node_norms)),
        has_tree=has_tree,
        reach=reach,
        spoken=spoken(label_of, borders),
        labels=names,
        label_of=label_of,
    )


def norms_around(
    text: LeafRows, lengths: Floats, low: Ints, high: Ints, node_low: Ints, node_high: Ints
) -> tuple[Floats, Floats]:
    """Returns the norms of the windows around some neighbouring leaves, and those of their nodes.

    Args:
        text: The rows of all leaves.
        lengths: The number of words of all leaves.
        low: First leaf of the window around each of some leaves, shape (scales, leaves).
        high: The leaf after the last one.
        node_low: First leaf of the node.
        node_high: The leaf after the last one.
    """
    lows, highs = np.concatenate([low, node_low]), np.concatenate([high, node_high])
    first, behind = int(lows.min()), int(highs.max())
    found = windows.norms(text.vectors_of(np.arange(first, behind)), lengths[first:behind], lows - first, highs - first)
    return found[: len(low)], found[len(low) :]


def reach_of(text: LeafRows, lengths: Floats, tokens: Floats, start: int, end: int) -> float:
    """Returns over how many tokens a topic lasts in the document of the leaves ``start`` until ``end``."""
    if end - start < 2:  # noqa: PLR2004 - a note
        return TYPICAL_REACH
    some = np.arange(start, min(end, start + windows.MOST_SAMPLED))
    return windows.reach(text.vectors_of(some), lengths[some], tokens[some])


def spoken(label_of: Ints, borders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns for each document whether most of its leaves have a label."""
    labelled = np.zeros(len(label_of) + 1, dtype=np.int32)
    np.cumsum(label_of > 0, dtype=np.int32, out=labelled[1:])
    found: NDArray[np.bool_] = 2 * np.diff(labelled[borders]) > np.diff(borders)
    return found


def concatenate(leaf_indexes: Sequence[LeafIndex], dimensions: int, joined: JoinedRows | None = None) -> LeafIndex:
    """Returns one index with the leaves of several indexes, in their order.

    Args:
        leaf_indexes: The indexes to join; may be empty.
        dimensions: Length of a vector, for an index without leaves.
        joined: The rows of all leaves, if they are known.
    """
    full = [each for each in leaf_indexes if len(each)]
    if len(full) == 1:
        return full[0]
    if not full:
        return make_leaf_index(leaf_features([], np.zeros((0, dimensions), dtype=np.float32)), ())
    shifts = np.cumsum([0, *(len(each) for each in full)])
    names: dict[str, int] = {}
    label_of = [np.array([names.setdefault(name, len(names)) for name in each.labels], np.int32) for each in full]

    def values(name: str) -> Floats:
        return np.concatenate([getattr(each, name) for each in full])

    tokens, lengths = values("tokens"), values("lengths")
    starts = [each.starts[:-1] + shift for each, shift in zip(full, shifts[:-1], strict=True)]
    rows = joined or (
        _joined_rows([each.text_rows for each in full]),
        _joined_rows([each.heading_rows for each in full]),
    )
    return LeafIndex(
        starts=np.concatenate([*starts, shifts[-1:]]),
        tokens=tokens,
        lengths=lengths,
        tokens_before=running(tokens),
        words_before=running(lengths),
        text_rows=rows[0],
        heading_rows=rows[1],
        windows=LeafWindows.joined([each.windows for each in full]),
        has_tree=np.concatenate([each.has_tree for each in full]),
        reach=values("reach"),
        spoken=np.concatenate([each.spoken for each in full]),
        labels=tuple(names),
        label_of=np.concatenate([own[each.label_of] for own, each in zip(label_of, full, strict=True)]),
    )


def _joined_rows(parts: Sequence[LeafRows]) -> LeafRows:
    shifts = np.cumsum([0, *(len(each) for each in parts)])[:-1].tolist()
    vectors = np.concatenate([each.vectors for each in parts])
    return LeafRows.plain(Segment(vectors, joined_postings([each.terms for each in parts], shifts)))


def running(values: Floats) -> NDArray[np.float64]:
    """Returns the sums before each value, and of all values at the end."""
    found = np.zeros(len(values) + 1, dtype=np.float64)
    np.cumsum(values, dtype=np.float64, out=found[1:])
    return found


def _labels(labels: Sequence[str] | None, count: int) -> tuple[tuple[str, ...], Ints]:
    names = {"": 0}
    numbers = [names.setdefault(label, len(names)) for label in labels or [""] * count]
    return tuple(names), np.array(numbers, dtype=np.int32)


# --- Terms -----------------------------------------------------------------------------------------------------------


def text_segment(features: FeatureArrays, notes: Sequence[str] | None) -> Segment:
    """Returns the rows of leaves: the terms of their texts and notes, and their vectors."""
    leaves = np.repeat(np.arange(len(features.tokens), dtype=np.int32), np.diff(features.offsets))
    terms, counts = np.asarray(features.terms, dtype=np.uint32), features.counts.astype(np.float32)
    if notes is not None:
        known = {note: list(count_terms(note).frequencies) for note in dict.fromkeys(notes)}
        sizes = [len(known[note]) for note in notes]
        terms = np.concatenate([terms, np.array([term for note in notes for term in known[note]], dtype=np.uint32)])
        leaves = np.concatenate([leaves, np.repeat(np.arange(len(notes), dtype=np.int32), sizes)])
        counts = np.concatenate([counts, np.ones(sum(sizes), dtype=np.float32)])
    return Segment(np.ascontiguousarray(features.vectors, dtype=np.float32), sorted_postings(terms, leaves, counts))


def heading_segment(headings: Sequence[Sequence[str]]) -> Segment:
    """Returns rows with the distinct terms of the headings above each leaf, each counted once."""
    known: dict[tuple[str, ...], list[int]] = {}
    found = []
    for path in map(tuple, headings):
        if path not in known:
            known[path] = list(count_terms("\n".join(path)).frequencies)
        found.append(known[path])
    terms = np.fromiter(chain.from_iterable(found), dtype=np.uint32)
    leaves = np.repeat(np.arange(len(found), dtype=np.int32), [len(each) for each in found])
    bare = np.zeros((len(found), 0), dtype=np.float32)
    return Segment(bare, sorted_postings(terms, leaves, np.ones(len(terms), dtype=np.float32)))
