"""Child processes: the command, the account it runs under, its log, and how it is started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memotree_storage.errors import UnavailableError

_LAUNCHER: Final = Path(__file__).with_name("launch.py")
_LOG_LIMIT: Final = 8 * 1024 * 1024
_LOG_TAIL: Final = 2000


class ChildStartError(UnavailableError):
    """A child process could not be started."""

    reason = "EMBEDDED_START_FAILED"


@dataclass(frozen=True, slots=True)
class Account:
    """The user that a child process runs as.

    Attributes:
        uid: User id.
        gid: Group id.
        pass_folders: Keep the capability to access folders that are closed to this user (on Linux, when run as root).
    """

    uid: int
    gid: int
    pass_folders: bool = False


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """How to run a child process and how to stop it.

    Attributes:
        name: The name for messages.
        command: Absolute path of the program, and its arguments. No secrets: every user can read them.
        log: File for the child's output; it is rotated at a start if it has grown large.
        account: The user to run as; ``None`` for the current user.
        environment: Variables to add to the current environment.
        stop_signals: Signals with seconds of grace, tried in turn; SIGKILL always follows.
        death_signal: The signal that the kernel sends to the child when its parent dies (Linux only).
    """

    name: str
    command: Sequence[str]
    log: Path
    account: Account | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signals: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    death_signal: signal.Signals = signal.SIGTERM


def spawn(child: ChildCommand) -> subprocess.Popen[bytes]:
    """Start the child. The kernel kills it when the calling thread ends, so that thread must wait for it."""
    account = child.account
    order = {
        "parent": os.getpid(),
        "death_signal": int(child.death_signal),
        "uid": account.uid if account else None,
        "gid": account.gid if account else None,
        "pass_folders": bool(account and account.pass_folders),
        "command": list(child.command),
    }
    _rotate(child.log)
    with child.log.open("ab") as log:
        # In its own session: Ctrl-C at the terminal must reach only the server, which then stops its children.
        return subprocess.Popen(  # noqa: S603 - our own interpreter and launcher
            [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **child.environment},
            cwd="/",
        )


def _rotate(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(log.suffix + ".1"))


def run_to_end(child: ChildCommand) -> None:
    """Run a command that ends on its own; blocks.

    Raises:
        ChildStartError: The command failed; the message contains the end of its log.
    """
    try:
        status = spawn(child).wait()
    except OSError as error:
        raise ChildStartError(f"{child.name} could not be started: {error}.") from error
    if status != 0:
        raise ChildStartError(
            f"{child.name} failed with status {status}. The end of {child.log}: {log_tail(child.log)}"
        )


def log_tail(log: Path) -> str:
    """Return the last lines of a log, for an error message."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG_TAIL))
        return file.read().decode(errors="replace").strip() or "(empty)"
    return "(unreadable)"
