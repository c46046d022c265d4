"""Documents of each kind, damaged and blown up: each is read, or refused with a reason that says what to do.

Of what was read, the leaves joined are the text, the tree over them is sound, every part of it can be stored in a node,
and the costs grow with the size.
"""

from typing import Final

import pytest
from campaigns import TIMES, dice, effort
from fuzz.corpus import files, parts, repeated, texts
from hypothesis import given, note
from hypothesis import strategies as st
from memotree_storage.index.terms import count_terms
from memotree_storage.model.node import Node
from memotree_storage.model.position import between
from memotree_storage.model.tokens import count_tokens
from memotree_storage.model.validation import canonical_node, check_node, check_text
from steps import LINEAR, growth
from unit.forest.tree_building.test_plan import check as check_plan
from unit.forest.tree_building.test_plan import grow

from memotree.forest.chunking.splitting import split
from memotree.forest.documents import Document, UnreadableDocumentError, kinds, read_document
from memotree.forest.documents.document import DEEPEST_LEVEL, NO_SECTION
from memotree.forest.documents.serialization import from_json, to_json
from memotree.models.extractive import brief_of, digest_of, summary_of

pytestmark = pytest.mark.requirement("STORE-8", "FOREST-1")

_LONGEST: Final = 60_000
"""Bytes of a document; one that costs the square of its size is found by the growth of its steps."""

PARTS: Final = parts("documents")
"""Parts of the languages of documents, and characters that somewhere end a line or are hidden."""

SUFFIXES: Final = ("", *(f".{suffix}" for suffix in (*kinds._SUFFIXES, *kinds._LANGUAGES, "1", "3p", "man", "gz")))
NAMES: Final = ("", ".", "..", "a/b.md", "a\0b", "README", "x" * 500, *(f"a{suffix}" for suffix in SUFFIXES))
TYPES: Final = texts("media_types")


@st.composite
def blown_up(draw: st.DrawFn) -> tuple[str, bytes]:
    """A document of the corpus or of nothing, with parts put in, taken out, repeated and nested."""
    name, data = draw(st.sampled_from([*files("documents"), ("", b"")]))
    pieces = st.one_of(st.sampled_from(PARTS), st.binary(max_size=4))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(("put in", "put in", "take out", "repeat", "repeat", "nest", "double")))
        part = b"".join(draw(st.lists(pieces, min_size=1, max_size=3))) or b" "
        times = draw(st.sampled_from((1, 1, 2, 30, 1000, _LONGEST)))
        if kind == "put in":
            data = data[:at] + part + data[at:]
        elif kind == "take out":
            data = data[:at] + data[at + draw(st.integers(1, 20)) :]
        elif kind == "repeat":
            data = data[:at] + part * min(times, _LONGEST // len(part)) + data[at:]
        elif kind == "nest":
            closing = b"".join(draw(st.lists(pieces, max_size=2)))
            data = (
                part * min(times, _LONGEST // 2 // len(part))
                + data
                + closing * min(times, _LONGEST // 2 // (len(closing) or 1))
            )
        else:
            data = data[:at] + data[max(0, at - draw(st.integers(1, 40))) : at] * min(times, 500) + data[at:]
        data = data[:_LONGEST]
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(NAMES))
    return name, data


def check(name: str, data: bytes | str, media_type: str = "", size: int = 1000) -> Document | None:
    """Read a document and check what comes of it; ``None`` if it is refused."""
    try:
        document = read_document(data, name=name, media_type=media_type)
    except UnreadableDocumentError as error:
        refusal = error
    else:
        return _check_document(document, size)
    assert refusal.reason != UnreadableDocumentError.reason
    assert refusal.message.endswith(".")
    assert refusal.violations
    return None


def _check_document(document: Document, size: int) -> Document:
    text = document.text
    check_text("text", text, multiline=True)
    check_text("title", document.title, max_chars=500)
    assert from_json(to_json(document)) == document
    _check_places(document)
    pieces = split(document, size)
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    plan = grow(document, pieces, 8 * size)
    check_plan(document, plan)
    count_tokens(text)
    for planned in plan.nodes[:20]:
        content = text[planned.start : planned.end]
        count_terms(content)
        summary = summary_of(planned.title, content)
        node = Node(
            "0" * 16,
            "1" * 16,
            None,
            between(None, None),
            title=planned.title,
            brief=brief_of(planned.title, content),
            summary=digest_of([summary, summary]),
            content=content,
        )
        check_node(canonical_node(node))
    return document


def _check_places(document: Document) -> None:
    end = len(document.text)
    for number, section in enumerate(document.outline):
        check_text("heading", section.title, required=True, max_chars=500)
        assert 1 <= section.level <= DEEPEST_LEVEL
        assert 0 <= section.start <= section.end <= end
        assert section.parent < number
        if section.parent != NO_SECTION:
            assert document.outline[section.parent].start <= section.start
            assert section.end <= document.outline[section.parent].end
    assert list(document.pages) == sorted(document.pages)
    assert all(0 <= page <= end for page in document.pages)
    place = 0
    for table in document.tables:
        assert place <= table.start <= table.header_end <= table.end <= end
        place = table.end
    if document.turns:
        assert [turn.start for turn in document.turns] == [0, *(turn.end for turn in document.turns[:-1])]
        assert document.turns[-1].end == end


@pytest.mark.parametrize(("name", "data"), [pytest.param(*each, id=each[0]) for each in files("documents")])
def test_the_documents_of_the_corpus_can_be_read(name: str, data: bytes) -> None:
    for size in (1, 40, 1000):
        assert check(name, data, size=size) is not None


@pytest.mark.parametrize("line", texts("nasty_documents"), ids=range(len(texts("nasty_documents"))))
def test_documents_that_once_did_harm(line: str) -> None:
    """A line is the name of a document and its text, in parts that may stand for many."""
    name, *whole = line.split("|")
    text = "".join(repeated(part) for part in whole)
    for size in (200, 1000) if TIMES else [dice(line).choice((200, 1000))]:
        check(name, text, size=size)


_SPACES: Final = " " * 2000
STALLED: Final = {
    "lines of spaces": f"{_SPACES}x\n" * 2000,
    "spaces between two letters": f"a{' ' * 1_000_000}b",
    "a list of many levels": "".join(f"{_SPACES[: 2 * (depth % 1000)]}- x\n" for depth in range(2000)),
    "words of underscores": "a_" * 100_000,
}
"""Texts that once took a minute or more; their costs in C functions are not seen by counting steps."""


@pytest.mark.parametrize("what", STALLED)
def test_texts_that_once_stalled_all_callers(what: str) -> None:
    for name in ("a.txt", "a.md") if TIMES else [dice(what).choice(("a.txt", "a.md"))]:
        check(name, STALLED[what])


@effort(50)
@given(blown_up(), st.sampled_from(TYPES), st.sampled_from((3, 40, 1000)), st.sampled_from(NAMES))
def test_any_bytes_and_texts_are_read_or_refused_with_a_reason(
    document: tuple[str, bytes], media_type: str, size: int, other: str
) -> None:
    name, data = document
    note(f"{len(data)} bytes")
    check(name, data, media_type, size)
    check(other, data.decode("utf-8", "surrogateescape"))


WHOLE: Final = st.lists(st.sampled_from(PARTS), max_size=3).map(b"".join)


@effort(6)
@given(WHOLE, st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(b"".join), WHOLE, st.sampled_from(SUFFIXES))
def test_the_cost_of_a_document_grows_with_its_size(before: bytes, part: bytes, after: bytes, suffix: str) -> None:
    def read(size: int) -> None:
        try:
            document = read_document(before + part * size + after, name=f"a{suffix}")
        except UnreadableDocumentError:
            return
        split(document, 1000)

    assert growth(read, 8_000 // len(part)) < LINEAR
