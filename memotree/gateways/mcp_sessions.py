"""The sessions of MCP over HTTP: they do not stay for ever, and those of one principal take no room from others.

A session holds memory of the server from its first request until its client ends it, which few clients do. One on which
no request runs is idle. It ends when it has been idle for too long, or when there are too many idle ones and it is the
oldest of whoever has most of them. Its client is told that there is no such session (404) and begins another, as the
protocol says. Sessions on which requests run are limited as these requests are.
"""

import asyncio
from functools import partial
from typing import Any, Final

import structlog
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from memotree_storage.concurrency.cancellation import cancel_and_wait
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memotree.gateways.http_authentication import PRINCIPAL
from memotree.server.waiting import WaitingCall, WaitingCalls

_OK: Final = 200
_FIRST_ERROR: Final = 400

log = structlog.get_logger("memotree.mcp")


class McpSessions:
    """The application of MCP with a limit of its idle sessions; belongs to one event loop.

    Args:
        app: The application of the MCP library, which ends no session by itself.
        most: How many sessions may be idle.
        seconds: How long each may be idle.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app = app
        self._idle = WaitingCalls(most, seconds)
        self._sessions: dict[str, _Session] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application."""
        owner = scope[PRINCIPAL].owner
        name = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        session = None if name is None else self._sessions.get(name)
        if session is not None and session.owner == owner:
            await self._pass_on(session, scope, receive, send)
        elif name is None:
            await self._open(owner, scope, receive, send)
        else:
            await self._app(scope, receive, send)  # there is no such session, or none for who asks

    async def _pass_on(self, session: "_Session", scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request of a session on; the session is not idle meanwhile."""
        is_over = False

        async def noted(message: Message) -> None:
            nonlocal is_over
            if message["type"] == "http.response.start":
                is_over = scope["method"] == "DELETE" and message["status"] == _OK
            await send(message)

        self._begin(session)
        try:
            await self._app(scope, receive, noted)
        finally:
            self._end_request(session, is_over=is_over)

    async def _open(self, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request without a session; its answer may name a new one, which is dropped if the answer fails."""
        session: _Session | None = None

        async def noted(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start" and message["status"] < _FIRST_ERROR:
                name = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                if name is not None:
                    session = self._sessions[name] = _Session(name, owner, scope.get("user"))
                    self._begin(session)
            await send(message)

        is_over = True
        try:
            await self._app(scope, receive, noted)
            is_over = False
        finally:
            if session is not None:
                self._end_request(session, is_over=is_over)

    def _begin(self, session: "_Session") -> None:
        session.requests += 1
        if session.idle is not None:
            session.idle.end()
            session.idle = None

    def _end_request(self, session: "_Session", *, is_over: bool) -> None:
        session.requests -= 1
        if is_over:
            self._sessions.pop(session.name, None)
        elif not session.requests and session.name in self._sessions:
            session.idle = self._idle.begin(session.owner, partial(self._end, session))

    def _end(self, session: "_Session") -> None:
        """End an idle session."""
        del self._sessions[session.name]
        task = asyncio.create_task(self._delete(session), name="end of an MCP session")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _delete(self, session: "_Session") -> None:
        """Ask the application to end a session, as its client would."""
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(MCP_SESSION_ID_HEADER.encode(), session.name.encode())],
            **({} if session.user is None else {"user": session.user}),
        }
        try:
            await self._app(scope, _nothing, _ignore)
        except Exception:
            log.exception("an idle session of MCP could not be ended")

    async def close(self) -> None:
        """End no sessions any more; the application ends all."""
        for session in self._sessions.values():
            if session.idle is not None:
                session.idle.end()
        self._sessions.clear()
        await cancel_and_wait(self._ending)


class _Session:
    """A session.

    Attributes:
        name: Its id.
        owner: The principal that opened it.
        user: What the MCP library has as its user; ``None`` if calls are not authenticated.
        requests: How many of its requests run.
        idle: Counts it as idle, if none does.
    """

    __slots__ = ("idle", "name", "owner", "requests", "user")

    def __init__(self, name: str, owner: str, user: Any) -> None:
        self.name = name
        self.owner = owner
        self.user = user
        self.requests = 0
        self.idle: WaitingCall | None = None


async def _nothing() -> Message:
    """The body of a request that has none."""
    return {"type": "http.request", "body": b"", "more_body": False}


async def _ignore(_: Message) -> None:
    """Take an answer that nobody reads."""
