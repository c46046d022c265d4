"""Programs of MemoTree as forks of a process that has loaded their modules, so that they start at once.

A new interpreter takes seconds for the modules of a server or of the MCP SDK. That programs start from nothing is tried
by the tests of the example in the README and of the wheel.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, process
from multiprocessing.reduction import DupFd
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import IO, Any, Final

import pytest
from crash.service import _SERVERS, DEADLINE
from memotree_storage import faults

from memotree.local import server_process

_STREAMS: Final = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))


class _Inherited:
    """A descriptor that the program gets: `multiprocessing` passes it on when it is pickled."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._number),)


def _received(copy: Any) -> int:
    return int(copy.detach())


def _run(
    command: Sequence[str], streams: Sequence[int], folder: Path, environment: Mapping[str, str], own_session: bool
) -> None:
    """Be the program: ``-m module`` or ``-c text`` with its arguments."""
    if own_session:
        os.setsid()
    for (name, number, mode), given in zip(_STREAMS, streams, strict=True):
        os.dup2(given, number)
        setattr(sys, name, os.fdopen(number, mode, closefd=False, encoding="utf-8"))
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    importlib.reload(faults)  # it reads its variable when it is loaded
    forkserver._forkserver.ensure_running = lambda: None  # what this program starts is a fork of the same process
    server_process.subprocess = _FORKS
    kind, text, *sys.argv[1:] = command
    if kind == "-c":
        exec(text, {"__name__": "__main__"})  # noqa: S102 - a program of our own tests
    else:
        runpy.run_module(text, run_name="__main__", alter_sys=True)


class ForkedProgram:
    """A Python program with the interface of ``subprocess.Popen``; see there for the arguments.

    Attributes:
        args: The command.
        pid: Its process.
        stdin: The end of its pipe, if it has one; so ``stdout`` and ``stderr``.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.DEVNULL,
        stderr: int | IO[Any] | None = subprocess.DEVNULL,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        self.args = [str(part) for part in command]
        interpreter, *arguments = self.args
        assert interpreter == sys.executable
        given, ends = [], []
        for wanted, (_, number, mode) in zip((stdin, stdout, stderr), _STREAMS, strict=True):
            theirs, ours = _stream(wanted, number, mode, text=text)
            given.append(theirs)
            ends.append(ours)
        self.stdin, self.stdout, self.stderr = ends
        inherited = [_Inherited(number) for number, _ in given]
        self._process = _SERVERS.Process(
            target=_run, args=(arguments, inherited, cwd or Path.cwd(), dict(env or os.environ), start_new_session)
        )
        self._process.start()
        process._children.discard(self._process)  # else it is waited for when this process ends
        assert self._process.pid is not None
        self.pid = self._process.pid
        for number, is_copy in given:
            if is_copy:
                os.close(number)

    @property
    def returncode(self) -> int | None:
        """The exit status; ``None`` while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status; ``None`` while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit status; ``subprocess.TimeoutExpired`` if it takes longer."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _stream(wanted: int | IO[Any] | None, number: int, mode: str, *, text: bool) -> tuple[tuple[int, bool], Any]:
    """Return the program's descriptor, whether it has to be closed here, and our end of its pipe."""
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        theirs, ours = (read, write) if mode == "r" else (write, read)
        ours_mode = "w" if mode == "r" else "r"
        return (theirs, True), os.fdopen(ours, ours_mode if text else f"{ours_mode}b")
    if wanted == subprocess.DEVNULL:
        return (os.open(os.devnull, os.O_RDWR), True), None
    if wanted is None:
        return (number, False), None
    return (wanted if isinstance(wanted, int) else wanted.fileno(), False), None


def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run ``memotree``; return the exit status, and what it wrote to both streams."""
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8", errors="replace") as output:
        program = ForkedProgram([sys.executable, "-m", "memotree.cli", *arguments], stdout=write, stderr=write, env=env)
        os.close(write)
        told = output.read()
    return program.wait(DEADLINE), told


@contextmanager
def forked_servers() -> Iterator[None]:
    """Let the servers that this process starts be forks while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_process, "subprocess", _FORKS)
        yield


_FORKS: Final = SimpleNamespace(
    Popen=ForkedProgram, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
)


_COMMAND: Final = """\
#!{interpreter} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    socket.send_fds(asked, [b"+"], [0, 1, 2])
    asked.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    asked.shutdown(socket.SHUT_WR)
    sys.exit(int(asked.recv(16)))
"""


@contextmanager
def command_folder(folder: Path) -> Iterator[Path]:
    """Make a folder for ``PATH`` whose ``memotree``, which a shell may start, is a fork while the block runs."""
    folder.mkdir()
    address = folder / "socket"
    command = folder / "memotree"
    command.write_text(_COMMAND.format(interpreter=sys.executable, address=str(address)), encoding="utf-8")
    command.chmod(0o755)
    with socket.create_server(str(address), family=socket.AF_UNIX) as listening:
        Thread(target=_answer_all, args=(listening,), daemon=True).start()
        yield folder
        listening.shutdown(socket.SHUT_RDWR)


def _answer_all(listening: socket.socket) -> None:
    with suppress(OSError):  # the block has ended
        while True:
            Thread(target=_answer, args=(listening.accept()[0],), daemon=True).start()


def _answer(asked: socket.socket) -> None:
    """Run one command with the streams of the one who asks, and answer its exit status."""
    with asked:
        _, streams, _, _ = socket.recv_fds(asked, 1, 3)
        arguments, folder, environment = json.loads(asked.makefile("rb").read())
        stdin, stdout, stderr = streams
        program = ForkedProgram(
            [sys.executable, "-m", "memotree.cli", *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=Path(folder),
            env=environment,
        )
        for number in streams:
            os.close(number)
        status = program.wait() % 256
        with suppress(OSError):  # the one who asks was ended before the program
            asked.sendall(str(status).encode())
