"""Tools made of functions: what the signature declares, and what arguments it takes."""

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from memotree.gateways.functions import LocalFunctions
from memotree.planner import declared_tools
from memotree.tools.builtin.services import NAMES, PLANNER, ToolOptions, builtin_tools
from memotree.tools.declaration import Permission
from memotree.tools.executor import Executor
from memotree.tools.function_tool import CallContext, FunctionTool, tool, tools_of
from memotree.tools.results import as_text
from memotree.tools.signature import MOST_FAULTS, UndeclarableError

pytestmark = pytest.mark.requirement("TOOL-1", "TOOL-3")


class Point(BaseModel):
    """A place on a map."""

    x: int
    y: float = 0.0


@tool(
    category="maps",
    read_only=True,
    permissions=[Permission("read", "folder")],
    examples=[{"start": {"x": 1}, "way": "foot"}],
    timeout=timedelta(seconds=5),
)
async def plan_way(
    context: CallContext,
    start: Point,
    way: Literal["foot", "train"] = "foot",
    stops: list[Point] | None = None,
    most: Annotated[int, Field(ge=1, le=9, description="The most stops.")] = 3,
    day: date | None = None,
    names: tuple[str, ...] = (),
    quick: bool = False,
) -> dict[str, Any]:
    """Plan a way.

    It may have
    several stops.

    Args:
        start: Where it
            begins.
        way (str): By what.
        most: Not told, since the type says it.
    """
    del context
    return {"start": start, "way": way, "stops": stops, "most": most, "day": day, "names": names, "quick": quick}


def read(function: Any, **arguments: Any) -> dict[str, Any]:
    values, faults = FunctionTool(function).signature.read(arguments)
    assert not faults
    return values


def faults(function: Any, **arguments: Any) -> dict[str, str]:
    values, found = FunctionTool(function).signature.read(arguments)
    assert not values
    return {fault.field: fault.description for fault in found}


def test_a_function_declares_itself() -> None:
    declared = FunctionTool(plan_way).declaration
    assert (declared.name, declared.title, declared.category) == ("plan_way", "Plan way", "maps")
    assert declared.description == "Plan a way. It may have several stops."
    assert (declared.read_only, declared.idempotent) == (True, True)
    assert not declared.destructive
    assert not declared.open_world
    assert declared.permissions == (Permission("read", "folder"),)
    schema = declared.parameters
    Draft202012Validator.check_schema(dict(schema))
    for example in declared.examples:
        Draft202012Validator(dict(schema)).validate(example)
    assert list(schema["properties"]) == ["start", "way", "stops", "most", "day", "names", "quick"]
    assert schema["required"] == ["start"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["way"] == {
        "type": "string",
        "enum": ["foot", "train"],
        "default": "foot",
        "description": "By what.",
    }
    assert schema["properties"]["most"]["description"] == "The most stops."
    assert "Where it begins." in str(schema["properties"]["start"])
    assert '"title"' not in str(schema)


class Pair(BaseModel):
    first: Point
    second: Point | None = None


class Branch(BaseModel):
    below: "list[Branch]" = []


@tool(category="maps")
async def join(pair: Pair, tree: Branch | None = None) -> None:
    """Join two points."""


def test_a_model_within_stands_where_it_is_used() -> None:
    schema = dict(FunctionTool(join).declaration.parameters)
    Draft202012Validator.check_schema(schema)
    point = {
        "type": "object",
        "description": "A place on a map.",
        "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema["properties"]["pair"]["properties"]["first"] == point
    assert schema["properties"]["pair"]["properties"]["second"]["anyOf"][0] == point
    assert schema["$defs"].keys() >= {"Branch"}, "what contains itself stays a reference"
    for wrong in ({"pair": {"first": {"x": "1"}}}, {"pair": {"first": {"x": 1}}, "tree": {"below": [{"below": 1}]}}):
        assert list(Draft202012Validator(schema).iter_errors(wrong))
    assert not list(Draft202012Validator(schema).iter_errors({"pair": {"first": {"x": 1}}, "tree": {"below": [{}]}}))


def test_defaults_are_filled_in_and_what_models_write_is_read_as_it_is_meant() -> None:
    values = read(plan_way, start='{"x": 4}', most="5", quick="true", names="a", day="2026-01-31", way=None)
    assert values == {
        "start": Point(x=4),
        "way": "foot",
        "stops": None,
        "most": 5,
        "day": date(2026, 1, 31),
        "names": ("a",),
        "quick": True,
    }


def test_every_fault_is_told_with_its_path() -> None:
    found = faults(
        plan_way,
        start={"x": "one", "z": 1},
        way="ship",
        stops=[{"x": 1}, 5, {}],
        most=0,
        day="soon",
        names=[1],
        quick="yes",
        qick=True,
    )
    assert found["start.x"] == "must be a whole number."
    assert found["start.z"].startswith("is not an argument")
    assert found["way"] == "must be one of foot, train."
    assert found["stops[1]"] == "must be an object."
    assert found["stops[2].x"] == "is needed."
    assert "greater than or equal to 1" in found["most"]
    assert found["names[0]"] == "must be a text."
    assert found["quick"] == "must be true or false."
    assert found["qick"] == "is not an argument; did you mean quick?"
    assert "day" in found
    assert all(told.endswith((".", "?")) for told in found.values())
    assert faults(plan_way) == {"start": "is needed."}
    assert faults(plan_way, start=True) == {"start": "must be an object."}


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"start": {"x": 1}, "way": "\ud800"}, ["way"]),
        ({"start": {"\udfff": 1}}, ["start"]),
        ({"\ud800": 1}, ["\\ud800"]),
        ({"stops": deep(100_000)}, ["arguments"]),
        ({"stops": deep(500)}, ["arguments"]),
        ({"most": 10**5000}, ["arguments"]),
        *(({"start": {"x": 1, "y": float(number)}}, ["arguments", "start.y"]) for number in ("nan", "inf")),
    ],
)
def test_what_is_no_json_is_a_fault_of_the_caller(arguments: dict[str, Any], fields: list[str]) -> None:
    _, found = FunctionTool(plan_way).signature.read(arguments)
    assert found[0].field in fields
    (found[0].description + found[0].field).encode()


def test_the_faults_of_a_call_end() -> None:
    _, found = FunctionTool(plan_way).signature.read({f"no_{number}": 1 for number in range(2000)})
    assert len(found) == MOST_FAULTS + 1


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)
NAMED = st.sampled_from(["start", "way", "stops", "most", "day", "names", "quick"]) | st.text(max_size=5)


@given(st.dictionaries(NAMED, JSON, max_size=5))
def test_any_arguments_give_values_or_faults(arguments: dict[str, Any]) -> None:
    values, found = FunctionTool(plan_way).signature.read(arguments)
    assert bool(values) != bool(found)
    assert all(fault.description.endswith((".", "?")) for fault in found)


described = tool(category="maps", description="Do.")


def undeclared(x: int) -> None: ...


@described
def untyped(x) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001


@tool(category="maps")
def silent(x: int) -> None: ...


@described
def Loud(x: int) -> None: ...  # noqa: N802


@described
def any_number(*numbers: int) -> None: ...


@described
def unwritable(event: asyncio.Event) -> None: ...


@described
def blocking_with_context(context: CallContext) -> None: ...


@tool(category="maps", read_only=True, destructive=True, description="Do.")
def torn() -> None: ...


@tool(category="two words", description="Do.")
def ill_sorted(x: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [(undeclared, "put @tool"), (untyped, "has no type"), (silent, "docstring"), (Loud, "small letters"),
     (any_number, "give each argument a name"), (unwritable, "JSON cannot have"), (torn, "read_only and destructive"),
     (blocking_with_context, "not async"), (ill_sorted, "category"), (described(lambda: None), "small letters")],
)  # fmt: skip
def test_a_function_that_cannot_be_a_tool_is_refused(function: Any, told: str) -> None:
    with pytest.raises(UndeclarableError, match=told):
        FunctionTool(function)


class Shelf:
    @tool(category="books")
    async def put_book(self, title: str) -> None:
        """Put a book on the shelf."""

    def hidden(self) -> None: ...

    @tool(category="books", read_only=True)
    async def list_books(self) -> list[str]:
        """List the books."""
        return []


class LongShelf(Shelf):
    @tool(category="books", read_only=True, description="List some books.")
    async def list_books(self) -> list[str]:
        return ["a"]


@pytest.mark.requirement("TOOL-8")
def test_the_tools_of_a_service_are_its_declared_methods() -> None:
    for shelf, told in ((Shelf(), "List the books."), (LongShelf(), "List some books.")):
        listed = tools_of(shelf)
        assert [each.name for each in listed] == ["put_book", "list_books"]
        assert listed[1].declaration.description == told


@tool(category="maps", name="recall")
async def named_as_another() -> None:
    """Do."""


@pytest.mark.parametrize("twice", [[plan_way, plan_way], [named_as_another]])
def test_a_name_is_taken_once(twice: list[Any]) -> None:
    with pytest.raises(UndeclarableError, match="Two tools have the name"):
        LocalFunctions([FunctionTool(each) for each in twice], Executor(), None)  # type: ignore[arg-type]


@dataclass
class Book:
    title: str
    pages: tuple[int, ...]


@pytest.mark.parametrize(("value", "text"), [
    (None, "{}"), ({"a": 1}, '{"a": 1}'), (5, '{"value": 5}'), ([1, "é"], '{"value": [1, "é"]}'),
    (Point(x=1), '{"x": 1, "y": 0.0}'), (Book("a", (1, 2)), '{"title": "a", "pages": [1, 2]}'),
    ({"day": date(2026, 1, 31), "set": {1}}, '{"day": "2026-01-31", "set": [1]}'),
    ({"name": "a\udc80"}, '{"name": "a?"}'), ({"x": [float("inf")]}, '{"x": ["inf"]}'),
])  # fmt: skip
def test_what_a_function_returns_becomes_an_object(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_the_built_in_tools_have_their_names_and_valid_examples() -> None:
    functions = builtin_tools(ToolOptions(("/",), (), ("*",), "http://127.0.0.1/"))
    declared = [each.declaration for each in (*functions, *declared_tools())]
    assert tuple(each.name for each in declared) == NAMES
    assert tuple(each.name for each in declared_tools()) == PLANNER
    off = {"read_file", "list_folder", "http_request", "check_host", "search_web", *PLANNER}
    assert [each.name for each in builtin_tools()] == [name for name in NAMES if name not in off]
    for each in declared:
        Draft202012Validator.check_schema(dict(each.parameters))
        assert each.examples
        undescribed = [name for name, part in each.parameters["properties"].items() if not part.get("description")]
        assert undescribed == []
        for example in each.examples:
            Draft202012Validator(dict(each.parameters)).validate(example)
