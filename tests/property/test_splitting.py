"""The pieces of any text, joined, are the text."""

from itertools import pairwise

import pytest
import regex
from campaigns import effort
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_text_splitters import RecursiveCharacterTextSplitter
from memotree_storage.model.tokens import spaced_length

from memotree.forest.chunking.graphemes import may_cut
from memotree.forest.chunking.separators import PROSE
from memotree.forest.chunking.splitting import _cutter, split, stretches
from memotree.forest.documents import SpokenTurn, conversation, read_document
from memotree.forest.documents.canonical import canonical_text
from memotree.forest.documents.document import Document, UnreadableDocumentError
from memotree.forest.tree_building.plan import piece_title

AWKWARD = st.sampled_from(
    (  # noqa: SIM905 - a list of forty strings would take forty lines
        "\n|\r\n|\r|\n\n|\n \n| |\t|.|! |? |, |# |## A\n\n|---\n|- |。|！|？|；|，|中文|。」|e\u0301|"  # noqa: RUF001 - Chinese
        "👩\u200d👩\u200d👧|🇩🇪|👍🏽|\u1100\u1161\u11a8|\u0301\u0301\u0301|\u2028|\u200b|word|Anotherword|"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx|```\n|class A:\n|\ndef f():\n"
    ).split("|")
)
texts = st.one_of(
    st.lists(st.one_of(AWKWARD, st.characters(exclude_categories=["Cs"])), max_size=120).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
)
spoken = st.tuples(st.sampled_from(["Ann", "Bob", ""]), texts, st.sampled_from(["", "1", "2"]))
sizes = st.one_of(st.integers(1, 12), st.integers(13, 120))


def check(document: Document, size: int) -> None:
    pieces = split(document, size)
    assert "".join(document.text[piece.start : piece.end] for piece in pieces) == document.text
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces)][:-1]
    assert all(0 < piece.end - piece.start <= size for piece in pieces)
    for stretch in stretches(document):
        assert all(piece.end <= stretch.start or piece.start >= stretch.start for piece in pieces)


CELLS = st.text(st.sampled_from("abc def . ! ? 123 é中。; :"), min_size=1, max_size=30).map(lambda cell: f"a{cell}")
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=12).map(
    lambda rows: "| name | price |\n|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
)


@pytest.mark.requirement("FOREST-1", "USE-9")
@effort(160)
@given(
    texts | st.lists(texts | TABLES, max_size=6).map("\n\n".join),
    sizes,
    st.sampled_from(["a.txt", "a.md", "a.py", "a.rs", "a.ts", "a.h", "a.html", ""]),
)
def test_the_pieces_of_any_document_joined_are_its_text(text: str, size: int, name: str) -> None:
    try:
        document = read_document(text, name=name)
    except UnreadableDocumentError:
        return
    check(document, size)


UNFIT = st.one_of(
    texts, st.text(st.sampled_from("ab\n\x00\x0b\x0c\x1c\x1f\x7f\x85\x9f\ud800\ufeff\u2028"), max_size=40)
)


@pytest.mark.requirement("FOREST-1")
@effort(80)
@given(UNFIT, st.sampled_from(["a.txt", "a.md", "a.py", "a.csv", ""]))
def test_a_text_is_kept_but_for_characters_that_a_warning_names(text: str, name: str) -> None:
    try:
        document = read_document(text, name=name, media_type="" if name else "text/plain")
    except UnreadableDocumentError:
        return
    given_text = text.removeprefix("\ufeff")
    assert len(document.text) == len(given_text)
    changed = {ord(was) for was, now in zip(given_text, document.text, strict=True) if was != now}
    told = [told for told in document.warnings if "were replaced" in told]
    assert len(told) == bool(changed)
    assert all(f"U+{code:04X} by" in told[0] for code in sorted(changed)[:8])
    assert not any(chr(code) in document.text for code in changed - {0xFFFD})


@pytest.mark.requirement("FOREST-1")
@given(st.lists(spoken, max_size=12), sizes)
def test_the_pieces_of_any_conversation_joined_are_its_text(turns: list[tuple[str, str, str]], size: int) -> None:
    try:
        document = conversation(SpokenTurn(speaker, text, session=session) for speaker, text, session in turns)
    except UnreadableDocumentError:
        return
    check(document, size)
    spoken_turns = [(speaker, text) for speaker, text, _ in turns if canonical_text(text).strip()]
    assert len(document.turns) == len(spoken_turns)
    for turn, (speaker, text) in zip(document.turns, spoken_turns, strict=True):
        words = document.text[turn.start : turn.end]
        assert words == f"{turn.speaker}: {canonical_text(text)}\n".removeprefix(": ")
        assert turn.speaker == speaker or any("speakers" in told for told in document.warnings)
    for piece in split(document, size):
        assert piece.turn is not None
        turn = document.turns[piece.turn]
        assert turn.start <= piece.start < piece.end <= turn.end


@pytest.mark.requirement("USE-9")
@given(
    TABLES, st.integers(20, 400), st.sampled_from(["", "Words before it.\n\n", "# A heading\n\nWords. " * 20 + "\n\n"])
)
def test_a_table_is_kept_whole_or_cut_between_rows_and_each_later_leaf_knows_its_header(
    table: str, size: int, before: str
) -> None:
    document = read_document(f"{before}{table}\nWords after it.\n", name="a.md")
    (found,) = document.tables
    assert document.text[found.start : found.end] == table
    pieces = split(document, size)
    cuts = [piece.start for piece in pieces if found.start < piece.start < found.end]
    if spaced_length(document.text) > len(document.text):  # characters of unspaced scripts count as four
        size //= 4
    if len(table) <= size:
        assert cuts == []
    lines = table.splitlines(keepends=True)
    places = [found.start + len("".join(lines[:number])) for number in range(len(lines))]
    if len("".join(lines[:3])) <= size and max(map(len, lines)) <= size:
        assert set(cuts) <= set(places[3:]), "between two rows, and the header stays with the first one"
    for piece in pieces:
        goes_on = found.header_end <= piece.start < found.end
        assert document.header_at(piece.start) == ("| name | price |\n|---|---|" if goes_on else "")
        title = piece_title(document, piece, 0)
        assert title.startswith("name | price") or not goes_on


def characters(text: str, size: int) -> int:
    """The most characters of a piece of a text without sections: fewer in unspaced scripts."""
    return max(1, size * len(text) // spaced_length(text))


@given(texts, st.integers(8, 120))
def test_no_piece_begins_within_a_grapheme_where_that_can_be_avoided(text: str, size: int) -> None:
    text = "".join(text.split("\u0301"))  # runs of marks longer than a piece must be cut
    if not text:
        return
    for piece in split(Document(text), size):
        if not may_cut(text, piece.start):
            nearest = next(place for place in range(piece.start, -1, -1) if may_cut(text, place))
            assert piece.end - nearest > characters(text, size)


@given(texts)
def test_a_text_is_only_cut_between_graphemes(text: str) -> None:
    ends = [found.end() for found in regex.finditer(r"\X", text)]
    assert [place for place in range(1, len(text) + 1) if may_cut(text, place)] == ends


@example("\n## A\n\n", 2)
@example("\n\uac01", 2)
@given(texts, sizes)
def test_blank_pieces_remain_only_if_their_neighbours_are_full(text: str, size: int) -> None:
    if not text.strip():
        return
    pieces = split(Document(text), size)
    for before, piece in pairwise(pieces):
        if text[before.start : before.end].isspace() or text[piece.start : piece.end].isspace():
            assert piece.end - before.start > characters(text, size)


@given(texts, sizes, st.data())
def test_gaps_are_cut_like_a_whole_text(text: str, size: int, data: st.DataObject) -> None:
    if not text:
        return
    document = Document(text)
    ends = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    gaps = list(zip(ends[::2], ends[1::2], strict=False))
    pieces = split(document, size, gaps)
    for start, end in gaps:
        inside = [piece for piece in pieces if start <= piece.start < end]
        assert "".join(text[piece.start : piece.end] for piece in inside) == text[start:end]
    assert sum(piece.end - piece.start for piece in pieces) == sum(end - start for start, end in gaps)


@given(texts, st.integers(2, 60))
def test_the_linear_merge_cuts_where_the_library_does(text: str, size: int) -> None:
    library = RecursiveCharacterTextSplitter(
        separators=list(PROSE),
        is_separator_regex=True,
        keep_separator="end",
        strip_whitespace=False,
        chunk_size=size,
        chunk_overlap=0,
    )
    assert _cutter(PROSE, size)(text) == library.split_text(text)
