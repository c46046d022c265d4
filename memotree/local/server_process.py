"""Starts a server in a process of its own, finds its address by its announcement, and stops it."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

from memotree.local.errors import ServerStartError
from memotree.server.announcement import read_announcement

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_LAST_LINES: Final = 5


def announced_process_lives(folder: Path) -> bool:
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


def _private(path: Path) -> BinaryIO:
    """Opens a file that only this user may read, for writing from its beginning; one from an earlier run, too."""
    output = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    with suppress(OSError):  # the file belongs to another user; its folder protects it
        path.chmod(0o600)
    return output


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs as a child process.

    Attributes:
        process: The process.
        folder: Its data folder.
        log: The file with its output.
        name: What error messages call it.
    """

    process: "subprocess.Popen[bytes]"
    folder: Path
    log: Path
    name: str

    @classmethod
    def start(
        cls,
        arguments: Sequence[str],
        *,
        folder: Path,
        log: Path,
        name: str = "The server",
        environment: Mapping[str, str] | None = None,
        working_folder: Path | None = None,
        own_session: bool = False,
    ) -> Self:
        """Starts ``arguments`` as a server on ``folder``; returns at once.

        Args:
            arguments: The program and its arguments.
            folder: The data folder, in which the server announces itself.
            log: The file that gets its output.
            name: What error messages call it.
            environment: Its environment; that of this process if ``None``.
            working_folder: Where it runs; where this process does if ``None``.
            own_session: Whether Ctrl-C in the terminal of this process does not reach it.
        """
        with _private(log) as output:
            process = subprocess.Popen(  # noqa: S603 - our own program
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=working_folder,
                env=None if environment is None else dict(environment),
                start_new_session=own_session,
            )
        return cls(process, folder, log, name)

    def address(self) -> str:
        """Waits until the server has announced its address, and returns it.

        Raises:
            ServerStartError: It ended, or did not announce itself in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            announced = read_announcement(self.folder)
            if announced is not None and announced.pid == self.process.pid:
                return announced.address
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            raise ServerStartError(f"{self.name} ended with exit code {self.process.returncode}. {self._last_words()}")
        raise ServerStartError(f"{self.name} did not start within {START_SECONDS:.0f} s. {self._last_words()}")

    def stop(self) -> None:
        """Asks the server to stop, and kills it if it does not."""
        if self.process.poll() is None:
            self.process.terminate()
        self.wait()

    def wait(self) -> None:
        """Waits until the server has stopped, and kills it if that takes too long."""
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _last_words(self) -> str:
        """The last lines of the server's log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(["Its last lines:", *lines[-_LAST_LINES:], f"The whole log is in {self.log}."])
