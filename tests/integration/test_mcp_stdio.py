"""MCP over stdio with the client of its SDK: the private server, the server that runs, and the README."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from integration.mcp_clients import ERAS, done, over_stdio, refused
from mcp import Client, StdioServerParameters, stdio_client

from memotree.cli.demo.private_server import server_on
from memotree.gateways.tool_definitions import TOOLS
from memotree.planner import declared_tools
from memotree.server.announcement import read_announcement
from memotree.tools.builtin.services import builtin_tools

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.requirement("USE-5")
async def test_the_first_call_of_a_new_memory_makes_its_workspace(tmp_path: Path) -> None:
    async with over_stdio(tmp_path, "--workspace", "fresh") as client:
        nothing = await client.call_tool("recall", {"question": "What is known?"})
        assert not nothing.is_error
        assert (await done(client, "history"))["commits"]


@pytest.mark.requirement("FOREST-14")
@pytest.mark.parametrize("era", ERAS)
async def test_over_stdio_a_private_server_is_started_when_none_runs(tmp_path: Path, era: str) -> None:
    async with over_stdio(tmp_path, "--tools", "all", era=era) as client:
        assert len((await client.list_tools()).tools) == len(TOOLS) + len(builtin_tools()) + len(declared_tools())
        session = (await done(client, "open_session"))["session"]["id"]  # makes the workspace "main"
        await done(client, "create_archive", session_id=session, name="notes")
        await done(client, "create_node", session_id=session, archive_id="notes", title="Kept", content="For good.")
        await done(client, "commit_changes", session_id=session, message="Keep")
        announced = read_announcement(tmp_path / "share" / "memotree")
        assert announced is not None
        async with over_stdio(tmp_path, "--tools", "all") as second:  # another agent on the same data
            hits = (await done(second, "search_nodes", query="good"))["hits"]
            assert [hit["node"]["title"] for hit in hits] == ["Kept"]
            missing = {"node_id": "0000000000000000"}
            far, near = await refused(second, "get_node", **missing), await refused(client, "get_node", **missing)
            assert far == near
            assert far[0]["code"] == "NODE_NOT_FOUND"
            assert read_announcement(tmp_path / "share" / "memotree") == announced
    assert read_announcement(tmp_path / "share" / "memotree") is None
    async with over_stdio(tmp_path, "--workspace", "main", "--tools", "search_nodes") as client:
        assert (await done(client, "search_nodes", query="good"))["hits"]


@pytest.mark.requirement("FOREST-14")
async def test_over_stdio_the_server_that_runs_is_used_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with server_on(folder) as address:
        async with over_stdio(tmp_path, "--data", str(folder), "--workspace", "w", "--tools", "all") as client:
            await done(client, "open_session")
            announced = read_announcement(folder)
            assert announced is not None
            assert announced.address == address
            os.kill(announced.pid, signal.SIGTERM)
            while read_announcement(folder) is not None:
                await asyncio.wait_for(client.list_tools(), 60)
            listed = await done(client, "list_workspaces")  # by a server of its own
            assert [each["name"] for each in listed["workspaces"]] == ["w"]


@pytest.mark.requirement("FOREST-14")
async def test_one_operation_answers_over_stdio_mcp_over_http_and_plain_http(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    text = "# Ships\n\nThe hull was made of oak.\n\n# Sails\n\nSails were made of canvas, woven of hemp.\n"
    with server_on(folder):
        announced = read_announcement(folder)
        assert announced is not None
        tools = ("--tools", "everyday,get_tree")
        async with over_stdio(tmp_path, "--data", str(folder), *tools) as near, Client(f"{announced.url}/mcp") as far:
            job = await done(near, "ingest_document", name="Ships", model_id="m", text=text, media_type="text/markdown")
            assert job["ingestion"]["created_leaves"] == 2
            recalled = await near.call_tool("recall", {"query": "canvas"})
            assert "woven of hemp" in recalled.content[0].text
            answered = await done(near, "ask", query="What were sails made of?")
            assert answered["citations"]
            tree = (await done(near, "get_tree", archive="Ships"))["nodes"]
            top = next(each["node"]["id"] for each in tree if each["node"]["title"] == "Sails")
            asked = {"node_id": top, "query": "canvas", "threshold": 0}
            over_pipe, over_net = [await done(client, "explore_memory_node", **asked) for client in (near, far)]
            async with httpx2.AsyncClient(base_url=announced.url) as plain:
                listed = (await plain.get("/tools/explore_memory_node", params=asked)).json()
    assert over_pipe == over_net
    (leaf,) = over_pipe["nodes"]
    assert listed == [
        {
            "id": leaf["node"]["id"],
            "summary": leaf["node"]["summary"],
            "content": "# Sails\n\nSails were made of canvas, woven of hemp.\n",
            "node_type": "LEAF_CHUNK",
            "relevance_score": leaf["score"],
        }
    ]


async def test_over_stdio_a_named_server_that_does_not_run_is_reported(tmp_path: Path) -> None:
    async with over_stdio(tmp_path, "--address", "127.0.0.1:1") as client:
        error, text = await refused(client, "status")
    assert (error["code"], error["status"]) == ("UNAVAILABLE", "UNAVAILABLE")
    assert "No MemoTree server answers at 127.0.0.1:1" in text


@contextmanager
def program(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``memotree mcp`` with a private server that has started, as a client starts it; its log is in the home."""
    environment = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "share")}
    command = [sys.executable, "-m", "memotree.cli", "mcp"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment)  # noqa: S603 - ourselves
    try:
        for _ in range(600):
            if announced_in(home):
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def announced_in(home: Path) -> bool:
    """Whether a private server runs on the data folder in a home."""
    return read_announcement(home / "share" / "memotree") is not None


def test_a_signal_ends_the_program_while_standard_input_is_open(tmp_path: Path) -> None:
    with program(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not announced_in(tmp_path)


@pytest.mark.parametrize("input_is_open", [True, False])
def test_the_program_ends_in_order_when_nobody_reads_its_answers(tmp_path: Path, input_is_open: bool) -> None:
    """Both ends are closed when a client is killed, unless a child of its own still has one."""
    with program(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        if not input_is_open:
            process.stdin.close()
        assert process.wait(60) == 0
        assert not announced_in(tmp_path)
    log = (tmp_path / "log").read_text()
    assert "the client has closed its end" in log
    assert "error" not in log.lower()


@asynccontextmanager
async def as_the_readme_says(home: Path) -> AsyncIterator[Client]:
    """A client that uses the README's block as an agent's program does."""
    block = re.search(r"```json\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (server,) = json.loads(block[1])["mcpServers"].values()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"HOME": str(home), "PATH": path, **server.get("env", {})}
    command = StdioServerParameters(command=server["command"], args=server["args"], env=environment)
    async with Client(stdio_client(command)) as client:
        yield client


@pytest.mark.requirement("FOREST-14")
async def test_the_configuration_in_the_readme_works_as_written(tmp_path: Path) -> None:
    async with as_the_readme_says(tmp_path) as client:
        assert "explore_memory_node" in [tool.name for tool in (await client.list_tools()).tools]
        assert (await done(client, "remember", text="It works as written."))["node"]["title"] == "It works as written"
    assert (tmp_path / ".local" / "share" / "memotree").is_dir()
