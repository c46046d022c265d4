"""Nothing that a caller wrote stands in the audit log, only what a call was about and how large it was."""

import json
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from memotree.audit.redaction import redacted, redacted_arguments
from memotree.planner import declared_tools
from memotree.request.observed_calls import FunctionArguments
from memotree.tools.builtin.services import ToolOptions, builtin_tools
from memotree.v1 import (
    audit_service_pb2,
    erase_service_pb2,
    history_service_pb2,
    node_service_pb2,
    session_service_pb2,
    tool_service_pb2,
)

pytestmark = pytest.mark.requirement("TOOL-12")

NODE = "0123456789abcdef"
SECRET = "correct horse battery staple"  # noqa: S105 - an example


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (
            node_service_pb2.GetNodeRequest(workspace="w", node_id=NODE, revision="feature/one~2"),
            {"node_id": NODE, "revision": "feature/one~2"},
        ),
        (history_service_pb2.CreateBranchRequest(name="idea"), {"name": "idea"}),
        (history_service_pb2.CreateBranchRequest(name="a\nb"), {"name": {"chars": 3}}),
        (node_service_pb2.GetNodeRequest(node_id="Notes/My plan"), {"node_id": {"chars": 13}}),
        (
            session_service_pb2.DiscardChangesRequest(node_ids=[NODE] * 5000),
            {"node_ids": {"first": [NODE] * 10, "count": 5000}},
        ),
        (
            audit_service_pb2.ListAuditRecordsRequest(since=Timestamp(seconds=1 << 60)),  # a time that there is not
            {"since": {"seconds": 1 << 60}},
        ),
    ],
)
def test_ids_and_names_are_kept_many_counted_and_texts_in_their_place_measured(request_: Message, told: object) -> None:
    assert redacted(request_) == told


def test_texts_are_told_by_their_length_and_long_ones_by_a_digest() -> None:
    kept = redacted(node_service_pb2.CreateNodeRequest(title="A secret plan", content="x" * 1000))
    assert kept["title"] == {"chars": 13}
    assert kept["content"]["chars"] == 1000
    assert len(kept["content"]["sha256"]) == 16
    assert redacted(node_service_pb2.CreateNodeRequest(content="x" * (1 << 21)))["content"] == {"chars": 1 << 21}


def test_what_may_be_a_secret_has_no_digest() -> None:
    target = erase_service_pb2.ErasureTarget(text=SECRET * 5)
    request = erase_service_pb2.EraseRequest(target=target, phrase=SECRET * 5, by="me", reason="r")
    told = json.dumps(redacted(request))
    assert SECRET not in told
    assert redacted(request)["phrase"] == {"chars": len(SECRET) * 5}
    assert redacted(request)["target"] == {"fields": ["text"]}
    call = tool_service_pb2.ExecuteToolRequest(name="x", arguments_json="{}" * 99)
    assert redacted(call)["arguments_json"] == {"chars": 198}


@given(st.text())
def test_no_text_of_a_caller_appears(text: str) -> None:
    marked = f"{text}!secret"
    request = node_service_pb2.CreateNodeRequest(
        title=marked, content=marked, parent_id=marked, session_id=marked, tags=[marked], attributes={marked: marked}
    )
    assert "!secret" not in json.dumps(redacted(request), allow_nan=False)


# --- Functions --------------------------------------------------------------------------------------------------------

BUILTIN = builtin_tools(ToolOptions(("/srv",), (), ("*",), "https://search.example/search"))
DECLARED = {tool.name: tool.declaration for tool in (*BUILTIN, *declared_tools())}


def kept(tool: str, **arguments: Any) -> dict[str, Any]:
    return redacted_arguments(FunctionArguments(arguments, DECLARED[tool].parameters))


def test_of_a_request_the_method_and_the_host_are_kept_and_no_text() -> None:
    found = kept(
        "http_request",
        url=f"https://me:{SECRET[:7]}@api.Example.com:8443/{SECRET[:7]}?key={SECRET[:7]}",
        method="DELETE",
        headers={"Authorization": SECRET, SECRET: "x"},
        body=SECRET * 5,
        most_bytes=100,
    )
    assert found == {
        "url": {"host": "api.example.com", "chars": 59},
        "method": "DELETE",
        "headers": {"count": 2},
        "body": {"chars": len(SECRET) * 5},
        "most_bytes": 100,
    }
    assert kept("check_host", host="API.example.com", port=25) == {"host": "api.example.com", "port": 25}


@pytest.mark.parametrize(
    "url", ["correct horse", "https://", "https://[", "https://a b/", "//", "x" * 100_000, "\ud800"]
)
def test_what_is_no_url_is_a_text(url: str) -> None:
    assert kept("http_request", url=url) == {"url": {"chars": len(url)}}


def test_numbers_flags_choices_ids_and_revisions_of_a_function_are_kept() -> None:
    assert kept("date_time", action="add", months=3, hours=0.5, time=SECRET) == {
        "action": "add",
        "time": {"chars": len(SECRET)},
        "months": 3,
        "hours": 0.5,
    }
    assert kept("delete_project", project_id=NODE, cascade=True) == {"project_id": NODE, "cascade": True}
    assert kept("create_task", title=SECRET, priority="high", project_id="My plan") == {
        "title": {"chars": len(SECRET)},
        "project_id": {"chars": 7},
        "priority": "high",
    }
    assert kept("create_project", name=SECRET, goal_ids=[NODE] * 2)["goal_ids"] == [NODE] * 2
    assert kept("document_count", revision="feature/one", where={SECRET: SECRET}) == {
        "where": {"count": 1},
        "revision": "feature/one",
    }
    assert kept("http_request", url="https://a.example", method=SECRET)["method"] == {"chars": len(SECRET)}
    undeclared = {SECRET: SECRET, "workspace": "w"}
    assert kept("calculator", expression="1", **undeclared) == {"expression": {"chars": 1}}
    updates = {"status": "completed", "name": SECRET, SECRET: SECRET}
    assert kept("update_project", project_id=NODE, updates=updates)["updates"] == {"fields": ["name", "status"]}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(DECLARED)), st.data())
def test_whatever_a_function_is_given_its_record_is_json_without_texts(tool: str, data: st.DataObject) -> None:
    names = sorted(DECLARED[tool].parameters["properties"])
    marked = st.text().map(lambda text: f"{text}!secret")
    arguments = data.draw(st.dictionaries(st.sampled_from(names) | marked, JSON | marked, max_size=5))
    assert "!secret" not in json.dumps(kept(tool, **arguments), allow_nan=False)


@pytest.mark.parametrize("value", [10**5000, -(1 << 64), float("nan"), float("-inf"), object()], ids=range(5))
def test_a_number_that_is_no_usual_one_does_not_fail_the_call(value: Any) -> None:
    assert len(json.dumps(kept("calculator", expression=value), allow_nan=False)) < 100


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": None},
        {"properties": {"a": None, "b\0": {}, "c" * 1000: {}}},
        {"properties": {"a": {"enum": 5, "anyOf": 7, "const": []}}},
        {"properties": {"a": {"anyOf": [{"enum": None}, 3, {"enum": ["x\0"]}]}}},
    ],
)
def test_a_package_may_declare_anything(schema: Any) -> None:
    found = redacted_arguments(FunctionArguments({"a": "x\0", "b\0": 1, "c" * 1000: 1}, schema))
    assert found in ({}, {"a": {"chars": 2}})


@given(JSON)
def test_no_schema_is_a_fault_of_the_server(schema: Any) -> None:
    for parameters in (schema, {"properties": schema}, {"properties": {"a": schema}}):
        redacted_arguments(FunctionArguments({"a": "x"}, parameters))
