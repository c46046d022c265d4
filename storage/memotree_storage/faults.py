"""Named points at which a crash test can kill this process.

A test starts a process with ``MEMOTREE_FAULT_POINT=name`` (or ``name:N`` for the N-th pass). At that point the process
kills itself with SIGKILL, as the kernel's out-of-memory killer would: no handlers, no flush.
"""

import os
import signal
from threading import Lock
from typing import Final

ENVIRONMENT_VARIABLE: Final = "MEMOTREE_FAULT_POINT"


def _parse(value: str) -> tuple[str, int]:
    name, _, count = value.partition(":")
    return name, int(count) if count else 1


# Read once: a fault applies to a whole process, and the write path must not pay for reading the environment.
_target, _left = _parse(os.environ.get(ENVIRONMENT_VARIABLE, ""))
_counting = Lock()


def point(name: str) -> None:
    """Pass the named point; kill the process if it was started with this fault point."""
    if name == _target:
        _pass()


def _pass() -> None:
    global _left  # noqa: PLW0603 - one countdown for the whole process is what the variable asks for
    with _counting:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
