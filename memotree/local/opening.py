"""Opens a data folder for a program: a client, and the server behind it that the program need not start."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Final, Self

from memotree.client.aio import AsyncClient
from memotree.client.blocking import Client
from memotree.client.errors import MemoTreeClientError
from memotree.extras import is_installed
from memotree.identity.key_file import local_key
from memotree.local.errors import ServerNotInstalledError, ServerStartError
from memotree.local.server_process import START_SECONDS, STOP_SECONDS, ServerProcess, announced_process_lives
from memotree.local.users import Use
from memotree.server.announcement import read_announcement

LOG_FILE: Final = "private-server.log"
_IN_USE: Final = 75
_TRIAL_SECONDS: Final = 5.0
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class FolderServer:
    """The server of a folder, used by this process.

    Attributes:
        address: Host and port of the server.
        key: The API key for it; empty if there is none.
        use: Keeps the server running.
        started: The process, if this process started it.
    """

    address: str
    key: str = field(repr=False)
    use: Use
    started: ServerProcess | None

    @classmethod
    def reach(cls, folder: Path) -> Self:
        """The running server of ``folder``, or a new one.

        Raises:
            ServerNotInstalledError: Only the client is installed.
            ServerStartError: The folder cannot be used, or the server does not start.
        """
        if not is_installed("server"):
            raise ServerNotInstalledError
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            use = Use.begin(folder, STOP_SECONDS)
        except OSError as error:
            raise ServerStartError(
                f"The folder {folder} cannot be used ({error.strerror}); name a folder on a local disk that this "
                "program may write to."
            ) from None
        try:
            address, started = _found_or_started(folder)
        except BaseException:
            use.end()
            raise
        return cls(address, local_key(folder), use, started)

    def release(self) -> None:
        """Ends the use; waits until the server has stopped, if this process started it and nobody else uses it."""
        stopping = self.use.end()
        if self.started is None:
            return
        if stopping:
            self.started.wait()
        else:
            # others use it: a thread waits for its end, so that it does not stay as a zombie
            Thread(target=self.started.process.wait, daemon=True).start()


def _found_or_started(folder: Path) -> tuple[str, ServerProcess | None]:
    deadline = time.monotonic() + START_SECONDS
    may_be_elsewhere = False  # in another container, say, whose processes cannot be seen
    while True:
        if may_be_elsewhere or announced_process_lives(folder):
            found = _answering(folder)
            if found:
                return found, None
        server = ServerProcess.start(
            [sys.executable, "-m", "memotree.local.child", str(folder)],
            folder=folder,
            log=folder / LOG_FILE,
            name=f"The server on {folder}",
            own_session=True,  # Ctrl-C is for this program, whose last calls still need the server
        )
        try:
            return server.address(), server
        except ServerStartError:
            if server.process.returncode != _IN_USE or time.monotonic() > deadline:
                server.stop()
                raise
        may_be_elsewhere = True
        time.sleep(_PAUSE)  # another server holds the folder, and is just starting or stopping


def _answering(folder: Path) -> str:
    """The address announced in ``folder``, if a server answers there; otherwise empty."""
    announced = read_announcement(folder)
    if announced is None:
        return ""
    with Client(
        announced.address, timeout=_TRIAL_SECONDS, attempts=1, key=local_key(folder), tls=False, certificate=""
    ) as client:
        try:
            client.status()
        except MemoTreeClientError:
            return ""
    return announced.address


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(path).expanduser().absolute()


class LocalClient(Client):
    """A client of the server of a folder; ``close`` ends the server too, unless another program uses it."""

    def __init__(self, server: FolderServer, *, timeout: float, on_warning: Callable[[str], None] | None) -> None:
        super().__init__(
            server.address, timeout=timeout, on_warning=on_warning, key=server.key, tls=False, certificate=""
        )
        self._server: FolderServer | None = server

    def close(self) -> None:
        """Closes the connection, and stops the server if nobody else uses it; safe to repeat."""
        super().close()
        server, self._server = self._server, None
        if server is not None:
            server.release()


class AsyncLocalClient(AsyncClient):
    """A client of the server of a folder; ``close`` ends the server too, unless another program uses it."""

    def __init__(self, server: FolderServer, *, timeout: float, on_warning: Callable[[str], None] | None) -> None:
        super().__init__(
            server.address, timeout=timeout, on_warning=on_warning, key=server.key, tls=False, certificate=""
        )
        self._server: FolderServer | None = server

    async def close(self) -> None:
        """Closes the connection, and stops the server if nobody else uses it; safe to repeat."""
        await super().close()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.release)


def open(  # noqa: A001 - read as memotree.open
    path: str | os.PathLike[str], *, timeout: float = 30.0, on_warning: Callable[[str], None] | None = None
) -> LocalClient:
    """Opens the memory in the folder ``path``; no server has to be started.

    A server runs underneath in a process of its own. It ends when the last program that opened the folder closes it,
    ends, or is killed. Programs that open the same folder share one server, and so they do with ``memotree serve`` on
    it. The settings are those of ``memotree serve``: the environment, and ``memotree.toml`` in the working folder.

    Args:
        path: The data folder; created if it is missing. ``~`` is the home folder.
        timeout: Seconds for one call with all its attempts.
        on_warning: Called with each warning in an answer; ``None`` logs the warnings.

    Raises:
        ServerNotInstalledError: Only the client is installed.
        ServerStartError: The folder cannot be used, or the server does not start.
    """
    try:
        return LocalClient(FolderServer.reach(_absolute(path)), timeout=timeout, on_warning=on_warning)
    except MemoTreeClientError as error:
        raise error.with_traceback(None) from None


class OpeningFolder:
    """A folder to be opened: ``await`` it, or use it with ``async with``."""

    def __init__(self, path: Path, timeout: float, on_warning: Callable[[str], None] | None) -> None:
        self._path = path
        self._timeout = timeout
        self._on_warning = on_warning
        self._opened: AsyncLocalClient | None = None

    async def _open(self) -> AsyncLocalClient:
        server = await asyncio.to_thread(FolderServer.reach, self._path)
        return AsyncLocalClient(server, timeout=self._timeout, on_warning=self._on_warning)

    def __await__(self) -> Generator[None, None, AsyncLocalClient]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncLocalClient:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def open_async(
    path: str | os.PathLike[str], *, timeout: float = 30.0, on_warning: Callable[[str], None] | None = None
) -> OpeningFolder:
    """Opens the memory in the folder ``path`` like ``open``, for programs with an event loop.

    Use it as ``async with memotree.open_async(path) as memory:``, or ``await`` it and close the client at the end.
    """
    return OpeningFolder(_absolute(path), timeout, on_warning)
