"""Streams of events and sessions of MCP of one principal leave room for those of others."""

from collections.abc import Iterator
from contextlib import AsyncExitStack

import httpx2
import pytest
from integration.guarded import Place, guarded
from integration.http_servers import until

pytestmark = pytest.mark.requirement("SERVE-3")

FIRST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
BOTH = {"accept": "application/json, text/event-stream"}


async def streamed(stack: AsyncExitStack, url: str, key: str) -> httpx2.Response:
    """Open a session of MCP and its stream of events, which stays open until the stack is closed."""
    client = await stack.enter_async_context(
        httpx2.AsyncClient(base_url=url, timeout=60, headers={"authorization": f"Bearer {key}"} | BOTH)
    )
    opened = await client.post("/mcp", json=FIRST)
    session = {"mcp-session-id": opened.headers["mcp-session-id"], "accept": "text/event-stream"}
    return await stack.enter_async_context(client.stream("GET", "/mcp", headers=session))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with few places for calls and for sessions of MCP."""
    folder = tmp_path_factory.mktemp("narrow") / "data"
    with guarded(folder, MEMOTREE_MAX_CONCURRENT_CALLS="8", MEMOTREE_MCP_MAX_SESSIONS="10") as found:
        for name in ("ada", "ben", "carl", "dora"):
            found.enter(name).close()
        yield found


async def test_streams_of_one_principal_leave_room_for_others(place: Place) -> None:
    url, ada = place.announced.url, place.keys["ada"]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            assert (await streamed(stack, url, ada)).status_code == 200
        refused = await streamed(stack, url, ada)
        assert refused.status_code == 429
        error = (await refused.aread()).decode()
        assert "TOO_MANY_AT_ONCE" in error
        assert "retry_after" in error
        assert (await streamed(stack, url, place.keys["ben"])).status_code == 200
        assert place.client("ada").status()
        assert httpx2.get(f"{url}/api/tools", headers=place.headers("ada")).status_code == 200
    async with AsyncExitStack() as stack:
        for _ in range(2):  # the places are free again
            for _ in range(60):
                answer = await streamed(stack, url, ada)
                if answer.status_code == 200:
                    break
            assert answer.status_code == 200


def test_sessions_of_one_principal_do_not_end_those_of_others(place: Place) -> None:
    with httpx2.Client(base_url=place.announced.url, timeout=60, headers=BOTH) as client:

        def opened(name: str) -> dict[str, str]:
            answer = client.post("/mcp", json=FIRST, headers=place.headers(name))
            assert answer.status_code == 200
            return place.headers(name) | {"mcp-session-id": answer.headers["mcp-session-id"]}

        def status(session: dict[str, str]) -> int:
            return client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=session).status_code

        own = opened("carl")
        many = [opened("dora") for _ in range(20)]
        until(lambda: status(many[-11]) == 404, "the server ends what is one session too many")
        assert [status(each) for each in (own, many[-1], many[-2])] == [200, 200, 200]
