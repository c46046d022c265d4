"""How well each leaf answers a question, from its own text and from what stands around it, at every scale at once.

1. At each scale the window around a leaf, and the node of the tree that holds it, are scored as one text each: by the
   question's words (BM25: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) and by the cosine of
   vectors. Each signal is divided by its best in the grove, so that scales and signals can be added.
2. How much a scale counts depends on the document. Where topics change every few turns, small windows tell the place;
   where one topic fills pages, a single turn says little and a window of pages says much. The weights are a bell over
   the logarithm of the scale, around the reach of the document's topics (see `scales.reach`), which its vectors tell.
3. A leaf whose label (such as its speaker) the question names counts more: at scales of few leaves, and less where one
   topic lasts long, for there the others speak to it too.
4. The score of its whole document is added, which matters when there are many.

A big grove is first looked at coarsely, by the words of each leaf and of windows in steps of several leaves, to choose
the candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.leaf_index import LeafIndex
from memotree.forest.recall.scoring.query_words import Concept, Related, concepts, stems
from memotree.forest.recall.scoring.windows import SCALES, TYPICAL_REACH, Floats, Ints

_B: Final = 0.4
_STEP: Final = 4
"""Leaves in a step of the coarse look."""

_COARSE: Final = (1, 3, 4)
"""Numbers of the scales of the coarse look."""

_SIZES: Final = np.array(SCALES, dtype=np.float64)
_SATURATION: Final = 0.8 + _SIZES / 800.0
"""BM25's k1 by scale: in a long text more occurrences of a word still tell something."""

Idf: TypeAlias = Callable[[Sequence[int]], float]
"""How much it tells that a text has a word, given by the ids of its forms: an inverse document frequency above 0."""

Places: TypeAlias = NDArray[np.int64]
Sums: TypeAlias = list[tuple[float, NDArray[np.float64]]]
"""For each concept its weight, and the running sum of how often the leaves have it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How signals are weighed; 0 switches one off.

    Attributes:
        words: The share of words.
        meaning: The share of vectors beside it.
        tree: What nodes of the tree add to the windows.
        label: How much more a leaf counts whose label the question names.
        label_leaves: Up to windows of so many leaves it counts in full, where topics have the typical reach or less.
        document: What the score of the whole document adds, as a share of the best leaf's score.
        centre: The scale that counts most, in tokens, where topics have the typical reach.
        growth: How that scale grows with the reach: the exponent of a power law.
        spread: The width of the bell, in natural logarithms of the scale.
        power: The power that a scale's score is raised to before scales are added: one good scale outweighs several
            fair ones.
        candidates: The most leaves that are looked at closely.
    """

    words: float = 1.0
    meaning: float = 0.4
    tree: float = 0.3
    label: float = 0.8
    label_leaves: float = 6.0
    document: float = 0.3
    centre: float = 270.0
    growth: float = 1.5
    spread: float = 1.0
    power: float = 3.0
    candidates: int = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of each leaf of a grove, the best at 1, and what each signal has in it: they add up to the total.

    Attributes:
        total: The score; 0 of a leaf that was not looked at closely.
        words: By the question's words in windows.
        meaning: By vectors of windows.
        tree: By words and vectors of nodes.
        label: By the label that the question names.
        document: By the whole document.
    """

    total: Floats
    words: Floats
    meaning: Floats
    tree: Floats
    label: Floats
    document: Floats


DEFAULT: Final = Settings()


def score(
    leaf_index: LeafIndex,
    question: str,
    vector: NDArray[np.float32],
    *,
    admitted: NDArray[np.bool_] | None = None,
    related: Related | None = None,
    idf: Idf | None = None,
    settings: Settings = DEFAULT,
) -> Scores:
    """Score the leaves of a grove; takes milliseconds, so call it in a thread.

    Args:
        leaf_index: The leaves.
        question: The question.
        vector: Its embedding, a unit vector.
        admitted: Which leaves may be found; all when it is missing. Others still count as surroundings.
        related: Knows words of a similar meaning.
        idf: Tells how rare a word is; the grove itself does when it is missing. One document alone knows little of
            which of its words are rare.
        settings: The weights.
    """
    asked = concepts(question, related)
    sums = _sums(leaf_index, asked, idf or partial(idf_in, leaf_index)) if settings.words else []
    weights = _weights(leaf_index, settings)
    places = _candidates(leaf_index, sums, vector, admitted, weights, settings)
    empty = np.zeros((len(Scores.__slots__), len(leaf_index)), dtype=np.float32)
    if not len(places):
        return Scores(*empty)
    parts = _parts(leaf_index, sums, vector, weights, _named(leaf_index, asked), places, settings)
    documents = _documents(leaf_index, sums)
    if settings.document and documents is not None:
        parts[-1] = settings.document * parts.sum(axis=0).max() * documents[_homes(leaf_index, places)]
    total = parts.sum(axis=0)
    best = float(total.max())
    if best > 0:
        empty[:, places] = np.concatenate([total[None], parts]) / best
    return Scores(*empty)


def _parts(
    leaf_index: LeafIndex,
    sums: Sums,
    vector: NDArray[np.float32],
    weights: NDArray[np.float64],
    named: NDArray[np.float64] | None,
    places: Places,
    settings: Settings,
) -> NDArray[np.float64]:
    """What words, meaning, tree, label and document add to the score of each place; the last is left at 0."""
    dots = _dots(leaf_index, vector, places) if settings.meaning else None
    home = _homes(leaf_index, places)
    own_tokens = settings.label_leaves * _own_tokens(leaf_index)[home]
    parts = np.zeros((len(fields(Scores)) - 1, len(places)))
    for number, scale in enumerate(SCALES):
        weight = weights[number, home]
        low, high = _places(leaf_index.low, number, places), _places(leaf_index.high, number, places)
        words = settings.words * _words(leaf_index, sums, low, high, number)
        meaning = settings.meaning * _meaning(dots, low, high, leaf_index.norms[number, places])
        tree = np.zeros_like(words)
        if settings.tree:
            low, high = _places(leaf_index.node_low, number, places), _places(leaf_index.node_high, number, places)
            tree += settings.words * _words(leaf_index, sums, low, high, number)
            tree += settings.meaning * _meaning(dots, low, high, leaf_index.node_norms[number, places])
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


def _sums(leaf_index: LeafIndex, asked: list[Concept], idf: Idf) -> Sums:
    found: Sums = []
    for concept in asked:
        leaves, counts = _postings(leaf_index, concept.terms)
        others = [(term, share) for term, share in concept.related if _has(leaf_index, term)]
        if not len(leaves) and not others:
            continue
        weight = idf(concept.terms if len(leaves) else (others[0][0],))
        places, weights = [leaves], [counts]
        for term, share in others:
            leaves, counts = _postings(leaf_index, (term,))
            places.append(leaves)
            weights.append(counts * np.float32(share * min(1.0, idf((term,)) / weight)))
        own = np.bincount(np.concatenate(places), weights=np.concatenate(weights), minlength=len(leaf_index))
        found.append((weight, np.concatenate([[0.0], np.cumsum(own)])))
    return found


def _postings(leaf_index: LeafIndex, terms: tuple[int, ...]) -> tuple[Ints, Floats]:
    """The leaves that have any of some terms, with how often; one leaf may stand there several times."""
    wanted = np.array(terms, dtype=np.uint32)
    number = np.searchsorted(leaf_index.terms, wanted)
    known = number[number < len(leaf_index.terms)]
    known = known[leaf_index.terms[known] == wanted[number < len(leaf_index.terms)]]
    parts = [slice(leaf_index.bounds[each], leaf_index.bounds[each + 1]) for each in known]
    if not parts:
        return leaf_index.postings[:0], leaf_index.counts[:0]
    return np.concatenate([leaf_index.postings[part] for part in parts]), np.concatenate(
        [leaf_index.counts[part] for part in parts]
    )


def _has(leaf_index: LeafIndex, term: int) -> bool:
    number = int(np.searchsorted(leaf_index.terms, np.uint32(term)))
    return number < len(leaf_index.terms) and int(leaf_index.terms[number]) == term


def idf_in(leaf_index: LeafIndex, terms: Sequence[int]) -> float:
    """BM25's inverse document frequency of a word in all its forms, among the leaves of a grove."""
    leaves, _ = _postings(leaf_index, tuple(terms))
    having = len(leaves) if len(terms) == 1 else int(np.count_nonzero(np.bincount(leaves)))
    return float(np.log1p((len(leaf_index) - having + 0.5) / (having + 0.5)))


def _words(leaf_index: LeafIndex, sums: Sums, low: Places, high: Places, number: int) -> NDArray[np.float64]:
    """BM25 of intervals of one scale, the best at 1."""
    found = np.zeros(len(low))
    if not sums:
        return found
    total = float(leaf_index.words_before[-1])
    usual = max(total / max(float(leaf_index.tokens.sum()), 1.0) * SCALES[number], total / len(leaf_index), 1.0)
    saturation = _SATURATION[number]
    floor = saturation * (1.0 - _B + _B * _inside(leaf_index.words_before, low, high) / usual)
    for idf, running in sums:
        often = _inside(running, low, high)
        found += idf * often / (often + floor)
    return _best_at_one(found)


def _places(borders: Ints, number: int, places: Places) -> Places:
    """The borders of intervals of one scale, as numpy takes by them fastest."""
    found: Places = borders[number].take(places).astype(np.int64)
    return found


def _inside(running: NDArray[np.float64], low: Places, high: Places) -> NDArray[np.float64]:
    return running.take(high) - running.take(low)


def _best_at_one(found: NDArray[np.float64]) -> NDArray[np.float64]:
    best = float(found.max(initial=0.0))
    return found / best if best > 0 else found


# --- Meaning ---------------------------------------------------------------------------------------------------------


def _dots(leaf_index: LeafIndex, vector: NDArray[np.float32], places: Places) -> NDArray[np.float64]:
    """The running sum of the leaves' products with the question, right inside all intervals of some places."""
    marks = np.zeros(len(leaf_index) + 1, dtype=np.int64)
    for low, high in ((leaf_index.low, leaf_index.high), (leaf_index.node_low, leaf_index.node_high)):
        marks += np.bincount(low[-1, places], minlength=len(marks)) - np.bincount(
            high[-1, places], minlength=len(marks)
        )
    edges = np.flatnonzero(np.diff(np.concatenate([[False], np.cumsum(marks[:-1]) > 0, [False]])))
    found = np.zeros(len(leaf_index))
    for start, end in edges.reshape(-1, 2).tolist():
        found[start:end] = leaf_index.vectors[start:end] @ vector
    return np.concatenate([[0.0], np.cumsum(found * np.maximum(leaf_index.lengths, 1.0))])


def _meaning(dots: NDArray[np.float64] | None, low: Places, high: Places, norms: Floats) -> NDArray[np.float64]:
    """The cosines of intervals, none below 0, the best at 1."""
    if dots is None:
        return np.zeros(len(low))
    return _best_at_one(np.maximum(_inside(dots, low, high) / norms, 0.0))


# --- Documents and scales --------------------------------------------------------------------------------------------


def _homes(leaf_index: LeafIndex, places: Places) -> Places:
    return np.searchsorted(leaf_index.starts, places, side="right") - 1


def _own_tokens(leaf_index: LeafIndex) -> NDArray[np.float64]:
    """For each document how many tokens one leaf speaks for: its mean size, less where topics outlast the typical."""
    running = np.concatenate([[0.0], np.cumsum(leaf_index.tokens, dtype=np.float64)])
    mean = np.diff(running[leaf_index.starts]) / np.diff(leaf_index.starts)
    return mean * np.minimum(1.0, TYPICAL_REACH / np.maximum(leaf_index.reach.astype(np.float64), 1.0))


def _weights(leaf_index: LeafIndex, settings: Settings) -> NDArray[np.float64]:
    """For each scale and document how much the scale counts; they add up to 1 for a document."""
    reach = np.maximum(leaf_index.reach.astype(np.float64), 1.0)
    centre = np.log(settings.centre) + settings.growth * np.log(reach / TYPICAL_REACH)
    centre = np.clip(centre, np.log(_SIZES[0]), np.log(_SIZES[-1]))
    bell = np.exp(-((np.log(_SIZES)[:, None] - centre) ** 2) / (2 * settings.spread**2))
    weights: NDArray[np.float64] = bell / bell.sum(axis=0)
    return weights


def _named(leaf_index: LeafIndex, asked: list[Concept]) -> NDArray[np.float64] | None:
    """For each label which share of its words the question has; ``None`` when it names none of them."""
    roots = {concept.stem for concept in asked}
    own = [stems(label) for label in leaf_index.labels]
    shares = np.array([len(each & roots) / max(1, len(each)) for each in own])
    return shares if shares.any() else None


def _documents(leaf_index: LeafIndex, sums: Sums) -> NDArray[np.float64] | None:
    """BM25 of whole documents, words rare among documents, the best at 1; ``None`` when there is nothing to compare."""
    count = len(leaf_index.starts) - 1
    if count <= 1 or not sums:
        return None
    lengths = np.diff(leaf_index.words_before[leaf_index.starts])
    floor = 1.2 * (0.25 + 0.75 * lengths / max(float(lengths.mean()), 1.0))
    found = np.zeros(count)
    for _, running in sums:
        often = np.diff(running[leaf_index.starts])
        having = int(np.count_nonzero(often > 0))
        found += np.log1p((count - having + 0.5) / (having + 0.5)) * often / (often + floor)
    return _best_at_one(found)


# --- Candidates ------------------------------------------------------------------------------------------------------


def _candidates(
    leaf_index: LeafIndex,
    sums: Sums,
    vector: NDArray[np.float32],
    admitted: NDArray[np.bool_] | None,
    weights: NDArray[np.float64],
    settings: Settings,
) -> Places:
    """The leaves to look at closely, in document order: in the best steps of several leaves.

    A step is as good as the best of its leaves by itself, so that a document of one leaf is not passed over, and as the
    windows around its middle.
    """
    every = np.arange(len(leaf_index)) if admitted is None else np.flatnonzero(admitted)
    if len(every) <= settings.candidates:
        return every
    steps = -(-len(leaf_index) // _STEP)
    alone = np.zeros(steps * _STEP)
    alone[every] = (_alone(sums) if sums else np.maximum(leaf_index.vectors @ vector, 0.0))[every]
    total = _best_at_one(alone.reshape(steps, _STEP).max(axis=1))
    if sums:
        places = np.minimum(np.arange(steps) * _STEP + _STEP // 2, len(leaf_index) - 1)
        home, around = _homes(leaf_index, places), np.zeros(steps)
        for number in _COARSE:
            low, high = _places(leaf_index.low, number, places), _places(leaf_index.high, number, places)
            around += weights[number, home] * _words(leaf_index, sums, low, high, number) ** settings.power
        total += _best_at_one(around)
    possible = np.bincount(every // _STEP, minlength=steps) > 0
    best = np.argpartition(-np.where(possible, total, -1.0), settings.candidates // _STEP)
    chosen = np.zeros(steps, dtype=bool)
    chosen[best[: settings.candidates // _STEP]] = True
    return every[chosen[every // _STEP]]


def _alone(sums: Sums) -> NDArray[np.float64]:
    """What the words of each leaf by itself tell."""
    found = np.zeros(len(sums[0][1]) - 1)
    for idf, running in sums:
        often = np.diff(running)
        found += idf * often / (often + 1.0)
    return found
