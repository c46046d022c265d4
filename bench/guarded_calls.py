"""Measures what authentication, the audit log and metrics cost together, on two servers in processes of their own."""

import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.observed_calls import MOST
from bench.table import Row, paired
from bench.worlds import served_apart
from memotree.client import AsyncClient

Call = Callable[[], Awaitable[object]]

_GUARDED: Final = {
    "MEMOTREE_AUTHENTICATION": "keys",
    "MEMOTREE_AUDIT_LOG": "true",
    "MEMOTREE_METRICS_PORT": "0",
}
_BARE: Final = {"MEMOTREE_AUDIT_LOG": "false"}
_NODES: Final = 50


async def run(rounds: int) -> list[Row]:
    """Measure a read and a staged write with all three, beside the same calls without any."""
    with tempfile.TemporaryDirectory(prefix="memotree-bench-") as folder:
        guarded, bare = Path(folder, "guarded"), Path(folder, "bare")
        for each in (guarded, bare):
            each.mkdir()
        async with (
            _calls(guarded, _GUARDED) as (get, create),
            _calls(bare, _BARE) as (get_bare, create_bare),
        ):
            read, read_bare = await paired(get, get_bare, 8 * rounds)
            write, write_bare = await paired(create, create_bare, 4 * rounds)
    name = "with keys, audit log and metrics"
    return [
        Row.of_times(f"GetNode, {name}", read, "GetNode, without", read_bare, most=MOST),
        Row.of_times(f"CreateNode, {name}", write, "CreateNode, without", write_bare, most=MOST),
    ]


@asynccontextmanager
async def _calls(folder: Path, settings: Mapping[str, str]) -> AsyncIterator[tuple[Call, Call]]:
    """A read and a staged write on a server with these settings."""
    async with served_apart(folder, settings) as address, AsyncClient(address, key=_key(folder)) as client:
        await client.create_workspace("bench")
        workspace = client.workspace("bench")
        async with workspace.session() as session:
            archive = await session.create_archive("notes")
            made = [await session.create(f"Note {each}", "Some words.", archive=archive) for each in range(_NODES)]
            await session.commit("Begin")
        turn = itertools.cycle(node.id for node in made)
        async with workspace.session() as session:

            async def get() -> object:
                return await workspace.node(next(turn))

            async def create() -> object:
                return await session.create("New", "Some words.", archive=archive)

            yield get, create
            await session.discard()


def _key(folder: Path) -> str:
    """The key of the administrator; empty for a server that needs none."""
    file = folder / "data" / "admin.key"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
