"""A server over scripted answers that the tests of a module share; each test begins with answers of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.scripted_server import ScriptedForest, served
from integration.worlds import World
from memotree_storage.store import Store

from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.server.app import Server


@dataclass(frozen=True, slots=True)
class SharedServer:
    """A server, and a workspace in its store, which is the default one unless the settings name another."""

    server: Server
    world: World
    _forest: ScriptedForest

    def forest(self) -> ScriptedForest:
        """The answers as they are at first; what an earlier test made of them is forgotten."""
        vars(self._forest).clear()
        self._forest.__init__()  # type: ignore[misc] # that is the point
        return self._forest


@asynccontextmanager
async def shared_server(store: Store, folder: Path, **given: Any) -> AsyncIterator[SharedServer]:
    """A server on ports of its own, over a new workspace of a store."""
    world = await World.create(store, PageTokens(), ServiceLimits())
    forest = ScriptedForest()
    async with served(world, forest, folder / "http", **{"default_workspace": world.workspace} | given) as running:
        yield SharedServer(running, world, forest)
