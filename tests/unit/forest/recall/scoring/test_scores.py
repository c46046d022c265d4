"""Scores of leaves: they equal a plain computation, documents are independent, and each signal has its effect."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.index.terms import term_id
from numpy.typing import NDArray

from memotree.forest.recall.scoring.leaf_index import LeafIndex, concatenate, leaf_features, make_leaf_index
from memotree.forest.recall.scoring.query_words import concepts
from memotree.forest.recall.scoring.related_words import RelatedWords
from memotree.forest.recall.scoring.scores import DEFAULT, score
from memotree.forest.recall.scoring.stemming import forms, stem
from memotree.forest.recall.scoring.windows import SCALES, TYPICAL_REACH

DIMENSIONS = 8
WORDS = ("harbour", "lantern", "meadow", "copper", "violin", "glacier", "the", "and")
FILLER = "and then " * 12

texts = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
forests = st.lists(st.lists(texts, min_size=1, max_size=12), min_size=1, max_size=4)
questions = st.lists(st.sampled_from(WORDS[:6]), max_size=4).map(" ".join)


def vectors(count: int, seed: int = 0, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    found = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    unit: NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def index_of(
    documents: Sequence[Sequence[str]],
    *,
    labels: Sequence[str] | None = None,
    headings: Sequence[Sequence[str]] | None = None,
) -> LeafIndex:
    flat = [text for document in documents for text in document]
    starts = np.cumsum([0, *(len(document) for document in documents)])[:-1].tolist()
    features = leaf_features(flat, vectors(len(flat)))
    return make_leaf_index(features, starts, halves(documents), labels, headings=headings)


def halves(documents: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """A binary tree over each document, including its root."""
    found, at = [], 0
    for document in documents:
        waiting = [(at, at + len(document))]
        while waiting:
            low, high = waiting.pop()
            if high - low > 1:
                found.append((low, high))
                waiting += [(low, (low + high) // 2), ((low + high) // 2, high)]
        at += len(document)
    return found


# --- The plain way ---------------------------------------------------------------------------------------------------


def around(tokens: Sequence[int], place: int, scale: float, low: int, high: int) -> tuple[int, int]:
    """The leaves completely within half the scale of a leaf's middle; at the first scale the leaf itself."""
    if scale == SCALES[0]:
        return place, place + 1
    edges = np.concatenate([[0], np.cumsum(tokens)])
    middle = (edges[place] + edges[place + 1]) / 2
    inside = [
        each
        for each in range(low, high)
        if each == place or (edges[each] >= middle - scale / 2 and edges[each + 1] <= middle + scale / 2)
    ]
    return inside[0], inside[-1] + 1


def within(nodes: Sequence[tuple[int, int]], tokens: Sequence[int], place: int, scale: float) -> tuple[int, int]:
    """The largest node above a leaf (or the leaf itself) that is within the scale."""
    fitting = [node for node in nodes if node[0] <= place < node[1] and sum(tokens[slice(*node)]) <= scale]
    fitting = [] if scale == SCALES[0] else fitting
    return max(fitting, key=lambda node: node[1] - node[0], default=(place, place + 1))


def plainly(
    documents: Sequence[Sequence[str]],
    question: str,
    vector: NDArray[np.float32],
    spoken: Sequence[bool],
    headings: Sequence[Sequence[str]],
) -> NDArray[np.float64]:
    """The scores without labels and whole documents, computed for each interval."""
    flat = [text for document in documents for text in document]
    home = [number for number, document in enumerate(documents) for _ in document]
    features = leaf_features(flat, vectors(len(flat)))
    tokens, lengths = features.tokens.tolist(), features.lengths.tolist()
    bags = [
        {word: text.split().count(word) + DEFAULT.heading * (word in " ".join(above).split()) for word in WORDS}
        for text, above in zip(flat, headings, strict=True)
    ]
    asked = [word for word in dict.fromkeys(question.split()) if any(bag[word] for bag in bags)]
    having = {word: sum(1 for bag in bags if bag[word]) for word in asked}
    idf = {word: math.log1p((len(flat) - having[word] + 0.5) / (having[word] + 0.5)) for word in asked}
    borders = {number: (home.index(number), len(home) - home[::-1].index(number)) for number in home}
    weighted = features.vectors * np.maximum(features.lengths, 1)[:, None]
    nodes = halves(documents)
    reach = index_of(documents).reach.astype(float)
    result = np.zeros(len(flat))
    bells = np.zeros((len(SCALES), len(flat)))

    def words(span: tuple[int, int], number: int) -> float:
        per_token = sum(lengths) / max(sum(tokens), 1)
        usual = max(per_token * SCALES[number], sum(lengths) / len(flat), 1)
        k1 = 0.8 + SCALES[number] / 800
        floor = k1 * (0.6 + 0.4 * sum(lengths[slice(*span)]) / usual)
        often = {word: sum(bag[word] for bag in bags[slice(*span)]) for word in asked}
        return math.fsum(idf[word] * often[word] / (often[word] + floor) for word in asked)

    def meaning(span: tuple[int, int]) -> float:
        total = weighted[slice(*span)].sum(axis=0)
        return max(float(total @ vector) / max(float(np.linalg.norm(total)), 1e-6), 0.0)

    for number, scale in enumerate(SCALES):
        windows = [around(tokens, place, scale, *borders[home[place]]) for place in range(len(flat))]
        trees = [
            within(nodes, tokens, place, scale) if len(documents[home[place]]) > 1 else windows[place]
            for place in range(len(flat))
        ]
        trees = [
            window if 2 * sum(tokens[slice(*node)]) < sum(tokens[slice(*window)]) else node
            for node, window in zip(trees, windows, strict=True)
        ]
        parts = []
        for spans in (windows, trees):
            parts += [np.array([words(span, number) for span in spans]), np.array([meaning(span) for span in spans])]
        one, two, three, four = (part / part.max() if part.max() > 0 else part for part in parts)
        grown = np.log(DEFAULT.centre) + DEFAULT.growth * np.log(np.maximum(reach, 1) / TYPICAL_REACH)
        sizes = [max(sum(tokens[slice(*borders[each])]), 1) for each in range(len(documents))]
        centre = np.minimum(np.where(spoken, grown, np.log(DEFAULT.text_centre)), np.log(sizes))
        centre = np.clip(centre, np.log(SCALES[0]), np.log(SCALES[-1]))[home]
        bells[number] = np.exp(-((np.log(scale) - centre) ** 2) / (2 * DEFAULT.spread**2))
        whole = one + DEFAULT.meaning * two + DEFAULT.tree * (three + DEFAULT.meaning * four)
        result += bells[number] * whole**DEFAULT.power
    result /= bells.sum(axis=0)
    return result / result.max() if result.max() > 0 else result


@given(forests, questions, st.data())
def test_prefix_sums_give_the_same_scores_as_counting_each_interval(
    documents: list[list[str]], question: str, data: st.DataObject
) -> None:
    vector = vectors(1, seed=1)[0]
    settings = replace(DEFAULT, label=0, document=0)
    spoken = data.draw(st.lists(st.booleans(), min_size=len(documents), max_size=len(documents)))
    labels = [
        "Ann" if is_spoken else "" for is_spoken, document in zip(spoken, documents, strict=True) for _ in document
    ]
    headings = data.draw(st.lists(st.lists(texts, max_size=2), min_size=len(labels), max_size=len(labels)))
    found = score(index_of(documents, labels=labels, headings=headings), question, vector, settings=settings)
    expected = plainly(documents, question, vector, spoken, headings)
    assert found.total == pytest.approx(expected, abs=2e-3)


# --- Leaf indexes ----------------------------------------------------------------------------------------------------


@given(forests)
def test_no_window_and_no_node_crosses_a_document(documents: list[list[str]]) -> None:
    indexed = index_of(documents)
    place = np.arange(len(indexed))
    home = np.searchsorted(indexed.starts, place, side="right") - 1
    found = indexed.windows.of_leaves(place)
    for low, high in ((found.low, found.high), (found.node_low, found.node_high)):
        assert ((low <= place) & (low >= indexed.starts[home])).all()
        assert ((high > place) & (high <= indexed.starts[home + 1])).all()


def test_if_merging_ended_early_the_window_is_used_instead_of_the_node() -> None:
    flat = [FILLER] * 40
    made = make_leaf_index(leaf_features(flat, vectors(len(flat))), [0], [(0, 2)])
    found = made.windows.of_leaves(np.arange(len(flat)))
    assert found.node_low[-1].tolist() == found.low[-1].tolist()
    assert found.node_high[-1].tolist() == found.high[-1].tolist()
    assert (found.node_low[1, 0], found.node_high[1, 0]) == (0, 2)


@given(forests)
def test_joined_leaf_indexes_equal_the_index_of_all_documents(documents: list[list[str]]) -> None:
    headings = [[text, "copper"] for document in documents for text in document]
    labels = ["Ann" if number % 2 else "" for number, document in enumerate(documents) for _ in document]
    whole = index_of(documents, labels=labels, headings=headings)
    parts, at = [], 0
    for document in documents:
        part = slice(at, at + len(document))
        features = leaf_features(document, whole.vectors[part])
        parts.append(make_leaf_index(features, (0,), halves([document]), labels[part], headings=headings[part]))
        at += len(document)
    joined = concatenate(parts, DIMENSIONS)
    for name in ("starts", "tokens", "tokens_before", "words_before", "spoken"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name
    for postings in ("text", "headings"):
        for name in ("terms", "bounds", "leaves", "counts"):
            one, other = (getattr(getattr(index, postings), name) for index in (joined, whole))
            assert np.array_equal(one, other), (postings, name)
    every = np.arange(len(whole))
    assert np.array_equal(joined.windows.offsets.take(every), whole.windows.offsets.take(every))
    for one, other in (
        (joined.windows.norms.take(every), whole.windows.norms.take(every)),
        (joined.reach, whole.reach),
    ):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-3)


def test_topics_of_long_stretches_reach_further_than_those_of_short_ones() -> None:
    topics = vectors(64, dimensions=256)
    text = ["word " * 20] * 128
    short = make_leaf_index(leaf_features(text, topics[np.arange(128) // 2]))
    long = make_leaf_index(leaf_features(text, topics[np.arange(128) // 16]))
    assert long.reach[0] > 2 * short.reach[0]
    assert not len(score(concatenate([], DIMENSIONS), "harbour", vectors(1)[0]).total), "no leaf has no score"


# --- Signals ---------------------------------------------------------------------------------------------------------


@given(forests, questions)
def test_the_signals_add_up_and_the_best_leaf_has_one(documents: list[list[str]], question: str) -> None:
    found = score(index_of(documents), question, vectors(1, seed=1)[0])
    together = found.words + found.meaning + found.tree + found.label + found.document
    assert together == pytest.approx(found.total, abs=1e-5)
    assert found.total.max() == pytest.approx(1) or not found.total.any()


@given(forests, questions, st.data())
def test_only_admitted_leaves_have_scores(documents: list[list[str]], question: str, data: st.DataObject) -> None:
    whole = index_of(documents)
    admitted = np.array(data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole))), dtype=bool)
    found = score(whole, question, vectors(1, seed=1)[0], admitted=admitted)
    assert not found.total[~admitted].any()


@pytest.mark.parametrize("signal", ["words", "meaning", "tree", "document"])
def test_a_signal_that_is_switched_off_adds_nothing(signal: str) -> None:
    index = index_of([["harbour lantern", "copper", "violin harbour"], ["meadow", "harbour"]])
    vector, without = vectors(1, seed=1)[0], replace(DEFAULT, **{signal: 0})  # type: ignore[arg-type]
    assert getattr(score(index, "harbour", vector), signal).any()
    assert not getattr(score(index, "harbour", vector, settings=without), signal).any()


def test_the_leaf_of_a_speaker_whom_the_question_names_comes_first() -> None:
    documents = [["I bought a violin", FILLER * 4, FILLER * 4, FILLER * 4, "I bought a violin"]]
    labels = ["Ada", "Ada", "Ben", "Ada", "Ben"]
    settings = replace(DEFAULT, meaning=0)
    found = score(index_of(documents, labels=labels), "What did Ben buy?", vectors(1)[0], settings=settings)
    assert int(np.argmax(found.total)) == 4
    assert found.label[4] > 0
    assert not found.label[0]


def test_the_best_of_very_short_leaves_comes_first() -> None:
    documents = [["Ada likes tea", "Ben likes rye", "Eva has a cat", "Ira plays chess", "Ada was in Rome"]]
    found = score(index_of(documents), "Who has a cat?", vectors(1)[0], settings=replace(DEFAULT, meaning=0))
    assert int(np.argmax(found.total)) == 2
    assert (found.total[2] > np.delete(found.total, 2)).all()


def test_a_leaf_is_found_by_words_of_its_note() -> None:
    features = leaf_features(["hello", FILLER, FILLER, "hello"], vectors(4))
    noted = make_leaf_index(features, notes=["3 March 2021", "", "", "5 August 2022"])
    found = score(noted, "August", vectors(1)[0], settings=replace(DEFAULT, meaning=0))
    assert int(np.argmax(found.total)) == 3


def test_a_leaf_is_found_by_a_heading_above_it_and_better_by_its_own_words() -> None:
    features = leaf_features([FILLER, "harbour " + FILLER, FILLER], vectors(3))
    settings = replace(DEFAULT, meaning=0, text_centre=1.0, spread=0.1)
    headed = make_leaf_index(features, headings=[["The harbour"], [], []])
    found = score(headed, "harbour", vectors(1)[0], settings=settings)
    assert found.total[1] > found.total[0] > found.total[2]
    without = score(headed, "harbour", vectors(1)[0], settings=replace(settings, heading=0))
    assert without.total[0] < 1e-6


def test_the_neighbours_of_a_note_do_not_count_and_those_of_a_turn_do() -> None:
    flat = [FILLER, "harbour", FILLER]
    notes = make_leaf_index(leaf_features(flat, vectors(3)), range(3))
    turns = make_leaf_index(leaf_features(flat, vectors(3)), labels=["Ada", "Ben", "Ada"])
    settings = replace(DEFAULT, meaning=0)
    assert score(notes, "harbour", vectors(1)[0], settings=settings).total.tolist() == [0, 1, 0]
    assert score(turns, "harbour", vectors(1)[0], settings=settings).total.all()


def test_a_word_that_every_document_has_says_nothing_about_which_is_meant() -> None:
    documents = [["harbour copper"], ["harbour"], ["harbour"], ["harbour"]]
    found = score(index_of(documents), "harbour", vectors(1)[0], settings=replace(DEFAULT, meaning=0))
    assert (found.document < 0.4 * found.total).all()
    rare = score(index_of(documents), "copper", vectors(1)[0], settings=replace(DEFAULT, meaning=0))
    assert rare.document[0] > 0.5


def test_a_word_is_found_in_its_other_forms() -> None:
    documents = [["she was painting", FILLER, "they went home", FILLER, "a good discussion"]]
    settings = replace(DEFAULT, meaning=0, tree=0)
    whole = index_of(documents)
    assert int(np.argmax(score(whole, "Who painted?", vectors(1)[0], settings=settings).total)) == 0
    assert [concept.stem for concept in concepts("When did Ada's children go swimming?")] == ["ada", "child", "swim"]
    (city,) = concepts("\u0141\u00f3d\u017a")
    assert {term_id("lodz"), term_id("\u0142odz")} <= set(city.terms), "the second is that of an earlier index"


@given(st.sampled_from(["paint", "painted", "happily", "discussion", "went", "children", "plans", "go", "8", "été"]))
def test_forms_share_their_stem_and_a_word_is_its_own_first_form(word: str) -> None:
    assert forms(word)[0] == word
    assert {stem(form) for form in forms(word)} == {stem(word)}
    assert "plane" not in forms("plan")
    assert "wants" in forms("wanted")
    assert "gone" in forms("went")


def test_a_word_of_similar_meaning_is_found_but_counts_less() -> None:
    near = np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    related = RelatedWords(["computer", "laptop", "garden"], near)
    assert [(word, round(cosine, 3)) for word, cosine in related("computer")] == [("laptop", 0.8)]
    assert related("unheard") == ()
    documents = [["my laptop broke", FILLER * 20, FILLER * 20, "my computer broke"]]
    settings = replace(DEFAULT, meaning=0, tree=0)
    alone = score(index_of(documents), "computer", vectors(1)[0], settings=settings)
    found = score(index_of(documents), "computer", vectors(1)[0], related=related, settings=settings)
    assert alone.total[0] < found.total[0] < found.total[3]


def test_the_coarse_preselection_keeps_the_best_leaves() -> None:
    rng = np.random.default_rng(3)
    documents = [[" ".join(rng.choice(WORDS[:3], 6)) for _ in range(100)] for _ in range(20)]
    for number, place in ((7, 40), (7, 43), (12, 90)):
        documents[number][place] = "violin glacier copper"
    whole, vector, exact = index_of(documents), vectors(1, seed=1)[0], replace(DEFAULT, meaning=0)
    found = score(whole, "violin glacier", vector, settings=exact).total
    coarse = score(whole, "violin glacier", vector, settings=replace(exact, candidates=400)).total
    assert int(np.count_nonzero(coarse)) <= 400
    best = np.argsort(-found, kind="stable")[:20]
    assert coarse[best] == pytest.approx(found[best], abs=1e-3)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_the_coarse_preselection_skips_no_document_of_one_leaf(before: int) -> None:
    prose = [[FILLER + "meadow copper violin glacier"] * 300]
    index = index_of([*prose, *[["a note about nothing"]] * before, ["Foxes den in banks."], *prose])
    found = score(index, "where do foxes den", vectors(1)[0], settings=replace(DEFAULT, candidates=16))
    assert int(np.argmax(found.total)) == 300 + before


def test_the_coarse_preselection_without_known_words_uses_meaning() -> None:
    documents = [[f"{word} {number}" for number in range(100)] for word in WORDS[:6]]
    whole = index_of(documents)
    found = score(whole, "unheard", whole.vectors[322], settings=replace(DEFAULT, candidates=40))
    assert 0 < np.count_nonzero(found.total) <= 44


def test_words_weigh_less_if_most_of_the_question_occurs_nowhere() -> None:
    whole = index_of([[f"{word} stands here alone" for word in WORDS[:6]]])
    nowhere = " ".join(f"unheard{letter}" for letter in "abcdefghij")
    for question, first in ((WORDS[1], 1), (f"{WORDS[1]} {nowhere}", 4)):
        assert int(np.argmax(score(whole, question, whole.vectors[4]).total)) == first, question
