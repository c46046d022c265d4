"""Streams of events and sessions of MCP of one principal leave room for those of others."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from integration.test_git_over_http import running

from memotree.client import AsyncClient

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


async def test_streams_of_one_principal_leave_room_for_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder, MEMOTREE_AUTHENTICATION="keys", MEMOTREE_MAX_CONCURRENT_CALLS="8") as (announced, _):
        key = (folder / "admin.key").read_text().strip()
        async with AsyncExitStack() as stack, AsyncClient(announced.address, key=key) as admin:
            await admin.put_principal("ben")
            other = (await admin.create_key("ben")).key
            for _ in range(2):
                assert (await streamed(stack, announced.url, key)).status_code == 200
            refused = await streamed(stack, announced.url, key)
            assert refused.status_code == 429
            error = (await refused.aread()).decode()
            assert "TOO_MANY_AT_ONCE" in error
            assert "retry_after" in error
            assert (await streamed(stack, announced.url, other)).status_code == 200
            assert await admin.status()
            tools = await asyncio.to_thread(
                httpx2.get, f"{announced.url}/api/tools", headers={"authorization": f"Bearer {key}"}
            )
            assert tools.status_code == 200
        async with AsyncExitStack() as stack:
            for _ in range(2):  # the places are free again
                for _ in range(60):
                    answer = await streamed(stack, announced.url, key)
                    if answer.status_code == 200:
                        break
                assert answer.status_code == 200


async def test_sessions_of_one_principal_do_not_end_those_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder, MEMOTREE_AUTHENTICATION="keys", MEMOTREE_MCP_MAX_SESSIONS="4") as (announced, _):
        key = (folder / "admin.key").read_text().strip()
        async with AsyncClient(announced.address, key=key) as admin:
            await admin.put_principal("ben")
            other = (await admin.create_key("ben")).key
        async with httpx2.AsyncClient(base_url=announced.url, timeout=60, headers=BOTH) as client:

            async def opened(key: str) -> dict[str, str]:
                proof = {"authorization": f"Bearer {key}"}
                answer = await client.post("/mcp", json=FIRST, headers=proof)
                assert answer.status_code == 200
                return proof | {"mcp-session-id": answer.headers["mcp-session-id"]}

            async def status(session: dict[str, str]) -> int:
                answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=session)
                return answer.status_code

            own = await opened(key)
            many = [await opened(other) for _ in range(20)]
            while await status(many[-5]) != 404:
                pass  # its end runs beside the request that needed room
            assert [await status(each) for each in (own, many[-1], many[-2])] == [200, 200, 200]
