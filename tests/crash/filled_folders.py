"""Data folders that a server has filled and left: each is filled once, and every test gets a copy of its own.

A test of a kill has to start two servers. To fill the folder by a third one would take as long again.
"""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

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
            fill: Fills a data folder with the help of a server, which it stops. Its arguments are the folder, a file
                for the server's log, and the further ones.
            arguments: Further arguments of the function; with others the folder is another one.
        """
        key = (fill, *arguments)
        if key not in self._known:
            made = self._place / str(len(self._known))
            self._known[key] = made / "data", await fill(made / "data", made / "server.log", *arguments)
        folder, told = self._known[key]
        shutil.copytree(folder, data, symlinks=True)
        return cast("T", told)
