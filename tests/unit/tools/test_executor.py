"""What a call of a function may take, and that it ends when it takes more, or is cancelled."""

import asyncio
import os
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import slow_tools
from slow_tools import SECOND, SHORT, TooOddError

from memotree.tools.executor import (
    Executor,
    ToolCrashedError,
    ToolFailedError,
    ToolLimits,
    ToolMemoryError,
    ToolTimeoutError,
    TooManyToolCallsError,
)
from memotree.tools.function_tool import FunctionTool, tool
from memotree.tools.results import MOST_BYTES, ToolResultTooLargeError
from memotree.workers.pool import Program, WorkerPool

pytestmark = pytest.mark.requirement("TOOL-4")


@pytest.fixture(scope="module")
async def executor() -> AsyncIterator[Executor]:
    """One for all tests: its processes go on from one to the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", slow_tools.PATHS)
        for name in ("MEMOTREE_CHAT_API_KEY", "GARDEN_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHON_KEY", "HTTPS_PROXY"):
            patch.setenv(name, "secret")
        patch.setenv("LC_TIME", "C")
        made = Executor(ToolLimits(timedelta(seconds=60), concurrency=2, memory=400 << 20))
        yield made
        await made.close()


async def run(executor: Executor, function: Any, **values: Any) -> dict[str, Any]:
    return await executor.run(FunctionTool(function), values)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for what another process does."""
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"waited in vain until {what}")


async def written(mark: Path) -> None:
    await until(lambda: mark.exists() and mark.read_text(), "the function began")


async def ended(mark: Path) -> None:
    """Wait until the process has ended whose id is in a file."""
    await until(lambda: not Path("/proc", mark.read_text()).exists(), "the process ended")


async def test_a_function_that_takes_too_long_is_ended_with_its_process(executor: Executor, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    for function, told in (
        (slow_tools.spin, "spin took longer than 2 seconds"),
        (slow_tools.start_another, "start_another took longer than 2 seconds"),
    ):
        await run(executor, slow_tools.answer_much, size=1)  # its process has begun and is taken for the next call
        with pytest.raises(ToolTimeoutError, match=told) as refused:
            await run(executor, function, mark=str(mark))
        assert refused.value.reason == "TOOL_TIMEOUT"
        await ended(mark)
    await run(executor, slow_tools.answer_much, size=1)
    with pytest.raises(ToolTimeoutError):
        await run(executor, slow_tools.ignore_signals)
    assert await run(executor, slow_tools.answer_much, size=2) == {"value": "éé"}


async def test_a_cancelled_call_ends_its_work(executor: Executor, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    call = asyncio.create_task(run(executor, slow_tools.wait_for, mark=str(mark), go=str(tmp_path / "never")))
    await written(mark)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await ended(mark)


async def test_a_process_that_ends_or_takes_much_memory_is_told_and_its_work_is_not_done_again(
    executor: Executor,
) -> None:
    with pytest.raises(ToolMemoryError, match="400 MiB"):
        await run(executor, slow_tools.fill_memory)
    with pytest.raises(ToolCrashedError, match="whether its work was done is not known"):
        await run(executor, slow_tools.end_process)
    assert await run(executor, slow_tools.answer_much, size=1) == {"value": "é"}


async def test_an_error_comes_back_as_itself_and_a_defect_as_one_for_the_log(executor: Executor) -> None:
    with pytest.raises(TooOddError, match="3 is odd") as refused:
        await run(executor, slow_tools.raise_error, number=3)
    assert [(fault.field, fault.description) for fault in refused.value.violations] == [("number", "3 is odd.")]
    with pytest.raises(ToolFailedError, match="a secret of ours"):
        await run(executor, slow_tools.raise_error, number=2)


async def test_an_answer_has_a_size(executor: Executor) -> None:
    @tool(category="tests")
    async def answer_here(size: int) -> str:
        """Answer a text of this size, in this process."""
        return "é" * size

    for size in (MOST_BYTES // 2, 3 * MOST_BYTES):
        for function in (slow_tools.answer_much, answer_here):
            with pytest.raises(ToolResultTooLargeError, match="has more than 4 MiB"):
                await run(executor, function, size=size)


async def test_a_process_is_kept_and_has_only_the_variables_that_it_needs(executor: Executor) -> None:
    first, again = [await run(executor, slow_tools.show_environment) for _ in range(2)]
    assert first["pid"] == again["pid"]
    assert {"PATH", "PYTHONPATH", "LC_TIME"} <= set(first["names"])
    assert [name for name in first["names"] if "KEY" in name or "PROXY" in name] == []
    assert await run(executor, slow_tools.show_input) == {"value": ""}, "what it starts cannot read the requests"
    assert await run(executor, slow_tools.answer_much, size=1) == {"value": "é"}


async def test_so_many_calls_run_at_once_and_so_many_wait() -> None:
    executor = Executor(ToolLimits(concurrency=3))
    running, most, go = 0, 0, asyncio.Event()

    @tool(category="tests")
    async def wait() -> None:
        """Wait."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    calls = [asyncio.create_task(run(executor, wait)) for _ in range(60)]
    await asyncio.sleep(0)
    for each in calls[51:]:
        with pytest.raises(TooManyToolCallsError, match="runs 3 calls"):
            await each
    go.set()
    await asyncio.gather(*calls[:51])
    assert most == 3
    assert await run(executor, wait) == {}


async def test_waiting_for_a_turn_counts_and_a_cancelled_call_makes_room() -> None:
    executor = Executor(ToolLimits(concurrency=1))
    cancelled = asyncio.Event()

    @tool(category="tests")
    async def wait() -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @tool(category="tests", timeout=SECOND / 20)
    async def hurry() -> None:
        """Do nothing."""

    call = asyncio.create_task(run(executor, wait))
    await asyncio.sleep(0)
    for late in (hurry, slow_tools.ignore_signals):
        with pytest.raises(TooManyToolCallsError, match=r"did not begin .* its .*; send it again") as refused:
            await run(executor, late)
        assert refused.value.passes
    call.cancel()
    await asyncio.wait_for(cancelled.wait(), 60)
    assert await run(executor, hurry) == {}


async def test_calls_that_wait_for_a_process_hold_no_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", slow_tools.PATHS)
    executor = Executor(ToolLimits(timedelta(seconds=60), concurrency=2, processes=1))
    go = tmp_path / "go"

    @tool(category="tests")
    async def answer() -> str:
        """Answer at once."""
        return "here"

    marks = [tmp_path / str(number) for number in range(4)]
    calls = [asyncio.create_task(run(executor, slow_tools.wait_for, mark=str(mark), go=str(go))) for mark in marks]
    await until(lambda: any(mark.exists() for mark in marks), "one of them began")
    assert await run(executor, answer) == {"value": "here"}
    assert sum(mark.exists() for mark in marks) == 1
    go.touch()
    assert await asyncio.gather(*calls) == [{"value": "went"}] * 4
    await executor.close()


async def test_an_error_of_a_call_that_took_too_long_tells_what_is_known_of_the_work(executor: Executor) -> None:
    @tool(category="tests", timeout=SECOND / 20)
    async def write() -> None:
        """Write slowly."""
        await asyncio.Event().wait()

    @tool(category="tests", timeout=SECOND / 20, read_only=True)
    async def read() -> None:
        """Read slowly."""
        await asyncio.Event().wait()

    for writing in (write, slow_tools.ignore_signals):
        with pytest.raises(ToolTimeoutError, match=r"whether its work was done is not known\. Look before"):
            await run(executor, writing)
    for reading in (read, slow_tools.only_read):
        with pytest.raises(ToolTimeoutError, match="was ended; ask for less"):
            await run(executor, reading)


async def test_what_a_function_started_ends_with_a_process_that_ended_by_itself(
    executor: Executor, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    with pytest.raises(ToolCrashedError):
        await run(executor, slow_tools.start_another_and_end, mark=str(mark))
    await ended(mark)


async def test_what_a_function_started_ends_when_the_server_is_killed(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from dataclasses import replace
from datetime import timedelta
import slow_tools
from memotree.tools.executor import Executor, ToolLimits
from memotree.tools.function_tool import FunctionTool
tool = FunctionTool(slow_tools.start_another)
tool.options = replace(tool.options, timeout=timedelta(seconds=600))
asyncio.run(Executor(ToolLimits()).run(tool, {"mark": sys.argv[1]}))
"""
    mark = tmp_path / "pid"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(mark), env={**os.environ, "PYTHONPATH": slow_tools.PATHS}
    )
    await written(mark)
    server.kill()
    await server.wait()
    await ended(mark)


async def test_a_process_ends_although_the_call_that_ends_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", slow_tools.PATHS)
    mark, go = tmp_path / "pid", threading.Event()
    pool = WorkerPool(Program("memotree.tools.worker", ("60", str(1 << 30))), 1)
    pool._talkers = threads = CountingThreads(2)
    threads.submit(go.wait)  # so that what ends the process waits for a thread
    await pool.ask({"seconds": 60}, pickle.dumps((slow_tools.answer_much, {"size": 1})), 60)
    body = pickle.dumps((slow_tools.wait_for, {"mark": str(mark), "go": str(tmp_path / "never")}))
    call = asyncio.create_task(pool.ask({"seconds": 60}, body, SHORT.total_seconds()))
    await until(lambda: threads.submitted == 4, "its process was being ended")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    await ended(mark)
    await pool.close()


class CountingThreads(ThreadPoolExecutor):
    """Counts what it was given to run."""

    submitted = 0

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        self.submitted += 1
        return super().submit(*args, **kwargs)


async def test_a_timeout_of_the_function_itself_is_its_own() -> None:
    @tool(category="tests")
    async def fail() -> None:
        """Fail."""
        raise TimeoutError

    with pytest.raises(TimeoutError) as raised:
        await run(Executor(), fail)
    assert not isinstance(raised.value, ToolTimeoutError)
