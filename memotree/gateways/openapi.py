"""The OpenAPI 3.1 document of the tools over HTTP, made from what the catalogue tells about each tool.

Every tool has a path of its own, so that a client that is generated from the document has a function for each. The
schemas of arguments are those that the tools are listed with: OpenAPI 3.1 uses the same JSON Schema.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from memotree.error_statuses import ERROR_STATUSES
from memotree.gateways.json_schema import OUTPUT
from memotree.gateways.openapi_queries import answer_schema, query_paths

VERSION: Final = "3.1.0"
"""The version of OpenAPI."""

Document = dict[str, Any]

_JSON: Final = "application/json"

_ABOUT: Final = """\
A tool is an operation of MemoTree by name, with arguments and a result in JSON. A result has the same keys always; \
`error.code` is the stable reason of a failure and `error.message` says what to do next. A call that reaches no tool \
answers with `error` alone.\
"""

_REFUSED: Final = {
    400: "The body is no JSON object, or a parameter is wrong.",
    401: "The server asks for an API key, and the request has none that is valid.",
    403: "The call comes from a web page of another site.",
    404: "There is no such tool.",
    405: "The path does not support the method.",
    413: "The body is larger than the server's setting max_message_bytes.",
    415: "The body was not sent as application/json.",
    421: "The Host header does not name this machine.",
    503: "The server has too many connections; send the call again later. This answer is plain text.",
}
"""Why a call reaches no tool, by HTTP status."""

_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, for a server that asks for one (its setting authentication).",
}

_TOOL: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The unique name."},
        "title": {"type": "string"},
        "description": {"type": "string", "description": "What it does and when to use it."},
        "category": {"type": "string"},
        "parameters": {"type": "object", "description": "The JSON Schema of its arguments."},
        "read_only": {"type": "boolean", "description": "Whether it changes nothing."},
        "destructive": {"type": "boolean", "description": "Whether it may delete or overwrite something."},
        "idempotent": {"type": "boolean", "description": "Whether the same call again has no further effect."},
        "open_world": {"type": "boolean", "description": "Whether it reaches beyond the server."},
        "permissions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"action": {"type": "string"}, "resource": {"type": "string"}},
                "required": ["action", "resource"],
            },
            "description": "What it may do, to what.",
        },
        "examples": {"type": "array", "items": {"type": "object"}, "description": "Arguments of typical calls."},
    },
    "required": [
        "name",
        "title",
        "description",
        "category",
        "parameters",
        "read_only",
        "destructive",
        "idempotent",
        "open_world",
        "permissions",
        "examples",
    ],
}

_TOOLS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"tools": {"type": "array", "items": {"$ref": "#/components/schemas/Tool"}}},
    "required": ["tools"],
}

_REFUSAL: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The stable error code, UPPER_SNAKE."},
                "status": {"type": "string", "description": "The gRPC status of the error."},
                "message": {"type": "string", "description": "A sentence that says what to do next."},
                "details": {"type": "object"},
            },
            "required": ["code", "status", "message"],
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}

_EVENTS: Final = """\
Server-sent events, for a client that accepts them and not application/json: `progress`, with a number that only \
grows and a message, while the tool works; and as the last one `result`, whose data is the result, also of a tool that \
failed. Lines that begin with a colon are comments.\
"""

_SUCCESS: Final[Mapping[str, Any]] = {
    "description": "The tool succeeded.",
    "content": {
        _JSON: {"schema": {"$ref": "#/components/schemas/Result"}},
        "text/event-stream": {"schema": {"type": "string", "description": _EVENTS}},
    },
}

_FAILURE_EXAMPLE: Final[Mapping[str, Any]] = {
    "success": False,
    "message": "The arguments do not match get_node: node_id is needed.",
    "data": None,
    "warnings": [],
    "error": {
        "code": "INVALID_ARGUMENTS",
        "status": "INVALID_ARGUMENT",
        "message": "The arguments do not match get_node: node_id is needed.",
        "details": {"violations": [{"field": "node_id", "description": "is needed."}]},
    },
    "metadata": {"tool": "get_node"},
    "elapsed_ms": 0.4,
}


def openapi_document(tools: Iterable[Mapping[str, Any]], version: str, url: str = "/") -> Document:
    """The document.

    Args:
        tools: What `memotree.gateways.json_schema.declaration` tells about each tool.
        version: The version of MemoTree.
        url: The URL of the server; without one, that from which the document was read.
    """
    told = list(tools)
    return {
        "openapi": VERSION,
        "info": {"title": "MemoTree", "version": version, "description": _ABOUT},
        "servers": [{"url": url}],
        "security": [{}, {"key": []}],
        "tags": [{"name": category} for category in dict.fromkeys(tool["category"] for tool in told)],
        "paths": {
            "/api/tools": {"get": _list_operation()},
            "/api/tools/{name}": {"get": _get_operation(told)},
            **{f"/api/tools/{tool['name']}/execute": {"post": _execute_operation(tool)} for tool in told},
            **query_paths(),
        },
        "components": {
            "securitySchemes": {"key": _KEY},
            "schemas": {
                "Tool": _TOOL,
                "ToolList": _TOOLS,
                "Result": OUTPUT,
                "Refusal": _REFUSAL,
                "QueryAnswer": answer_schema(),
            },
            "responses": {f"Refused{status}": _refusal(status) for status in _REFUSED} | _failures(),
        },
    }


def _list_operation() -> Document:
    return {
        "operationId": "listTools",
        "summary": "List the tools",
        "parameters": [
            {
                "name": "category",
                "in": "query",
                "description": "Only tools of this category.",
                "schema": {"type": "string"},
            }
        ],
        "responses": {
            "200": _answer("The tools.", _ref("schemas", "ToolList")),
            **_refusals(400, 401, 403, 405, 421, 503),
        },
    }


def _get_operation(tools: list[Mapping[str, Any]]) -> Document:
    return {
        "operationId": "getTool",
        "summary": "Describe a tool",
        "parameters": [
            {
                "name": "name",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"},
                **({"example": tools[0]["name"]} if tools else {}),
            }
        ],
        "responses": {"200": _answer("The tool.", _ref("schemas", "Tool")), **_refusals(401, 403, 404, 405, 421, 503)},
    }


def _execute_operation(tool: Mapping[str, Any]) -> Document:
    examples = {f"example {number}": {"value": example} for number, example in enumerate(tool["examples"], 1)}
    return {
        "operationId": tool["name"],
        "summary": tool["title"],
        "description": tool["description"],
        "tags": [tool["category"]],
        "requestBody": {
            "description": "The arguments; a call without any may leave the body empty.",
            "required": bool(tool["parameters"].get("required")),
            "content": {_JSON: {"schema": tool["parameters"], **({"examples": examples} if examples else {})}},
        },
        "responses": {
            "200": _SUCCESS,
            **_refusals(405, 413, 415, 421),
            **{name.removeprefix("Failed"): _ref("responses", name) for name in _failures()},
        },
        "x-read-only": tool["read_only"],
        "x-destructive": tool["destructive"],
        "x-idempotent": tool["idempotent"],
    }


def _failures() -> Document:
    """The answers of calls whose tool failed, by name; a status that tells several things has all of them in it."""
    found: dict[int, list[str]] = {}
    for each in ERROR_STATUSES:
        found.setdefault(each.http, []).append(each.code.name)
    return {f"Failed{status}": _failure(status, codes) for status, codes in sorted(found.items())}


def _failure(status: int, codes: list[str]) -> Document:
    text = f"The tool failed with {' or '.join(codes)}."
    if status not in _REFUSED:
        return _answer(text, _ref("schemas", "Result"))
    answer = _answer(f"{text} {_REFUSED[status]}", {"anyOf": [_ref("schemas", "Result"), _ref("schemas", "Refusal")]})
    if status == 400:  # noqa: PLR2004 - the status of invalid arguments
        answer["content"][_JSON]["example"] = _FAILURE_EXAMPLE
    return _with_plain_text(answer) if status == 503 else answer  # noqa: PLR2004 - as in `_REFUSED`


def _refusal(status: int) -> Document:
    answer = _answer(_REFUSED[status], _ref("schemas", "Refusal"))
    return _with_plain_text(answer) if status == 503 else answer  # noqa: PLR2004 - as in `_REFUSED`


def _with_plain_text(answer: Document) -> Document:
    return {**answer, "content": {**answer["content"], "text/plain": {"schema": {"type": "string"}}}}


def _refusals(*statuses: int) -> Document:
    return {str(status): _ref("responses", f"Refused{status}") for status in statuses}


def _answer(description: str, schema: Document) -> Document:
    return {"description": description, "content": {_JSON: {"schema": schema}}}


def _ref(kind: str, name: str) -> Document:
    return {"$ref": f"#/components/{kind}/{name}"}
