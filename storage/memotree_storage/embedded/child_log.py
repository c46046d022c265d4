"""Repeats what a child process writes to its log file in the log of this process, one event for each line.

The child writes to a file and not to a pipe, so that it is never held up and its last words outlive this process.
"""

import asyncio
import re
from pathlib import Path
from typing import Final

import structlog

POLL_SECONDS: Final = 1.0

_SERIOUS: Final = re.compile(r"\b(?:PANIC|CRITICAL)\b")
_MOST: Final = 1 << 20
_log = structlog.get_logger(__name__)


class LogFollower:
    """Reads the lines that are added to a file; lines from before are not read.

    Args:
        name: The name of the child, for the log.
        path: Its log file.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._offset = self._size()

    def repeat(self) -> int:
        """Log each new complete line; return their number.

        A line is logged at level debug: PostgreSQL also writes what a caller caused and handles, such as a conflict of
        two transactions. Only what ends the child is an error.
        """
        lines = self._new_lines()
        for line in lines:
            (_log.error if _SERIOUS.search(line) else _log.debug)("embedded server wrote", name=self._name, line=line)
        return len(lines)

    async def follow(self) -> None:
        """Repeat the lines until this task is cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await asyncio.to_thread(self.repeat)

    def _new_lines(self) -> list[str]:
        if self._size() < self._offset:
            self._offset = 0  # it was rotated
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MOST)
        except OSError:
            return []
        complete = data.rfind(b"\n") + 1 or (len(data) if len(data) == _MOST else 0)
        self._offset += complete
        return [line for line in data[:complete].decode(errors="replace").splitlines() if line.strip()]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0
