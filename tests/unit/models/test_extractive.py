"""Extractive briefs and summaries: short, one line, in the text's language, from the text's own words."""

import re
from collections.abc import Iterator
from pydoc_data.topics import topics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.node import Node
from memotree_storage.model.validation import check_node
from steps import LINEAR, Steps, growth

from memotree.models import extractive, markup
from memotree.models.extractive import BRIEF_CHARS, SUMMARY_CHARS, brief_of, summary_of
from memotree.models.markup import Kind

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
CHINESE = "记忆森林是一种知识存储系统。它用提交保存知识！“天气很好。”知识存储系统支持检索。"  # noqa: RUF001 - marks of Chinese


@pytest.mark.requirement("FOREST-13")
def test_a_brief_is_the_first_informative_sentence_without_markup() -> None:
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


def test_neither_a_closing_quote_nor_an_abbreviation_or_initial_ends_a_sentence() -> None:
    assert "\u5929\u6c14\u5f88\u597d\u3002\u201d" in summary_of("", CHINESE)
    assert summary_of("", 'He said "go." Then they all went home.') == 'He said "go." Then they all went home.'
    text = "We asked Dr. Smith and J. Doe, e.g. Tuesday, about trees. They agreed on everything."
    assert brief_of("", text) == "We asked Dr. Smith and J. Doe, e.g. Tuesday, about trees."


def test_a_text_without_words_or_that_only_repeats_its_title_gives_the_title() -> None:
    for content in ("", " \n", "---\n", "# \n", "\u200b", "```\ncode\n```"):
        assert (brief_of("My title", content), summary_of("My  title", content)) == ("My title", "My title")
        assert summary_of("", content) == ""
    assert summary_of("A plain title", "# A plain title\n") == "A plain title"


def test_a_long_sentence_is_cut_at_a_word() -> None:
    brief = brief_of("", "alpha beta gamma " * 50)
    assert len(brief) <= BRIEF_CHARS
    assert brief.endswith("\u2026")
    assert brief.rstrip("\u2026").split()[-1] in {"alpha", "beta", "gamma"}
    assert len(summary_of("", "\u957f\u53e5\u5b50" * 500)) == SUMMARY_CHARS


@pytest.mark.requirement("FOREST-13")
@pytest.mark.parametrize(
    "text",
    [
        "Define __init__ and __exit__ in the class.",
        "See https://example.org/a_b_c?x=*y* for more about it.",
        "It returns a dict<str> or a Vec<u8> of names.",
        "Multiply 2*3*4 and (a)*(b)*(c), or 2 * 3 * 4 at once.",
        "Copy *.py and **/*.md from src/* to /a/*/b/* now.",
        "Call f(*args, **kwargs) with snake_case_names today.",
        "The code `a*b*c` and ``x_`_y`` stay `as *they* are` here.",
        "Take matrix[i][j] and see note [1][2] about rows(x)[y](z).",
        "Run `git log -- <file>` or memotree show <node> again.",
        "If x < y and z > w then nothing of it is a tag.",
        r"Escaped \*stars\* and C:\_private_names stay as they are.",
        "Names like a_b_ and snake_case__too are the name of a thing.",
        "The pattern _of_this_kind_ is the name of a thing.",
    ],
)
def test_what_only_looks_like_markup_stays(text: str) -> None:
    assert brief_of("", text) == text
    assert summary_of("", text) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("*Very* and **really** ***so*** _much_ __more so__ here.", "Very and really so much more so here."),
        ("**Bold [link](http://a.b/c_d) and `co*de*`** were there.", "Bold link and `co*de*` were there."),
        ("We *saw **many** of* them in **two\nlines** of it.", "We saw many of them in two lines of it."),
        ("See **https://example.org/a_b** for all of it.", "See https://example.org/a_b for all of it."),
        ("See <https://example.org/?a=b> for all of it.", "See https://example.org/?a=b for all of it."),
        ("A <b>bold</b> word<br>and <a href='x'>a link</a> of it.", "A bold word and a link of it."),
        ("It took 10<sup>6</sup> steps of H<sub>2</sub>O in all.", "It took 10^6 steps of H2O in all."),
        ("The [guide][1] and the [Map] tell it.\n\n[1]: http://a.b\n[map]: c.md 'x'", "The guide and the Map tell it."),
        ("Role :meth:`~a.__enter__` of :doc:`the guide <x>` is it.", "Role ~a.__enter__ of the guide is it."),
        ("\u8fd9**\u201c\u597d\uff1a\u201d**\u662f\u7684\u3002", "\u8fd9\u201c\u597d\uff1a\u201d\u662f\u7684\u3002"),
        ("An image ![of it](a.png) and [](http://b.c/d_e) alone.", "An image of it and http://b.c/d_e alone."),
        ("Before it. <!-- never\n\nshown --> Behind all of it.", "Before it. Behind all of it."),
        ("It cost about\n100. Nobody paid for that.", "It cost about 100. Nobody paid for that."),
        ("\u8fd9\u662f**\u5f88\u91cd\u8981**\u7684\u4e8b\u3002", "\u8fd9\u662f\u5f88\u91cd\u8981\u7684\u4e8b\u3002"),
    ],
)
def test_only_markup_is_removed(text: str, plain: str) -> None:
    assert summary_of("", text) == plain
    assert summary_of("", plain) == plain


def test_items_of_a_list_are_not_joined() -> None:
    text = "- buy milk\n- [ ] call Bob\n- [x] done"
    assert brief_of("", text) == "buy milk; call Bob; done"
    assert summary_of("", text) == "buy milk; call Bob; done"
    assert brief_of("", "1. Open it.\n2. Close it again.\n") == "Open it."
    assert summary_of("", "1. Open it.\n2. Close it again.\n") == "Open it. Close it again."
    assert summary_of("", "计划：\n* 买奶\n* 打电话") == "计划： 买奶；打电话"  # noqa: RUF001 - marks of Chinese


def test_the_first_of_several_fragments_is_the_brief_but_not_a_heading_where_there_is_a_text() -> None:
    assert brief_of("", "line one\n\nline two") == "line one"
    assert summary_of("", "line one\n\nline two") == "line one; line two"
    assert brief_of("", "First thing to know. Second, longer and more telling thing.") == "First thing to know."
    assert brief_of("", "# Overview of things\n\nmilk and bread") == "milk and bread"
    assert brief_of("", "Overview of things\n==================\n\nmilk and bread") == "milk and bread"


def test_two_kilobytes_take_at_most_a_few_thousand_steps() -> None:
    text = (
        "The *quick* `fox` of __init__ and **bold** [link](http://a.b/c_d) <b>ran</b>.\n\n- one\n- [ ] two\n\n" * 30
    )[:2048]
    with Steps() as steps:
        brief_of("title", text)
    assert steps.count < 40_000, "less than 20 000 today"


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


UNITS = (
    *("word. ", "a", "\u4e2d", "*", "[(", "```\n", "_ ", ". ", "\n \n", "<a", "- ", "`a", "*a", "[a](", ":a:`", ".. "),
    *("- a ", "- - - x ", "<b>", "<!--", "--> <!--", "://", "_a_", "__a", "*a_b*_", "` `` ", "[a][b]\n", "\\", "a<b "),
    *("|-", "\u0301", "# ", "> ", "a.", "\u3002", "1. ", "(", '"', "~~~\n```\n", "*a *", "**", "A. "),
)


@pytest.mark.parametrize("unit", UNITS)
def test_any_text_takes_linear_steps_up_to_a_mebibyte(unit: str) -> None:
    text = unit * ((1 << 20) // len(unit.encode()))

    def both(size: int) -> None:
        brief_of("title", text[:size])
        summary_of("title", text[:size])

    assert growth(both, 1_000) < LINEAR
    both(len(text))


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    "text", ["." * 120_000 + "a", "\u2026" * 120_000 + "a b", "?!" * 60_000 + '"a'], ids=["dots", "ellipses", "marks"]
)
def test_a_run_of_full_stops_that_ends_no_sentence_takes_linear_steps(text: str) -> None:
    """The steps are inside a regular expression; with the square of the run, this would not end."""
    for number in range(8):
        assert brief_of(f"title {number}", text)
        assert summary_of(f"title {number}", text)


@pytest.mark.requirement("STORE-8")
def test_of_an_endless_title_only_the_beginning_is_read() -> None:
    counts = []
    for size in (1_000, 100_000):
        title = "".join(f"word{number} " for number in range(size))
        with Steps() as steps:
            brief_of(title, "A text.")
            summary_of(title, "A text. Another one.")
        counts.append(steps.count)
    assert counts[1] <= 1.1 * counts[0]


def test_text_far_after_the_beginning_costs_nothing() -> None:
    text = "Words and (more) words. "
    with Steps() as read:
        summary_of("", text * 10_000)
    with Steps() as whole:
        summary_of("", text * 40_000)
    assert whole.count <= read.count


class _Measured:
    """A pattern that notes how many characters its matches read."""

    def __init__(self, pattern: "re.Pattern[str]") -> None:
        self._pattern = pattern
        self.read = 0

    def _noted(self, found: "re.Match[str] | None") -> "re.Match[str] | None":
        self.read += 0 if found is None else len(found[0])
        return found

    def search(self, text: str, offset: int) -> "re.Match[str] | None":
        return self._noted(self._pattern.search(text, offset))

    def match(self, text: str, offset: int) -> "re.Match[str] | None":
        return self._noted(self._pattern.match(text, offset))


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("unit", ["a_", "_a", "__a", "a_b*", "_a_ ", "\u4e2d_", "a__"])
def test_marks_inside_a_word_do_not_read_the_rest_of_it_again(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand of them took a minute; a regular expression is one step, so steps do not show this."""
    patterns = {name: _Measured(getattr(markup, name)) for name in ("_SPECIAL", "_NAME")}
    for name, pattern in patterns.items():
        monkeypatch.setattr(markup, name, pattern)
    text = unit * 2000
    assert list(markup.blocks(text))
    assert sum(pattern.read for pattern in patterns.values()) <= 3 * len(text)


def test_a_text_is_split_once_for_its_brief_and_summary_under_any_title(monkeypatch: pytest.MonkeyPatch) -> None:
    split: list[str] = []

    def counted(content: str) -> Iterator[tuple[str, Kind]]:
        split.append(content)
        return texts(content)

    texts = extractive._texts
    monkeypatch.setattr(extractive, "_texts", counted)
    text = "A store keeps what was said. Its history tells who said it. Bread is baked in an oven."
    found = [
        (brief_of(title, text), summary_of(title, text)) for title in ("", "Bread", "its history tells who said it.")
    ]
    assert split == [text]
    assert found[0][0] == "A store keeps what was said."
    assert "Its history" in found[0][1]
    assert "Its history" not in found[2][1], "what repeats the title says nothing more"
    assert found[2][1] == "A store keeps what was said. Bread is baked in an oven."
