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
from typing import Any

import anyio
import httpx2
import pytest
from forked import ForkedProgram, command_folder, forked_servers
from integration.mcp_clients import done, refused
from mcp import Client, StdioServerParameters, stdio_client, stdio_server
from memotree_storage.model.tokens import count_tokens

from memotree.cli.demo.private_server import server_on
from memotree.gateways.tool_definitions import TOOLS
from memotree.planner import declared_tools
from memotree.server.announcement import Announcement, read_announcement
from memotree.tools.builtin.services import builtin_tools

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for the programs of one test after the other, whose data folder is made once."""
    return tmp_path_factory.mktemp("home")


def program(home: Path, *arguments: str, stderr: Any = subprocess.DEVNULL) -> ForkedProgram:
    """``memotree mcp`` as an agent starts it."""
    return ForkedProgram(
        [sys.executable, "-m", "memotree.cli", "mcp", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=home,
        env={"HOME": str(home), "XDG_DATA_HOME": str(home / "share"), "PATH": os.environ["PATH"]},
        text=True,
    )


def announced_in(home: Path) -> Announcement | None:
    """The private server that runs on the data folder of a home."""
    return read_announcement(home / "share" / "memotree")


@asynccontextmanager
async def streams(home: Path, arguments: tuple[str, ...]) -> AsyncIterator[Any]:
    """The streams of a program, which ends in order after the block."""
    started = await asyncio.to_thread(program, home, *arguments)
    try:
        # what the SDK has for a server reads and writes lines as a client does
        async with stdio_server(anyio.wrap_file(started.stdout), anyio.wrap_file(started.stdin)) as both:
            yield both
            started.stdin.close()
        assert await asyncio.to_thread(started.wait, 60) == 0
    finally:
        started.kill()
        started.stdout.close()


def over_stdio(home: Path, *arguments: str, era: str = "auto") -> Client:
    """A client of a program."""
    return Client(streams(home, arguments), mode=era)


@pytest.mark.requirement("FOREST-14", "USE-5")
async def test_over_stdio_a_private_server_is_started_when_none_runs(home: Path) -> None:
    place = {"workspace": "fresh"}
    async with over_stdio(home, "--tools", "all", "--workspace", "fresh") as client:
        assert len((await client.list_tools()).tools) == len(TOOLS) + len(builtin_tools()) + len(declared_tools())
        nothing = await client.call_tool("recall", {"query": "What is known?"})  # makes the workspace
        assert not nothing.is_error
        assert (await done(client, "history"))["commits"]
        session = (await done(client, "open_session"))["session"]["id"]
        await done(client, "create_archive", session_id=session, name="notes")
        await done(client, "create_node", session_id=session, archive_id="notes", title="Kept", content="For good.")
        await done(client, "commit_changes", session_id=session, message="Keep")
        announced = announced_in(home)
        assert announced is not None
        async with over_stdio(home, "--tools", "all", era="legacy") as second:  # another agent on the same data
            hits = (await done(second, "search_nodes", query="good", **place))["hits"]
            assert [hit["node"]["title"] for hit in hits] == ["Kept"]
            missing = {"node_id": "0000000000000000", **place}
            far, near = await refused(second, "get_node", **missing), await refused(client, "get_node", **missing)
            assert far == near
            assert far[0]["code"] == "NODE_NOT_FOUND"
            assert announced_in(home) == announced
    assert announced_in(home) is None
    async with over_stdio(home, "--workspace", "fresh", "--tools", "search_nodes", era="legacy") as client:
        assert (await done(client, "search_nodes", query="good"))["hits"]


@pytest.mark.requirement("FOREST-14")
async def test_over_stdio_the_server_that_runs_is_used_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with forked_servers(), server_on(folder) as address:
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
    with forked_servers(), server_on(folder):
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
def running(home: Path) -> Iterator[ForkedProgram]:
    """A program with a private server that has started; its log is in the home."""
    with (home / "log").open("wb") as log:
        started = program(home, stderr=log)
    try:
        while announced_in(home) is None:
            with pytest.raises(subprocess.TimeoutExpired):
                started.wait(0.05)
        yield started
    finally:
        started.kill()
        started.wait()
        for pipe in (started.stdin, started.stdout):
            with suppress(BrokenPipeError):
                pipe.close()


def test_a_signal_ends_the_program_while_standard_input_is_open(home: Path) -> None:
    with running(home) as started:
        started.terminate()
        assert started.wait(60) == 0
        assert announced_in(home) is None


@pytest.mark.parametrize("input_is_open", [True, False])
def test_the_program_ends_in_order_when_its_answers_are_not_read(home: Path, input_is_open: bool) -> None:
    """Both ends are closed when a client is killed, unless a child of its own still has one."""
    with running(home) as started:
        started.stdout.close()
        started.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        started.stdin.flush()
        if not input_is_open:
            started.stdin.close()
        assert started.wait(60) == 0
        assert announced_in(home) is None
    log = (home / "log").read_text()
    assert "the client has closed its end" in log
    assert "error" not in log.lower()


@pytest.mark.requirement("FOREST-14")
async def test_the_configuration_in_the_readme_works_as_written(tmp_path: Path) -> None:
    block = re.search(r"```json\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (server,) = json.loads(block[1])["mcpServers"].values()
    with command_folder(tmp_path / "bin") as commands:
        environment = {"HOME": str(tmp_path), "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
        command = StdioServerParameters(
            command=server["command"], args=server["args"], env={**environment, **server.get("env", {})}
        )
        async with Client(stdio_client(command)) as client:
            assert "explore_memory_node" in [tool.name for tool in (await client.list_tools()).tools]
            made = await done(client, "remember", text="It works as written.")
            assert made["node"]["title"] == "It works as written"
    assert (tmp_path / ".local" / "share" / "memotree").is_dir()


@pytest.mark.requirement("USE-5")
async def test_a_structure_is_as_short_as_the_text_and_whole_on_request(home: Path) -> None:
    """Some hosts show their model the structure in place of the text, where a recall took fifteen times its text."""
    budget, question = 200, "When does gate 7 of the harbour open?"
    async with over_stdio(home) as client:
        for number in range(40):
            text = f"Gate {number} of the harbour opens at {number % 24} o'clock on working days."
            made = await client.call_tool("remember", {"text": text})
        node_id = made.structured_content["data"]["node"]["id"]
        assert node_id in made.content[0].text
        found = await client.call_tool("recall", {"query": question, "token_budget": budget})
        whole = await done(client, "recall", query=question, token_budget=budget)
        again = await done(client, "recall", query=question, receipt=whole["receipt"])
        wrong = await client.call_tool("forget", {"node_id": "nothing here"})
    text, structure = found.content[0].text, found.structured_content
    assert structure["message"] == text
    assert again["text"] == whole["text"]
    assert structure["data"] == {"commit_id": whole["commit_id"], "confidence": "STRONG"}
    assert count_tokens(whole["text"]) <= budget
    assert budget < 1.2 * count_tokens(whole["text"]), "and it is used"
    assert max(count_tokens(text), count_tokens(json.dumps(structure, separators=(",", ":")))) <= 1.3 * budget
    assert wrong.structured_content == {
        "success": False,
        "message": wrong.content[0].text,
        "error": {"code": "NO_NODE_NAMED", "status": "NOT_FOUND"},
    }
