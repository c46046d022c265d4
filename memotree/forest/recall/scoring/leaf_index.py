"""A grove: the leaves of one or many documents with all that scoring needs of them, as arrays.

What does not depend on a question is computed once: the windows around each leaf at every scale, the node of the tree
that holds each leaf at every scale, the norms of their vectors, and how far the topics of a document reach. Windows and
nodes are intervals of leaves in document order, so that what is inside one is the difference of two running sums.
Groves are made for each document set apart and put together by `concatenate`, which copies but computes nothing anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeAlias

import numpy as np
from memotree_storage.index.terms import count_terms
from memotree_storage.model.tokens import count_tokens
from numpy.typing import NDArray

from memotree.forest.recall.scoring import windows
from memotree.forest.recall.scoring.windows import TYPICAL_REACH, Floats, Ints

Spans: TypeAlias = Sequence[tuple[int, int]] | NDArray[np.integer]


class FeatureArrays(Protocol):
    """The features of leaves in one piece: leaf ``i`` has the terms from ``offsets[i]`` until ``offsets[i + 1]``."""

    @property
    def tokens(self) -> NDArray[np.int32]:
        """Of each leaf."""
        ...

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Words of each leaf."""
        ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Shape (leaves + 1,)."""
        ...

    @property
    def terms(self) -> NDArray[np.uint32]:
        """Ids of the terms of all leaves, one leaf behind the other."""
        ...

    @property
    def counts(self) -> NDArray[np.uint16]:
        """How often each term stands in its leaf."""
        ...

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Shape (leaves, dimensions)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LeafFeatureArrays:
    """The features of leaves that were made here (see `FeatureArrays`)."""

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]
    offsets: NDArray[np.int64]
    terms: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LeafIndex:
    """Leaves of documents, one document behind the other. Scale is the first axis where there is one.

    Attributes:
        starts: Where each document begins, and the number of leaves at the end.
        tokens: Of each leaf.
        lengths: Words of each leaf.
        words_before: Words of all leaves before each leaf, and of all leaves at the end.
        vectors: Of each leaf, shape (leaves, dimensions).
        terms: The ids of all terms, ascending.
        bounds: Where the postings of each term begin, and their number at the end.
        postings: Leaves, by term.
        counts: How often the term stands there.
        low: The first leaf of the window around each leaf.
        high: The one behind its last.
        norms: The norms of the windows' vectors, which are sums of the leaves' vectors times their lengths.
        node_low: The same of the greatest node of the tree that holds the leaf and is not over the scale's size.
        node_high: The one behind its last.
        node_norms: The norms of its vector.
        reach: For each document, over how many tokens its topics last.
        labels: The labels that leaves have, such as the names of speakers; the first one is empty.
        label_of: For each leaf the number of its label.
    """

    starts: NDArray[np.int64]
    tokens: Floats
    lengths: Floats
    words_before: NDArray[np.float64]
    vectors: Floats
    terms: NDArray[np.uint32]
    bounds: NDArray[np.int64]
    postings: Ints
    counts: Floats
    low: Ints
    high: Ints
    norms: Floats
    node_low: Ints
    node_high: Ints
    node_norms: Floats
    reach: Floats
    labels: tuple[str, ...]
    label_of: Ints

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def weight(self) -> int:
        """Bytes in memory."""
        values = (getattr(self, field.name) for field in fields(self))
        return 2000 + sum(value.nbytes for value in values if isinstance(value, np.ndarray))


# --- Features from texts ---------------------------------------------------------------------------------------------


def leaf_features(texts: Sequence[str], vectors: NDArray[np.float32]) -> LeafFeatureArrays:
    """The features of leaves with these texts.

    Args:
        texts: Of the leaves, in document order.
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


# --- Making groves ---------------------------------------------------------------------------------------------------


def make_leaf_index(
    features: FeatureArrays,
    starts: Sequence[int] = (0,),
    spans: Spans = (),
    labels: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
) -> LeafIndex:
    """The grove of some documents; takes a second for ten thousands of leaves, so keep it and `concatenate`.

    Args:
        features: Of all leaves, in document order.
        starts: Where each document begins; of one without leaves nothing is kept.
        spans: The inner nodes of the trees, each as its first leaf and the one behind its last, in any order.
        labels: For each leaf who or what it is from: the leaves of a speaker whom a question names count more.
        notes: For each leaf words that are known of it but do not stand in it, such as its time.
    """
    count = len(features.tokens)
    borders = np.unique(np.array([*starts, 0, count], dtype=np.int64))
    tokens = features.tokens.astype(np.float32)
    lengths = features.lengths.astype(np.float32)
    low, high = windows.windows(tokens, borders)
    node_low, node_high = windows.nodes(tokens, np.asarray(spans, dtype=np.int64).reshape(-1, 2), borders, low, high)
    norms, node_norms = np.zeros(low.shape, np.float32), np.zeros(low.shape, np.float32)
    reach = np.full(len(borders) - 1, TYPICAL_REACH, dtype=np.float32)
    for number, (start, end) in enumerate(zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)):
        part = slice(start, end)
        weighted = features.vectors[part] * np.maximum(lengths[part], 1)[:, None]
        sums = np.concatenate([np.zeros_like(weighted[:1]), np.cumsum(weighted, axis=0)])
        norms[:, part] = windows.norms(sums, low[:, part] - start, high[:, part] - start)
        node_norms[:, part] = windows.norms(sums, node_low[:, part] - start, node_high[:, part] - start)
        reach[number] = windows.reach(features.vectors[part], lengths[part], tokens[part])
    names, label_of = _labels(labels, count)
    terms, bounds, postings, counts = _postings(features, notes)
    return LeafIndex(
        starts=borders,
        tokens=tokens,
        lengths=lengths,
        words_before=_running(lengths),
        vectors=np.ascontiguousarray(features.vectors, dtype=np.float32),
        terms=terms,
        bounds=bounds,
        postings=postings,
        counts=counts,
        low=low,
        high=high,
        norms=norms,
        node_low=node_low,
        node_high=node_high,
        node_norms=node_norms,
        reach=reach,
        labels=names,
        label_of=label_of,
    )


def concatenate(leaf_indexes: Sequence[LeafIndex], dimensions: int) -> LeafIndex:
    """The leaves of several groves as one grove, in their order.

    Args:
        leaf_indexes: What to put together; maybe none.
        dimensions: Length of a vector, for a grove without leaves.
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

    every = np.concatenate([np.repeat(each.terms, np.diff(each.bounds)) for each in full])
    terms, bounds, postings, counts = _sorted(every, places("postings"), values("counts"))
    starts = [each.starts[:-1] + shift for each, shift in zip(full, shifts[:-1], strict=True)]
    return LeafIndex(
        starts=np.concatenate([*starts, shifts[-1:]]),
        tokens=values("tokens"),
        lengths=values("lengths"),
        words_before=_running(values("lengths")),
        vectors=values("vectors"),
        terms=terms,
        bounds=bounds,
        postings=postings,
        counts=counts,
        low=places("low"),
        high=places("high"),
        norms=values("norms"),
        node_low=places("node_low"),
        node_high=places("node_high"),
        node_norms=values("node_norms"),
        reach=values("reach"),
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


def _postings(
    features: FeatureArrays, notes: Sequence[str] | None
) -> tuple[NDArray[np.uint32], NDArray[np.int64], Ints, Floats]:
    leaves = np.repeat(np.arange(len(features.tokens), dtype=np.int32), np.diff(features.offsets))
    terms, counts = np.asarray(features.terms, dtype=np.uint32), features.counts.astype(np.float32)
    if notes is not None:
        known = {note: list(count_terms(note).frequencies) for note in dict.fromkeys(notes)}
        sizes = [len(known[note]) for note in notes]
        terms = np.concatenate([terms, np.array([term for note in notes for term in known[note]], dtype=np.uint32)])
        leaves = np.concatenate([leaves, np.repeat(np.arange(len(notes), dtype=np.int32), sizes)])
        counts = np.concatenate([counts, np.ones(sum(sizes), dtype=np.float32)])
    return _sorted(terms, leaves, counts)


def _sorted(
    terms: NDArray[np.uint32], leaves: Ints, counts: Floats
) -> tuple[NDArray[np.uint32], NDArray[np.int64], Ints, Floats]:
    """Postings by term: the terms, where each one's postings begin, the leaves and the counts."""
    order = np.argsort(terms, kind="stable")
    terms = terms[order]
    first = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]) if len(terms) else np.zeros(0, bool))
    return terms[first], np.append(first, len(terms)).astype(np.int64), leaves[order], counts[order]
