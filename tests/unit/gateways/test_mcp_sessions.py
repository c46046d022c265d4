"""Sessions of MCP end when they are idle for too long or too many, and nobody's sessions end those of others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from memotree.gateways.http_authentication import PRINCIPAL
from memotree.gateways.mcp_sessions import McpSessions
from memotree.request.principal import LOCAL, Principal

pytestmark = pytest.mark.requirement("SERVE-3")

MOST = 4
FIRST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
BOTH = {"accept": "application/json, text/event-stream"}
TURNS = 1_000


class Place:
    """The application of MCP, and who calls it."""

    def __init__(self, seconds: float) -> None:
        self.manager = StreamableHTTPSessionManager(Server("test"), session_idle_timeout=None, max_sessions=None)
        self.sessions = McpSessions(StreamableHTTPASGIApp(self.manager), MOST, seconds)
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(self._as_principal), base_url="http://test")
        self.who = LOCAL

    async def _as_principal(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PRINCIPAL] = self.who
        if self.who.is_known:
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=self.who.name, scopes=[]))
        await self.sessions(scope, receive, send)

    async def open(self, name: str = "", **sent: Any) -> str:
        """Open a session as somebody; its id."""
        self.who = Principal(name) if name else LOCAL
        answer = await self.http.post("/mcp", json=FIRST | sent, headers=BOTH)
        assert answer.status_code == 200
        return str(answer.headers["mcp-session-id"])

    async def ask(self, session: str, name: str = "", method: str = "POST", **headers: str) -> int:
        """The status of a request of a session."""
        self.who = Principal(name) if name else LOCAL
        content = {"json": PING} if method == "POST" else {}
        named = {"mcp-session-id": session} | BOTH | {key.replace("_", "-"): text for key, text in headers.items()}
        return (await self.http.request(method, "/mcp", headers=named, **content)).status_code

    async def settled(self, count: int) -> bool:
        """Whether the library comes to have so many sessions, as many as are counted."""
        for _ in range(TURNS):
            if len(self.manager._server_instances) == len(self.sessions) == count:
                return True
            await asyncio.sleep(0)
        return False


@asynccontextmanager
async def opened(seconds: float = 3600) -> AsyncIterator[Place]:
    made = Place(seconds)
    async with made.manager.run(), made.http:
        yield made
        await made.sessions.close()


async def test_who_opens_many_sessions_ends_their_own_oldest() -> None:
    async with opened() as place:
        ada = await place.open("ada")
        ben = [await place.open("ben") for _ in range(3 * MOST)]
        assert await place.settled(MOST)
        assert await place.ask(ada, "ada") == 200
        told = [await place.ask(each, "ben") for each in ben]
        assert told == [404] * (2 * MOST + 1) + [200] * (MOST - 1)
        late = await place.open("eve")
        assert await place.settled(MOST)
        assert [await place.ask(late, "eve"), await place.ask(ada, "ada")] == [200, 200]


async def test_the_oldest_is_the_one_that_was_not_used_for_longest() -> None:
    async with opened() as place:
        first, second, *_ = [await place.open() for _ in range(MOST)]
        assert await place.ask(first) == 200
        await place.open()
        assert await place.settled(MOST)
        assert [await place.ask(first), await place.ask(second)] == [200, 404]


async def test_a_session_that_is_idle_for_too_long_ends() -> None:
    async with opened(seconds=0) as place:
        session = await place.open("ada")
        assert await place.settled(0)
        assert await place.ask(session, "ada") == 404


async def test_a_session_whose_stream_is_open_is_not_idle() -> None:
    async with opened() as place:
        busy = await place.open("ada")
        stream = asyncio.create_task(place.ask(busy, "ada", "GET"))
        for _ in range(3 * MOST):
            await place.open("ada")
        assert await place.settled(MOST + 1)
        assert await place.ask(busy, "ada") == 200
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        assert await place.settled(MOST)


async def test_a_session_that_its_client_ends_is_counted_no_longer() -> None:
    async with opened() as place:
        kept = await place.open("ada")
        for _ in range(3 * MOST):
            session = await place.open("ada")
            assert await place.ask(session, "ada", "DELETE") == 200
            assert await place.ask(session, "ada") == 404
        assert await place.settled(1)
        assert await place.ask(kept, "ada") == 200


async def test_nobody_changes_what_is_counted_of_the_sessions_of_others() -> None:
    async with opened() as place:
        session = await place.open("ada")
        for method in ("POST", "DELETE"):
            assert await place.ask(session, "ben", method) == 404
        assert await place.ask(session, "ada") == 200
        assert await place.settled(1)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_no_request_makes_a_session_that_is_not_counted(method: str) -> None:
    async with opened() as place:
        for _ in range(3 * MOST):
            session = await place.open("ada")
            assert await place.ask(session, "ada", method, mcp_protocol_version="2099-01-01") >= 400
        assert await place.settled(MOST)


async def test_what_opens_no_session_leaves_none() -> None:
    async with opened() as place:
        place.who = Principal("ada")
        for sent in (PING, [], {"jsonrpc": "2.0"}):
            answer = await place.http.post("/mcp", json=sent, headers=BOTH)
            assert answer.status_code >= 400
        assert (await place.http.get("/mcp", headers=BOTH)).status_code >= 400
        assert (await place.http.delete("/mcp", headers=BOTH)).status_code >= 400
        assert await place.settled(0)


async def test_sessions_that_the_server_ends_are_counted_no_longer() -> None:
    async with opened() as place:
        session = await place.open()
        await place.sessions.close()
        assert len(place.sessions) == 0
        assert await place.ask(session) == 200
        assert len(place.sessions) == 0
