"""Run the day with each memory that is there, and print a table: ``python -m bench.agent_use``.

MemoTree always runs. ``--mem0`` and ``--langgraph`` name the Python of an environment that has ``mem0ai`` or
``langgraph-checkpoint``, and ``langchain-core`` and ``wordllama``; ``--basic-memory`` names that program.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

from bench.agent_use.flow import Fact, corrected, facts, forgotten
from bench.agent_use.memories import BasicMemory, MemoTree, OverMcp, in_worker, over_mcp
from bench.agent_use.memory import Cost, Report

Start = Callable[[Path], AbstractAsyncContextManager[Any]]


async def day(name: str, start: Start) -> Report:
    """Run the flow; a second agent, in a new connection, asks and looks back at the end."""
    report = Report(name)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        old, new = facts(), facts(1)
        now: list[Fact | None] = list(old)
        async with start(home) as memory:
            report.tools = await memory.tool_tokens() if isinstance(memory, OverMcp) else 0
            names = [await memory.remember(fact) for fact in old]
            _part(report, memory, "remember 100")
            for number in corrected():
                await memory.correct(names[number], old[number], new[number])
                now[number] = new[number]
            _part(report, memory, "correct 20")
            for number in forgotten():
                await memory.forget(names[number], old[number])
                now[number] = None
            _part(report, memory, "forget 10")
            for before, fact in zip(old, now, strict=True):
                report.right += _is_right(await memory.ask(before.question), before, fact)
            _part(report, memory, "ask 100")
            lasting = name != "LangGraph InMemoryStore"
            if not lasting:
                await _end(report, memory, names, old, now)
        if lasting:
            async with start(home) as memory:
                await _end(report, memory, names, old, now)
    return report


async def _end(report: Report, memory: Any, names: list[str], old: list[Fact], now: list[Fact | None]) -> None:
    for number in range(1, 100, 10):
        report.handed_over += _is_right(await memory.ask(old[number].question), old[number], now[number])
    _part(report, memory, "hand over")
    for number in corrected()[:10]:
        told = await memory.look_back(names[number], old[number])
        report.looked_back += old[number].value in told
    _part(report, memory, "look back 10")


def _is_right(answer: str, before: Fact, now: Fact | None) -> bool:
    if now is None:
        return before.text not in answer
    return now.value in answer and (now == before or before.text not in answer)


def _part(report: Report, memory: Any, name: str) -> None:
    report.costs[name] = memory.cost
    memory.cost = Cost()


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="bench.agent_use", description=__doc__)
    parser.add_argument("--mem0", help="the Python of an environment with mem0ai")
    parser.add_argument("--langgraph", help="the Python of an environment with langgraph-checkpoint")
    parser.add_argument("--basic-memory", help="the program basic-memory")
    given = parser.parse_args()
    memotree = ["-m", "memotree.cli", "mcp", "--workspace", "day"]
    runs: list[tuple[str, Start]] = [("MemoTree", lambda home: over_mcp(MemoTree, sys.executable, memotree, home))]
    if given.basic_memory:
        runs.append(("basic-memory", lambda home: over_mcp(BasicMemory, given.basic_memory, ["mcp"], home)))
    if given.mem0:
        runs.append(("mem0", partial(in_worker, given.mem0, "mem0")))
    if given.langgraph:
        runs.append(("LangGraph InMemoryStore", partial(in_worker, given.langgraph, "langgraph")))
    reports = [asyncio.run(day(name, start)) for name, start in runs]
    print(table(reports))


def table(reports: list[Report]) -> str:
    """The reports as a Markdown table."""
    rows = [("", *(report.name for report in reports)), ("---", *("---:" for _ in reports))]
    rows.append(
        ("tokens of the list of tools", *(f"{report.tools:,}" if report.tools else "none" for report in reports))
    )
    for part in reports[0].costs:
        cells = [
            f"{cost.calls} calls, {cost.written:,} + {cost.read:,} ({cost.structure:,})"
            for cost in (report.costs[part] for report in reports)
        ]
        rows.append((part, *cells))
    rows.append(("right answers of 100", *(str(report.right) for report in reports)))
    rows.append(("found by another agent, of 10", *(str(report.handed_over) for report in reports)))
    rows.append(("seen as it was before, of 10", *(str(report.looked_back) for report in reports)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
