"""Many clients call tools at once: limits hold, each answered call has its record, and cancelled work ends."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from campaigns import budget
from integration.test_git_over_http import running

from memotree.client import AsyncClient, ToolResult

pytestmark = [pytest.mark.campaign, pytest.mark.requirement("TOOL-4", "TOOL-12")]

CLIENTS = 32
CALLS = budget(4)
PROCESSES = 2
"""Worker processes of the tools of packages."""

PACKAGE = '''
import os
import time
from pathlib import Path

from memotree.tools import tool


@tool(category="crowd")
def hold(folder: str, name: str) -> int:
    """Hold a place for a moment, and tell how many places are held."""
    mark = Path(folder, name)
    mark.touch()
    time.sleep(0.02)
    held = len(os.listdir(folder))
    mark.unlink()
    return held


@tool(category="crowd")
def stay(mark: str) -> None:
    """Write the id of the process into a file, and never end."""
    Path(mark).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(3600)


tools = [hold, stay]
'''


@dataclass
class Told:
    """What the clients were told, by request id: the error codes of their results, and which calls they left."""

    codes: dict[str, str] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    """The processes of the calls that were cancelled while they ran."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server with a package of tools."""
    site = tmp_path / "site"
    facts = site / "crowd-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "crowd.py").write_text(PACKAGE, encoding="utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: crowd\nVersion: 1.0\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text("[memotree.tools]\ncrowd = crowd:tools\n", encoding="utf-8")
    paths = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    # The tools write into files.
    settings = {"MEMOTREE_TOOLS_SANDBOX": "off", "MEMOTREE_TOOLS_MAX_CONCURRENCY": "8", "MEMOTREE_TOOLS_TIMEOUT": "120"}
    with running(tmp_path / "data", PYTHONPATH=paths, **settings) as (announced, _):
        yield announced.address


async def call_tools(address: str, number: int, folder: Path, told: Told) -> None:
    """Call tools, one after the other, as one client; every fourth one leaves a call while it runs."""
    async with AsyncClient(address, attempts=1, stream_timeout=300) as client:
        for at in range(CALLS):
            request_id = f"client-{number}-call-{at}"
            if number % 4 == 0 and at == CALLS // 2:
                await leave_call(client, request_id, folder, told)
                continue
            name, arguments = (
                ("hold", {"folder": str(folder / "held"), "name": request_id})
                if (number + at) % 2
                else ("calculator", {"expression": f"{number} * {at}"})
            )
            result = await client.run_tool(name, arguments, request_id=request_id)
            told.codes[request_id] = code_of(result)
            assert result.data is not None, result.message
            if name == "hold":
                told.held.append(result.data["value"])
            else:
                assert str(number * at) in map(str, result.data.values()), result.data


def code_of(result: ToolResult) -> str:
    return "" if result.error is None else result.error.code


async def leave_call(client: AsyncClient, request_id: str, folder: Path, told: Told) -> None:
    """Begin a call that would not end, and cancel it once it runs, or take its refusal."""
    mark = folder / f"{request_id}.mark"
    call = asyncio.create_task(client.run_tool("stay", {"mark": str(mark)}, request_id=request_id))
    while not (mark.exists() and mark.read_text()):
        await asyncio.wait([call], timeout=0.05)
        if call.done():
            told.codes[request_id] = code_of(await call)
            return
    call.cancel()
    await asyncio.wait([call])
    told.left[request_id] = int(mark.read_text())


async def test_limits_hold_and_no_record_is_lost(address: str, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    told = Told()
    await asyncio.gather(*(call_tools(address, number, tmp_path, told) for number in range(CLIENTS)))
    assert set(told.codes.values()) <= {"", "TOO_MANY_TOOL_CALLS"}
    assert told.left
    assert max(told.held) <= PROCESSES
    async with AsyncClient(address) as client:
        records = [record async for record in client.audit_records() if record.request_id.startswith("client-")]
    counted = Counter(record.request_id for record in records)
    assert counted == Counter([*told.codes, *told.left])
    assert {record.code for record in records if record.request_id in told.left} == {"CANCELLED"}
    for process in told.left.values():
        await gone(process)


async def gone(process: int) -> None:
    """Wait until a process has ended."""
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the work of a cancelled call goes on")
