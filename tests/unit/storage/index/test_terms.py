"""Terms: which ones a search finds, and their weights."""

import random
import re
import unicodedata
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.index import terms as module
from memotree_storage.index.node_text import NodeText
from memotree_storage.index.query_weights import max_score, relative_score, term_weights
from memotree_storage.index.rarity import idf, smoothed_idf
from memotree_storage.index.terms import (
    AVERAGE_LENGTH,
    K1,
    MAX_QUERY_TERMS,
    MAX_TERM_CHARS,
    TITLE_BOOST,
    count_terms,
    document_terms,
    earlier_terms,
    fold,
    fold_as_before,
    query_terms,
    term_id,
    tokens_of,
    words_of,
)
from memotree_storage.model.normal_form import MOST_MARKS
from memotree_storage.ports import TermVector
from steps import LINEAR, growth, sorted_marks

SEARCH = "\u4e2d\u6587\u641c\u7d22"


def terms(text: str) -> list[str]:
    return [term for term, _, _ in tokens_of(text)]


def asked(query: str) -> list[str]:
    return [term.term for term in query_terms(query)]


def content(text: str) -> TermVector:
    return document_terms(NodeText(content=text))


def score(query: str, vector: TermVector, *, count: int = 100, frequency: int = 1) -> float:
    """The BM25 score of a document if all terms of the query are equally frequent."""
    return weighed(query, vector, dict.fromkeys((term.id for term in query_terms(query)), frequency), count)


def weighed(query: str, vector: TermVector, frequencies: dict[int, int], count: int) -> float:
    weights = term_weights(query_terms(query), frequencies, count)
    known = dict(zip(vector.ids, vector.weights, strict=True))
    return sum(weight * known.get(key, 0.0) for key, weight in zip(weights.ids, weights.weights, strict=True))


SPELLINGS = {
    "Stra\u00dfe": "strasse", "Caf\u00e9": "cafe", "cafe\u0301": "cafe", "\uff26\uff55\uff4c\uff4c": "full",
    "\ufb01n": "fin", "\u0391\u03b8\u03ae\u03bd\u03b1": "\u03b1\u03b8\u03b7\u03bd\u03b1", "\u0130": "i",
    "\u03a3\u03c2": "\u03c3\u03c3", "\u304c": "\u304c", "\uff76\uff9e": "\u30ac", "हिन्दी": "हिन्दी",
    "co\u00adop": "coop",
}  # fmt: skip


@pytest.mark.parametrize(("text", "folded"), SPELLINGS.items())
def test_spellings_of_one_word_fold_to_one_term(text: str, folded: str) -> None:
    assert fold(text) == fold(folded) == folded


@pytest.mark.requirement("CANVAS-5")
def test_words_are_whole_without_punctuation_and_identifiers_are_found_by_their_parts_too() -> None:
    assert terms("The, (quick) \u2014 \u201cfox\u201d!  \u4e2d") == ["the", "quick", "fox", "\u4e2d"]
    assert terms("snake_case camelCase") == ["snake_case", "snake", "case", "camelcase", "camel", "case"]
    assert terms("HTTPServer os.path") == ["httpserver", "http", "server", "os.path", "os", "path"]
    assert terms("__init__ v1.2.21 utf8 a1b2") == ["__init__", "v1.2.21", "v1", "2", "21", "utf8", "a1b2"]
    assert terms("___ . _") == []
    text = "A Caf\u00e9, snake_case \u4e2d\u6587!"
    assert all(fold(text[start:end]) == term for term, start, end in tokens_of(text)), "offsets are those of the term"


def test_english_plurals_and_possessives_match_their_singular() -> None:
    for plural, singular in (("tasks", "task"), ("policies", "policy"), ("nodes", "node"), ("memory's", "memory")):
        assert terms(plural)[0] == terms(singular)[0]
    for word in ("class", "bus", "as", "is", "os", "shoes"):
        assert terms(word) == [word]


@pytest.mark.requirement("CANVAS-14")
def test_unspaced_text_is_found_by_any_two_neighbours_and_by_each_character() -> None:
    assert terms(SEARCH) == [*SEARCH, *(SEARCH[at : at + 2] for at in range(3))]
    assert asked(SEARCH) == [SEARCH[at : at + 2] for at in range(3)]
    assert asked(SEARCH[0]) == [SEARCH[0]]
    assert asked("abc" + SEARCH[0]) == ["abc", SEARCH[0]]


@pytest.mark.requirement("CANVAS-14")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("\u77e5\u8bc6\u7ba1\u7406\u7cfb\u7edf", "\u7ba1\u7406"),
        ("\u77e5\u8bc6\u7ba1\u7406\u7cfb\u7edf", "\u7cfb"),
        ("\u6771\u4eac\u90fd\u306b\u4f4f\u3093\u3067\u3044\u308b", "\u4f4f\u3093"),
        ("\uff76\uff9e\uff71", "\u30ac\u30a2"),
        ("\u30ac\u30a2", "\uff76\uff9e"),
        ("\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u0e44\u0e17\u0e22"),
        ("\u1797\u17b6\u179f\u17b6", "\u179f\u17b6"),
        ("\ud55c\uad6d\uc5b4\ub97c", "\ud55c\uad6d\uc5b4"),
        ("the caf\u00e9 tables", "CAFE table"),
        ("ship it \U0001f680 now", "\U0001f680"),
        ("cost \u20ac5", "\u20ac"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e", "\u092d\u093e\u0937\u093e"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"),
        ("\u062a\u064f\u0641\u062a\u064e\u062d\u064f", "\u062a\u0641\u062a\u062d"),  # vowel marks
        ("\u0623\u062d\u0645\u062f", "\u0627\u062d\u0645\u062f"),  # alef with hamza
        (
            "\u06a9\u062a\u0627\u0628 \u0639\u0644\u06cc",
            "\u0643\u062a\u0627\u0628 \u0639\u0644\u064a",
        ),  # Persian letters
        ("\u0645\u062f\u0631\u0633\u0629", "\u0645\u062f\u0631\u0633\u0640\u0640\u0647"),  # teh, tatweel
        ("\u05e9\u05c1\u05b7\u05e2\u05b7\u05e8", "\u05e9\u05e2\u05e8"),  # Hebrew points
        ("\u0141\u00f3d\u017a, \u00c6r\u00f8, \u0110\u00e0 N\u1eb5ng, \u00de\u00f3r", "lodz aero da nang thor"),
        ("in \u0662\u0660\u0662\u0664 and \u0967\u0968", "2024 12"),
        ("\u50b3\u7d71\u6f22\u5b57", "\u6c49\u5b57"),  # traditional characters
        ("\u6c49\u5b57", "\u6f22\u5b57"),
        ("\u96fb", "\u7535"),
        ("lodz aero 2024", "\u0141\u00f3d\u017a \u00c6r\u00f8 \u0662\u0660\u0662\u0664"),
        ("getUserName()", "user name"),
        ("see memory_forest", "memory forest"),
        ("MEMO_TREE", "memo_tree"),
    ],
)
def test_a_text_is_found_in_every_script(text: str, query: str) -> None:
    vector = content(text)
    before = {other for _, other in earlier_terms(query)}
    for term in query_terms(query):
        assert term.id in vector.ids or term.term in before, term


def test_an_index_of_an_earlier_version_answers_what_it_answered() -> None:
    terms = query_terms("\u0141\u00f3d\u017a")
    assert [(term.term, term.bonus) for term in terms] == [("lodz", False), ("\u0142odz", True)]
    assert query_terms("caf\u00e9") == query_terms("cafe")
    terms = query_terms("\u6f22\u5b57")
    assert [(term.term, term.bonus) for term in terms] == [("\u6c49\u5b57", False), ("\u6f22\u5b57", True)]
    assert [term.term for term in query_terms("\u96fb")] == ["\u7535", "\u96fb"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_text_is_found_by_its_own_words(before: str, after: str) -> None:
    for word in ("needle", "\u9488\u9488", "snake_case"):
        vector = content(f"{before} {word} {after}")
        assert {term.id for term in query_terms(word)} <= set(vector.ids)


@given(st.text(max_size=80))
def test_stored_terms_are_those_of_the_tokens(text: str) -> None:
    assert set(content(text).ids) == {term_id(term) for term in terms(text)}


@pytest.mark.requirement("CANVAS-14")
def test_a_node_of_the_greatest_size_is_found_by_its_last_word() -> None:
    rng = random.Random(5)
    vocabulary = ["".join(rng.choices("abcdefghijklm", k=rng.randint(2, 10))) for _ in range(20_000)]
    text = " ".join(rng.choices(vocabulary, k=140_000))[: (1 << 20) - 20] + " zzlastword"
    assert query_terms("zzlastword")[0].id in content(text).ids
    assert growth(lambda size: content(text[:size]), 10_000) < LINEAR


ENDLESS = {
    "a letter": "a" * 40_000,
    "parts": "a_" * 20_000,
    "words in one": "aB" * 20_000,
    "a dotted name": "a." * 20_000,
    "marks": "\u0301" * 40_000,
    "letters with marks": "a\u0301" * 20_000,
    "marks of a letter": "a" + "\u0301\u0323" * 20_000,
    "marks of a Thai letter": "\u0e01" + "\u0e48\u0e38" * 20_000,
    "marks of a Tibetan letter": "\u0f40" + "\u0f84\u0f71" * 20_000,
    "marks of half-width kana": "\uff76" + "\uff9e\u0301" * 20_000,
    "a run with marks": ("\u4e2d" + "\u302a\u3099" * 500) * 40,
}
"""Words and runs without an end; in most of those with marks, these are not in the order of their classes."""


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_word_is_cut_and_still_found(text: str) -> None:
    with sorted_marks() as lengths:
        vector = content(text + " end")
        assert {term.id for term in query_terms(text)} <= set(vector.ids)
        assert query_terms("end")[0].id in vector.ids
        assert all(len(term) <= 2 * MAX_TERM_CHARS for term in terms(text))
        fold(text)
    assert max(lengths, default=0) <= 2 * MOST_MARKS
    assert growth(lambda size: (content(text[:size]), query_terms(text[:size])), 2_000) < LINEAR


SCRIPTS = "".join(
    chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] in "LN" and code % 7 in (0, 3)
)
MARKS = "".join(chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M")
WORDS = st.lists(
    st.tuples(st.sampled_from(SCRIPTS), st.text(st.sampled_from(MARKS), max_size=4)).map("".join),
    min_size=1,
    max_size=9,
).map("".join)


@given(st.lists(WORDS, min_size=1, max_size=40), st.sampled_from([" ", "", ".", "\u3002", "_"]))
def test_the_words_of_all_scripts_are_folded_as_a_whole(words: list[str], between: str) -> None:
    text = between.join(words)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    bare = re.sub("[\u0300-\u036f\u00ad\ufe00-\ufe0f]+", "", unicodedata.normalize("NFD", folded))
    assert fold_as_before(text) == unicodedata.normalize("NFC", bare)
    assert fold(fold(text)) == fold(text)


@given(st.lists(st.tuples(st.sampled_from("\u0e01\u0f40\u1000\u1780\u4e2d"), st.integers(0, 63)), min_size=1))
def test_a_character_of_an_unspaced_script_is_one_term_with_its_marks(letters: list[tuple[str, int]]) -> None:
    clusters = [letter + ("\u0e48\u0e38\u0f71\u1037" * 16)[:count] for letter, count in letters]
    folded = [fold(cluster) for cluster in clusters]
    assert terms("".join(clusters))[: len(folded)] == folded


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    "text", ["Über die Wärme, für alle. ", "记忆树的森林。", "ภาษาไทย ", "भाषा, ", "ship it 🚀 ", "中a", "os.path "]
)
def test_no_call_of_re_goes_over_a_long_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread runs during one; and a text that is read in parts has the terms that it has as a whole."""
    long = text * (100_000 // len(text))
    parts: list[int] = []

    class Counted:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def findall(self, text: str, start: int = 0, end: int = 1 << 30) -> list[str]:
            parts.append(min(end, len(text)) - start)
            return self._pattern.findall(text, start, end)

    for name in ("_FIND_NAMES", "_FIND_ASCII_NAMES", "_FIND_RUNS", "_FIND_FOREIGN"):
        monkeypatch.setattr(module, name, Counted(getattr(module, name)))
    counted, words = count_terms(long), words_of(long)
    assert sum(parts) > 50_000
    assert max(parts) <= 2 * module._AT_ONCE
    monkeypatch.setattr(module, "_AT_ONCE", 1 << 30)
    whole = count_terms(long)
    if text != "中a":  # a word that goes on without an end is cut
        assert (whole.frequencies, whole.length, words_of(long)) == (counted.frequencies, counted.length, words)


def test_a_query_is_unique_in_order_and_bounded() -> None:
    assert asked("b a B a") == ["b", "a"]
    assert asked("") == asked(" ?!") == []
    assert len(query_terms(" ".join(f"w{number}x" for number in range(20_000)))) == MAX_QUERY_TERMS
    assert len(query_terms("a" * 100_000)) == 1
    assert growth(lambda size: query_terms(" ".join(f"v{number}x" for number in range(size))), 1_000) < LINEAR


def test_the_terms_of_a_text_do_not_depend_on_the_words_that_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Seven words, of which three are kept at once."
    before = content(text)
    monkeypatch.setattr(module, "_MOST_PLAIN", 3)
    module._PLAIN.clear()
    assert content(text) == before
    assert len(module._PLAIN) <= 3


def test_optional_terms_are_not_needed_for_a_full_match() -> None:
    bonus = {term.term: term.bonus for term in query_terms("os.path getName plain")}
    assert bonus == {
        "os.path": True, "os": False, "path": False, "getname": False, "get": True, "name": True, "plain": False
    }  # fmt: skip
    assert not {term.term: term.bonus for term in query_terms("getName name")}["name"]


@pytest.mark.parametrize(("term", "expected"), [("task", 1384045349), ("\u4e2d", 3587267211), ("", 0)])
def test_term_ids_never_change(term: str, expected: int) -> None:
    assert term_id(term) == expected


def test_weights_are_sorted_unique_and_exact_as_32_bit_floats() -> None:
    vector = document_terms(NodeText("A title", ("tag",), "kind fact", "brief", "summary", f"content {SEARCH} " * 50))
    assert list(vector.ids) == sorted(set(vector.ids))
    assert all(0 <= key < 1 << 32 for key in vector.ids)
    assert all(float(np.float32(weight)) == weight for weight in vector.weights)
    assert all(0 < weight < K1 + 1 for weight in vector.weights)
    assert document_terms(NodeText()) == TermVector((), ())


def test_a_weight_is_bm25_of_its_own_text_alone() -> None:
    vector = content("word")
    length_part = 0.25 + 0.75 * 1 / AVERAGE_LENGTH
    assert vector.weights[0] == pytest.approx((K1 + 1) / (1 + K1 * length_part), rel=1e-6)


@pytest.mark.requirement("CANVAS-5")
def test_title_counts_more_than_tags_and_tags_more_than_content() -> None:
    filler = "filler " * 200
    in_title = score("needle", document_terms(NodeText(title="needle", content=filler)))
    in_tags = score("needle", document_terms(NodeText(tags=("needle",), content=filler)))
    in_content = score("needle", document_terms(NodeText(content=filler + "needle")))
    assert in_title > in_tags > in_content > 0
    assert score("needle", document_terms(NodeText(title="needle"))) == pytest.approx(
        score("needle", content("needle " * int(TITLE_BOOST))), rel=0.02
    )
    assert score("a", content("a a b")) > score("a", content("a b c"))
    assert score("a", content("a" + " b" * 50)) > score("a", content("a" + " b" * 500))


def test_rare_terms_weigh_more_and_every_weight_is_positive() -> None:
    assert idf(1000, 0) > idf(1000, 1) > idf(1000, 500) > idf(1000, 1000) > 0
    assert idf(1000, 1) == pytest.approx(log(1 + 999.5 / 1.5))
    assert idf(0, 0) > 0
    assert idf(10, 50) == idf(10, 10)
    assert idf(10, -1) == idf(10, 0)


def test_how_common_a_word_is_counts_in_a_small_workspace_and_its_own_frequencies_in_a_large_one() -> None:
    for count in (0, 1, 3, 30):  # a word that it has weighs about as much as one that it lacks
        assert smoothed_idf(count, min(count, 1)) == smoothed_idf(count, 0)
        assert smoothed_idf(count, min(count, 3)) > 0.8 * smoothed_idf(count, 0)
    for count in (0, 1, 10, 1000):
        assert 0 < smoothed_idf(count, min(count, 1), common=True) < 0.3 * smoothed_idf(count, 1)
    assert smoothed_idf(1_000_000, 2_000) == pytest.approx(idf(1_000_000, 2_000), rel=0.01)
    assert smoothed_idf(10, 50) > 0


@pytest.mark.parametrize("beside", [0, 1, 10, 100, 1000])
def test_the_relative_score_of_a_text_does_not_depend_on_the_number_of_unrelated_ones(beside: int) -> None:
    query, text = "the tractor smokes xqzzy", content("The diesel engine of the tractor smokes.")
    frequencies = {term_id("tractor"): 1, term_id("smoke"): 1, term_id("the"): 1 + beside}
    best = max_score(query_terms(query), frequencies, 1 + beside)
    relative = relative_score(weighed(query, text, frequencies, 1 + beside), best)
    assert relative == pytest.approx(0.53, abs=0.03)


@given(
    st.text(st.sampled_from("ab c_.A\u4e2d\u6587"), max_size=30),
    st.text(st.sampled_from("ab c_.A\u4e2d\u6587"), max_size=200),
)
def test_a_relative_score_lies_between_0_and_1(query: str, text: str) -> None:
    asked_for = query_terms(query)
    frequencies = {term.id: 3 for term in asked_for}
    best = max_score(asked_for, frequencies, 50)
    assert 0 <= relative_score(score(query, content(text), count=50, frequency=3), best) <= 1
    if not any(term.bonus for term in asked_for):
        assert score(query, content(text), count=50, frequency=3) <= best + 1e-6
    weights = term_weights(asked_for, frequencies, 50)
    assert list(weights.ids) == sorted({term.id for term in asked_for})
