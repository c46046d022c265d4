"""An engine with an index, which a test kills and watches."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from integration.embedded.programs import DEADLINE, read, state
from memotree_storage.conformance.vector_index import DIMENSIONS
from memotree_storage.embedded.qdrant import EmbeddedQdrant, QdrantEndpoint
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex
from qdrant_client import AsyncQdrantClient


@dataclass
class Running:
    folder: Path
    engine: EmbeddedQdrant
    endpoint: QdrantEndpoint
    client: AsyncQdrantClient
    index: QdrantIndex

    @property
    def pid(self) -> int:
        pid = self.engine.supervisor.pid
        assert pid is not None
        return pid

    async def kill(self) -> None:
        """Kill the engine and return when it runs again."""
        back = asyncio.Event()
        self.engine.supervisor.on_restart(back.set)
        os.kill(self.pid, signal.SIGKILL)
        await asyncio.wait_for(back.wait(), DEADLINE)

    async def restarted(self) -> None:
        """Return when the engine, which was killed, answers again."""
        back = asyncio.Event()
        self.engine.supervisor.on_restart(back.set)
        if not self.engine.supervisor.restarts:
            await asyncio.wait_for(back.wait(), DEADLINE)

    def threads(self) -> list[int]:
        """The threads of the engine without its main thread."""
        return sorted(
            number for task in Path(f"/proc/{self.pid}/task").iterdir() if (number := int(task.name)) != self.pid
        )

    def shards(self) -> list[str]:
        """The folders of the collection."""
        place = self.folder / "data" / "collections" / self.index.collection
        return sorted(path.name for path in place.iterdir() if path.is_dir())

    def stopped_optimiser(self) -> int | None:
        """The process that optimises a copy, when it has stopped."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            for child in map(int, read(task / "children").split()):
                if "optimise_copy" in read(f"/proc/{child}/cmdline") and state(child) == "T":
                    return child
        return None


@asynccontextmanager
async def run_engine(folder: Path, kind: type[QdrantIndex] = QdrantIndex) -> AsyncIterator[Running]:
    engine = EmbeddedQdrant(folder)
    async with AsyncExitStack() as cleanup:
        endpoint = await engine.start()
        cleanup.push_async_callback(engine.stop)
        client = connect(endpoint.url, endpoint.api_key, timeout=30)
        cleanup.push_async_callback(client.close)
        index = kind(client, model="test", dimensions=DIMENSIONS, flush=engine.flush)
        await index.prepare()
        yield Running(folder, engine, endpoint, client, index)
