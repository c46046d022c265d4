"""One argument has one value: two names for it, or one name twice, are refused, and none of the values is taken."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from memotree.cli.commands.tools import ToolArgumentsError, _object, _value
from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError, arguments_of
from memotree.gateways.http import from_query
from memotree.gateways.json_texts import NotJsonError, parsed, text_of
from memotree.gateways.tool_definitions import BY_NAME
from memotree.tools.builtin.documents import Documents
from memotree.tools.function_tool import tools_of

pytestmark = pytest.mark.requirement("CANVAS-7", "TOOL-3")


class NoCaller:
    async def call(self, *_: Any) -> Any:
        raise AssertionError

    def stream(self, *_: Any) -> Any:
        raise AssertionError


def request(tool: str, arguments: dict[str, Any]) -> Any:
    return Catalogue(NoCaller(), "main").request(BY_NAME[tool], arguments)


def faults(tool: str, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidArgumentsError) as caught:
        request(tool, arguments)
    return [(each.field, each.description) for each in caught.value.violations]


@pytest.mark.parametrize(
    ("tool", "arguments", "field", "other"),
    [
        ("forget", {"node_id": "A", "id": "B"}, "id", "node_id"),
        ("forget", {"id": "B", "node_id": "A"}, "node_id", "id"),
        ("forget", {"node": "A", "id": "B"}, "id", "node"),
        ("recall", {"query": "x", "q": "y"}, "q", "query"),
        ("remember", {"text": "x", "content": "x"}, "content", "text"),
        ("recall", {"query": "x", "tags": ["a"], "filter": {"tags": ["b"]}}, "tags", "filter.tags"),
        ("recall", {"query": "x", "filter": '{"tags": ["b"]}', "tags": ["a"]}, "tags", "filter.tags"),
        (
            "batch_change_memory",
            {"changes": [{"remember": {"text": "x", "content": "y"}}]},
            "changes[0].remember.content",
            "text",
        ),
    ],
)
def test_two_names_of_one_argument_are_a_fault(tool: str, arguments: dict[str, Any], field: str, other: str) -> None:
    assert (field, f"cannot be given together with {other}; choose one.") in faults(tool, arguments)


def test_every_value_beyond_the_first_is_told() -> None:
    found = faults("recall", {"query": "x", "q": "y", "question": "z"})
    assert [field for field, _ in found] == ["q", "question"]


def test_a_name_without_a_value_is_not_given() -> None:
    assert request("forget", {"node_id": None, "id": "B"}).node_id == "B"
    assert request("recall", {"query": "x", "filter": {"tags": None}, "tags": ["a"]}).filter.tags == ["a"]


def test_other_arguments_may_come_with_a_filter() -> None:
    found = request("recall", {"query": "x", "tags": ["a"], "filter": {"model_id": "m"}})
    assert (list(found.filter.tags), found.filter.model_id) == (["a"], "m")


@pytest.mark.parametrize(
    "text",
    [
        '{"node_id": "A", "node_id": "B"}',
        '{"node_id": "A", "node_id": "A"}',
        '{"node_id": "A", "node\\u005fid": "B"}',
        '{"change": [{"a": 1, "b": {"node_id": 1, "node_id": 2}}]}',
    ],
)
def test_a_name_that_stands_twice_in_an_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentsError, match="arguments has the name 'node_id' twice in one object"):
        arguments_of("forget", text)


def test_a_name_that_stands_twice_is_told_by_its_beginning() -> None:
    long = "x" * 100_000
    with pytest.raises(NotJsonError) as caught:
        parsed(f'{{"{long}": 1, "{long}": 2}}')
    assert len(str(caught.value)) < 200


def test_a_name_may_stand_in_several_objects() -> None:
    assert parsed('[{"a": {"a": 1}}, {"a": 2}]') == [{"a": {"a": 1}}, {"a": 2}]


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_an_object_with_distinct_names_is_read_as_it_is(value: dict[str, Any]) -> None:
    try:
        text = text_of(value)
        text.encode()
    except UnicodeEncodeError:
        return
    assert parsed(text) == value


def test_an_object_within_a_text_has_each_name_once_too() -> None:
    assert faults("remember", {"text": "x", "attributes": '{"a": "1", "a": "2"}'}) == [
        ("attributes", "must be an object.")
    ]
    (metadata,) = (tool for tool in tools_of(Documents()) if tool.name == "query_metadata")
    _, found = metadata.signature.read({"where": '{"a": "1", "a": "2"}'})
    assert [(each.field, each.description) for each in found] == [("where", "must be an object.")]


def test_an_object_in_a_query_string_has_each_name_once_too() -> None:
    given_ = from_query("recall", QueryParams([("query", "x"), ("filter", '{"model_id": "a", "model_id": "b"}')]))
    assert faults("recall", given_) == [("filter", "must be an object.")]


def test_an_object_on_the_command_line_has_each_name_once_too() -> None:
    with pytest.raises(ToolArgumentsError, match="has the name 'node_id' twice"):
        _object('{"node_id": "A", "node_id": "B"}')
    assert _object('{"node_id": "A"}') == {"node_id": "A"}
    assert _value('{"a": 1, "a": 2}') == '{"a": 1, "a": 2}', "the server says what it should be"


@pytest.mark.parametrize(
    "text", ["--5", "-", "---1", "5-", "- 5", "+5", "1_0", "\u0665", "\u00b2", "9" * 21, "-" + "9" * 21]
)
def test_a_text_that_is_no_number_is_a_fault(text: str) -> None:
    assert faults("list_archives", {"page_size": text}) == [("page_size", "must be a whole number.")]


@pytest.mark.parametrize(("text", "number"), [("5", 5), (" 7 ", 7), ("0", 0), ("007", 7)])
def test_a_text_that_is_a_number_is_read_as_one(text: str, number: int) -> None:
    assert request("list_archives", {"page_size": text}).page_size == number


@given(st.text("-+0123456789 ._eE\u0665", max_size=24))
def test_no_text_in_the_place_of_a_number_is_a_fault_of_the_server(text: str) -> None:
    with suppress(InvalidArgumentsError):
        request("list_archives", {"page_size": text})
