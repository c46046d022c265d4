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
        "果园是谁种的？",  # noqa: RUF001 - a mark of Chinese
        ["艾达于1931年种下了这片果园，共有四十行苹果树。"],  # noqa: RUF001
        ["周二股市下跌，投资者担忧通胀。", "会议室预订规则。"],  # noqa: RUF001
        id="a fact in Chinese",
    ),
    pytest.param(
        "风险缓解策略是什么？",  # noqa: RUF001
        ["技术风险的识别与缓解方案。"],
        ["公司食堂五月的菜单。", "员工年假申请流程。"],
        id="a strategy in Chinese",
    ),
    pytest.param(
        "服务器重启后数据会丢失吗",
        ["每次提交都写入磁盘，服务器重启后数据不会丢失。"],  # noqa: RUF001
        ["苹果树的修剪方法。", "旅行计划：秋天去京都。"],  # noqa: RUF001
        id="a question in Chinese",
    ),
]


@pytest.fixture(scope="module")
def embedder() -> WordllamaEmbedder:
    return WordllamaEmbedder()


@pytest.fixture
def models(tmp_path: Path) -> Models:
    # There is no database here: the built-in models do not need it.
    return Models.from_settings(load_settings(data_folder=tmp_path), Database("postgresql://127.0.0.1:1/nowhere"))


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


def test_the_score_of_a_child_does_not_depend_on_the_others_and_blank_texts_have_none(
    embedder: WordllamaEmbedder,
) -> None:
    text = "The orchard was planted in 1931 by Ada Birch; it has forty rows of apple trees."
    query = "Who planted the apple trees?"
    assert relevance(query, [text], embedder.embed_now([query, text]))[0] > 0.6
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


def test_a_parents_summary_mentions_every_child_once_before_more_of_one() -> None:
    bakery = "The bakery opens at six."
    digest = digest_of(["The garden has roses. Roses bloom in June. Roses need water.", bakery])
    assert bakery in digest
    assert digest.index("garden") < digest.index("bakery"), "in the order of the children"
    assert digest_of(["Bees make honey.", "Bees make honey."]) == "Bees make honey."


@given(st.lists(st.text(max_size=300), max_size=5), st.text(max_size=900))
def test_a_summary_of_a_parent_or_by_a_model_is_one_short_line_whatever_it_is_of(
    summaries: list[str], text: str
) -> None:
    cut = fitted(text)
    assert fitted(cut) == cut
    for line in (digest_of(summaries), cut):
        assert len(line) <= SUMMARY_CHARS
        assert line.splitlines() in ([], [line])


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
