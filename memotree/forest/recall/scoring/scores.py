"""Scores how well each leaf answers a question, by its own text and the text around it, at several scales at once.

1. At each scale the window around a leaf and the tree node that contains it are scored as one text each: by the
   question's words (BM25: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) and by the cosine of
   vectors. Each signal is divided by its best value in the index, so that scales and signals can be added. Words weigh
   less if most of the question's words occur nowhere, such as those of another language: then the best place by words
   is only one with a name or a number of the question.
2. The weight of a scale depends on the document, as a bell curve over the logarithm of the scale. In a written text, a
   leaf is a paragraph or two and says most by itself, so the curve is centred at a fixed size. In a conversation a turn
   says little by itself, and how much is needed differs: if topics change every few turns, small windows are the most
   precise; if one topic fills pages, a window of pages says much. There the curve is centred by the document's topic
   reach (see `windows.reach`), which is estimated from its vectors. No scale is larger than the document.
3. The headings above a leaf count as its words, with less weight.
4. A leaf whose label (such as its speaker) the question names scores higher: at scales of few leaves, and less if one
   topic lasts long, because then the other speakers talk about it, too.
5. The scores of a document's leaves are raised by how well the whole document has the question's words, as far as
   these words tell documents apart.

In a large index a coarse pass chooses the candidates first, by the words of each leaf and of windows around every
fourth leaf.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from memotree_storage.index.rarity import idf, smoothed_idf
from numpy.typing import NDArray

from memotree.forest.recall.scoring.leaf_index import LeafIndex
from memotree.forest.recall.scoring.leaf_windows import Intervals
from memotree.forest.recall.scoring.query_words import Concept, Related, concepts, stems
from memotree.forest.recall.scoring.windows import SCALES, TYPICAL_REACH, Floats, Ints

_B: Final = 0.4
_STEP: Final = 4
"""The number of leaves in a step of the coarse pass."""

_COARSE: Final = (1, 3, 4)
"""The indexes of the scales that the coarse pass uses."""

_SIGNALS: Final = 5
"""The number of signals that a score is the sum of."""

_ENOUGH: Final = 0.5
"""Words have their full weight if this share of the question's words, rare ones weighing more, occurs at all."""

_BEST: Final = 20
"""The number of best leaves whose evidence is looked at."""

_NEAR: Final = 1
"""The index of the scale at which words count as standing together."""

_SIZES: Final = np.array(SCALES, dtype=np.float64)
_SATURATION: Final = 0.8 + _SIZES / 800.0
"""BM25's k1 by scale: in a long text further occurrences of a word still add information."""

_MOST_LONGER: Final = 3.0
"""A document counts as at most this many times as long as the mean: among short notes, a book is not punished for its
length."""

Frequency: TypeAlias = Callable[[Sequence[int]], tuple[int, int]]
"""Returns how many texts have a word, given by the term ids of its forms, and how many texts there are."""

Places: TypeAlias = NDArray[np.int64]
Sums: TypeAlias = list[tuple[float, NDArray[np.float64]]]
"""For each concept its weight, and the prefix sums of how often it occurs in the leaves."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The weights of the signals; 0 switches a signal off.

    Attributes:
        words: The weight of words.
        meaning: The weight of vectors.
        tree: The weight of tree nodes, relative to windows.
        label: The boost of a leaf whose label the question names.
        label_leaves: The boost is full in windows of up to this many leaves, if the topic reach is typical or less.
        heading: How much a word of a heading above a leaf counts, compared with a word of its text.
        document: By how many times the scores of a document are raised that alone has all words of the question.
        text_centre: The scale with the greatest weight in a written text, in tokens.
        centre: The same in a conversation of the typical topic reach.
        growth: How that scale grows with the topic reach: the exponent of a power law.
        spread: The width of the bell curve, in natural logarithms of the scale.
        power: The power that a scale's score is raised to before scales are added, so that one good scale outweighs
            several fair ones.
        candidates: The most leaves that are fully scored.
    """

    words: float = 1.0
    meaning: float = 0.4
    tree: float = 0.3
    label: float = 0.8
    label_leaves: float = 6.0
    heading: float = 0.5
    document: float = 6.0
    text_centre: float = 120.0
    centre: float = 270.0
    growth: float = 1.5
    spread: float = 1.0
    power: float = 3.0
    candidates: int = 4096


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the best leaves, as independent of all other leaves as possible.

    Attributes:
        words: The share of the question's words, rare ones weighing more, that a window of 120 tokens has; the best.
            How rare they are is smoothed, so that the share hardly depends on the number of leaves.
        meaning: The cosine of a leaf's vector with the question's; the best, at least 0.
    """

    words: float = 0.0
    meaning: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The score of each leaf, 1 for the best, and the share of each signal; the shares add up to the total.

    Attributes:
        total: The score; 0 for a leaf that was not fully scored.
        words: The share of the question's words in windows.
        meaning: The share of the vectors of windows.
        tree: The share of the words and vectors of tree nodes.
        label: The share of the label that the question names.
        document: The share of the whole document.
        evidence: What speaks for the best leaves.
    """

    total: Floats
    words: Floats
    meaning: Floats
    tree: Floats
    label: Floats
    document: Floats
    evidence: Evidence = Evidence()


DEFAULT: Final = Settings()


def score(
    leaf_index: LeafIndex,
    question: str,
    vector: NDArray[np.float32],
    *,
    admitted: NDArray[np.bool_] | None = None,
    related: Related | None = None,
    frequency: Frequency | None = None,
    settings: Settings = DEFAULT,
) -> Scores:
    """Scores the leaves of an index. Takes milliseconds of CPU, so call it in a thread.

    Args:
        leaf_index: The leaves.
        question: The question.
        vector: Its embedding, a unit vector.
        admitted: A mask of the leaves that may be found; all if ``None``. Other leaves still count as context.
        related: Returns words of a similar meaning.
        frequency: Returns how many texts have a word; counted in this index if ``None``. Give one if the index is
            small, because one document alone is too small a sample.
        settings: The weights.
    """
    asked = concepts(question, related)
    counted = frequency or partial(frequency_in, leaf_index)
    sums, shares = _sums(leaf_index, asked, counted, settings.heading) if settings.words else ([], [])
    settings = replace(settings, words=settings.words * min(1.0, sum(shares) / _ENOUGH))
    places = _candidates(leaf_index, sums, vector, admitted, settings)
    empty = np.zeros((_SIGNALS + 1, len(leaf_index)), dtype=np.float32)
    if not len(places):
        return Scores(*empty)
    parts = _parts(leaf_index, sums, vector, _named(leaf_index, asked), places, settings)
    documents = _documents(leaf_index, sums)
    if settings.document and documents is not None:
        parts[-1] = settings.document * documents[_homes(leaf_index, places)] * parts.sum(axis=0)
    total = parts.sum(axis=0)
    best = float(total.max())
    if best > 0:
        empty[:, places] = np.concatenate([total[None], parts]) / best
    ranked = np.argsort(-total, kind="stable")[:_BEST]
    top = places[ranked[total[ranked] > 0]]
    return replace(Scores(*empty), evidence=_evidence(leaf_index, sums, shares, vector, top))


def _evidence(
    leaf_index: LeafIndex, sums: Sums, shares: Sequence[float], vector: NDArray[np.float32], top: Places
) -> Evidence:
    """Returns what speaks for some leaves; ``shares`` are those of the words that occur in the weight of all words."""
    if not len(top):
        return Evidence()
    ((low, high),) = leaf_index.windows.windows_of(np.sort(top), (_NEAR,))
    shared = np.zeros(len(top))
    for share, (_, running) in zip(shares, sums, strict=True):
        shared += share * np.minimum(1.0, _inside(running, low, high))
    cosines = leaf_index.text_rows.vectors_of(top) @ vector
    return Evidence(min(1.0, float(shared.max())), max(0.0, float(cosines.max())))


def _parts(
    leaf_index: LeafIndex,
    sums: Sums,
    vector: NDArray[np.float32],
    named: NDArray[np.float64] | None,
    places: Places,
    settings: Settings,
) -> NDArray[np.float64]:
    """Returns the shares of words, meaning, tree, label and document (the last still 0) for each of some leaves."""
    found, density = leaf_index.windows.of_leaves(places), _density(leaf_index)
    dots = _dots(leaf_index, vector, found) if settings.meaning else None
    home = _homes(leaf_index, places)
    weights = _weights(leaf_index, settings, home)
    own_tokens = settings.label_leaves * _own_tokens(leaf_index)[home]
    parts = np.zeros((_SIGNALS, len(places)))
    for number, scale in enumerate(SCALES):
        weight = weights[number]
        low, high = found.low[number], found.high[number]
        words = settings.words * _words(leaf_index, sums, low, high, number, density)
        meaning = settings.meaning * _meaning(dots, low, high, found.norms[number])
        tree = np.zeros_like(words)
        if settings.tree:
            low, high = found.node_low[number], found.node_high[number]
            tree += settings.words * _words(leaf_index, sums, low, high, number, density)
            tree += settings.meaning * _meaning(dots, low, high, found.node_norms[number])
            tree *= settings.tree
        whole = words + meaning + tree
        steep = weight * whole ** (settings.power - 1)
        parts[0] += steep * words
        parts[1] += steep * meaning
        parts[2] += steep * tree
        if named is not None and settings.label:
            share = np.minimum(1.0, own_tokens / scale)
            boost = 1.0 + settings.label * named[leaf_index.label_of[places]] * share
            parts[3] += steep * whole * (boost**settings.power - 1.0)
    return parts


# --- Words -----------------------------------------------------------------------------------------------------------


def _sums(
    leaf_index: LeafIndex, asked: list[Concept], frequency: Frequency, heading: float
) -> tuple[Sums, list[float]]:
    """Returns the prefix sums of the words that occur, and the share of each in the smoothed weight of all words."""
    found, smoothed = Sums(), list[float]()
    every = 0.0
    for concept in asked:
        own = [_postings(leaf_index, concept.terms, heading)]
        related = ((term, share, *leaf_index.text_rows.of((term,))) for term, share in concept.related)
        others = [each for each in related if len(each[2])]
        having, count = frequency(concept.terms)
        even = smoothed_idf(count, having)
        every += even
        if not len(own[0][0]) and not others:
            continue
        weight = idf(count, having) if len(own[0][0]) else _idf(frequency, others[0][0])
        for term, share, leaves, counts in others:
            own.append((leaves, counts * np.float32(share * min(1.0, _idf(frequency, term) / weight))))
        places, weights = (np.concatenate(parts) for parts in zip(*own, strict=True))
        often = np.bincount(places, weights=weights, minlength=len(leaf_index))
        found.append((weight, np.concatenate([[0.0], np.cumsum(often)])))
        smoothed.append(even)
    return found, [even / every for even in smoothed]


def _idf(frequency: Frequency, term: int) -> float:
    having, count = frequency((term,))
    return idf(count, having)


def _postings(leaf_index: LeafIndex, terms: Sequence[int], heading: float) -> tuple[Ints, Floats]:
    """Returns the leaves that have any of some terms in their text or headings, and how often that counts."""
    leaves, counts = leaf_index.text_rows.of(terms)
    if heading:
        below, times = leaf_index.heading_rows.of(terms)
        if len(below):
            leaves, counts = np.concatenate([leaves, below]), np.concatenate([counts, np.float32(heading) * times])
    return leaves, counts


def frequency_in(leaf_index: LeafIndex, terms: Sequence[int]) -> tuple[int, int]:
    """Returns how many leaves of an index have a word in any of its forms, and how many leaves there are."""
    leaves, _ = leaf_index.text_rows.of(terms)
    below, _ = leaf_index.heading_rows.of(terms)
    if len(terms) == 1 and not len(below):
        having = len(leaves)  # usual, and needs no pass over the leaves
    else:
        having = int(np.count_nonzero(np.bincount(np.concatenate([leaves, below]))))
    return having, len(leaf_index)


def _density(leaf_index: LeafIndex) -> float:
    """Returns how many words a token has, on average."""
    return float(leaf_index.words_before[-1]) / max(float(leaf_index.tokens.sum()), 1.0)


def _words(
    leaf_index: LeafIndex, sums: Sums, low: Places, high: Places, number: int, density: float
) -> NDArray[np.float64]:
    """Returns the BM25 scores of intervals of one scale, divided by the best; ``density`` is the words of a token."""
    found = np.zeros(len(low))
    if not sums:
        return found
    usual = max(density * SCALES[number], float(leaf_index.words_before[-1]) / len(leaf_index), 1.0)
    saturation = _SATURATION[number]
    floor = saturation * (1.0 - _B + _B * _inside(leaf_index.words_before, low, high) / usual)
    for weight, running in sums:
        often = _inside(running, low, high)
        found += weight * often / (often + floor)
    return _best_at_one(found)


def _inside(running: NDArray[np.float64], low: Places, high: Places) -> NDArray[np.float64]:
    return running.take(high) - running.take(low)


def _best_at_one(found: NDArray[np.float64]) -> NDArray[np.float64]:
    best = float(found.max(initial=0.0))
    return found / best if best > 0 else found


# --- Meaning ---------------------------------------------------------------------------------------------------------


def _dots(leaf_index: LeafIndex, vector: NDArray[np.float32], around: Intervals) -> NDArray[np.float64]:
    """Returns prefix sums of the leaves' dot products with the question, weighted by length.

    Only differences within the intervals ``around`` are valid; other products are not computed, to save time.
    """
    marks = np.zeros(len(leaf_index) + 1, dtype=np.int64)
    for low, high in ((around.low, around.high), (around.node_low, around.node_high)):
        marks += np.bincount(low[-1], minlength=len(marks)) - np.bincount(high[-1], minlength=len(marks))
    needed = np.flatnonzero(np.cumsum(marks[:-1]) > 0)
    found = np.zeros(len(leaf_index))
    found[needed] = leaf_index.text_rows.products(needed, vector)
    return np.concatenate([[0.0], np.cumsum(found * np.maximum(leaf_index.lengths, 1.0))])


def _meaning(dots: NDArray[np.float64] | None, low: Places, high: Places, norms: Floats) -> NDArray[np.float64]:
    """Returns the cosines of intervals, negative ones as 0, divided by the best."""
    if dots is None:
        return np.zeros(len(low))
    return _best_at_one(np.maximum(_inside(dots, low, high) / norms, 0.0))


# --- Documents and scales --------------------------------------------------------------------------------------------


def _homes(leaf_index: LeafIndex, places: Places) -> Places:
    return np.searchsorted(leaf_index.starts, places, side="right") - 1


def _own_tokens(leaf_index: LeafIndex) -> NDArray[np.float64]:
    """Returns the mean tokens of a leaf for each document, reduced if its topics last longer than typical."""
    mean = np.diff(leaf_index.tokens_before[leaf_index.starts]) / np.diff(leaf_index.starts)
    return mean * np.minimum(1.0, TYPICAL_REACH / np.maximum(leaf_index.reach.astype(np.float64), 1.0))


def _weights(leaf_index: LeafIndex, settings: Settings, home: Places) -> NDArray[np.float64]:
    """Returns the weight of each scale for the leaves of some documents; the weights of a leaf add up to 1."""
    reach = np.maximum(leaf_index.reach.astype(np.float64), 1.0)
    spoken = np.log(settings.centre) + settings.growth * np.log(reach / TYPICAL_REACH)
    centre = np.where(leaf_index.spoken, spoken, np.log(settings.text_centre))
    whole = np.log(np.maximum(np.diff(leaf_index.tokens_before[leaf_index.starts]), 1.0))
    centre = np.clip(np.minimum(centre, whole), np.log(_SIZES[0]), np.log(_SIZES[-1]))[home]
    bell = np.exp(-((np.log(_SIZES)[:, None] - centre) ** 2) / (2 * settings.spread**2))
    weights: NDArray[np.float64] = bell / bell.sum(axis=0)
    return weights


def _named(leaf_index: LeafIndex, asked: list[Concept]) -> NDArray[np.float64] | None:
    """Returns for each label the share of its words that the question has; ``None`` if it names no label."""
    roots = {concept.stem for concept in asked}
    label_stems = [stems(label) for label in leaf_index.labels]
    shares = np.array([len(words & roots) / max(1, len(words)) for words in label_stems])
    return shares if shares.any() else None


def _documents(leaf_index: LeafIndex, sums: Sums) -> NDArray[np.float64] | None:
    """Returns how well each document has the question's words, from 0 to 1; ``None`` if there is only one document.

    It is the BM25 score of the whole document as a share of the most that one could have: 1 for a document that alone
    has all words, often; near 0 for all documents if most have the words, since then these say nothing about which
    document is meant. The inverse document frequencies are those among the documents of the index.
    """
    count = len(leaf_index.starts) - 1
    if count <= 1 or not sums:
        return None
    lengths = np.diff(leaf_index.words_before[leaf_index.starts])
    longer = np.minimum(lengths / max(float(lengths.mean()), 1.0), _MOST_LONGER)
    floor = 1.2 * (0.25 + 0.75 * longer)
    found = np.zeros(count)
    for _, running in sums:
        often = np.diff(running[leaf_index.starts])
        having = int(np.count_nonzero(often > 0))
        found += np.log1p((count - having + 0.5) / (having + 0.5)) * often / (often + floor)
    return found / (len(sums) * float(np.log1p((count - 0.5) / 1.5)))


# --- Candidates ------------------------------------------------------------------------------------------------------


def _candidates(
    leaf_index: LeafIndex,
    sums: Sums,
    vector: NDArray[np.float32],
    admitted: NDArray[np.bool_] | None,
    settings: Settings,
) -> Places:
    """Returns the leaves to score fully, in document order: those of the best steps (runs of `_STEP` leaves).

    The score of a step is that of its best single leaf, so that a document of one leaf is not missed, plus that of the
    windows around its middle.
    """
    every = np.arange(len(leaf_index)) if admitted is None else np.flatnonzero(admitted)
    if len(every) <= settings.candidates:
        return every
    steps = -(-len(leaf_index) // _STEP)
    alone = np.zeros(steps * _STEP)
    alone[every] = (_alone(sums) if sums else _cosines(leaf_index, vector))[every]
    total = _best_at_one(alone.reshape(steps, _STEP).max(axis=1))
    if sums:
        places = np.minimum(np.arange(steps) * _STEP + _STEP // 2, len(leaf_index) - 1)
        weights, around = _weights(leaf_index, settings, _homes(leaf_index, places)), np.zeros(steps)
        density = _density(leaf_index)
        for number, (low, high) in zip(_COARSE, leaf_index.windows.windows_of(places, _COARSE), strict=True):
            around += weights[number] * _words(leaf_index, sums, low, high, number, density) ** settings.power
        total += _best_at_one(around)
    possible = np.bincount(every // _STEP, minlength=steps) > 0
    best = np.argpartition(-np.where(possible, total, -1.0), settings.candidates // _STEP)
    chosen = np.zeros(steps, dtype=bool)
    chosen[best[: settings.candidates // _STEP]] = True
    return every[chosen[every // _STEP]]


def _cosines(leaf_index: LeafIndex, vector: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the cosine of each leaf with the question; negative ones as 0."""
    found = leaf_index.text_rows.products(np.arange(len(leaf_index)), vector)
    return np.maximum(found.astype(np.float64), 0.0)


def _alone(sums: Sums) -> NDArray[np.float64]:
    """Returns a score of each leaf by its own words only."""
    found = np.zeros(len(sums[0][1]) - 1)
    for weight, running in sums:
        often = np.diff(running)
        found += weight * often / (often + 1.0)
    return found
