"""Named points at which a crash test can kill or stop this process.

A test starts a process with ``MEMOTREE_FAULT_POINT=name`` (or ``name:N`` for the N-th pass). At that point the process
kills itself with SIGKILL, as the kernel's out-of-memory killer would: no handlers, no flush. With ``name:N:stop`` it
stops there instead, until it gets SIGCONT.
"""

import os
import signal
from threading import Lock
from typing import Final

ENVIRONMENT_VARIABLE: Final = "MEMOTREE_FAULT_POINT"


def _parse(value: str) -> tuple[str, int, signal.Signals]:
    name, count, then = [*value.split(":"), "", ""][:3]
    return name, int(count) if count else 1, signal.SIGSTOP if then == "stop" else signal.SIGKILL


# Read once: a fault applies to a whole process, and the write path must not pay for reading the environment.
_target, _left, _signal = _parse(os.environ.get(ENVIRONMENT_VARIABLE, ""))
_counting = Lock()


def point(name: str) -> None:
    """Pass the named point; kill or stop the process if it was started with this fault point."""
    if name == _target:
        _pass()


def _pass() -> None:
    global _left  # noqa: PLW0603 - one countdown for the whole process is what the variable asks for
    with _counting:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), _signal)
