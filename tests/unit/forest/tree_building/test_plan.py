"""The plan of a tree: sections above, merged nodes below them, leaves at the bottom."""

from hashlib import sha256

import numpy as np
import pytest
from memotree_storage.model.validation import check_text

from memotree.forest.chunking.splitting import Piece, split
from memotree.forest.documents import Document, SpokenTurn, conversation, read_document
from memotree.forest.documents.canonical import shorten
from memotree.forest.tree_building.merging import Merging, merge_now
from memotree.forest.tree_building.plan import PlannedInner, PlannedLeaf, TreePlan, group_pieces, plan_tree
from memotree.forest.tree_building.titles import header_title, leaf_title, merged_title, section_title


def grow(document: Document, pieces: list[Piece], limit: int) -> TreePlan:
    """Plan a tree from equal vectors, so that pairs merge from the front."""
    mergings = []
    for group in group_pieces(pieces):
        mine = pieces[group.first : group.first + group.count]
        lengths = [piece.end - piece.start for piece in mine]
        mergings.append(
            merge_now([np.ones(2)] * len(mine), lengths, lambda _l, _r: np.ones(2), threshold=0.5, limit=limit)
        )
    return plan_tree(document, pieces, mergings)


def drawn(document: Document, plan: TreePlan) -> list[str]:
    """The tree as indented lines."""
    depths: list[int] = []
    lines = []
    for node in plan.nodes:
        depths.append(0 if node.parent is None else depths[node.parent] + 1)
        kind = "leaf" if isinstance(node, PlannedLeaf) else "merged" if node.section is None else "section"
        lines.append(f"{'  ' * depths[-1]}{kind} {document.text[node.start : node.end]!r}")
    return lines


def check(document: Document, plan: TreePlan) -> None:
    leaves = [node for node in plan.nodes if isinstance(node, PlannedLeaf)]
    assert "".join(document.text[leaf.start : leaf.end] for leaf in leaves) == document.text
    assert [plan.nodes[index] for index in plan.leaves] == leaves
    assert list(plan.roots) == [index for index, node in enumerate(plan.nodes) if node.parent is None]
    for index, node in enumerate(plan.nodes):
        text = document.text[node.start : node.end]
        assert node.sha256 == sha256(text.encode()).hexdigest()
        assert node.page == document.page_at(node.start)
        check_text("title", node.title, required=True, max_chars=500)
        check_text("heading", node.heading, max_chars=2000)
        if isinstance(node, PlannedInner):
            below = [plan.nodes[child] for child in node.children]
            assert all(child.parent == index for child in below)
            assert "".join(document.text[child.start : child.end] for child in below) == text


@pytest.mark.requirement("FOREST-3")
@pytest.mark.requirement("FOREST-4")
def test_sections_are_above_merged_nodes_which_are_above_leaves() -> None:
    one, two, three, four = (f"{letter * 4} {letter * 9} {letter * 8}. " for letter in "abcd")
    text = f"{one}{two}\n\n# A\n{one}{two}{three}{four}\n## B\nonly\n## C\n{one}{two}\n"
    document = read_document(text, name="a.md")
    plan = grow(document, split(document, 30), 62)
    check(document, plan)
    assert drawn(document, plan) == [
        f"merged {one + two + chr(10) * 2!r}",
        f"  leaf {one!r}",
        f"  leaf {two + chr(10) * 2!r}",
        f"section {text[len(one + two) + 2 :]!r}",
        f"  merged {'# A' + chr(10) + one + two!r}",
        f"    leaf {'# A' + chr(10) + one!r}",
        f"    leaf {two!r}",
        f"  merged {three + four + chr(10)!r}",
        f"    leaf {three!r}",
        f"    leaf {four + chr(10)!r}",
        "  section '## B\\nonly\\n'",
        "    leaf '## B\\nonly\\n'",
        f"  section {'## C' + chr(10) + one + two + chr(10)!r}",
        f"    leaf {'## C' + chr(10) + one!r}",
        f"    leaf {two + chr(10)!r}",
    ]
    headings = {node.title: node.heading for node in plan.nodes if isinstance(node, PlannedInner)}
    assert headings["B"] == "A > B"
    assert headings["A"] == "A"
    last = plan.nodes[12]
    assert isinstance(last, PlannedInner)
    assert (last.section, last.group, last.merged) == (2, 3, 2), "one merged root of a whole section is the section"
    assert [node.heading for node in plan.nodes if isinstance(node, PlannedLeaf)] == [
        "", "", "A", "A", "A", "A", "A > B", "A > C", "A > C",
    ]  # fmt: skip


@pytest.mark.requirement("FOREST-1")
def test_plain_text_gives_one_or_several_trees_and_no_root_above_them() -> None:
    document = Document("one one. two two. three three. four four. five five.")
    pieces = split(document, 14)
    assert len(grow(document, pieces, 1000).roots) == 1
    plan = grow(document, pieces, 30)
    check(document, plan)
    assert len(plan.roots) == 3
    alone = plan_tree(document, pieces, [Merging(len(pieces), (), tuple(range(len(pieces))))])
    assert len(alone.roots) == len(pieces)
    check(document, alone)


@pytest.mark.requirement("FOREST-3")
def test_sessions_of_a_conversation_are_above_its_turns() -> None:
    talk = conversation(
        [
            SpokenTurn("Ann", "hello there", "2024-05-01 10:00"),
            SpokenTurn("Bob", "and hello back", "2024-05-01 10:01"),
            SpokenTurn("Ann", "a new day", "2024-05-02 09:00"),
        ]
    )
    plan = grow(talk, split(talk, 1000), 8000)
    check(talk, plan)
    first, second = ["2024-05-01", "Ann: hello there", "Bob: and hello back"], ["2024-05-02", "Ann: a new day"]
    assert [node.title for node in plan.nodes] == first + second
    assert [node.turn for node in plan.nodes if isinstance(node, PlannedLeaf)] == [0, 1, 2]


def test_a_chain_of_merges_as_long_as_the_document_needs_no_recursion() -> None:
    count = 5000
    document = Document("word " * count)
    pieces = [Piece(5 * number, 5 * number + 5) for number in range(count)]
    pairs = ((0, 1), *((count + number, number + 2) for number in range(count - 2)))
    plan = plan_tree(document, pieces, [Merging(count, pairs, (2 * count - 2,))])
    assert len(plan.nodes) == 2 * count - 1
    assert plan.roots == (0,)
    with pytest.raises(ValueError, match="mergings"):
        plan_tree(document, pieces, [])  # merges of other pieces


def test_titles_are_the_first_words_without_marks() -> None:
    assert leaf_title("\n\n## The *heading*\n\nwords", "x") == "The *heading*"
    assert leaf_title("> - 1. words\nmore", "x") == "words"
    assert leaf_title(" \n\u200b\n", "Part 7") == "Part 7"
    assert leaf_title("---\n", "Part 7") == "Part 7"
    assert leaf_title("---\ntitle: A day\n---\n", "x") == "title: A day"
    long = leaf_title("word " * 100, "x")
    assert len(long) <= 80
    assert long.endswith("word…")
    assert merged_title("# First part\n", "The last words\nof it", "x") == "First part … The last words"
    assert merged_title("same", "same", "x") == "same"
    assert merged_title(" ", "\n", "Parts 3") == "Parts 3"


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    ("text", "heading", "title"),
    [
        ("## Soil\n\nRoses want clay.\n", "Soil", "Roses want clay."),
        ("Soil\n====\nRoses want clay.\n", "Soil", "Roses want clay."),
        ("## Soil\n", "Soil", "Soil"),
        ("Roses want clay.\n## Soil\n", "Soil", "Roses want clay."),
        ("## Soil and sun\nRoses want clay.\n", "Soil", "Soil and sun"),
        ("0\n\nThe boiler is off.\n", "", "The boiler is off."),
        ("2.1\n\nThe boiler is off.\n", "", "2.1 The boiler is off."),
        ("1837 cut to 1663\nafter the index was renewed\n", "", "after the index was renewed"),
        ("<details>\n<summary>Older versions</summary>\n\nwords\n", "", "Older versions"),
        ('<p align="center">\n  <img src="a.png">\n</p>\n\nWhat it is for.\n', "", "What it is for."),
        ("<!-- made by hand -->\nWhat it is for.\n", "", "What it is for."),
        ("[![Build](https://a/b.svg)](https://a)\nWhat it is for.\n", "", "What it is for."),
        ("```console\n$ memotree status\n```\n", "", "$ memotree status"),
        ("2024-05-03 10:00:00 Login failed\nwords\n", "", "2024-05-03 10:00:00 Login failed"),
        ("预算\n", "", "预算"),
        ("|---|---|\n| 1 | 2 |\n", "", "Part 4"),
        ("| Part   | Price |\n|---|---|\n| bolt | 3 |\n", "", "Part | Price"),
        ("a < b\n", "", "a < b"),
        ("1 2 3\n4 5 6\n", "Prices", "Prices, part 4"),
        ("1 2 3\n4 5 6\n", "2.1", "Part 4"),
    ],
)
def test_the_title_of_a_leaf_names_its_content_and_not_its_section(text: str, heading: str, title: str) -> None:
    assert leaf_title(text, "Part 4", heading) == title


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    ("code", "title"),
    [
        ("@property\ndef size(self) -> int:\n", "def size(self) -> int:"),
        ('#!/bin/sh\n"""\nReads files.\n"""\n', "Reads files."),
        ("/**\n * Reads files.\n */\n", "Reads files."),
        ("/**\n * @license\n * Reads files.\n */\n", "Reads files."),
        ("}\n\n// Reads files.\n", "Reads files."),
        ("/** Reads files. */\nclass Reader {\n", "Reads files."),
        ("#include <stdlib.h>\n\nint ring_put(int v);\n", "int ring_put(int v);"),
        ("package main\n\nimport (\n)\n\nfunc main() {\n", "func main() {"),
        ("import os\nfrom sys import argv\n", "import os"),
        ('@mark.parametrize(\n    ("a", "b"),\n)\ndef main(a: int) -> None:\n', "def main(a: int) -> None:"),
    ],
)
def test_the_title_of_code_is_neither_a_decorator_nor_a_sign_of_a_comment(code: str, title: str) -> None:
    assert leaf_title(code, "x", "main()", is_code=True) == title


@pytest.mark.requirement("USE-9")
def test_a_section_with_a_number_for_a_heading_is_titled_by_number_and_first_words() -> None:
    document = read_document("# Guide\n\n## 2.1\n\nOpen both taps.\n\n## 2024-05-03\n\nWords.\n", name="a.md")
    titles = [node.title for node in grow(document, split(document, 400), 800).nodes if isinstance(node, PlannedInner)]
    assert titles == ["Guide", "2.1 Open both taps.", "2024-05-03"]


@pytest.mark.parametrize("length", [79, 80, 500])
def test_a_number_that_is_as_long_as_a_title_is_a_title_by_itself(length: int) -> None:
    number = ("1." * length)[: length - 1] + "1"
    assert section_title(number, f"{number}\n\nOpen both taps.\n") == number
    assert shorten("words", 0) == shorten("words", -3) == ""


def test_the_title_of_a_turn_is_its_beginning_whatever_was_said() -> None:
    talk = conversation([SpokenTurn("A", "1837"), SpokenTurn("", "0"), SpokenTurn("B", "<br>\nwords", session="12")])
    titles = [node.title for node in grow(talk, split(talk, 400), 800).nodes]
    assert titles == ["A: 1837 … 0", "A: 1837", "0", "12", "B: <br>"]


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    ("header", "text", "title"),
    [
        ("| Part | Price |\n|---|---:|", "| bolt | 3 |\n", "Part | Price: bolt"),
        ("Part\tPrice\tIn stock", "3\t4\t5\n", "Part | Price | In stock"),
        ('"Part","Price"', '7,"bolt"\n', "Part | Price: bolt"),
        ("| 2019 | 2020 |\n|---|---|", "| up | down |\n", "2019 | 2020: up"),
    ],
)
def test_a_leaf_that_goes_on_with_a_table_is_titled_by_its_columns(header: str, text: str, title: str) -> None:
    assert header_title(header, text) == title


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize("line", ["<!---->", "<br />", "<br/> ", "![a](b) ", "[![", "| ", "#[", "<p "])
def test_titles_of_hostile_lines_end(line: str) -> None:
    for end in ("x", "1", "", "-->"):
        for is_code in (False, True):
            assert len(leaf_title(line * 2000 + end, "Part 1", "1", is_code=is_code)) <= 80
