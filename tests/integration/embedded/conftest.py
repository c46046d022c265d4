"""Waits for a condition without fixed pauses, and runs processes for tests."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable

import pytest
from integration.embedded.programs import DEADLINE, Program


@pytest.fixture
def until() -> Callable[..., object]:
    """Poll a condition until it holds; a missed deadline fails the test with the sentence given."""

    async def poll(condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            await asyncio.sleep(0.005)

    return poll


@pytest.fixture
async def run_program() -> AsyncIterator[Callable[..., object]]:
    programs: list[Program] = []

    async def run(source: str, *arguments: str) -> Program:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", source, *arguments, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
        programs.append(Program(process))
        return programs[-1]

    yield run
    for program in programs:
        await program.kill()
