"""Starts a server: the embedded servers begin first, and meanwhile a thread imports the rest, which takes a second.

``memotree.composition`` is the composition root; whoever starts a server for itself imports this module instead.
"""

import asyncio
import gc
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Final

from memotree_storage.memory import return_freed_memory
from memotree_storage.qdrant.package import leave_models_unbuilt

from memotree.server.app import MakeSideServer, Operations, Server, SideServer
from memotree.server.app import serve as run
from memotree.server.calls import RunningCalls
from memotree.server.embedded import EmbeddedServers
from memotree.settings import LoadedSettings, Settings

COMPOSITION_ROOT: Final = "memotree.composition"
"""The module that builds the stores and operations."""

_MOST_FILES: Final = 65_536
"""How many files the server asks for where the system permits more."""

ImportSideServer = Callable[[], MakeSideServer]
"""Imports another server, such as HTTP, and returns what creates it; called in a thread."""


def serve(
    settings: Settings,
    on_ready: Callable[[Server], None] | None = None,
    side_server: ImportSideServer | None = None,
    reread: Callable[[], LoadedSettings] | None = None,
) -> None:
    """Run a server with all its stores until SIGTERM, SIGINT or SIGHUP.

    Args:
        settings: Where the data is, the address to listen on, and limits.
        on_ready: Called once the server accepts calls, e.g. to print its address.
        side_server: Imports another server (such as HTTP) that starts and stops with this one.
        reread: Reads the settings again when a reload is asked for; without it they do not change.

    Errors: those of ``compose`` and of ``Server``, before any call is accepted.
    """
    return_freed_memory()
    allow_many_files()
    os.umask(0o077)  # what the server writes is for its user only
    start = Start(side_server, reread)
    run(settings, start.compose, on_ready, None if side_server is None else start.side_server)


class Start:
    """One start of a server.

    Args:
        import_side_server: Imports another server that starts and stops with this one.
        reread: Reads the settings again when a reload is asked for.
    """

    def __init__(
        self,
        import_side_server: ImportSideServer | None = None,
        reread: Callable[[], LoadedSettings] | None = None,
    ) -> None:
        self._reread = reread
        self._import_side_server = import_side_server
        self._make_side_server: MakeSideServer | None = None

    @asynccontextmanager
    async def compose(self, settings: Settings) -> AsyncIterator[Operations]:
        """Open the stores and yield the operations by service; see ``compose.compose``.

        The embedded servers start while the stores are imported, and the stores open while the other server is.
        """
        async with EmbeddedServers(settings) as embedded:
            gc.disable()  # imports make many objects and little garbage; a collection would look at all of them
            try:
                module = await asyncio.to_thread(_import_root)
                importing = asyncio.create_task(asyncio.to_thread(self._import_rest))
                try:
                    async with module.compose(settings, embedded, self._reread) as operations:
                        await importing
                        collect_rarely()
                        yield operations
                finally:
                    await asyncio.gather(importing, return_exceptions=True)
            finally:
                gc.enable()

    def side_server(self, settings: Settings, operations: Operations, calls: RunningCalls) -> SideServer:
        """Create the other server; its module was imported while the stores were opened."""
        assert self._make_side_server is not None  # noqa: S101 - `compose` imported it
        return self._make_side_server(settings, operations, calls)

    def _import_rest(self) -> None:
        if self._import_side_server is not None:
            self._make_side_server = self._import_side_server()


def _import_root() -> ModuleType:
    leave_models_unbuilt()
    return import_module(COMPOSITION_ROOT)


def collect_rarely() -> None:
    """Make Python's garbage collector run less often, as suits a server.

    A full collection blocks the event loop for some 90 ms once thousands of nodes were staged. Objects that are loaded
    at the start are never freed, and calls leave few reference cycles behind.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def allow_many_files() -> None:
    """Let this process open as many files as it may, up to 65,536.

    That is enough, while containers often permit over a million, and programs that try every number that a file may
    have would take long. A higher limit that the process began with stays.

    Each connection is a file. Systems begin a process with a limit of about a thousand, for programs that wait for
    files with ``select``; idle clients would soon use it up. The server and those that it starts do not do that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # some kernels permit less than they say; then the limit stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
