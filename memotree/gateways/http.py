"""The HTTP application: MCP at ``/mcp``, git at ``/git``, tools at ``/api/tools``, questions at ``/api/query``, health.

The tool of the memory forest's design has a path and a format of its own.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.descriptor import FieldDescriptor
from memotree_storage.errors import FieldViolation
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError, failure_of
from memotree.gateways.git_http import PATHS
from memotree.gateways.http_answers import gone, refused
from memotree.gateways.http_authentication import Authenticated
from memotree.gateways.http_events import while_connected
from memotree.gateways.http_queries import QueryPaths
from memotree.gateways.http_tools import ToolPaths
from memotree.gateways.json_texts import NotJsonError, parsed
from memotree.gateways.openapi_queries import QUERY_PATH, STREAM_PATH
from memotree.gateways.results import Failure
from memotree.gateways.tool_definitions import BY_NAME
from memotree.request.nearest_names import shown
from memotree.request.observed_calls import HTTP, calling_through
from memotree.server.authentication import Authentication
from memotree.server.calls import RunningCalls
from memotree.server.readiness import Readiness
from memotree.server.request_reading import MessageTooLargeError

EXPLORE: Final = "explore_memory_node"

_TOO_LARGE: Final = 413

LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def http_app(
    catalogue: Catalogue,
    mcp: ASGIApp,
    git: ASGIApp,
    readiness: Readiness,
    authentication: Authentication,
    calls: RunningCalls,
    *,
    most_bytes: int,
    metadata: tuple[str, Sequence[Route]] = ("", ()),
) -> Starlette:
    """The HTTP application with all its routes.

    Args:
        catalogue: The tools.
        mcp: The application for ``/mcp``, which answers 413 to a body with more bytes than ``most_bytes``.
        git: The application for the paths of `memotree.gateways.git_http`.
        readiness: Tells whether the server can do its work.
        authentication: Finds out who makes a request.
        calls: Counts the requests and streams of each principal.
        most_bytes: The most bytes of a body.
        metadata: Where clients of MCP read which provider gives tokens, and the routes for that.
    """

    async def explore(request: Request) -> Response:
        try:
            arguments = from_query(EXPLORE, request.query_params)
        except InvalidArgumentsError as error:
            return refused(failure_of(error))
        try:
            with calling_through(HTTP, request.headers.items):
                result = await while_connected(request.receive, catalogue.call(EXPLORE, arguments))
        except ClientDisconnect:
            return gone()
        if result.failure is not None:
            return refused(result.failure)
        return JSONResponse([explored(found) for found in (result.data or {}).get("nodes", ())])

    async def live(_request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(_request: Request) -> Response:
        obstacles = await readiness.obstacles()
        if not obstacles:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reasons": obstacles}, status_code=503)

    tools = ToolPaths(catalogue, most_bytes)
    queries = QueryPaths(catalogue, most_bytes)
    app = Starlette(
        routes=[
            Route("/api/openapi.json", endpoint=tools.openapi, methods=["GET"]),
            Route("/api/tools", endpoint=tools.listed, methods=["GET"]),
            Route("/api/tools/{name}", endpoint=tools.one, methods=["GET"]),
            Route("/api/tools/{name}/execute", endpoint=tools.execute, methods=["POST"]),
            Route(QUERY_PATH, endpoint=queries.answer, methods=["POST"]),
            Route(STREAM_PATH, endpoint=queries.stream, methods=["POST"]),
            Route("/mcp", endpoint=TellsTooLarge(mcp, most_bytes)),
            *(Route(path, endpoint=git) for path in PATHS),
            Route(f"/tools/{EXPLORE}", endpoint=explore, methods=["GET"]),
            *metadata[1],
            Route("/livez", endpoint=live, methods=["GET"]),
            Route("/readyz", endpoint=ready, methods=["GET"]),
            Route("/healthz", endpoint=ready, methods=["GET"]),  # the name of version 0.1; it tells the same
        ],
        middleware=[
            Middleware(OwnPages, any_host=authentication.is_required),
            Middleware(Authenticated, authentication, calls, metadata[0], catalogue.observers),
        ],
        exception_handlers={404: _no_such_path, 405: _no_such_method},
    )
    app.router.redirect_slashes = False  # a path with a slash too many is answered as any other that does not exist
    return app


def explored(found: Mapping[str, Any]) -> dict[str, Any]:
    """A node in the format of the memory forest's design: exactly these five fields."""
    node = found["node"]
    return {
        "id": node["id"],
        "summary": node.get("summary", ""),
        "content": node.get("content", ""),
        "node_type": str(node.get("type", "")).upper(),
        "relevance_score": found["score"],
    }


def from_query(name: str, query: QueryParams) -> dict[str, Any]:
    """The arguments of a tool from a query string; where the tool expects another type, the text is parsed as JSON.

    Raises:
        InvalidArgumentsError: An argument is given twice.
    """
    fields = BY_NAME[name].request.fields_by_name
    arguments: dict[str, Any] = {}
    faults = []
    for key, text in query.multi_items():
        field = fields.get(key)
        if key in arguments:
            faults.append(FieldViolation(shown(key), "is given twice; give it once."))
        elif field is None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            arguments[key] = text
        else:
            try:
                arguments[key] = parsed(text)
            except NotJsonError:
                arguments[key] = text  # the tool reports which type it expects
    if faults:
        raise InvalidArgumentsError(name, faults)
    return arguments


class OwnPages:
    """Refuses calls that a web page of another site sends to this server (DNS rebinding, cross-site requests).

    A browser always sends in ``Host`` the name that it connected to, and in ``Origin`` the site that sends the request.
    A foreign name that was made to resolve to a loopback address is not one of ours, and neither is a foreign site. A
    request for an image or a link has no ``Origin``, but ``Sec-Fetch-Site`` says that its page is from another site.

    Args:
        app: The application.
        any_host: Whether the server may be called by any name: it asks for API keys, which such a page does not have.
    """

    def __init__(self, app: ASGIApp, *, any_host: bool) -> None:
        self._app = app
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on to the application, or refuse it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = _name_of(f"//{headers.get('host', '')}")
            names = LOCAL_NAMES | {host} if self._any_host else LOCAL_NAMES
            refusal = _foreign(host, names, headers.get("origin"), headers.get("sec-fetch-site", ""))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class TellsTooLarge:
    """Answers a body that is too large as any other failure; the MCP SDK answers it with a bare 413.

    Args:
        app: The application.
        most_bytes: The most bytes of a body, for the message.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on to the application; its answer 413 is replaced by ours."""
        replaced = False

        async def told(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == _TOO_LARGE:
                replaced = True
                await self._refusal(scope)(scope, receive, send)
            elif not replaced:
                await send(message)

        await self._app(scope, receive, told)

    def _refusal(self, scope: Scope) -> Response:
        declared = Headers(scope=scope).get("content-length", "")
        size = int(declared) if declared.isdecimal() else None
        return refused(failure_of(MessageTooLargeError(size, self._most_bytes)), status=_TOO_LARGE)


def _foreign(host: str, names: Collection[str], origin: str | None, site: str) -> Response | None:
    if host not in names:
        message = "The Host header does not name this machine; use 127.0.0.1 or localhost."
        return refused(Failure("FOREIGN_HOST", "PERMISSION_DENIED", message), status=421)
    if site == "cross-site" if origin is None else _name_of(origin) not in names:
        message = "The call comes from a web page of another site; only its own pages may call."
        return refused(Failure("FOREIGN_ORIGIN", "PERMISSION_DENIED", message))
    return None


def _name_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def _no_such_path(request: Request, _error: Exception) -> Response:
    return refused(Failure("NO_SUCH_PATH", "NOT_FOUND", f"There is nothing at {request.url.path}."))


async def _no_such_method(request: Request, _error: Exception) -> Response:
    message = f"{request.url.path} does not support the method {request.method}."
    return refused(Failure("NO_SUCH_METHOD", "UNIMPLEMENTED", message), status=405)
