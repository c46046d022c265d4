"""One argument has one value: two names for it, or one name twice, are refused, and none of the values is taken."""

import difflib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.errors import InvalidInputError
from starlette.datastructures import QueryParams
from unit.gateways.conftest import CATALOGUE

from memotree.cli.commands.tools import ToolArgumentsError, _object, _value
from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError, arguments_of
from memotree.gateways.http import from_query
from memotree.gateways.json_texts import NotJsonError, parsed, text_of
from memotree.gateways.mcp import _not_offered
from memotree.gateways.tool_definitions import BY_NAME
from memotree.gateways.tool_settings import tool_setting_faults
from memotree.identity.operations import _limits
from memotree.request.nearest_names import LONGEST_NAME, nearest, nearest_or_all, shown
from memotree.settings import Settings
from memotree.tools.builtin.documents import Documents
from memotree.tools.function_tool import tools_of

pytestmark = pytest.mark.requirement("CANVAS-7", "TOOL-3")


def request(tool: str, arguments: dict[str, Any]) -> Any:
    return CATALOGUE.request(BY_NAME[tool], arguments)


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


def test_every_value_beyond_the_first_is_told_and_a_name_without_one_is_not_given() -> None:
    found = faults("recall", {"query": "x", "q": "y", "question": "z"})
    assert [field for field, _ in found] == ["q", "question"]
    assert request("forget", {"node_id": None, "id": "B"}).node_id == "B"
    assert request("recall", {"query": "x", "filter": {"tags": None}, "tags": ["a"]}).filter.tags == ["a"]
    found = request("recall", {"query": "x", "tags": ["a"], "filter": {"model_id": "m"}})
    assert (list(found.filter.tags), found.filter.model_id) == (["a"], "m")


def test_a_name_that_stands_twice_in_one_object_is_refused_and_told_by_its_beginning() -> None:
    for text in (
        '{"node_id": "A", "node_id": "B"}',
        '{"node_id": "A", "node_id": "A"}',
        '{"node_id": "A", "node\\u005fid": "B"}',
        '{"change": [{"a": 1, "b": {"node_id": 1, "node_id": 2}}]}',
    ):
        with pytest.raises(InvalidArgumentsError, match="arguments has the name 'node_id' twice in one object"):
            arguments_of("forget", text)
    long = "x" * 100_000
    with pytest.raises(NotJsonError) as caught:
        parsed(f'{{"{long}": 1, "{long}": 2}}')
    assert len(str(caught.value)) < 200
    assert parsed('[{"a": {"a": 1}}, {"a": 2}]') == [{"a": {"a": 1}}, {"a": 2}]


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_an_object_with_distinct_names_is_read_as_it_is(value: dict[str, Any]) -> None:
    try:
        text = text_of(value)
        text.encode()
    except UnicodeEncodeError:
        return
    assert parsed(text) == value


def test_an_object_within_a_text_a_query_string_or_a_command_line_has_each_name_once_too() -> None:
    given_ = {"text": "x", "attributes": '{"a": "1", "a": "2"}'}
    assert faults("remember", given_) == [("attributes", "must be an object.")]
    query = from_query("recall", QueryParams([("query", "x"), ("filter", '{"model_id": "a", "model_id": "b"}')]))
    assert faults("recall", query) == [("filter", "must be an object.")]
    (metadata,) = (tool for tool in tools_of(Documents()) if tool.name == "query_metadata")
    _, found = metadata.signature.read({"where": '{"a": "1", "a": "2"}'})
    assert [(each.field, each.description) for each in found] == [("where", "must be an object.")]
    with pytest.raises(ToolArgumentsError, match="has the name 'node_id' twice"):
        _object('{"node_id": "A", "node_id": "B"}')
    assert _object('{"node_id": "A"}') == {"node_id": "A"}
    assert _value('{"a": 1, "a": 2}') == '{"a": 1, "a": 2}', "the server says what it should be"


def test_a_text_is_read_as_a_number_if_it_is_one_and_else_a_fault() -> None:
    for text in ("--5", "-", "---1", "5-", "- 5", "+5", "1_0", "\u0665", "\u00b2", "9" * 21, "-" + "9" * 21):
        assert faults("list_archives", {"page_size": text}) == [("page_size", "must be a whole number.")], text
    for text, number in {"5": 5, " 7 ": 7, "0": 0, "007": 7}.items():
        assert request("list_archives", {"page_size": text}).page_size == number


@given(st.text("-+0123456789 ._eE\u0665", max_size=24))
def test_no_text_in_the_place_of_a_number_is_a_fault_of_the_server(text: str) -> None:
    with suppress(InvalidArgumentsError):
        request("list_archives", {"page_size": text})


# --- A name costs no more than its beginning, however long it is, wherever it is refused ---

LONG = "recal" * 200_000


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the names that are compared with the known ones."""
    lengths: list[int] = []

    class Matcher(difflib.SequenceMatcher[str]):
        def set_seq2(self, b: Any) -> None:
            lengths.append(len(b))
            super().set_seq2(b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Matcher)
    return lengths


def of_a_setting(**given: Any) -> str:
    return " ".join(each.at("").description for each in tool_setting_faults(Settings.model_validate(given)))


def of_arguments(tool: str, given_: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgumentsError) as caught:
        request(tool, given_)
    return caught.value.message


def of_a_query_string() -> str:
    class Twice:
        def multi_items(self) -> list[tuple[str, str]]:
            return [(LONG, "1"), (LONG, "2")]

    with pytest.raises(InvalidArgumentsError) as caught:
        from_query("recall", Twice())  # type: ignore[arg-type] # it reads nothing else
    return caught.value.message


def of_a_role() -> str:
    with pytest.raises(InvalidInputError) as caught:
        _limits([f"read_fil:/{'x' * 900}"], list(BY_NAME), lambda _tool, _resource: "")
    return caught.value.message


@pytest.mark.parametrize(
    "told",
    [
        lambda: _not_offered(LONG, list(BY_NAME)),
        lambda: of_a_setting(tools_builtin={LONG: {"enabled": False}}),
        lambda: of_a_setting(tools_disabled=(LONG,)),
        lambda: of_arguments("recall", {"query": "x", LONG: 1}),
        lambda: of_arguments("remember", {"text": "x", "attributes": {LONG: 5.5, f"{LONG}2": [1]}}),
        of_a_query_string,
        of_a_role,
    ],
)
def test_only_the_beginning_of_a_name_is_compared_and_repeated(told: Callable[[], str], compared: list[int]) -> None:
    assert len(told()) < 5000
    assert max(compared, default=0) <= LONGEST_NAME


async def test_a_function_is_no_exception(compared: list[int], catalogue: Catalogue) -> None:
    result = await catalogue.call("calculator", {LONG: 1, "expression": "1"})
    assert result.failure is not None
    assert (result.failure.code, len(result.text) < 1000) == ("INVALID_ARGUMENTS", True)
    assert compared
    assert max(compared) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("name", "known", "near", "told"),
    [
        ("recal", ["recall", "forget"], "recall", "; did you mean recall?"),
        ("nothing", ["recall", "forget"], "", "; there are recall, forget."),
        ("nothing", [], "", "."),
    ],
)
def test_the_known_name_that_is_most_similar_is_told(name: str, known: Iterable[str], near: str, told: str) -> None:
    assert (nearest(name, iter(known)), nearest_or_all(name, iter(known))) == (near, told)


def test_a_shown_name_is_valid_text() -> None:
    assert shown("\ud800" + "x" * 100) == "\\ud800" + "x" * (LONGEST_NAME - 1)
