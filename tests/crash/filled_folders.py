"""Data folders that a server has filled and left: each is filled once, and every test gets a copy of its own.

A test of a kill has to start two servers. To fill the folder by a third one would take as long again.
"""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from crash.service import running

T = TypeVar("T")


class FilledFolders:
    """The folders that were filled in this run.

    Args:
        place: An empty folder for them.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._known: dict[tuple[Any, ...], tuple[Path, Any]] = {}

    async def copy(self, data: Path, fill: Callable[..., Awaitable[T]], *arguments: str) -> T:
        """Copy the data folder that a function fills to a new place, and return what the function returned.

        Args:
            data: The new place.
            fill: Fills a data folder with the help of its server, which is stopped afterwards. Its arguments are the
                server and the further ones.
            arguments: Further arguments of the function; with others the folder is another one.
        """
        key = (fill, *arguments)
        if key not in self._known:
            made = self._place / str(len(self._known))
            async with running(made / "data", made / "server.log") as service:
                told = await fill(service, *arguments)
                assert await service.stop() == 0
            self._known[key] = made / "data", told
        folder, told = self._known[key]
        shutil.copytree(folder, data, symlinks=True)
        return cast("T", told)
