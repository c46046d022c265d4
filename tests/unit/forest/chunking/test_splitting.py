"""The places where documents are cut."""

import tracemalloc
from itertools import pairwise

import pytest
from steps import LINEAR, growth

from memotree.forest.chunking.graphemes import cut_before, may_cut
from memotree.forest.chunking.splitting import Piece, split, stretches
from memotree.forest.documents import SpokenTurn, conversation, read_document
from memotree.forest.documents.document import Document
from memotree.forest.documents.kinds import MAN


def cut(text: str, size: int, name: str = "a.txt") -> list[str]:
    document = read_document(text, name=name)
    return [document.text[piece.start : piece.end] for piece in split(document, size)]


@pytest.mark.requirement("FOREST-1")
def test_text_is_cut_at_paragraphs_then_lines_then_sentences_then_words() -> None:
    assert cut("One two.\n\nThree four.\n\nFive six.", 24) == ["One two.\n\nThree four.\n\n", "Five six."]
    assert cut("One two\nthree four\nfive six seven", 19) == ["One two\nthree four\n", "five six seven"]
    assert cut("One two. Three four! Five six? Seven.", 21) == ["One two. Three four! ", "Five six? Seven."]
    assert cut("one two three four five", 9) == ["one two ", "three ", "four five"]

    chinese = ["第一句话在这里。", "第二句话呢？", "第三句话！", "“第四句。”", "第五句；完"]  # noqa: RUF001 - their marks
    assert cut("".join(chinese), 34) == chinese  # a Chinese character counts as four
    hindi = ["पहला वाक्य। ", "दूसरा वाक्य। ", "तीसरा?"]
    assert cut("".join(hindi), 13) == hindi


@pytest.mark.requirement("FOREST-1")
def test_line_ends_of_every_system_are_kept_whole() -> None:
    text = "one one one\r\n\r\ntwo two two\r\nthree three\r\n"
    pieces = cut(text, 16)
    assert "".join(pieces) == text
    assert pieces == ["one one one\r\n\r\n", "two two two\r\n", "three three\r\n"]
    assert not any(piece.startswith("\n") for size in range(1, 20) for piece in cut(text, max(2, size)))


def test_code_is_cut_before_its_functions() -> None:
    code = "import os\n\n\ndef first():\n    return 1\n\n\ndef second():\n    return 2\n\n\nclass Third:\n    pass\n"
    assert cut(code, 39, "a.py") == [
        "import os\n\n\n",
        "def first():\n    return 1\n\n\n",
        "def second():\n    return 2\n\n\n",
        "class Third:\n    pass\n",
    ]


def test_neither_a_name_nor_a_heading_is_a_leaf_of_its_own_before_a_long_text() -> None:
    talk = conversation([SpokenTurn("Ann", "word " * 60)])
    pieces = [talk.text[piece.start : piece.end] for piece in split(talk, 100)]
    assert pieces[0].startswith("Ann: word")
    assert all(20 <= len(piece) <= 100 for piece in pieces)
    text = "# A heading\n\n" + "Some words of a sentence. " * 12 + "\n"
    pieces = cut(text, 100, "a.md")
    assert pieces[0].startswith("# A heading\n\nSome words")
    assert "".join(pieces) == text


@pytest.mark.requirement("FOREST-3")
def test_no_piece_crosses_a_section_or_a_turn() -> None:
    document = read_document("before\n\n# A\n\none\n\n## B\n\ntwo\n\n# C\n\nthree\n", name="a.md")
    assert [(document.text[piece.start : piece.end], piece.section) for piece in split(document, 1000)] == [
        ("before\n\n", -1),
        ("# A\n\none\n\n", 0),
        ("## B\n\ntwo\n\n", 1),
        ("# C\n\nthree\n", 2),
    ]
    talk = conversation([SpokenTurn("A", "word " * 10, session="1"), SpokenTurn("B", "short", session="2")])
    assert [(piece.section, piece.turn) for piece in split(talk, 40)] == [(0, 0), (0, 0), (0, 0), (1, 1)]
    document = read_document("\n\n# A\n\none\n", name="a.md")
    assert split(document, 1000) == [Piece(0, len(document.text), 0)], "blank text before a heading belongs to it"
    assert [stretch.section for stretch in stretches(document)] == [0]


def test_white_space_alone_is_no_piece() -> None:
    assert cut("word" + " " * 7 + "word", 8) != ["word    ", "   ", "word"]
    for size in range(6, 20):
        assert not any(piece.isspace() for piece in cut("one two three \n four five \n\n\n six", size))


def test_gaps_alone_can_be_cut() -> None:
    document = read_document("# A\n\none two three\n\n# B\n\nfour five six\n", name="a.md")
    pieces = split(document, 8, [(5, 12), (20, 30)])
    assert [document.text[piece.start : piece.end] for piece in pieces] == ["one two", "# B\n\n", "four "]
    assert [piece.section for piece in pieces] == [0, 1, 1]
    assert split(document, 8, []) == []
    with pytest.raises(ValueError, match="at least 1"):
        split(document, 0)


def test_graphemes_stay_whole() -> None:
    family = "👩\u200d👩\u200d👧"
    for cluster in ("e\u0301", family, "🇩🇪", "👍🏽", "\u1100\u1161\u11a8", "\r\n", "क्षि", "🏴\U000e0067\U000e007f"):
        text = f"a{cluster}b"
        assert may_cut(text, 1)
        assert may_cut(text, 1 + len(cluster))
        assert not any(may_cut(text, 1 + inside) for inside in range(1, len(cluster)))
        assert cut_before(text, len(cluster)) == 1
    flags = "🇩🇪🇫🇷🇮🇹"
    assert [place for place in range(1, 6) if may_cut(flags, place)] == [2, 4]
    run = f"a{'🇩🇪' * 1001}"
    assert may_cut(run, 1001)
    assert not may_cut(run, 1002)
    assert cut(family * 10, 12) == [family * 2] * 5


@pytest.mark.requirement("FOREST-1")
@pytest.mark.parametrize(
    "text",
    [
        "word and more " * 70_000,
        "x" * 1_000_000,
        "中文没有空格" * 170_000,
        "\n" * 500_000 + "x",
        "a" + "\u0301" * 500_000,
    ],
    ids=["words", "letters", "chinese", "breaks", "marks"],
)
def test_a_megabyte_in_one_line_is_split_in_linear_steps(text: str) -> None:
    assert growth(lambda size: split(Document(text[:size]), 1000), 20_000) < LINEAR
    pieces = split(Document(text), 1000)
    assert pieces[-1].end == len(text)
    assert all(one.end == two.start for one, two in pairwise(pieces))
    assert all(piece.end - piece.start <= 1000 for piece in pieces)


def test_memory_does_not_grow_with_the_number_of_words() -> None:
    document = Document("a b c d e f g h " * 6_000)
    tracemalloc.start()
    try:
        split(document, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20


@pytest.mark.parametrize("length", [60, 300, 350, 380, 420, 700])
def test_the_name_of_an_option_stays_with_its_text(length: int) -> None:
    text = "".join(f"--option-{number}\n{'It says what. ' * (length // 14)}End {number}.\n\n" for number in range(12))
    pieces = split(Document(text, MAN), 400)
    for number in range(12):
        head = next(piece for piece in pieces if f"--option-{number}\n" in text[piece.start : piece.end])
        assert f"--option-{number}\nIt says" in text[head.start : head.end]
