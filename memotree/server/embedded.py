"""The embedded servers of a data folder, started side by side while the rest of the server is still imported.

Import nothing here that takes long: these servers take most of the time of a start, and need none of it.
"""

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from memotree_storage.embedded.lock import DataFolderLock
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.embedded.privacy import close_folders_in
from memotree_storage.embedded.qdrant import EmbeddedQdrant, QdrantEndpoint

from memotree.server.preflight import check_stores
from memotree.settings import Settings


class EmbeddedServers:
    """The data folder of a server, held for it, and the embedded servers that the settings ask for.

    Only one process may use a data folder, even if PostgreSQL and Qdrant are external: the state of a repository in one
    process (who holds its lock, what is cached, when to repack, what a start may delete) is unknown to other processes.

    Entering it takes the folder and begins to start the servers; leaving it stops them and gives the folder back.

    Raises on entry:
        DataFolderInUseError: Another process uses the data folder.
        DataFolderUnusableError: The data folder cannot be locked.
        DatabaseUnavailableError: A PostgreSQL that the settings name does not answer.
        QdrantUnreachableError: A Qdrant that the settings name does not answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        folder: Final = settings.data_folder
        self._lock = DataFolderLock(folder)
        self._postgres = EmbeddedPostgres(folder / "postgres") if settings.postgres_url is None else None
        self._qdrant = EmbeddedQdrant(folder / "qdrant") if settings.qdrant_url is None else None
        self._starting: dict[object, asyncio.Task[Any]] = {}

    async def __aenter__(self) -> Self:
        """Take the data folder, and begin."""
        self._lock.acquire()
        try:
            await asyncio.to_thread(close_folders_in, self._settings.data_folder)
            await check_stores(self._settings)
        except BaseException:
            self._lock.release()
            raise
        for server in (self._postgres, self._qdrant):
            if server is not None:
                self._starting[server] = asyncio.create_task(server.start())
        return self

    async def postgres(self) -> EmbeddedPostgres | str:
        """The embedded PostgreSQL, once it answers; or the URL of the one that the settings name.

        Raises:
            ChildStartError: It does not start; the message has the end of its log.
        """
        if self._settings.postgres_url is not None:
            return self._settings.postgres_url.get_secret_value()
        assert self._postgres is not None  # noqa: S101 - the settings name no other
        await self._starting[self._postgres]
        return self._postgres

    async def qdrant(self) -> tuple[EmbeddedQdrant | None, QdrantEndpoint]:
        """The embedded Qdrant and its address, once it answers; or only the address of the one that the settings name.

        Raises:
            ChildStartError: It does not start; the message has the end of its log.
        """
        if self._settings.qdrant_url is not None:
            key = self._settings.qdrant_api_key
            return None, QdrantEndpoint(self._settings.qdrant_url, key.get_secret_value() if key else None)
        assert self._qdrant is not None  # noqa: S101 - the settings name no other
        endpoint: QdrantEndpoint = await self._starting[self._qdrant]
        return self._qdrant, endpoint

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what was begun, and give the data folder back."""
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        try:
            for server in (self._qdrant, self._postgres):
                if server is not None:
                    await server.stop()
        finally:
            self._lock.release()
