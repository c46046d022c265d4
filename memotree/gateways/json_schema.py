"""The JSON Schema (2020-12) of a tool's arguments, from the descriptor of its request and the contract's comments."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from memotree.gateways.contract import Field, comment, is_map, short_names
from memotree.gateways.json_messages import one_of
from memotree.gateways.tool_definitions import TOOLS, Tool

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


@cache
def input_schema(tool: Tool, workspace: str) -> Mapping[str, Any]:
    """The schema of the tool's arguments; ``workspace`` is the default workspace."""
    schema = _object(tool.request, tool.hidden, tool.hidden_within)
    if WORKSPACE in schema["properties"] and WORKSPACE not in tool.required:
        meaning = schema["properties"][WORKSPACE]["description"].rstrip(".")
        schema["properties"][WORKSPACE] |= {
            "description": f"{meaning}; {workspace!r} when not given.",
            "default": workspace,
        }
    if tool.required:
        schema["required"] = list(tool.required)
    return schema


def _object(kind: Descriptor, hidden: Names, within: Names) -> dict[str, Any]:
    fields = [field for field in kind.fields if field.name not in hidden]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _described(field, within) for field in fields},
        "additionalProperties": False,
    }
    if fields and all(one_of(field) for field in fields):  # only a oneof: exactly one of its fields must be given
        schema |= {"minProperties": 1, "maxProperties": 1}
    return schema


def _described(field: Field, within: Names) -> dict[str, Any]:
    text = in_tools(comment(field))
    if field.enum_type is not None:
        text = f"{text} {' '.join(_meanings(field))}"
    return {**_shape(field, within), **({"description": text} if text else {})}


def _meanings(field: Field) -> Iterator[str]:
    """The description of each value of an enum."""
    for name, number in short_names(field.enum_type).items():
        yield f"{name}: {in_tools(comment(field.enum_type.values_by_number[number]))}"


def _shape(field: Field, within: Names) -> dict[str, Any]:
    if is_map(field):
        return {"type": "object", "additionalProperties": _one(field.message_type.fields_by_name["value"], within)}
    if field.is_repeated:
        return {"type": "array", "items": _one(field, within)}
    return _one(field, within)


def _one(field: Field, within: Names) -> dict[str, Any]:
    if field.message_type is not None:
        return dict(_AS_TEXT.get(field.message_type.full_name) or _object(field.message_type, within, within))
    if field.enum_type is not None:
        return {"type": "string", "enum": list(short_names(field.enum_type))}
    return {"type": _TYPES.get(field.cpp_type, "integer")}


@cache
def _tool_names() -> tuple[re.Pattern[str], Mapping[str, str]]:
    names = {tool.rpc: tool.name for tool in TOOLS}
    return re.compile(rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b"), names


def in_tools(text: str) -> str:
    """A comment of the contract with tool names in place of RPC names."""
    pattern, names = _tool_names()
    return pattern.sub(lambda found: names[found[0]], text)


def description(tool: Tool) -> str:
    """The description of a tool: the first paragraph of its RPC's comment, then the tool's note.

    The part of the comment about errors is left out: it is for programs, while here each error says what to do.
    """
    text = comment(tool.method).partition("\n\n")[0].partition(" Errors: ")[0]
    return in_tools(" ".join(part for part in (text, tool.note) if part))


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
"""The schema of every result."""
