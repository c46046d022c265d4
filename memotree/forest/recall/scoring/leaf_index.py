"""A leaf index: the leaves of one or more documents as arrays, with everything that scoring needs.

Everything that does not depend on a question is computed once: the window around each leaf at every scale, the tree
node that contains each leaf at every scale, the norms of their vectors, and the topic reach of each document. Windows
and nodes are intervals of leaves in document order, so a sum over one is the difference of two prefix sums. Indexes are
built separately for each archive and joined by `concatenate`, which copies but recomputes nothing.

A note is a document of its own, of one leaf: what stands beside it in its archive says nothing about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Protocol, TypeAlias

import numpy as np
from memotree_storage.index.terms import count_terms
from memotree_storage.model.tokens import count_tokens
from numpy.typing import NDArray

from memotree.forest.recall.scoring import windows
from memotree.forest.recall.scoring.windows import TYPICAL_REACH, Floats, Ints

Spans: TypeAlias = Sequence[tuple[int, int]] | NDArray[np.integer]


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
class Postings:
    """Which leaves have which terms, and how often.

    Attributes:
        terms: The ids of all terms, ascending.
        bounds: Index of each term's first posting, and the number of postings at the end.
        leaves: The leaves that have each term, term by term.
        counts: How often the term occurs in the leaf of each posting.
    """

    terms: NDArray[np.uint32]
    bounds: NDArray[np.int64]
    leaves: Ints
    counts: Floats

    @property
    def weight(self) -> int:
        """Size in bytes."""
        return self.terms.nbytes + self.bounds.nbytes + self.leaves.nbytes + self.counts.nbytes

    def of(self, terms: Sequence[int]) -> tuple[Ints, Floats]:
        """Returns the leaves that have any of some terms, and how often; a leaf is repeated for each term it has."""
        wanted = np.array(terms, dtype=np.uint32)
        number = np.searchsorted(self.terms, wanted)
        known = number[number < len(self.terms)]
        known = known[self.terms[known] == wanted[number < len(self.terms)]]
        parts = [slice(self.bounds[each], self.bounds[each + 1]) for each in known]
        if not parts:
            return self.leaves[:0], self.counts[:0]
        return np.concatenate([self.leaves[part] for part in parts]), np.concatenate(
            [self.counts[part] for part in parts]
        )

    def has(self, term: int) -> bool:
        """Whether any leaf has a term."""
        number = int(np.searchsorted(self.terms, np.uint32(term)))
        return number < len(self.terms) and int(self.terms[number]) == term


@dataclass(frozen=True, slots=True, eq=False)
class LeafIndex:
    """The leaves of documents, document by document. In arrays with a scale axis that axis is the first.

    Attributes:
        starts: Index of each document's first leaf, and the number of leaves at the end.
        tokens: Number of tokens of each leaf.
        lengths: Number of words of each leaf.
        words_before: Prefix sums of the lengths: words before each leaf, and of all leaves at the end.
        vectors: Vector of each leaf, shape (leaves, dimensions).
        text: The terms of the leaves' own texts.
        headings: The terms of the headings above each leaf.
        low: First leaf of the window around each leaf, shape (scales, leaves).
        high: The leaf after the last one of that window.
        norms: Norms of the windows' vectors, which are the sums of the leaves' vectors times their lengths.
        node_low: First leaf of the largest tree node within the scale that contains each leaf, shape (scales, leaves).
        node_high: The leaf after the last one of that node.
        node_norms: Norms of the nodes' vectors.
        reach: For each document, over how many tokens a topic lasts.
        spoken: For each document, whether it is a conversation.
        labels: The distinct labels of leaves, such as names of speakers; the first one is empty.
        label_of: For each leaf the index of its label.
    """

    starts: NDArray[np.int64]
    tokens: Floats
    lengths: Floats
    words_before: NDArray[np.float64]
    vectors: Floats
    text: Postings
    headings: Postings
    low: Ints
    high: Ints
    norms: Floats
    node_low: Ints
    node_high: Ints
    node_norms: Floats
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
    def weight(self) -> int:
        """Size in bytes."""
        values = (getattr(self, field.name) for field in fields(self))
        arrays = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
        return 2000 + arrays + self.text.weight + self.headings.weight


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
    low, high = windows.windows(tokens, borders)
    node_low, node_high = windows.nodes(tokens, np.asarray(spans, dtype=np.int64).reshape(-1, 2), borders, low, high)
    alone = np.maximum(lengths, 1) * np.linalg.norm(features.vectors, axis=1)
    norms = np.tile(np.maximum(alone, windows.SMALLEST).astype(np.float32), (len(low), 1))
    node_norms = norms.copy()
    reach = np.full(len(borders) - 1, TYPICAL_REACH, dtype=np.float32)
    for number in np.flatnonzero(np.diff(borders) > 1).tolist():
        start, end = int(borders[number]), int(borders[number + 1])
        part = slice(start, end)
        weighted = features.vectors[part] * np.maximum(lengths[part], 1)[:, None]
        sums = np.concatenate([np.zeros_like(weighted[:1]), np.cumsum(weighted, axis=0)])
        norms[:, part] = windows.norms(sums, low[:, part] - start, high[:, part] - start)
        node_norms[:, part] = windows.norms(sums, node_low[:, part] - start, node_high[:, part] - start)
        reach[number] = windows.reach(features.vectors[part], lengths[part], tokens[part])
    names, label_of = _labels(labels, count)
    labelled = np.concatenate([[0], np.cumsum(label_of > 0)])
    return LeafIndex(
        starts=borders,
        tokens=tokens,
        lengths=lengths,
        words_before=_running(lengths),
        vectors=np.ascontiguousarray(features.vectors, dtype=np.float32),
        text=_postings(features, notes),
        headings=_heading_postings(headings or ()),
        low=low,
        high=high,
        norms=norms,
        node_low=node_low,
        node_high=node_high,
        node_norms=node_norms,
        reach=reach,
        spoken=2 * np.diff(labelled[borders]) > np.diff(borders),
        labels=names,
        label_of=label_of,
    )


def concatenate(leaf_indexes: Sequence[LeafIndex], dimensions: int) -> LeafIndex:
    """Returns one index with the leaves of several indexes, in their order.

    Args:
        leaf_indexes: The indexes to join; may be empty.
        dimensions: Length of a vector, for an index without leaves.
    """
    full = [each for each in leaf_indexes if len(each)]
    if len(full) == 1:
        return full[0]
    if not full:
        return make_leaf_index(leaf_features([], np.zeros((0, dimensions), dtype=np.float32)), ())
    shifts = np.cumsum([0, *(len(each) for each in full)])
    names: dict[str, int] = {}
    label_of = [np.array([names.setdefault(name, len(names)) for name in each.labels], np.int32) for each in full]

    def places(name: str) -> Ints:
        parts = [getattr(each, name) + np.int32(shift) for each, shift in zip(full, shifts[:-1], strict=True)]
        return np.concatenate(parts, axis=-1)

    def values(name: str) -> Floats:
        return np.concatenate([getattr(each, name) for each in full], axis=0 if name == "vectors" else -1)

    starts = [each.starts[:-1] + shift for each, shift in zip(full, shifts[:-1], strict=True)]
    return LeafIndex(
        starts=np.concatenate([*starts, shifts[-1:]]),
        tokens=values("tokens"),
        lengths=values("lengths"),
        words_before=_running(values("lengths")),
        vectors=values("vectors"),
        text=_joined([each.text for each in full], shifts),
        headings=_joined([each.headings for each in full], shifts),
        low=places("low"),
        high=places("high"),
        norms=values("norms"),
        node_low=places("node_low"),
        node_high=places("node_high"),
        node_norms=values("node_norms"),
        reach=values("reach"),
        spoken=np.concatenate([each.spoken for each in full]),
        labels=tuple(names),
        label_of=np.concatenate([own[each.label_of] for own, each in zip(label_of, full, strict=True)]),
    )


def _running(values: Floats) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _labels(labels: Sequence[str] | None, count: int) -> tuple[tuple[str, ...], Ints]:
    names = {"": 0}
    numbers = [names.setdefault(label, len(names)) for label in labels or [""] * count]
    return tuple(names), np.array(numbers, dtype=np.int32)


# --- Terms -----------------------------------------------------------------------------------------------------------


def _postings(features: FeatureArrays, notes: Sequence[str] | None) -> Postings:
    leaves = np.repeat(np.arange(len(features.tokens), dtype=np.int32), np.diff(features.offsets))
    terms, counts = np.asarray(features.terms, dtype=np.uint32), features.counts.astype(np.float32)
    if notes is not None:
        known = {note: list(count_terms(note).frequencies) for note in dict.fromkeys(notes)}
        sizes = [len(known[note]) for note in notes]
        terms = np.concatenate([terms, np.array([term for note in notes for term in known[note]], dtype=np.uint32)])
        leaves = np.concatenate([leaves, np.repeat(np.arange(len(notes), dtype=np.int32), sizes)])
        counts = np.concatenate([counts, np.ones(sum(sizes), dtype=np.float32)])
    return _sorted(terms, leaves, counts)


def _heading_postings(headings: Sequence[Sequence[str]]) -> Postings:
    """Returns the distinct terms of the headings above each leaf, each counted once."""
    known: dict[tuple[str, ...], list[int]] = {}
    found = []
    for path in map(tuple, headings):
        if path not in known:
            known[path] = list(count_terms("\n".join(path)).frequencies)
        found.append(known[path])
    terms = np.fromiter(chain.from_iterable(found), dtype=np.uint32)
    leaves = np.repeat(np.arange(len(found), dtype=np.int32), [len(each) for each in found])
    return _sorted(terms, leaves, np.ones(len(terms), dtype=np.float32))


def _joined(parts: Sequence[Postings], shifts: NDArray[np.int64]) -> Postings:
    """Returns the postings of several indexes as one; ``shifts`` are the numbers of the first leaf of each."""
    return _sorted(
        np.concatenate([np.repeat(each.terms, np.diff(each.bounds)) for each in parts]),
        np.concatenate([each.leaves + np.int32(shift) for each, shift in zip(parts, shifts[:-1], strict=True)]),
        np.concatenate([each.counts for each in parts]),
    )


def _sorted(terms: NDArray[np.uint32], leaves: Ints, counts: Floats) -> Postings:
    """Returns postings in any order sorted by term."""
    order = np.argsort(terms, kind="stable")
    terms = terms[order]
    first = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]) if len(terms) else np.zeros(0, bool))
    return Postings(terms[first], np.append(first, len(terms)).astype(np.int64), leaves[order], counts[order])
