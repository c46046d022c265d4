"""The memories that are compared: two over MCP, two as libraries in a process of their own."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from mcp import Client, StdioServerParameters, stdio_client
from memotree_storage.index.common_words import is_common
from memotree_storage.model.tokens import count_tokens

from bench.agent_use.flow import Fact
from bench.agent_use.memory import Cost, Memory

WORKER: Final = Path(__file__).with_name("peer_worker.py")
_RECALL_TOKENS: Final = 150
"""The token budget of a recall: about as much as three results of the others."""


class OverMcp:
    """A memory whose tools are called over MCP."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.cost = Cost()

    async def tool_tokens(self) -> int:
        """The tokens of the list of tools."""
        listed = (await self._client.list_tools()).tools
        documents = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed]
        return count_tokens(_compact(documents))

    async def use(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; the text of its answer is what a model reads."""
        result = await self._client.call_tool(tool, arguments)
        text = "\n".join(getattr(part, "text", "") for part in result.content)
        structure = "" if result.structured_content is None else _compact(result.structured_content)
        self.cost.add(
            count_tokens(json.dumps({"name": tool, "arguments": arguments})), *map(count_tokens, (text, structure))
        )
        if result.is_error:
            raise RuntimeError(f"{tool}: {text}")
        return result, text


class MemoTree(OverMcp):
    """MemoTree with the tools of an agent's day."""

    async def remember(self, fact: Fact) -> str:
        result, _ = await self.use("remember", text=fact.text, title=fact.title)
        return str(result.structured_content["data"]["node"]["id"])

    async def correct(self, name: str, old: Fact, new: Fact) -> None:
        await self.use("revise", query=old.title, text=new.text)

    async def forget(self, name: str, fact: Fact) -> None:
        await self.use("forget", node_id=name[:8])

    async def ask(self, question: str) -> str:
        return str((await self.use("recall", query=question, token_budget=_RECALL_TOKENS))[1])

    async def look_back(self, name: str, old: Fact) -> str:
        _, text = await self.use("history", node_id=name[:8])
        first = re.findall(r"\[([0-9a-f]{10})\]$", text, re.MULTILINE)[-1]
        then = await self.use("recall", query=old.question, revision=first, token_budget=50)
        return f"{text}\n{then[1]}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class BasicMemory(OverMcp):
    """basic-memory: notes as Markdown files, named by their titles; searched by the words of a question."""

    async def remember(self, fact: Fact) -> str:
        await self.use("write_note", title=fact.title, content=fact.text, folder="facts")
        return fact.title

    async def correct(self, name: str, old: Fact, new: Fact) -> None:
        await self.use("edit_note", identifier=name, operation="find_replace", find_text=old.text, content=new.text)

    async def forget(self, name: str, fact: Fact) -> None:
        await self.use("delete_note", identifier=name)

    async def ask(self, question: str) -> str:
        _, found = await self.use("search_notes", query=_keywords(question), page_size=3)
        best = re.search(r"^- permalink: (\S+)", found, re.MULTILINE)  # it has titles and no texts
        return str((await self.use("read_note", identifier=best[1]))[1]) if best else found

    async def look_back(self, name: str, old: Fact) -> str:
        return ""


def _keywords(question: str) -> str:
    """The words of a question that say what it is about, any of which may be found."""
    return " OR ".join(word for word in re.findall(r"\w+", question) if not is_common(word.casefold()))


class InWorker:
    """A memory that is a Python library, in an environment of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.cost = Cost()

    async def use(self, call: str, **arguments: str) -> str:
        """Make one call; what is sent and answered is counted as JSON."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended during {call}")
        told = json.loads(line)
        self.cost.add(count_tokens(told["sent"]), count_tokens(told["answer"]))
        return str(told["result"])

    async def remember(self, fact: Fact) -> str:
        return await self.use("remember", text=fact.text, title=fact.title)

    async def correct(self, name: str, old: Fact, new: Fact) -> None:
        await self.use("correct", name=name, text=new.text)

    async def forget(self, name: str, fact: Fact) -> None:
        await self.use("forget", name=name)

    async def ask(self, question: str) -> str:
        return await self.use("ask", question=question)

    async def look_back(self, name: str, old: Fact) -> str:
        return await self.use("look_back", name=name)


@asynccontextmanager
async def over_mcp(kind: type[OverMcp], command: str, arguments: list[str], home: Path) -> AsyncIterator[Any]:
    """A memory whose server is started by a command, with a home of its own."""
    environment = {"HOME": str(home), "XDG_DATA_HOME": str(home / "share"), "BASIC_MEMORY_HOME": str(home / "notes")}
    environment["BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED"] = "false"  # its vectors need a model from the network
    with (home / "server.log").open("w") as log:
        started = stdio_client(StdioServerParameters(command=command, args=arguments, env=environment), errlog=log)
        async with Client(started) as client:
            yield kind(client)


@asynccontextmanager
async def in_worker(python: str, kind: str, folder: Path) -> AsyncIterator[Memory]:
    """A memory in a worker process of another environment."""
    process = await asyncio.create_subprocess_exec(
        python,
        str(WORKER),
        kind,
        str(folder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"HOME": str(folder), "MEM0_TELEMETRY": "false", "PATH": "/usr/bin:/bin"},
        limit=1 << 24,
    )
    try:
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise RuntimeError(f"the worker of {kind} did not start")
        yield InWorker(process)
    finally:
        process.terminate()
        await process.wait()
