"""Parts of a long answer: bounded, and nothing is lost between them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.gateways.answer_parts import LONGER, MOST_BYTES, NEXT_PART, PartAsked, part_asked, shortened
from memotree.gateways.readable_text import readable

pytestmark = pytest.mark.requirement("TOOL-2")

LONG = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=5), st.integers(300, 30_000))
NODE = st.fixed_dictionaries({"id": st.text("ab", min_size=1, max_size=8), "content": LONG})


def parts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number in count(1):
        asked = PartAsked(number)
        part = asked.of(data)
        assert asked.fault is None
        assert part.pop(NEXT_PART, None) == (number + 1 if number < asked.count else None)
        yield part
        if number == asked.count:
            return


@given(st.lists(NODE, max_size=4, unique_by=lambda node: node["id"]), LONG, st.text(max_size=20))
def test_the_parts_together_are_the_answer(nodes: list[dict[str, str]], text: str, short: str) -> None:
    contents: dict[str, str] = {}
    whole = ""
    for part in parts({"nodes": nodes, "node": {"text": text}, "short": short}):
        assert part["short"] == short
        whole += part["node"]["text"]
        for node in part["nodes"]:
            contents[node["id"]] = contents.get(node["id"], "") + node["content"]
    assert whole == text
    assert contents == {node["id"]: node["content"] for node in nodes}


@given(st.lists(st.tuples(st.text(min_size=1, max_size=3), st.integers(0, 30_000)), max_size=4))
def test_a_part_is_bounded(texts: list[tuple[str, int]]) -> None:
    nodes = [{"content": text * (300 + times)} for text, times in texts]
    for part in parts({"nodes": nodes}):
        assert sum(len(node["content"].encode()) for node in part["nodes"]) <= MOST_BYTES + 3  # a character is whole


@pytest.mark.parametrize("line", ["7\n", "\n", "\r", "word " * 30 + "\n", "x" * 200 + "\n"])
def test_a_part_is_whole_in_the_text_that_quotes_it(line: str) -> None:
    whole = line * (90_000 // len(line))
    told = ""
    for part in parts({"node": {"id": "a", "content": whole}}):
        shown = readable(part)
        assert shortened(shown) == shown
        told += part["node"]["content"]
        assert told == whole or told.endswith(("\n", "\r")), "it ends at the end of a line"
    assert told == whole


def test_names_are_never_cut() -> None:
    node = {"title": "t" * 400, "path": "p" * 400, "content": "x" * MOST_BYTES}
    for part in parts({"nodes": [node, node], "next_page_token": "n" * 400}):
        assert part["next_page_token"] == "n" * 400
        assert all((each["title"], each["path"]) == (node["title"], node["path"]) for each in part["nodes"])


def test_a_short_answer_is_as_it_was() -> None:
    data = {"nodes": [{"content": "x" * 300}], "tags": ["a"], "count": 3, "none": None}
    assert PartAsked().of(data) == data


def test_an_item_of_a_list_is_in_the_parts_that_have_its_text() -> None:
    data = {"nodes": [{"id": name, "content": name * MOST_BYTES, "tags": ["t"]} for name in "abc"]}
    found = [[node["id"] for node in part["nodes"]] for part in parts(data)]
    assert found == [["a", "b", "c"], ["b"], ["c"]], "the first part names all"
    assert PartAsked(3).of(data)["nodes"][0]["tags"] == ["t"]


def test_the_reader_is_told_how_to_go_on() -> None:
    data = {"text": "x" * (2 * MOST_BYTES)}
    first, last, only = PartAsked(), PartAsked(2), PartAsked(may_go_on=False)
    assert [NEXT_PART in asked.of(data) for asked in (first, last, only)] == [True, False, False]
    assert first.remark == "Part 1 of 2. The same call with part=2 goes on."
    assert last.remark == "Part 2 of 2."
    assert only.remark == LONGER


def test_a_text_of_many_short_lines_is_shortened_at_the_end_of_one() -> None:
    lines = [f"line {number} é" for number in range(20_000)]
    found = shortened("\n".join(lines)).splitlines()
    assert found[:-1] == lines[: len(found) - 1]
    assert found[-1].startswith(LONGER)
    assert MOST_BYTES < len("\n".join(found).encode()) <= 2 * MOST_BYTES + 100
    assert shortened("\n".join(lines[:100])) == "\n".join(lines[:100])


def test_a_part_that_does_not_exist_is_a_fault() -> None:
    asked = PartAsked(3)
    asked.of({"text": "x"})
    assert asked.fault is not None
    assert asked.fault.description == "is 3, and the answer has one part."


@pytest.mark.parametrize("number", [2, 2.0, "2", " 2 "])
def test_a_number_is_taken_as_models_write_it(number: Any) -> None:
    assert part_asked(number).number == 2


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "two", "", [1], float("nan"), float("inf"), "9" * 5000])
def test_what_is_no_number_of_a_part_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        part_asked(number)
