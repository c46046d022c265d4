"""Without key and network: extractive summaries, and a ranking whose middle separates what is relevant."""

from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.postgres.database import Database
from steps import Steps

from memotree.models.builtin import WordllamaEmbedder
from memotree.models.extractive import MADE_BY, SUMMARY_CHARS, digest_of, fitted, summary_of
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.models.relevance import relevance
from memotree.settings import load_settings

pytestmark = pytest.mark.requirement("FOREST-13")

NOWHERE = "postgresql://127.0.0.1:1/nowhere"
"""A missing database: the built-in models do not need it."""

RANKED = [
    pytest.param(
        "Who planted the apple trees?",
        ["The orchard was planted in 1931 by Ada Birch; it has forty rows of apple trees."],
        ["The stock market fell on Tuesday after weak data.", "How to wire a three-way switch."],
        id="a fact",
    ),
    pytest.param(
        "What is the risk mitigation strategy of project Phoenix?",
        ["Analysis of the market risks of project Phoenix and the measures against them."],
        ["The menu of the canteen in the first week of May.", "Office move: who sits where.", "Parking permits."],
        id="a project",
    ),
    pytest.param(
        "deadline of the budget report",
        ["The finance team hands in the budget report by Friday the 12th."],
        ["Team lunch is on Friday.", "The summer party takes place in the garden."],
        id="a deadline",
    ),
    pytest.param(
        "\u679c\u56ed\u662f\u8c01\u79cd\u7684\uff1f",
        [
            "\u827e\u8fbe\u4e8e1931\u5e74\u79cd\u4e0b\u4e86\u8fd9\u7247\u679c\u56ed\uff0c\u5171\u6709\u56db\u5341\u884c\u82f9\u679c\u6811\u3002"
        ],
        [
            "\u5468\u4e8c\u80a1\u5e02\u4e0b\u8dcc\uff0c\u6295\u8d44\u8005\u62c5\u5fe7\u901a\u80c0\u3002",
            "\u4f1a\u8bae\u5ba4\u9884\u8ba2\u89c4\u5219\u3002",
        ],
        id="a fact in Chinese",
    ),
    pytest.param(
        "\u98ce\u9669\u7f13\u89e3\u7b56\u7565\u662f\u4ec0\u4e48\uff1f",
        ["\u6280\u672f\u98ce\u9669\u7684\u8bc6\u522b\u4e0e\u7f13\u89e3\u65b9\u6848\u3002"],
        [
            "\u516c\u53f8\u98df\u5802\u4e94\u6708\u7684\u83dc\u5355\u3002",
            "\u5458\u5de5\u5e74\u5047\u7533\u8bf7\u6d41\u7a0b\u3002",
        ],
        id="a strategy in Chinese",
    ),
    pytest.param(
        "\u670d\u52a1\u5668\u91cd\u542f\u540e\u6570\u636e\u4f1a\u4e22\u5931\u5417",
        [
            (
                "\u6bcf\u6b21\u63d0\u4ea4\u90fd\u5199\u5165\u78c1\u76d8\uff0c"
                "\u670d\u52a1\u5668\u91cd\u542f\u540e\u6570\u636e\u4e0d\u4f1a\u4e22\u5931\u3002"
            )
        ],
        [
            "\u82f9\u679c\u6811\u7684\u4fee\u526a\u65b9\u6cd5\u3002",
            "\u65c5\u884c\u8ba1\u5212\uff1a\u79cb\u5929\u53bb\u4eac\u90fd\u3002",
        ],
        id="a question in Chinese",
    ),
]


@pytest.fixture(scope="module")
def embedder() -> WordllamaEmbedder:
    return WordllamaEmbedder()


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models.from_settings(load_settings(data_folder=tmp_path), Database(NOWHERE))


async def test_everything_but_the_loop_works_without_a_model_and_without_a_database(models: Models) -> None:
    meter = Meter(max_tokens=1)
    await models.open()
    text = "Bees make honey. They live in hives."
    leaf = await models.summarise_text(text, meter)
    assert (leaf.text, leaf.made_by, leaf.pending) == (summary_of("", text), MADE_BY, False)
    parent = await models.summarise_children([leaf.text, "Wasps do not."], meter)
    assert (parent.made_by, parent.pending) == (MADE_BY, False)
    assert (await models.embed([text], meter)).shape == (1, models.embedder.dimensions)
    near, far = await models.rerank("Who makes honey?", [text, "Cars need fuel."], meter)
    assert near > 0.5 > far
    assert await models.rerank("Who makes honey?", [], meter) == []
    assert not models.has_chat
    assert (meter.usage, meter.warnings) == ([], []), "what is built in costs nothing"
    await models.close()


@pytest.mark.parametrize(("query", "near", "far"), RANKED)
def test_a_score_of_one_half_separates_relevant_from_irrelevant_texts(
    embedder: WordllamaEmbedder, query: str, near: list[str], far: list[str]
) -> None:
    texts = [*far, *near]
    scores = dict(zip(texts, relevance(query, texts, embedder.embed_now([query, *texts])), strict=True))
    assert min(scores[text] for text in near) > 0.6
    assert max(scores[text] for text in far) < 0.4


def test_the_score_of_a_child_does_not_depend_on_the_others(embedder: WordllamaEmbedder) -> None:
    text = "The orchard was planted in 1931 by Ada Birch; it has forty rows of apple trees."
    query = "Who planted the apple trees?"
    (alone,) = relevance(query, [text], embedder.embed_now([query, text]))
    assert alone > 0.6


def test_blank_texts_are_never_relevant(embedder: WordllamaEmbedder) -> None:
    assert relevance("", ["", " "], embedder.embed_now(["", "", " "])) == [0.0, 0.0]


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=4))
def test_every_score_is_from_0_to_1(query: str, texts: list[str]) -> None:
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(len(texts) + 1, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = relevance(query, texts, vectors)
    assert len(scores) == len(texts)
    assert all(0.0 <= score <= 1.0 for score in scores)


# --- Summaries of children -------------------------------------------------------------------------------------------


def test_a_parents_summary_mentions_every_child_before_more_of_one() -> None:
    garden = "The garden has roses. Roses bloom in June. Roses need water."
    bakery = "The bakery opens at six."
    digest = digest_of([garden, bakery])
    assert "garden" in digest
    assert bakery in digest
    assert digest.index("garden") < digest.index("bakery"), "in the order of the children"


def test_equal_children_are_mentioned_once() -> None:
    assert digest_of(["Bees make honey.", "Bees make honey."]) == "Bees make honey."


@given(st.lists(st.text(max_size=300), max_size=5))
def test_a_parents_summary_is_one_short_line_whatever_the_children_are(summaries: list[str]) -> None:
    digest = digest_of(summaries)
    assert len(digest) <= SUMMARY_CHARS
    assert digest.splitlines() in ([], [digest])


@given(st.text(max_size=900))
def test_a_models_summary_always_fits(text: str) -> None:
    cut = fitted(text)
    assert len(cut) <= SUMMARY_CHARS
    assert cut.splitlines() in ([], [cut])
    assert fitted(cut) == cut


def test_a_models_summary_is_cut_after_a_sentence_or_else_at_a_word() -> None:
    sentences = "One sentence of some length stands here. " * 9
    assert fitted(sentences).endswith("here.")
    assert len(fitted(sentences)) > SUMMARY_CHARS / 2
    words = "word " * 90
    assert fitted(words) == "word " * 38 + "word…"


def test_a_leaf_and_its_parent_are_summarised_in_at_most_a_few_thousand_steps() -> None:
    text = "\n".join(topics.values())
    pieces = [text[start : start + 1_000] for start in range(0, 200_000, 1_000)]
    with Steps() as steps:
        summaries = [summary_of("", piece) for piece in pieces]
        for left, right in pairwise(summaries):
            digest_of([left, right])
    assert steps.count / len(pieces) < 12_000, "less than 6000 today"
