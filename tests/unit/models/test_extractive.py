"""Extractive briefs and summaries: short, one line, in the text's language, from the text's own words."""

import time
from pydoc_data.topics import topics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.node import Node
from memotree_storage.validation import check_node

from memotree.models.extractive import BRIEF_CHARS, SUMMARY_CHARS, brief_of, summary_of

ENGLISH = """\
# Git as a store

Git as a store
==============

> *Git* keeps every version of a text. It is **fast**, e.g. when few files change.

```python
print("this is code. It is no sentence.")
```

- The [history](http://example.org) of a store tells who changed what. Agents read the history of their store.
- Bread is baked in an oven.
"""
CHINESE = (
    "\u8bb0\u5fc6\u68ee\u6797\u662f\u4e00\u79cd\u77e5\u8bc6\u5b58\u50a8\u7cfb\u7edf\u3002"
    "\u5b83\u7528\u63d0\u4ea4\u4fdd\u5b58\u77e5\u8bc6\uff01"
    "\u201c\u5929\u6c14\u5f88\u597d\u3002\u201d"
    "\u77e5\u8bc6\u5b58\u50a8\u7cfb\u7edf\u652f\u6301\u68c0\u7d22\u3002"
)


@pytest.mark.requirement("FOREST-13")
def test_a_brief_is_the_first_telling_sentence_without_markup() -> None:
    assert brief_of("Git as a store", ENGLISH) == "Git keeps every version of a text."


@pytest.mark.requirement("FOREST-10")
def test_a_summary_has_whole_sentences_about_what_the_text_is_about() -> None:
    summary = summary_of("Git as a store", ENGLISH)
    assert len(summary) <= SUMMARY_CHARS
    assert "Git keeps every version of a text." in summary
    assert "history" in summary
    assert not set("#*`>[]") & set(summary)
    assert "print" not in summary
    assert "==" not in summary


@pytest.mark.requirement("FOREST-10")
def test_chinese_is_summarised_in_chinese() -> None:
    assert brief_of("", CHINESE) == CHINESE.partition("\u3002")[0] + "\u3002"
    summary = summary_of("", CHINESE * 10)
    assert len(summary) <= SUMMARY_CHARS
    assert summary.startswith(brief_of("", CHINESE))
    assert "\u3002 " not in summary


def test_a_closing_quote_stays_with_its_sentence() -> None:
    assert "\u5929\u6c14\u5f88\u597d\u3002\u201d" in summary_of("", CHINESE)
    assert summary_of("", 'He said "go." Then they all went home.') == 'He said "go." Then they all went home.'


def test_abbreviations_and_initials_do_not_end_a_sentence() -> None:
    text = "We asked Dr. Smith and J. Doe, e.g. Tuesday, about trees. They agreed on everything."
    assert brief_of("", text) == "We asked Dr. Smith and J. Doe, e.g. Tuesday, about trees."


@pytest.mark.parametrize("content", ["", " \n", "---\n", "# \n", "\u200b", "```\ncode\n```"])
def test_a_text_without_words_gives_the_title(content: str) -> None:
    assert brief_of("My title", content) == "My title"
    assert summary_of("My  title", content) == "My title"
    assert summary_of("", content) == ""


def test_a_text_that_only_repeats_its_title_gives_the_title() -> None:
    assert summary_of("A plain title", "# A plain title\n") == "A plain title"


def test_a_long_sentence_is_cut_at_a_word() -> None:
    brief = brief_of("", "alpha beta gamma " * 50)
    assert len(brief) <= BRIEF_CHARS
    assert brief.endswith("\u2026")
    assert brief.rstrip("\u2026").split()[-1] in {"alpha", "beta", "gamma"}
    assert len(summary_of("", "\u957f\u53e5\u5b50" * 500)) == SUMMARY_CHARS


@given(st.text(max_size=60), st.text(max_size=400))
def test_any_text_gives_short_single_lines_that_a_node_may_hold(title: str, content: str) -> None:
    brief, summary = brief_of(title, content), summary_of(title, content)
    assert len(brief) <= BRIEF_CHARS
    assert len(summary) <= SUMMARY_CHARS
    check_node(Node("0" * 16, "1" * 16, None, "a0", title="T", brief=brief, summary=summary))
    assert "\n" not in summary
    assert (brief, summary) == (brief_of(title, content), summary_of(title, content))


def test_every_topic_of_the_language_reference_gets_both() -> None:
    for name, text in topics.items():
        assert brief_of(name, text)
        assert summary_of(name, text)


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "word. ",
            "a",
            "\u4e2d",
            "*",
            "[(",
            "```\n",
            "_ ",
            ". ",
            "\n \n",
            "<a",
            "- ",
            "`a",
            "*a",
            "[a](",
            ":a:`",
            ".. ",
        ),
        *("|-", "\u0301", "# ", "> ", "a.", "\u3002", "1. ", "(", '"', "~~~\n```\n", "*a *", "**", "A. "),
    ],
)
def test_a_mebibyte_of_anything_takes_no_time(unit: str) -> None:
    text = unit * ((1 << 20) // len(unit.encode()))
    start = time.perf_counter()
    brief_of("title", text)
    summary_of("title", text)
    assert time.perf_counter() - start < 2
