"""Tools for tests of what a call may take; a worker process imports this module."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from memotree_storage.errors import InvalidInputError

from memotree.tools.function_tool import tool

PATHS = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
"""``PYTHONPATH`` of a process that imports this module."""

SECOND = timedelta(seconds=1)
LONG_ENOUGH = 8 * SECOND
"""For a process to begin on a busy machine."""

SHORT = 2 * SECOND
"""For a process that has begun to come to a function."""


class TooOddError(InvalidInputError):
    """A number is odd."""

    reason = "TOO_ODD"


@tool(category="tests", timeout=SHORT)
def spin(mark: str) -> None:
    """Never end; write the id of the process into a file first."""
    Path(mark).write_text(str(os.getpid()), encoding="utf-8")
    while True:
        pass


@tool(category="tests", timeout=SECOND)
def ignore_signals() -> None:
    """Sleep, and end by no signal that can be caught."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)


@tool(category="tests", timeout=SHORT)
def start_another(mark: str) -> None:
    """Start a process that never ends, and wait for it."""
    with subprocess.Popen(["/bin/sleep", "3600"]) as started:
        Path(mark).write_text(str(started.pid), encoding="utf-8")


@tool(category="tests")
def start_another_and_end(mark: str) -> None:
    """Start a process that never ends, and end this one in the middle of the call."""
    started = subprocess.Popen(["/bin/sleep", "3600"])
    Path(mark).write_text(str(started.pid), encoding="utf-8")
    os._exit(3)


@tool(category="tests")
def wait_for(mark: str, go: str) -> str:
    """Write the id of the process into a file, and wait until there is another one."""
    Path(mark).write_text(str(os.getpid()), encoding="utf-8")
    while not Path(go).exists():
        time.sleep(0.01)
    return "went"


@tool(category="tests", timeout=SECOND, read_only=True)
def only_read() -> None:
    """Take too long to read something."""
    time.sleep(3600)


@tool(category="tests", timeout=LONG_ENOUGH)
def show_input() -> str:
    """Tell what a process that this one starts can read."""
    return subprocess.run(["/bin/cat"], check=True, stdout=subprocess.PIPE).stdout.decode()


@tool(category="tests")
def fill_memory() -> int:
    """Take all memory."""
    return len([b"x" * (1 << 20) for _ in range(100_000)])


@tool(category="tests")
def end_process() -> None:
    """End the process in the middle of a call."""
    os._exit(3)


@tool(category="tests")
def raise_error(number: int) -> None:
    """Raise an error, of MemoTree if the number is odd."""
    if number % 2:
        raise TooOddError.at("number", f"{number} is odd.")
    raise RuntimeError("a secret of ours")


@tool(category="tests")
def answer_much(size: int) -> str:
    """Answer a text of this size."""
    return "é" * size


@tool(category="tests")
def show_environment() -> dict[str, Any]:
    """Tell the environment variables and the id of the process, and print something."""
    print("what a library prints")  # noqa: T201
    os.write(1, b"what C prints")
    return {"names": sorted(os.environ), "pid": os.getpid()}


@tool(category="tests")
def write_file(path: str) -> None:
    """Write into a file."""
    Path(path).write_text("written", encoding="utf-8")


@tool(category="tests")
def read_text(path: str) -> str:
    """Read a file."""
    return Path(path).read_text(encoding="utf-8")


@tool(category="tests")
def reach(port: int) -> str:
    """Connect to a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        return str(connection.recv(10), "ascii")


@tool(category="tests")
def reach_socket(path: str) -> str:
    """Connect to a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        return str(connection.recv(10), "ascii")


@tool(category="tests")
def list_names(path: str) -> list[str]:
    """List a folder."""
    return sorted(each.name for each in Path(path).iterdir())


@tool(category="tests")
def show_processes() -> list[int]:
    """List the processes that can be seen, and use some memory of the system for files."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"temporary")
    return sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


@tool(category="tests", timeout=LONG_ENOUGH)
def leave_behind(name: str) -> None:
    """Start a process in a session of its own, with this in its command, and wait."""
    subprocess.Popen(["/bin/sh", "-c", f"sleep 3600 # {name}"], start_new_session=True)  # noqa: S603 - of the tests
    time.sleep(3600)
