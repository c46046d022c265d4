"""The tools over HTTP: listed, described and called with arguments in JSON."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from memotree_storage.cache import BoundedCache
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from memotree.error_statuses import HTTP_STATUSES
from memotree.gateways.catalogue import (
    Catalogue,
    InvalidArgumentsError,
    OnProgress,
    UnknownCategoryError,
    UnknownToolError,
    arguments_of,
    failure_of,
)
from memotree.gateways.http_answers import gone, refused, retry_headers
from memotree.gateways.http_bodies import JSON, body_of, is_json, not_json
from memotree.gateways.http_events import EventStream, wants_events, while_connected
from memotree.gateways.openapi import openapi_document
from memotree.gateways.results import Result
from memotree.identity.errors import ToolNotPermittedError
from memotree.request.observed_calls import HTTP, calling_through
from memotree.server.request_reading import MessageTooLargeError

_MOST_DOCUMENTS: Final = 8
"""How many OpenAPI documents are kept: one for all principals that may call the same tools."""


class ToolPaths:
    """Answers the paths below ``/api/tools``, and describes them.

    Args:
        catalogue: The tools.
        most_bytes: The most bytes of the arguments.
    """

    def __init__(self, catalogue: Catalogue, most_bytes: int) -> None:
        self._catalogue = catalogue
        self._most_bytes = most_bytes
        self._documents: BoundedCache[tuple[str, ...], bytes] = BoundedCache(_MOST_DOCUMENTS)

    async def openapi(self, _request: Request) -> Response:
        """The OpenAPI document of these paths, with the tools that the caller may call."""
        tools = await self._catalogue.listed()
        names = tuple(tool.name for tool in tools)
        document = self._documents.get(names)
        if document is None:  # it takes some thirty milliseconds
            document = await asyncio.to_thread(_described, [tool.to_json() for tool in tools])
            self._documents.put(names, document)
        return Response(document, media_type=JSON)

    async def listed(self, request: Request) -> Response:
        """All tools, or those of the ``category`` of the query."""
        try:
            chosen = await self._catalogue.listed(request.query_params.get("category", ""))
        except UnknownCategoryError as error:
            return refused(failure_of(error))
        return JSONResponse({"tools": [tool.to_json() for tool in chosen]})

    async def one(self, request: Request) -> Response:
        """One tool."""
        try:
            tool = await self._catalogue.described(request.path_params["name"])
        except (UnknownToolError, ToolNotPermittedError) as error:
            return refused(failure_of(error))
        return JSONResponse(tool.to_json())

    async def execute(self, request: Request) -> Response:
        """Call a tool with the arguments in the body; the result has the HTTP status of its gRPC status.

        A client that asks for events gets the progress of the call, and its result with the status 200. The call ends
        when its client goes away.
        """
        name = request.path_params["name"]
        if not is_json(request):
            return not_json()
        try:
            tool = await self._catalogue.find(name)
            name = tool.name
            with calling_through(HTTP, request.headers.items), self._catalogue.preparing(tool):
                arguments = arguments_of(name, await body_of(request, self._most_bytes, name))
        except (InvalidArgumentsError, MessageTooLargeError, UnknownToolError) as error:
            status = 413 if isinstance(error, MessageTooLargeError) else None
            return refused(failure_of(error), status)
        except ClientDisconnect:
            return gone()
        if wants_events(request.headers.get("accept", "")):
            return EventStream(partial(self._call, request, name, arguments))
        try:
            result = await while_connected(request.receive, self._call(request, name, arguments))
        except ClientDisconnect:
            return gone()
        status = 200 if result.failure is None else HTTP_STATUSES.get(result.failure.status, 500)
        return JSONResponse(result.to_json(), status_code=status, headers=retry_headers(result.failure))

    async def _call(
        self, request: Request, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> Result:
        with calling_through(HTTP, request.headers.items):
            return await self._catalogue.call(name, arguments, on_progress)


def _described(tools: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps(openapi_document(tools, version("memotree")), ensure_ascii=False).encode()
