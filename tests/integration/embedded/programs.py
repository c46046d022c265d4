"""Processes that a test runs and watches."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

DEADLINE = 180.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Poll a condition until it holds; a missed deadline fails the test with the sentence given."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.005)


def state(pid: int) -> str:
    """The letter that Linux has for what a process does: T if it is stopped, Z for a zombie; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return state(pid) not in {"", "Z"}


class Program:
    """A Python program in a separate process, which prints one line when it is ready."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), DEADLINE)).decode().strip()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


Run = Callable[..., Awaitable[Program]]


def read(path: Path | str) -> str:
    """The text of a small file; a separate function, so that coroutines of tests may block on it."""
    return Path(path).read_text(encoding="utf-8")


def mode(path: Path) -> int:
    """Permission bits."""
    return path.stat().st_mode & 0o7777


def exists(path: Path) -> bool:
    """Whether a path is there."""
    return path.exists()
