"""Documents of every kind become one text with known parts, or an error that says what to do."""

import codecs
import json
from itertools import accumulate

import pytest
from memotree_storage.model.codec import decode_entry, encode_entry
from memotree_storage.model.node import Node
from memotree_storage.model.paths import entry_path
from memotree_storage.model.validation import check_node
from steps import LINEAR, growth

from memotree.forest.documents import Document, SpokenTurn, UnreadableDocumentError, conversation, read_document
from memotree.forest.documents.canonical import canonical_text, one_line, title_or
from memotree.forest.documents.conversation import InvalidTurnsError
from memotree.forest.documents.dates import day_of
from memotree.forest.documents.document import DEEPEST_LEVEL
from memotree.forest.documents.notebook import InvalidNotebookError
from memotree.forest.documents.outline import Heading, nest

NODE_ID = "7xk2m9qd4tnvw0ha"
ARCHIVE_ID = "c41hz8rjy6ksm3pe"


def headings(document: Document) -> list[tuple[int, str]]:
    return [(section.level, section.title) for section in document.outline]


def reason_of(data: bytes | str, **how: str) -> str:
    with pytest.raises(UnreadableDocumentError, match=r";.*\.$") as caught:  # a sentence says what to do next
        read_document(data, **how)
    assert caught.value.violations[0].field == "document"
    return caught.value.reason


# --- What it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "media_type", "name", "expected"),
    [
        (b"words", "", "", "text/plain"),
        (b"# no heading", "text/plain", "a.md", "text/plain"),
        (b"words", "text/markdown; charset=utf-8", "", "text/markdown"),
        (b"words", "", "notes/README.MD", "text/markdown"),
        (b"# Title\n\nwords", "", "", "text/markdown"),
        (b"#!/bin/sh\n# a comment\necho 1\n", "", "", "text/plain"),
        (b"words\n# comment\nwords", "", "", "text/plain"),
        (b"<!DOCTYPE html><p>words", "", "", "text/html"),
        (b"\xef\xbb\xbf\n<html><p>words", "application/octet-stream", "", "text/html"),
        (b"<p>words", "", "page.htm", "text/html"),
        (b"import os\n", "", "tool.py", "text/x-python"),
        (b"import os\n", "text/x-python", "", "text/x-python"),
        (b"a,b", "text/csv", "", "text/csv"),
        (b'{"name": "memotree"}', "", "package.json", "text/plain"),
        (b'[{"speaker": "A", "text": "hi"}]', "", "talk.json", "application/vnd.memotree.conversation"),
    ],
)
def test_the_kind_of_a_document_comes_from_its_type_name_or_content(
    data: bytes, media_type: str, name: str, expected: str
) -> None:
    assert read_document(data, media_type=media_type, name=name).media_type == expected


def test_the_language_of_code_is_recognised() -> None:
    assert read_document("fn main() {}", name="src/main.rs").language == "rust"
    assert read_document("x", media_type="application/javascript").language == "js"
    assert read_document("x", name="notes.txt").language == ""


# --- Characters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (codecs.BOM_UTF8 + "é中".encode(), "é中"),
        (codecs.BOM_UTF16_LE + "é中".encode("utf-16-le"), "é中"),
        (codecs.BOM_UTF16_BE + "é中".encode("utf-16-be"), "é中"),
        (codecs.BOM_UTF32_LE + "é中".encode("utf-32-le"), "é中"),
        ("\ufeffwords", "words"),
        ("é中😀".encode(), "é中😀"),
        *((data, "\ufeffwords") for data in ("\ufeff\ufeffwords", "\ufeff\ufeffwords".encode())),
        ("\ufeffwords".encode("utf-16"), "\ufeffwords"),
    ],
)
@pytest.mark.parametrize("name", ["", "a.txt"])
def test_one_byte_order_mark_decides_the_encoding_and_is_removed(data: bytes | str, text: str, name: str) -> None:
    document = read_document(data, name=name)
    assert (document.text, document.warnings) == (text, ())


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("cp1251", "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 4),
        ("gb18030", "我们把文档变成记忆的树，然后提出问题。每一个节点都知道它来自哪里。" * 4),  # noqa: RUF001 - a comma of Chinese
        ("utf-16-le", "Plain words without any mark. " * 4),
    ],
)
def test_other_encodings_are_guessed_with_a_warning(encoding: str, words: str) -> None:
    document = read_document(words.encode(encoding))
    assert document.text == words
    assert "read as" in document.warnings[0]


def test_a_declared_encoding_is_no_guess() -> None:
    page = '<html><head><meta charset="gb2312"></head><body><p>中文网页</p></body></html>'
    document = read_document(page.encode("gb2312"), name="a.html")
    assert document.text == "中文网页\n"
    assert document.warnings == ()
    assert read_document("é".encode("latin-1"), media_type="text/plain; charset=iso-8859-1").text == "é"


def test_line_ends_and_offsets_are_kept_and_illegal_characters_are_replaced_one_for_one() -> None:
    raw = "a\r\nb\rc\x0cd\x0be\x85f\x00g\x1bh\ud800i\tj\u2028k\u200b"
    document = read_document(raw)
    text = document.text
    assert text == "a\r\nb\rc\nd\ne\nf g h\ufffdi\tj\u2028k\u200b"
    assert len(text) == len(raw)
    assert canonical_text(text) == text
    (told,) = document.warnings
    assert told == (
        "Characters that no node can hold were replaced: U+0000 by blanks (1 times), U+000B by line feeds (1 times), "
        "U+000C by line feeds (1 times), U+001B by blanks (1 times), U+0085 by line feeds (1 times), U+D800 by U+FFFD "
        "(1 times)."
    )


def test_many_kinds_of_replaced_characters_are_told_in_one_short_sentence() -> None:
    (told,) = read_document("a" + "".join(map(chr, range(1, 32))) * 3).warnings
    assert told.endswith("U+0008 by blanks (3 times) and 20 other characters.")


def test_what_is_changed_in_turns_is_told() -> None:
    document = conversation([SpokenTurn("Ann", "a\x0cb"), SpokenTurn("Bob", "c\x0c\x0c")])
    assert document.text == "Ann: a\nb\nBob: c\n\n\n"
    assert document.warnings == ("Characters that no node can hold were replaced: U+000C by line feeds (3 times).",)
    turns = [SpokenTurn("Ann", "One."), SpokenTurn("Bob\nSmith", "Two."), SpokenTurn("C" * 300, "Three.")]
    document = conversation(turns)
    assert document.text.startswith("Ann: One.\nBob Smith: Two.\nCCC")
    assert document.warnings == ("The speakers of 2 turns were put on one line, or shortened.",)


def test_the_codec_keeps_every_part_of_a_document_as_content() -> None:
    raw = "\r\n ---\n\n--- \x0c\ufeff\t\r words\n---\nid: 1\n---\r\n\u2028\x85 \n\n"
    text = read_document(raw).text
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            node = Node(NODE_ID, ARCHIVE_ID, None, "a1", "leaf_chunk", "A title", content=text[start:end])
            check_node(node)
            assert decode_entry(entry_path(node), encode_entry(node)) == node


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "how", "reason"),
    [
        (b"", {}, "EMPTY_DOCUMENT"),
        ("", {"media_type": "application/pdf"}, "EMPTY_DOCUMENT"),
        (b" \r\n\t\xef\xbb\xbf", {}, "EMPTY_DOCUMENT"),
        (codecs.BOM_UTF8, {}, "EMPTY_DOCUMENT"),
        (b"<html><script>let words = 1</script></html>", {}, "EMPTY_DOCUMENT"),
        (b"[]", {"media_type": "application/json"}, "EMPTY_DOCUMENT"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", {"name": "a.txt"}, "BINARY_DOCUMENT"),
        (b"words\x00words", {}, "BINARY_DOCUMENT"),
        (b"PK\x03\x04rest", {"name": "a.xlsx"}, "BINARY_DOCUMENT"),
        (bytes(range(256)).replace(b"\0", b"") * 20, {}, "BINARY_DOCUMENT"),
        (codecs.BOM_UTF16_LE + b"a", {}, "UNDECODABLE_DOCUMENT"),
        (b"\xff\xfe\xfd", {"media_type": "text/plain; charset=utf-8"}, "UNDECODABLE_DOCUMENT"),
        (b"words", {"media_type": "text/plain; charset=klingon"}, "UNDECODABLE_DOCUMENT"),
        (b"words", {"media_type": "image/png"}, "UNSUPPORTED_MEDIA_TYPE"),
        ("words", {"media_type": "application/pdf"}, "UNSUPPORTED_MEDIA_TYPE"),
        (b'{"a": 1}', {"media_type": "application/json"}, "INVALID_TURNS"),
        (b"[" * 100_000, {"media_type": "application/json"}, "DOCUMENT_TOO_DEEP"),
        ("<div>" * 50_000 + "words", {"media_type": "text/html"}, "DOCUMENT_TOO_DEEP"),
    ],
)
def test_an_unreadable_document_is_refused_with_its_reason(data: bytes | str, how: dict[str, str], reason: str) -> None:
    assert reason_of(data, **how) == reason


@pytest.mark.parametrize(
    ("text", "how", "told"),
    [
        ('{"text": "a"}\n\n{broken\n{"text": "b"}', {"name": "talk.jsonl"}, "line 3 "),
        ('{"text": "a"}\n{"speaker": "b"}', {"name": "talk.jsonl"}, "line 2 "),
        ('{"text": "a"}\n"words"', {"name": "talk.jsonl"}, "line 2 "),
        ('[\n{"text": "a"},\n,\n]', {"media_type": "application/json"}, r"line 3 \(column 1\) is not JSON"),
    ],
)
def test_a_faulty_line_of_turns_is_named(text: str, how: dict[str, str], told: str) -> None:
    with pytest.raises(UnreadableDocumentError, match=told):
        read_document(text, **how)


# --- Structure -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-3")
def test_headings_of_markdown_are_sections() -> None:
    document = read_document(
        "---\ntitle: 'The title'\n---\n\nintro\n\n# One *two* `three` [four](http://five)\r\nwords\n\nSetext\n------\n\n"
        "```\n# code\n```\n\n<div>\n# html\n</div>\n\n> # quote\n\n- # item\n\n### Deep ###\nend\n#\n",
        name="a.md",
    )
    assert document.title == "The title"
    assert headings(document) == [(1, "One two three four"), (2, "Setext"), (3, "Deep"), (1, "Section 4")]
    own_texts = [document.text[part.start : document.own_end(index)] for index, part in enumerate(document.outline)]
    first_lines = [text.split("\n")[0].strip() for text in own_texts]
    assert first_lines == ["# One *two* `three` [four](http://five)", "Setext", "### Deep ###", "#"]
    assert document.text[: document.outline[0].start].endswith("intro\n\n")
    assert document.heading_path(2) == "One two three four > Setext > Deep"


@pytest.mark.requirement("FOREST-3")
def test_headings_of_html_are_sections_and_scripts_are_removed() -> None:
    document = read_document(
        "<html><head><title>A &amp; B</title><style>p {}</style></head><body>before<h1>One <b>big</b>\n thing</h1>"
        "<p>First  <i>para</i>, here.<p>Second<br>line<ul><li>x<li>y<ol><li>z</ol></ul><script>alert(1)</script>"
        "<table><tr><td>1</td><td>2</td></tr></table><h2> <img></h2><h3>Three</h3><pre>  a\n\n   b</pre>tail</body>"
    )
    assert document.title == "A & B"
    assert document.text == (
        "before\n\nOne big thing\n\nFirst para, here.\n\nSecond\nline\n\n- x\n- y\n  1. z\n\n1\t2\n\nThree\n\n"
        "  a\n\n   b\n\ntail\n"
    )
    assert headings(document) == [(1, "One big thing"), (2, "Three")]


def test_a_heading_without_text_gets_a_readable_title() -> None:
    sections = nest([Heading("\u200b", 1, 0), Heading("  ", 2, 3), Heading("x\ny\x00", 1, 5)], "words words")
    assert [section.title for section in sections] == ["Section 1", "Section 2", "x y"]


@pytest.mark.requirement("FOREST-3")
def test_an_outline_is_flattened_below_the_deepest_level() -> None:
    count = 1_000
    text = "".join(f"{level}\n" for level in range(count))
    starts = accumulate((len(f"{level}\n") for level in range(count - 1)), initial=0)
    sections = nest([Heading(f"H{level}", level + 1, start) for level, start in enumerate(starts)], text)
    assert [section.level for section in sections[:14]] == [*range(1, 13), 12, 12]
    assert {section.parent for section in sections[DEEPEST_LEVEL:]} == {DEEPEST_LEVEL - 2}
    assert all(sections[index].end == sections[index + 1].start for index in range(DEEPEST_LEVEL, count - 1))


def test_sections_contain_those_below_them() -> None:
    document = read_document("# A\n## B\n# C\n### D\n## E\nwords\n", name="a.md")
    spans = [(section.start, section.end, section.parent) for section in document.outline]
    assert spans == [(0, 9, -1), (4, 9, 0), (9, 30, -1), (13, 19, 2), (19, 30, 2)]


def test_titles_are_one_line_of_500_characters() -> None:
    long = read_document(f"# {'word ' * 3000}\n\nx", name="a.md").outline[0].title
    assert len(long) <= 500
    assert long.endswith("…")
    assert one_line("a\r\n\tb\u2028c\x07d") == "a b c d"
    assert title_or("\u200b\u3164", "fallback") == "fallback"


def test_a_heading_path_fits_into_a_source() -> None:
    text = "".join(f"{'#' * level} {'word ' * 120}\n" for level in range(1, 7))
    document = read_document(text, name="a.md")
    assert len(document.heading_path(5)) <= 2000
    assert document.heading_path(5).count(" > ") == 5


# --- Conversations ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-3")
def test_turns_are_lines_and_days_are_sections() -> None:
    document = conversation(
        [
            SpokenTurn("Ann", "Hi!", "1:56 pm on 8 May, 2023", "D1:1"),
            SpokenTurn("Bob", " two\nlines \n", "2:03 pm on 8 May, 2023", "D1:2"),
            SpokenTurn("Ann", "   "),
            SpokenTurn("", "nobody", "", "D1:4"),
            SpokenTurn("Ann", "Again", "May 9th, 2023"),
        ]
    )
    assert document.text == "Ann: Hi!\nBob:  two\nlines \n\nnobody\nAnn: Again\n"
    said = [document.text[turn.start : turn.end] for turn in document.turns]
    assert said == ["Ann: Hi!\n", "Bob:  two\nlines \n\n", "nobody\n", "Ann: Again\n"]
    assert [turn.id for turn in document.turns] == ["D1:1", "D1:2", "D1:4", ""]
    assert document.turns[1].time == "2:03 pm on 8 May, 2023"
    assert headings(document) == [(1, "2023-05-08"), (1, "2023-05-09")]
    assert document.warnings == ("1 turns without words were left out.",)


def test_explicit_sessions_are_sections() -> None:
    turns = [
        {"role": "user", "content": "hi", "session": 1, "time": "2024-01-02T03:04:05Z"},
        {"role": "assistant", "content": [{"type": "text", "text": "ho"}], "session": 1},
        {"role": "user", "content": "hi", "session": 2},
    ]
    for key, how in (("turns", {"name": "t.json"}), ("messages", {"media_type": "application/json"})):
        document = read_document(json.dumps({"title": "Talk", key: turns}), **how)
        assert document.title == "Talk"
        assert headings(document) == [(1, "1, 2024-01-02"), (1, "2")]
        assert document.text == "user: hi\nassistant: ho\nuser: hi\n"
    by_line = read_document("\r\n".join(json.dumps(turn) for turn in turns), media_type="application/x-ndjson")
    assert by_line.text == "user: hi\nassistant: ho\nuser: hi\n"


@pytest.mark.parametrize(
    ("time", "day"),
    [
        ("2023-05-08T10:00:00Z", "2023-05-08"),
        ("20230508T100000", "2023-05-08"),
        ("2023/5/8 10:00", "2023-05-08"),
        ("2023年5月8日 上午", "2023-05-08"),
        ("1:56 pm on 8 May, 2023", "2023-05-08"),
        ("Mon, 8th of May 2023", "2023-05-08"),
        ("September 3, 2021", "2021-09-03"),
        ("8/5/2023 10:00", "8/5/2023"),
        ("yesterday", ""),
        ("10:30", ""),
        ("", ""),
    ],
)
def test_the_day_of_a_time_is_read(time: str, day: str) -> None:
    assert day_of(time) == day


# --- Size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "begin", "unit", "times"),
    [
        ("a.md", "# ", "word ", 40),
        ("a.html", "<p>", "word ", 40),
        ("a.txt", "", "word ", 40),
        *(("a.html", "", unit, 1) for unit in ("<ul><li>", "<b><div>", "<h1>")),
        ("a.md", "", "# x\n", 1),
        ("a.md", "# x\n", ">", 50),
        ("a.md", "# x\n", "- ", 25),
    ],
)
def test_huge_lines_and_deep_nesting_take_linear_steps(name: str, begin: str, unit: str, times: int) -> None:
    def read(size: int) -> Document:
        return read_document(begin + unit * (times * size) + "x", name=name)

    assert growth(read, 150) < LINEAR
    assert read(9_000).text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", '{"retries": 3}'),
        ("numbers.json", "[1, 2, 3]"),
        ("broken.json", '{"retries": '),
        ("events.jsonl", '{"at": 1}\n{"at": 2}\n'),
        ("one.jsonl", '{"speaker": "Ana", "text": "Hello."}\n'),
        ("chat.jsonl", '{"speaker": "Ana", "text": "Hello."}\n{"speaker": "Ben", "text": "Hi."}\n'),
        ("chat.json", '[{"speaker": "Ana", "text": "Hello."}, {"speaker": "Ben", "text": "Hi."}]'),
        ("chats.json", '{"title": "Talk", "turns": [{"speaker": "Ana", "text": "Hello."}]}'),
        ("people.csv", "name,city\nAda,London\n"),
        ("people.tsv", "name\tcity\nAda\tLondon\n"),
        ("guide.md", "# Guide\n\nText.\n"),
        ("guide", "# Guide\n\nText.\n"),
        ("plain.txt", "Just text.\n"),
        ("page.html", "<html><body><h1>Page</h1><p>Text.</p></body></html>"),
        ("queue.py", "def put():\n    pass\n"),
        ("main.go", "package main\n\nfunc main() {}\n"),
        ("tool.1", ".TH TOOL 1\n.SH NAME\ntool \\- does it\n"),
        ("s.ipynb", '{"cells": [{"cell_type": "raw", "metadata": {}, "source": ["Sales"]}], "nbformat": 4}'),
    ],
)
def test_the_next_version_of_a_file_is_read_as_the_kind_that_was_found_before(name: str, text: str) -> None:
    """A client sends the type that was found; it must never turn a good file into a bad one."""
    before = read_document(text.encode(), name=name)
    assert read_document(text.encode(), name=name, media_type=before.media_type) == before


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.json", "1" * 5000, InvalidTurnsError),
        ("a.jsonl", '{"speaker": "A", "text": "b"}\n' + "1" * 5000, InvalidTurnsError),
        ("a.ipynb", "1" * 5000, InvalidNotebookError),
    ],
)
def test_a_number_that_python_does_not_read_is_told(name: str, text: str, error: type[Exception]) -> None:
    media_type = {"a.json": "application/json", "a.jsonl": "application/x-ndjson"}.get(name, "")
    with pytest.raises(error, match="number that is too long"):
        read_document(text, name=name, media_type=media_type)
