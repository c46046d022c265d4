"""The JSON Schema (2020-12) of a tool's arguments, from the descriptor of its request and the contract's comments."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from memotree.gateways.answer_parts import PART
from memotree.gateways.contract import Field, comment, is_map, short_names
from memotree.gateways.json_messages import one_of
from memotree.gateways.tool import Tool
from memotree.gateways.tool_definitions import TOOLS
from memotree.tools.declaration import Action, Declaration, Permission
from memotree.v1.forest_service_pb2 import RecallReceipt

WORKSPACE: Final = "workspace"
"""The argument that may be left out of every tool call; the default workspace is filled in."""

Names = tuple[str, ...]

_TYPES: Final = {
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
}
_AS_TEXT: Final[Mapping[str, Mapping[str, Any]]] = {
    Timestamp.DESCRIPTOR.full_name: {"type": "string", "format": "date-time"},
    Duration.DESCRIPTOR.full_name: {"type": "string", "pattern": r"^\d+(\.\d+)?s$"},
}


SHARED: Final[Mapping[str, str]] = {
    WORKSPACE: "The workspace, by name or id; the default workspace when not given.",
    "session_id": "The session, from open_session.",
    "revision": "A session, branch, tag or commit to read; the default branch when not given.",
    "page_size": "The most items of one answer.",
    "page_token": "From the previous answer, for the next page.",
    PART: "The number of a part of a long answer, from 1; an answer that has several says so.",
    "etag": "From an earlier read; refuses the call if the node has changed since.",
    "node_id": "",
    "level": "",
}
"""Arguments that many tools have with one meaning; the instructions of the server say it once for all of them. Those
with an empty text need no words."""


@cache
def input_schema(tool: Tool, *, short: bool = False) -> Mapping[str, Any]:
    """The schema of the tool's arguments.

    Args:
        tool: The tool.
        short: Whether only the arguments of the short list are in it.
    """
    chosen = tool.listed if short and tool.listed else tuple(tool.arguments)
    beginning = _FIRST_SENTENCE if short else _FIRST_CLAUSE
    properties = {name: _described(name, tool.arguments[name], tool.hidden_within, beginning) for name in chosen}
    if tool.has_parts:
        properties[PART] = {"type": "integer"}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if tool.required:
        schema["required"] = list(tool.required)
    return schema


def _object(kind: Descriptor, within: Names) -> dict[str, Any]:
    fields = [field for field in kind.fields if field.name not in within]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _described(field.name, field, within, _FIRST_CLAUSE) for field in fields},
        "additionalProperties": False,
    }
    if fields and all(one_of(field) for field in fields):  # only a oneof: exactly one of its fields must be given
        schema |= {"minProperties": 1, "maxProperties": 1}
    return schema


def message_schema(kind: Descriptor) -> dict[str, Any]:
    """The schema of a message that is an answer, as `memotree.gateways.json_messages.to_json` writes it."""
    return _object(kind, ())


def _described(name: str, field: Field, within: Names, beginning: re.Pattern[str]) -> dict[str, Any]:
    """The schema of an argument with the beginning of its comment; the rest is for programs."""
    shape = _shape(field, within)
    if name in SHARED or "description" in shape:
        return shape
    text = in_tools(beginning.match(comment(field))[0])  # type: ignore[index]  # it matches any text
    return {**shape, **({"description": f"{text}."} if text else {})}


_FIRST_SENTENCE: Final = re.compile(r"(?s:.*?)(?=\.(?:\s|\Z)|\Z)")
_FIRST_CLAUSE: Final = re.compile(r"(?s:.*?)(?=[.;](?:\s|\Z)|\Z)")
"""The list of all tools has to be short; what a clause leaves out, the documentation says."""


def _shape(field: Field, within: Names) -> dict[str, Any]:
    if is_map(field):
        return {"type": "object", "additionalProperties": _one(field.message_type.fields_by_name["value"], within)}
    if field.is_repeated:
        return {"type": "array", "items": _one(field, within)}
    return _one(field, within)


def _one(field: Field, within: Names) -> dict[str, Any]:
    if field.message_type is not None:
        kind = field.message_type
        return _whole(kind) or dict(_AS_TEXT.get(kind.full_name) or _object(kind, within))
    if field.enum_type is not None:
        return {"type": "string", "enum": list(short_names(field.enum_type))}
    return {"type": _TYPES.get(field.cpp_type, "integer")}


def _whole(kind: Descriptor) -> dict[str, Any] | None:
    """The schema of an object that is not described again: the arguments of another tool, or what a tool returned."""
    tool = next((tool for tool in TOOLS if tool.request.full_name == kind.full_name), None)
    if tool is not None:
        return {"type": "object", "description": f"The arguments of {tool.name}."}
    return {"type": "object"} if kind.full_name == RecallReceipt.DESCRIPTOR.full_name else None


@cache
def _tool_names() -> tuple[re.Pattern[str], Mapping[str, str]]:
    names = {tool.rpc: tool.name for tool in TOOLS}
    return re.compile(rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b"), names


def in_tools(text: str) -> str:
    """A comment of the contract with tool names in place of RPC names."""
    pattern, names = _tool_names()
    return pattern.sub(lambda found: names[found[0]], text)


def description(tool: Tool) -> str:
    """The description of a tool: its own with an example, or the first paragraph of its RPC's comment and a note.

    The part of the comment about errors is left out: it is for programs, while here each error says what to do.
    """
    if tool.description:
        shown = f" Example: {json.dumps(tool.example, ensure_ascii=False)}" if tool.example else ""
        return f"{tool.description}{shown}"
    text = comment(tool.method).partition("\n\n")[0].partition(" Errors: ")[0]
    return in_tools(" ".join(part for part in (text, tool.note) if part))


@cache
def declaration(tool: Tool) -> Declaration:
    """What a program is told about a tool."""
    return Declaration(
        tool.name,
        tool.title,
        description(tool),
        tool.category,
        input_schema(tool),
        tool.read_only,
        tool.destructive,
        tool.idempotent,
        permissions=(Permission(_action(tool), "workspace" if WORKSPACE in tool.arguments else "server"),),
        examples=(tool.example,) if tool.example else (),
    )


def _action(tool: Tool) -> Action:
    if tool.read_only:
        return "read"
    return "delete" if tool.destructive else "write"


OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean"},
        "message": {"type": "string", "description": "One sentence for a person."},
        "data": {"type": ["object", "null"], "description": "The tool's answer, with names in snake_case."},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "error": {
            "type": ["object", "null"],
            "properties": {
                "code": {"type": "string", "description": "The stable error code, UPPER_SNAKE."},
                "status": {"type": "string", "description": "The gRPC status of the error."},
                "message": {"type": "string"},
                "details": {"type": "object", "description": "Faults by field, conflicts, candidate nodes."},
            },
            "required": ["code", "status", "message", "details"],
        },
        "metadata": {"type": "object"},
        "elapsed_ms": {"type": "number"},
    },
    "required": ["success", "message", "data", "warnings", "error", "metadata", "elapsed_ms"],
}
"""The schema of every result in its whole form."""

SHORT_OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean"},
        "message": {"type": "string", "description": "The text for the model."},
        "data": {"type": "object", "description": "Ids, and names and states of a line."},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "status": {"type": "string"},
                "retry_after": {"type": "number", "description": "Seconds after which to send the same call again."},
            },
            "required": ["code", "status"],
        },
    },
    "required": ["success", "message"],
    "additionalProperties": False,
}
"""The schema of the short form of every result, which MCP answers with unless the whole one is asked for."""
