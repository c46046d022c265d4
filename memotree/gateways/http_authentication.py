"""Finds out who makes a call over HTTP, before anything else answers it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from pydantic import AnyHttpUrl
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from memotree.error_mapping import UnauthenticatedError
from memotree.gateways.catalogue import failure_of
from memotree.gateways.http_answers import refused
from memotree.gateways.http_connection import CERTIFICATE
from memotree.gateways.http_events import wants_events
from memotree.gateways.openapi_queries import STREAM_PATH
from memotree.identity.errors import NotAuthenticatedError, ProviderUnavailableError
from memotree.request.observed_calls import HTTP, NOBODY, CallObservers, ObservedCall
from memotree.request.principal import Principal, acting_as
from memotree.server.authentication import HEADER, Authentication
from memotree.server.calls import RunningCalls, TooManyAtOnceError
from memotree.settings import Settings

PRINCIPAL: Final = "memotree.principal"
"""The name under which the scope of a request has its principal."""

UNKNOWN_REQUEST: Final = "http"
"""The method of a request that was refused before it was known what it is: its path may be any text."""

_OPEN: Final = frozenset({"/livez", "/readyz", "/healthz"})
"""Paths that programs ask which watch the server, and that tell nothing of what is in it."""

_GIT: Final = "/git/"

_MCP: Final = "/mcp"

_METADATA: Final = "/.well-known/oauth-protected-resource"
"""Where clients of MCP read which provider gives tokens (RFC 9728); they have no token yet then."""

CHALLENGE: Final = "www-authenticate"
"""The header that says how to prove who calls."""


class Authenticated:
    """Passes requests on with their principal, and refuses those without a proof.

    The MCP library binds a session of MCP to the user of the request that opened it, and refuses others.

    Args:
        app: The application.
        authentication: Finds the principals.
        calls: Counts the requests and streams of each principal.
        metadata_url: Where clients of MCP read which provider gives tokens; empty if there is none.
        observers: Those who are told of refused requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        authentication: Authentication,
        calls: RunningCalls,
        metadata_url: str = "",
        observers: CallObservers = NOBODY,
    ) -> None:
        self._app = app
        self._observers = observers
        self._calls = calls
        self._authentication = authentication
        self._metadata_url = metadata_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in _OPEN or scope["path"].startswith(_METADATA):
            await self._app(scope, receive, send)
            return
        try:
            proofs = Headers(scope=scope).getlist(HEADER)
            certificate = scope.get(CERTIFICATE, b"")
            who = await self._authentication.principal(proofs, certificate, basic=scope["path"].startswith(_GIT))
        except (UnauthenticatedError, ProviderUnavailableError) as error:
            self._tell(scope["path"], error)
            await self._refusal(scope["path"], error)(scope, receive, send)
            return
        scope[PRINCIPAL] = who
        if who.is_known:
            token = AccessToken(token="", client_id=who.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        try:
            with acting_as(who), self._calls.requesting(who.owner), self._streaming(scope, who.owner):
                await self._app(scope, receive, send)
        except TooManyAtOnceError as error:  # raised before the application began
            await refused(failure_of(error))(scope, receive, send)

    def _streaming(self, scope: Scope, who: str) -> AbstractContextManager[None]:
        """Context manager that counts a request whose answer is a stream, which lasts as long as its client likes."""
        path, accept = scope["path"], Headers(scope=scope).get("accept", "")
        if path == STREAM_PATH or (scope["method"] == "GET" if path == _MCP else wants_events(accept)):
            return self._calls.streaming(who)
        return nullcontext()

    def _tell(self, path: str, error: UnauthenticatedError | ProviderUnavailableError) -> None:
        if path.startswith(_GIT) and isinstance(error, NotAuthenticatedError):
            return  # git asks without a key first
        code = "UNAUTHENTICATED" if isinstance(error, UnauthenticatedError) else "UNAVAILABLE"
        self._observers.ended(ObservedCall(UNKNOWN_REQUEST, interface=HTTP, who=""), code, error.reason)

    def _refusal(self, path: str, error: UnauthenticatedError | ProviderUnavailableError) -> Response:
        if isinstance(error, ProviderUnavailableError):
            return refused(failure_of(error))
        if path.startswith(_GIT):  # git asks its user for a name and a password then, and shows plain text
            headers = {CHALLENGE: 'Basic realm="MemoTree: any name, and an API key as the password"'}
            return PlainTextResponse(f"{error.message}\n", 401, headers)
        answer = refused(failure_of(error))
        parts = [] if isinstance(error, NotAuthenticatedError) else ['error="invalid_token"']
        if self._metadata_url:
            parts.append(f'resource_metadata="{self._metadata_url}"')
        answer.headers["connection"] = "close"  # else a stranger could keep it for nothing
        answer.headers[CHALLENGE] = " ".join(["Bearer", ", ".join(parts)]).rstrip()
        return answer


def principal_of(request: Request | None) -> Principal:
    """Who makes a request that `Authenticated` has passed on.

    MCP handles a request in the context of the session that it belongs to, so its context does not say who makes it.
    """
    assert request is not None  # noqa: S101 - every message over HTTP comes with its request
    found = request.scope[PRINCIPAL]
    assert isinstance(found, Principal)  # noqa: S101 - `Authenticated` put it there
    return found


def metadata_of(settings: Settings) -> tuple[str, Sequence[Route]]:
    """Where clients of MCP read which provider gives tokens for it, and the routes that answer there.

    Both are empty unless there is a provider whose tokens are for a URL.
    """
    if settings.oidc_issuer is None or not settings.oidc_audience.startswith(("https://", "http://")):
        return "", []
    resource = AnyHttpUrl(settings.oidc_audience)
    routes = create_protected_resource_routes(resource, [AnyHttpUrl(settings.oidc_issuer)], resource_name="MemoTree")
    return str(build_resource_metadata_url(resource)), routes
