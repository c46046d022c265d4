"""Runs processes for tests."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest
from integration.embedded.programs import Program, Run


@pytest.fixture
async def run_program() -> AsyncIterator[Run]:
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
