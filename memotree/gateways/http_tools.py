"""The tools over HTTP: listed, described and called with arguments in JSON."""

from typing import Final

from memotree_storage.errors import FieldViolation
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from memotree.error_statuses import HTTP_STATUSES
from memotree.gateways.catalogue import (
    Catalogue,
    InvalidArgumentsError,
    UnknownCategoryError,
    UnknownToolError,
    arguments_of,
    failure_of,
)
from memotree.gateways.http_answers import refused
from memotree.gateways.json_schema import declaration
from memotree.gateways.results import Failure
from memotree.server.request_reading import MessageTooLargeError

_JSON: Final = "application/json"
"""The kind of the body. A browser asks a server before a page of another site may send this, but not for plain text."""


class ToolPaths:
    """Answers the paths below ``/api/tools``.

    Args:
        catalogue: The tools.
        most_bytes: The most bytes of the arguments.
    """

    def __init__(self, catalogue: Catalogue, most_bytes: int) -> None:
        self._catalogue = catalogue
        self._most_bytes = most_bytes

    async def listed(self, request: Request) -> Response:
        """All tools, or those of the ``category`` of the query."""
        try:
            chosen = self._catalogue.listed(request.query_params.get("category", ""))
        except UnknownCategoryError as error:
            return refused(failure_of(error))
        return JSONResponse({"tools": [declaration(tool) for tool in chosen]})

    async def one(self, request: Request) -> Response:
        """One tool."""
        try:
            tool = self._catalogue.find(request.path_params["name"])
        except UnknownToolError as error:
            return refused(failure_of(error))
        return JSONResponse(declaration(tool))

    async def execute(self, request: Request) -> Response:
        """Call a tool with the arguments in the body; the result has the HTTP status of its gRPC status."""
        name = request.path_params["name"]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _JSON:
            message = f"The arguments must be sent with the header Content-Type: {_JSON}."
            return refused(Failure("NOT_SENT_AS_JSON", "INVALID_ARGUMENT", message), 415)
        try:
            arguments = arguments_of(name, await self._body(request, name))
            result = await self._catalogue.call(name, arguments)
        except (InvalidArgumentsError, MessageTooLargeError, UnknownToolError) as error:
            status = 413 if isinstance(error, MessageTooLargeError) else None
            return refused(failure_of(error), status)
        status = 200 if result.failure is None else HTTP_STATUSES.get(result.failure.status, 500)
        return JSONResponse(result.to_json(), status_code=status)

    async def _body(self, request: Request, tool: str) -> str:
        """The body of a request.

        Raises:
            MessageTooLargeError: It is too large; the rest of it was not read.
            InvalidArgumentsError: It is not UTF-8.
        """
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._most_bytes:
                raise MessageTooLargeError(None, self._most_bytes)
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            fault = FieldViolation("arguments", f"must be UTF-8, and is not at byte {error.start}.")
            raise InvalidArgumentsError(tool, [fault]) from None
