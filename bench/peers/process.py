"""The parent's side of a peer: starts its server and its program, and sends calls to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from memotree_storage.embedded.postgres import EmbeddedPostgres

from bench.peers.environments import Kind, python_of
from bench.peers.program import Note, packed
from bench.worlds import served_apart

_ROOT: Final = Path(__file__).parents[2]
_CALL_SECONDS: Final = 900
_END_SECONDS: Final = 10


class PeerError(Exception):
    """A peer did not start, or a call to it failed; the message is its own."""


@dataclass(slots=True)
class Running:
    """A peer that runs.

    Attributes:
        name: What people call it.
        process: Its program.
        versions: The versions of what matters.
        durability: What is on disk when a write returns.
        lacks: Calls that it does not have, each with the reason; a call that fails is added.
    """

    name: str
    process: asyncio.subprocess.Process
    versions: Mapping[str, str] = field(default_factory=dict)
    durability: str = ""
    lacks: dict[str, str] = field(default_factory=dict)

    async def open(self, folder: Path, address: str) -> Self:
        """Open its store in an empty folder."""
        told = await self._ask({"folder": str(folder), "address": address})
        self.versions, self.durability, self.lacks = told["versions"], told["durability"], dict(told["lacks"])
        return self

    async def call(self, name: str, **arguments: object) -> tuple[float, Any]:
        """Make a call; returns its milliseconds and what it found."""
        answer = await self._ask({"call": name, **arguments})
        return float(answer["ms"]), answer["value"]

    async def write(self, name: str, notes: Sequence[Note]) -> float:
        """Write notes with the call ``load`` or ``update``; returns its milliseconds."""
        rows = [(note.key, note.text, packed(note.vector)) for note in notes]
        return (await self.call(name, notes=rows))[0]

    async def stop(self) -> None:
        """End its program."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        pipe, answers = self.process.stdin, self.process.stdout
        assert pipe is not None
        assert answers is not None
        with suppress(ConnectionError):  # that it ended is seen when it does not answer
            pipe.write(json.dumps(request).encode() + b"\n")
            await pipe.drain()
        try:
            line = await asyncio.wait_for(answers.readline(), _CALL_SECONDS)
        except TimeoutError as error:
            self.process.kill()
            raise PeerError(f"no answer within {_CALL_SECONDS} s") from error
        if not line:
            raise PeerError("its program ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(str(answer["error"]).strip().split("\n", 1)[0])
        return answer


@asynccontextmanager
async def running(kind: Kind, log: Path) -> AsyncIterator[Running]:
    """A peer with an empty store; everything that it wrote is deleted afterwards.

    Args:
        kind: The peer.
        log: The file that gets what it says on standard error.

    Raises:
        NotInstalledError: Its packages cannot be installed.
        PeerError: It does not start.
    """
    python = await python_of(kind)
    with TemporaryDirectory(prefix="memotree-peer-") as name:
        folder = Path(name)
        async with _server(kind, folder) as address:
            work = folder / "work"
            work.mkdir()
            with log.open("wb") as said:
                process = await asyncio.create_subprocess_exec(
                    str(python),
                    "-m",
                    f"bench.peers.{kind.program}",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=said,
                    cwd=_ROOT,
                )
            peer = Running(kind.name, process)
            try:
                yield await peer.open(work, address)
            finally:
                await peer.stop()


@asynccontextmanager
async def _server(kind: Kind, folder: Path) -> AsyncIterator[str]:
    """The address of the server that a peer needs, or an empty text."""
    if kind.server == "postgres":
        postgres = EmbeddedPostgres(folder / "postgres")
        address = await postgres.start()
        try:
            yield address
        finally:
            await postgres.stop()
    elif kind.server == "memotree":
        async with served_apart(folder) as address:
            yield address
    else:
        yield ""
