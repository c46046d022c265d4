"""The part of the OpenAPI document about questions with tools."""

from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from memotree.error_statuses import ERROR_STATUSES
from memotree.gateways.json_schema import input_schema, message_schema
from memotree.gateways.tool_definitions import BY_NAME
from memotree.v1 import query_service_pb2 as pb

_JSON: Final = "application/json"
QUERY_PATH: Final = "/api/query/with-tools"
STREAM_PATH: Final = f"{QUERY_PATH}/stream"

_EVENTS: Final = """\
Server-sent events: `text`, with more text of the model; `call`, when a tool is called; `result`, when a call has \
ended or was not made; and as the last one `answer`, or `error` with a refusal. Lines that begin with a colon are \
comments.\
"""

_BUSY: Final = 503
_PLAIN: Final = {"text/plain": {"schema": {"type": "string"}}}
"""The answer to too many connections."""

_OTHER: Final = (405, 413, 415, 421)
"""Statuses of requests that ask no question, beside those of errors."""


def answer_schema() -> dict[str, Any]:
    """The schema of an answer."""
    kind: Descriptor = pb.QueryResponse.DESCRIPTOR
    return message_schema(kind)


def query_paths() -> dict[str, Any]:
    """The paths."""
    tool = BY_NAME["query"]
    body = {
        "required": True,
        "content": {
            _JSON: {
                "schema": dict(input_schema(tool)),
                **({"examples": {"example 1": {"value": tool.example}}} if tool.example else {}),
            }
        },
    }
    whole = {"description": "The answer.", "content": {_JSON: {"schema": {"$ref": "#/components/schemas/QueryAnswer"}}}}
    events = {
        "description": "The events.",
        "content": {"text/event-stream": {"schema": {"type": "string", "description": _EVENTS}}},
    }
    return {
        path: {
            "post": {
                "operationId": name,
                "summary": summary,
                "description": "The chat model of the server answers, and calls tools meanwhile, as whoever asks.",
                "tags": ["query"],
                "requestBody": body,
                "responses": {"200": answer, **_refusals()},
            }
        }
        for path, name, summary, answer in (
            (QUERY_PATH, "queryWithTools", "Ask with tools", whole),
            (STREAM_PATH, "streamQueryWithTools", "Ask with tools, and see each step", events),
        )
    }


def _refusals() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Refusal"}
    statuses = sorted({*(each.http for each in ERROR_STATUSES), *_OTHER})
    return {
        str(status): {
            "description": "No answer; the error says why, and what to do next.",
            "content": {_JSON: {"schema": schema}} | (_PLAIN if status == _BUSY else {}),
        }
        for status in statuses
    }
