"""The demo's private server: started on a new folder, found by its announcement, stopped at the end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from memotree.cli.errors import StartError
from memotree.server.announcement import read_announcement

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_MARKER: Final = ".memotree-demo"
_LOG: Final = "demo-server.log"
_LAST_LINES: Final = 5


class NotADemoFolderError(StartError):
    """The folder contains files that the demo did not make and must not delete."""

    reason = "NOT_A_DEMO_FOLDER"


def fresh_folder(folder: Path) -> Path:
    """Makes ``folder`` an empty folder; deletes the data of an earlier demo, and refuses any other content."""
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not (folder / _MARKER).exists():
            raise NotADemoFolderError(
                f"{folder} contains files that are not from a demo; name an empty folder with --data."
            )
        if _answers(folder):
            raise NotADemoFolderError(f"A server still uses {folder}; stop it first, or name another folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).touch()
    return folder


def _answers(folder: Path) -> bool:
    """Whether the process that announced itself in ``folder`` is alive."""
    announced = read_announcement(folder)
    if announced is None:
        return False
    try:
        os.kill(announced.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def server_on(folder: Path) -> Iterator[str]:
    """Runs a server on ``folder`` with default settings; yields its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMOTREE_")}
    arguments = [sys.executable, "-m", "memotree.cli", "serve", "--data", str(folder), "--port", "0"]
    with (folder / _LOG).open("wb") as log:
        # started inside its own folder, so that it does not read a memotree.toml of the working folder
        process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=folder, env=environment)  # noqa: S603 - our own program
    try:
        yield _address(process, folder)
    finally:
        _stop(process)


def _address(process: "subprocess.Popen[bytes]", folder: Path) -> str:
    """Waits until the server has announced its address, and returns it."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        announced = read_announcement(folder)
        if announced is not None and announced.pid == process.pid:
            return announced.address
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        raise StartError(f"The server of the demo ended with exit code {process.returncode}. {_last_words(folder)}")
    raise StartError(f"The server of the demo did not start within {START_SECONDS:.0f} s. {_last_words(folder)}")


def _last_words(folder: Path) -> str:
    """The last lines of the server's log."""
    lines = (folder / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(["Its last lines:", *lines[-_LAST_LINES:], f"The whole log is in {folder / _LOG}."])


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Asks the server to stop, and kills it if it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
