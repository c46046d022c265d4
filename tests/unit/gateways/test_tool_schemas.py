"""Tools made from the contract: their arguments and descriptions, and the conversion of JSON to messages and back."""

import json
import re
import shlex
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from unit.gateways.conftest import CATALOGUE

from memotree.cli.terminal.examples import EXAMPLES
from memotree.client.conflicts import Conflict
from memotree.client.contract import is_read, is_repeatable
from memotree.client.errors import AbortedError, DataLossError, MemoTreeClientError
from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError
from memotree.gateways.contract import comments, short_names
from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.json_messages import from_json, to_json
from memotree.gateways.json_schema import OUTPUT, SHARED, declaration, description, input_schema
from memotree.gateways.mcp import _declared
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool import Tool
from memotree.gateways.tool_definitions import BY_NAME, TOOLS, UnknownToolsError, chosen_tools
from memotree.server.binding import contract
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2

ROOT = Path(__file__).parents[3]


PAGE = (ROOT / "docs" / "how-to" / "connect-an-agent-over-mcp.md").read_text(encoding="utf-8")
RPCS = {tool.rpc for tool in TOOLS} - {"Ask", "Query", "Recall", "Remember", "Revise", "Forget", "Restore"}
"""Those without the names that are ordinary words, too."""


@pytest.mark.requirement("FOREST-14", "CANVAS-7", "USE-5")
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_is_described_by_the_contract_and_the_page_names_it(tool: Tool) -> None:
    schema = input_schema(tool)
    Draft202012Validator.check_schema(schema)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", tool.name)
    assert len(description(tool)) > 10
    assert set(tool.required) <= set(schema["properties"])
    undescribed = [name for name, field in schema["properties"].items() if not field.get("description")]
    assert set(undescribed) <= {*SHARED, "receipt"}
    told = json.dumps(schema)
    assert json.loads(told) == schema
    assert "commit_message" not in told, "one thing has one name in all tools"
    assert not RPCS & set(re.findall(r"\b[A-Z][A-Za-z]+\b", description(tool) + told)), "it names tools and no RPCs"
    assert f"`{tool.name}`" in PAGE
    assert not (tool.read_only and tool.destructive)
    assert bool(tool.last) == tool.method.server_streaming
    for field in tool.request.fields:  # maps have texts as values; if that changes, `json_messages` must support it
        assert field.name in tool.hidden or field.type != FieldDescriptor.TYPE_BYTES, field.full_name


def test_every_rpc_is_marked_repeatable_or_not_and_every_read_as_read_only() -> None:
    reads = (
        *("Get", "BackUp", "CheckMemory", "CheckPush", "List", "Search", "Diff", "Bisect", "Blame", "Preview"),
        *("Render", "ResolveNode", "Recall", "DrillDown", "Ask", "Suggest", "Watch", "Verify", "PlanQuery"),
    )
    once = set()
    for method in (method for service in contract().values() for method in service.methods):
        assert method.GetOptions().HasField("idempotency_level"), f"{method.full_name} has no idempotency_level"
        assert is_read(method) == method.name.startswith(reads), method.full_name
        assert is_repeatable(method) or not is_read(method)
        if not is_repeatable(method) and "request_id" not in method.input_type.fields_by_name:
            once.add(method.name)
    # A second deletion has no further effect, but its answer is that nothing is there: the caller should see that.
    deletions = {"DeleteBranch", "DeleteTag", "DeleteView", "DeleteWorkspace", "DiscardChanges", "DiscardSession"}
    deletions |= {"UnprotectBranches", "DeletePrincipal", "DeleteKey", "RevokeRole", "DeleteConversation"}
    assert once == {"CreateBranch", "CreateKey", "CreateTag", "Query", "ResumeJob", "StreamQuery", *deletions}
    assert len(BY_NAME) == len({(tool.service, tool.rpc) for tool in TOOLS}) == len(TOOLS)


def test_the_comments_cover_the_whole_contract() -> None:
    missing = [
        name
        for service in contract().values()
        for method in service.methods
        for name in (method.full_name, *(field.full_name for field in method.input_type.fields))
        if name not in comments()
    ]
    assert not missing


def test_the_comments_are_part_of_the_package() -> None:
    """A wheel holds every file of these folders: hatchling leaves out only what git ignores."""
    assert resources.files("memotree.v1").joinpath("contract.json").is_file()
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert "memotree" in built["targets"]["wheel"]["packages"]
    assert "json" not in (ROOT / ".gitignore").read_text(encoding="utf-8")


@pytest.mark.requirement("FOREST-14")
def test_the_schema_of_a_field_lists_its_allowed_values() -> None:
    create = input_schema(BY_NAME["create_node"])["properties"]
    assert create["initial_level"]["enum"] == ["TITLE", "BRIEF", "SUMMARY", "DETAIL"]
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    assert create["attributes"] == {**texts, "description": "Attributes by name."}
    assert create["tags"]["items"] == {"type": "string"}
    assert create["relations"]["items"]["properties"]["type"]["enum"][0] == "REFERENCES"
    assert (create["position"]["type"], create["auto_generate_summary"]["type"]) == ("integer", "boolean")
    assert create["workspace"] == {"type": "string"}
    assert input_schema(BY_NAME["recall"])["properties"]["archives"]["type"] == "array"
    author = input_schema(BY_NAME["commit_changes"])["properties"]["author"]
    assert author["properties"]["timestamp"]["format"] == "date-time"
    change = input_schema(BY_NAME["batch_change_nodes"])["properties"]["changes"]["items"]
    assert (change["minProperties"], change["maxProperties"]) == (1, 1)
    assert change["properties"]["create"]["description"] == "The arguments of create_node."


def declared(tools: Sequence[Tool], *, short: bool) -> str:
    """The list of tools as it goes over the wire."""
    declared = [_declared(declaration(tool), dict(input_schema(tool, short=short))) for tool in tools]
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in declared]
    return json.dumps({"tools": listed}, ensure_ascii=False, separators=(",", ":"))


TOKENS_PER_CHARACTER = 1 / 3.4
"""Measured with a model's own tokenizer on the list of all tools; JSON takes more tokens than prose."""


@pytest.mark.requirement("USE-5")
def test_the_lists_of_tools_take_few_tokens() -> None:
    assert len(EVERYDAY) <= 12
    assert len(declared(EVERYDAY, short=True)) * TOKENS_PER_CHARACTER <= 3000
    # The list on request: merges, picks and resolutions have the most arguments, up to 600 tokens each.
    assert len(declared(TOOLS, short=False)) * TOKENS_PER_CHARACTER <= 274 * len(TOOLS)


@pytest.mark.requirement("USE-5")
@pytest.mark.parametrize("tool", EVERYDAY, ids=lambda tool: tool.name)
def test_a_tool_of_the_day_says_when_to_use_it_with_an_example_that_is_valid(tool: Tool, catalogue: Catalogue) -> None:
    assert tool.description
    assert tool.example is not None
    Draft202012Validator(input_schema(tool, short=True)).validate(tool.example)
    catalogue.request(tool, tool.example)
    assert set(input_schema(tool, short=True)["properties"]) <= set(input_schema(tool)["properties"])


def test_the_example_of_the_command_line_is_a_valid_call(catalogue: Catalogue) -> None:
    _, _, name, *pairs = shlex.split(EXAMPLES["tools run"])
    assert catalogue.request(BY_NAME[name], dict(pair.split("=", 1) for pair in pairs))


@pytest.mark.requirement("USE-5")
def test_a_choice_of_tools_is_a_list_or_names() -> None:
    assert chosen_tools("").tools == chosen_tools("everyday").tools == EVERYDAY
    assert chosen_tools("all").tools == TOOLS
    assert [tool.name for tool in chosen_tools("get_node, recall").tools] == ["recall", "get_node"]
    assert len(chosen_tools("everyday,get_node").tools) == len(EVERYDAY) + 1
    assert not chosen_tools("everyday", ["calculator"]).with_functions
    assert chosen_tools("all", ["calculator"]).has_function("calculator")
    choice = chosen_tools("calculator,recall", ["calculator", "date_time"])
    assert ([tool.name for tool in choice.tools], choice.functions) == (["recall"], {"calculator"})
    assert not chosen_tools("calculator", ["calculator"]).tools
    with pytest.raises(UnknownToolsError, match="recal"):
        chosen_tools("recal")


@pytest.mark.requirement("USE-5")
def test_one_thing_has_one_name_in_all_tools(catalogue: Catalogue) -> None:
    request: Any = catalogue.request(BY_NAME["recall"], {"question": "q", "tags": ["a"], "archives": ["b"]})
    assert (request.query, list(request.filter.tags), list(request.filter.archives)) == ("q", ["a"], ["b"])
    request = catalogue.request(BY_NAME["recall"], {"query": "q", "filter": {"tags": ["a"]}, "archives": ["b"]})
    assert (list(request.filter.tags), list(request.filter.archives)) == (["a"], ["b"])
    request = catalogue.request(BY_NAME["delete_node"], {"session_id": "s", "node_id": "n", "message": "why"})
    assert request.commit_message == "why"
    inner = {"delete": {"node_id": "n", "message": "why"}}
    request = catalogue.request(BY_NAME["batch_change_nodes"], {"session_id": "s", "changes": [inner]})
    assert request.changes[0].delete.commit_message == "why"
    with pytest.raises(InvalidArgumentsError) as refused:
        catalogue.request(BY_NAME["recall"], {"query": "q", "tags": [1], "question": 2})
    assert {fault.field for fault in refused.value.violations} >= {"tags[0]"}


def test_the_fields_given_to_an_update_are_its_mask_and_a_workspace_that_is_not_given_the_default(
    catalogue: Catalogue,
) -> None:
    given_ = {"session_id": "s", "node_id": "n", "tags": [], "title": "", "brief": None, "mode": "REPLACE"}
    request: Any = catalogue.request(BY_NAME["update_node"], given_)
    assert sorted(request.update_mask.paths) == ["tags", "title"]
    assert (request.mode, request.HasField("brief")) == (nodes.UPDATE_MODE_REPLACE, False)
    assert request.workspace == "main"
    assert catalogue.request(BY_NAME["update_node"], {**given_, "workspace": "other"}).workspace == "other"


NODE, COMMIT = nodes.CreateNodeRequest.DESCRIPTOR, sessions.CommitChangesRequest.DESCRIPTOR
RECEIPT = pb.RecallReceipt.DESCRIPTOR


@pytest.mark.requirement("CANVAS-7")
@pytest.mark.parametrize(
    ("kind", "values", "faults"),
    [
        (NODE, {"title": 1}, ["title"]),
        (NODE, {"title": "\ud800"}, ["title"]),
        (NODE, {"tags": "a"}, ["tags"]),
        (NODE, {"tags": ["a", 2]}, ["tags[1]"]),
        (NODE, {"attributes": ["a"]}, ["attributes"]),
        (NODE, {"attributes": {"a": 1}}, ["attributes['a']"]),
        (NODE, {"position": 1.5}, ["position"]),
        (NODE, {"position": 2**40}, ["position"]),
        (NODE, {"position": True}, ["position"]),
        (NODE, {"position": float("nan")}, ["position"]),
        (NODE, {"auto_generate_summary": 1}, ["auto_generate_summary"]),
        (NODE, {"initial_level": "title"}, ["initial_level"]),
        (NODE, {"initial_level": "UNSPECIFIED"}, ["initial_level"]),
        (NODE, {"initial_level": 1}, ["initial_level"]),
        (NODE, {"relations": [{"type": "ABOUT"}, 1, {"typ": "ABOUT"}]}, ["relations[1]", "relations[2].typ"]),
        (NODE, {"source": []}, ["source"]),
        (NODE, {"source": {"start": "1"}}, ["source.start"]),
        *((COMMIT, {"author": {"timestamp": time}}, ["author.timestamp"]) for time in ("yesterday", 5, {})),
        (nodes.NodeChange.DESCRIPTOR, {"create": {}, "delete": {}}, ["delete"]),
        *((RECEIPT, {"term_counts": value}, ["term_counts"]) for value in ("f", "zz", 1, ["00"])),
        (RECEIPT, {"term_counts": None}, []),
    ],
)
def test_an_invalid_value_is_named_by_its_path(kind: Descriptor, values: dict[str, Any], faults: list[str]) -> None:
    _, found = from_json(kind, values)
    assert [fault.field for fault in found] == faults
    assert all(fault.description.endswith((".", "?")) for fault in found)


def test_times_durations_and_bytes_are_read_and_shown() -> None:
    request: Any
    author = {"name": "Ada", "timestamp": "2026-01-31T12:00:00+01:00"}
    request, faults = from_json(COMMIT, {"author": author})
    assert (to_json(request)["author"]["timestamp"], faults) == ("2026-01-31T11:00:00Z", [])
    request, faults = from_json(sessions.OpenSessionRequest.DESCRIPTOR, {"ttl": "90s"})
    assert (request.ttl.seconds, faults) == (90, [])
    receipt = pb.RecallReceipt(commit_id="0" * 40, term_counts=b"\x00\xff")
    assert to_json(receipt)["term_counts"] == "00ff"
    assert from_json(RECEIPT, to_json(receipt)) == (receipt, [])


@given(st.builds(types_pb2.Node, title=st.text(), tags=st.lists(st.text()), child_count=st.integers(0, 9)))
def test_json_of_a_message_stands_for_the_same_message(node: types_pb2.Node) -> None:
    back, faults = from_json(types_pb2.Node.DESCRIPTOR, to_json(node))
    assert not faults
    assert back == node


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(TOOLS), st.data())
def test_any_arguments_give_a_request_or_violations_and_the_schema_agrees(tool: Tool, data: st.DataObject) -> None:
    schema = input_schema(tool)
    names = st.sampled_from(sorted(schema["properties"]) or ["none"]) | st.text(max_size=5)
    arguments = data.draw(st.dictionaries(names, JSON.filter(lambda value: value is not None), max_size=4))
    with suppress(InvalidArgumentsError):
        CATALOGUE.request(tool, arguments)
    # Without what is read as it is meant, such as a text in place of a list, the schema accepts what is accepted.
    _, faults = from_json(tool.request, tool.as_request(arguments), tool.hidden, tool.hidden_within)
    is_refused = faults or list(tool.given_twice(arguments)) or not set(tool.required) <= set(arguments)
    if not is_refused and "null" not in json.dumps(arguments):
        assert Draft202012Validator(schema).is_valid(arguments), arguments


def test_64_bit_numbers_are_json_numbers_and_empty_fields_are_left_out() -> None:
    source = types_pb2.Source(document_id="d", start=2**40)
    assert to_json(source) == {"document_id": "d", "start": 2**40, "end": 0, "page": 0}
    assert json_format.MessageToDict(source)["start"] == str(2**40)  # protobuf's own JSON has strings there
    empty = to_json(nodes.SearchNodesResponse(), with_empty_lists=True)
    assert empty == {"hits": [], "warnings": [], "likelihood": 0.0}
    relation = types_pb2.Relation(type=types_pb2.RELATION_TYPE_PART_OF)
    assert to_json(relation) == {"type": "PART_OF"}


def test_conflicts_have_texts_for_their_values() -> None:
    conflict = types_pb2.Conflict(node_id="7xk2m9qd4tnvw0ha", field="parent", description="Both moved it.")
    conflict.our_value.place.archive_id = "c41hz8rjy6ksm3pe"
    conflict.their_value.absence = types_pb2.ABSENCE_DELETED
    texts = {"base": "", "ours": "a root of archive c41hz8rjy6ksm3pe", "theirs": "deleted"}
    shown = {"node_id": conflict.node_id, "field": "parent", **texts, "description": "Both moved it."}
    assert to_json(sessions.StagedChange(conflicts=[conflict]))["conflicts"] == [shown]
    error = AbortedError("Choose.", conflicts=(Conflict.from_wire(conflict),))
    assert Failure.of(error).details["conflicts"] == [shown]


def test_every_enum_of_the_contract_has_short_names() -> None:
    for name in ("LevelOfDetail", "RelationType", "ChangeKind"):
        enum = types_pb2.DESCRIPTOR.enum_types_by_name[name]
        assert len(short_names(enum)) == len(enum.values) - 1
        assert not [short for short in short_names(enum) if enum.name.upper() in short.replace("_", "")]


@pytest.mark.requirement("CANVAS-7")
def test_a_result_has_one_shape_whether_it_failed_or_not() -> None:
    error = MemoTreeClientError("It is so.", reason="A_REASON", metadata={"a": "b"})
    results = [Result("Done.", "Done."), Result("It is so.", "x", failure=Failure.of(error), elapsed=0.5)]
    shapes = [result.to_json() for result in results]
    for shape in shapes:
        Draft202012Validator(OUTPUT).validate(shape)
        assert list(shape) == list(OUTPUT["properties"])
    details = {"metadata": {"a": "b"}}
    told = {"code": "A_REASON", "status": "UNKNOWN", "message": "It is so.", "details": details}
    assert shapes[1]["error"] == told
    assert Failure.of(DataLossError("Gone.")).code == "DATA_LOSS", "a server that was not reached has its status"
    assert (shapes[0]["success"], shapes[1]["success"], shapes[1]["elapsed_ms"]) == (True, False, 500)


@pytest.mark.requirement("USE-5")
@pytest.mark.parametrize(
    ("tool", "sent", "meant"),
    [
        ("recall", {"q": "x", "token_budget": "500"}, {"query": "x", "token_budget": 500}),
        ("recall", {"query": "x", "strategy": "hybrid"}, {"query": "x", "strategy": "HYBRID"}),
        ("recall", {"query": "x", "tags": "ui, prefs"}, {"query": "x", "tags": ["ui", "prefs"]}),
        ("recall", {"query": "x", "tags": '["ui"]'}, {"query": "x", "tags": ["ui"]}),
        ("recall", {"query": "x", "include_trace": "true"}, {"query": "x", "include_trace": True}),
        ("remember", {"content": "x"}, {"text": "x"}),
        ("remember", {"text": "x", "about": "Deploy, then test"}, {"text": "x", "about": ["Deploy, then test"]}),
        ("remember", {"text": "x", "attributes": {"n": 5}}, {"text": "x", "attributes": {"n": "5"}}),
        ("remember", {"text": "x", "attributes": '{"n": true}'}, {"text": "x", "attributes": {"n": "true"}}),
        ("revise", {"id": "abcd", "content": "x"}, {"node_id": "abcd", "text": "x"}),
        ("history", {"limit": "3"}, {"page_size": 3}),
    ],
)
def test_what_models_often_write_is_read_as_it_is_meant(
    catalogue: Catalogue, tool: str, sent: dict[str, Any], meant: dict[str, Any]
) -> None:
    assert catalogue.request(BY_NAME[tool], sent) == catalogue.request(BY_NAME[tool], meant)


@pytest.mark.requirement("USE-5")
@pytest.mark.parametrize(
    ("tool", "sent", "told"),
    [
        ("recall", {"query": "x", "token_budget": "many"}, "token_budget must be a whole number"),
        ("recall", {"query": "x", "strategy": "best"}, "strategy must be one of LCA, COLLAPSED, HYBRID"),
        ("recall", {"query": "x", "tags": {}}, "tags must be a list"),
        ("recall", {"query": "x", "include_trace": "yes"}, "include_trace must be true or false"),
        ("remember", {"text": 5}, "text must be a text"),
        ("remember", {"text": "x", "attributes": {"n": [1]}}, "must be a text"),
        ("remember", {"text": "x", "attributes": "{"}, "attributes must be an object"),
        ("remember", {"text": "x", "importance": 1}, "importance is not an argument; there are workspace, branch"),
    ],
)
def test_what_could_mean_anything_is_refused(catalogue: Catalogue, tool: str, sent: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=told):
        catalogue.request(BY_NAME[tool], sent)
