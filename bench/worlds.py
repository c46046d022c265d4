"""The stores and trees of the benches: open stores in a temporary folder, and trees of Zipf-distributed text."""

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.position import many_between
from memotree_storage.store import Store

from memotree.canvas import NodeOperations, ViewOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.composition import open_store_and_models, service_limits
from memotree.gateways.tool_operations import with_tools
from memotree.history import HistoryOperations
from memotree.local.server_process import ServerProcess
from memotree.maintenance import MaintenanceOperations
from memotree.models.extractive import brief_of, summary_of
from memotree.request.observed_calls import CallObserver, CallObservers
from memotree.request.pages import PageTokens
from memotree.server.app import Server
from memotree.server.embedded import EmbeddedServers
from memotree.sessions import SessionOperations
from memotree.settings import Settings, load_settings
from memotree.v1 import workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

_VOCABULARY = 50_000
_EXPONENT = 1.07
_SYLLABLES = [a + b for a in "bdklmnr" for b in "aeiou"]


OPTIMISED_FROM: Final = 20_000
"""The engine never optimises an index of fewer points."""


@dataclass(frozen=True, slots=True)
class World:
    """An open store with a workspace, and the operations over it."""

    folder: Path
    settings: Settings
    store: Store
    engine: EmbeddedQdrant | None
    workspace_id: str
    nodes: NodeOperations
    sessions: SessionOperations
    history: HistoryOperations
    views: ViewOperations
    workspaces: WorkspaceOperations


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A fresh world on embedded stores; everything is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="memotree-bench-") as folder:
        settings = load_settings(data_folder=Path(folder) / "data", port=0)
        async with AsyncExitStack() as stack:
            settings.data_folder.mkdir(parents=True)
            embedded = await stack.enter_async_context(EmbeddedServers(settings))
            store, _ = await open_store_and_models(settings, stack, embedded)
            engine, _ = await embedded.qdrant()
            pages, limits = PageTokens(), service_limits(settings)
            workspaces = WorkspaceOperations(store, pages, limits)
            made = await workspaces.create_workspace(workspace_service_pb2.CreateWorkspaceRequest(name="bench"))
            sessions = SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits))
            stack.push_async_callback(sessions.finish)
            yield World(
                folder=settings.data_folder,
                settings=settings,
                store=store,
                engine=engine,
                workspace_id=made.workspace.id,
                nodes=NodeOperations(store, pages, limits),
                sessions=sessions,
                history=HistoryOperations(store, pages, limits),
                views=ViewOperations(store, pages),
                workspaces=workspaces,
            )


@asynccontextmanager
async def served(
    place: World, *, asks_stores: bool = True, observers: Sequence[CallObserver] = ()
) -> AsyncIterator[str]:
    """The address of a gRPC server over a world.

    With ``asks_stores``, a health check asks PostgreSQL and the index whether they answer; without, it is an empty
    call. The observers are told of every call.
    """
    maintenance = MaintenanceOperations(
        place.store,
        PageTokens(),
        service_limits(place.settings),
        max_message_bytes=place.settings.max_message_bytes,
        embedded={"postgres", "qdrant"},
    )
    operations = {
        "WorkspaceService": place.workspaces,
        "SessionService": place.sessions,
        "NodeService": place.nodes,
        "ViewService": place.views,
        "HistoryService": place.history,
        **({"MaintenanceService": maintenance} if asks_stores else {}),
    }
    offered = with_tools(operations, "bench", place.settings.max_message_bytes, CallObservers(observers))
    async with Server(place.settings, offered) as server:
        yield server.address


@asynccontextmanager
async def served_apart(folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[str]:
    """The address of a MemoTree server in a process of its own, with its data in ``folder``.

    Args:
        folder: The parent of the data folder, and the server's working folder.
        settings: Those that are not the defaults, by the name of their environment variable.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MEMOTREE_")} | {**settings}
    server = ServerProcess.start(
        [sys.executable, "-m", "memotree.cli", "serve", "--data", str(folder / "data"), "--port", "0"],
        folder=folder / "data",
        log=folder / "server.log",
        environment=environment,
        working_folder=folder,
    )
    try:
        yield await asyncio.to_thread(server.address)
    finally:
        await asyncio.to_thread(server.stop)


def _word(number: int) -> str:
    """Return a different word for each number, of two syllables or more."""
    syllables = [_SYLLABLES[number % len(_SYLLABLES)]]
    while number := number // len(_SYLLABLES):
        syllables.append(_SYLLABLES[number % len(_SYLLABLES)])
    return "".join(syllables) + "n"


class Text:
    """Zipf-distributed words that look like words; the same seed gives the same text."""

    def __init__(self, seed: int = 7) -> None:
        self._rng = np.random.default_rng(seed)
        ranks = np.arange(1, _VOCABULARY + 1, dtype=np.float64) ** -_EXPONENT
        self._weights = ranks / ranks.sum()
        self.words = [_word(number) for number in range(_VOCABULARY)]

    def page(self, words: int) -> str:
        """Return this many words in sentences."""
        drawn = [self.words[i] for i in self._rng.choice(_VOCABULARY, size=words, p=self._weights)]
        sentences = [" ".join(drawn[i : i + 12]).capitalize() for i in range(0, words, 12)]
        return ". ".join(sentences) + "."

    def queries(self, count: int) -> list[str]:
        """Return queries of one to five words, some of them common."""
        chosen = random.Random(5)
        return [
            " ".join(self.words[int(chosen.paretovariate(0.6)) % _VOCABULARY] for _ in range(chosen.randint(1, 5)))
            for _ in range(count)
        ]


def forest(count: int, text: Text, *, words: int = 250, fan: int = 10) -> Iterator[Entry]:
    """An archive with a tree of ``count`` nodes of about 2 KB each."""
    archive = Archive(new_id(), "bench")
    yield archive
    ids = [new_id() for _ in range(count)]
    places = many_between(None, None, count)
    for number, (node_id, place) in enumerate(zip(ids, places, strict=True)):
        content = text.page(words)
        title = content.split(".", 1)[0][:60]
        parent = ids[(number - 1) // fan] if number else None
        brief, summary = brief_of(title, content), summary_of(title, content)
        yield Node(node_id, archive.id, parent, place, "note", title, brief, summary, content)
