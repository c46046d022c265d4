"""Measures one workspace of a given size: the times of calls, the memory of each process, the disk of each part.

The server is a process of its own, and is started anew after the import, so that nothing is warm by accident.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from memotree_storage.git.entry_files import entry_files
from memotree_storage.model.node import SUMMARY_TYPE, Entry, Node
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft
from memotree_storage.postgres import registry

from bench.processes import memory_mb
from bench.recall_asking import WORKSPACE
from bench.recall_changes import alternately, update_leaf
from bench.recall_scale import Talk, import_entries
from bench.table import timed
from bench.worlds import OPTIMISED_FROM, served_apart
from memotree.client import AsyncClient, SearchType, changes
from memotree.client.workspace import AsyncWorkspace
from memotree.composition import open_store_and_models
from memotree.forest.recall.recall import CACHE_BYTES
from memotree.server.announcement import read_announcement
from memotree.settings import load_settings

_MIB: Final = 2**20
_KEPT: Final = 1000
"""About how many nodes are read and changed, spread over all."""

_MAIN: Final = "refs/heads/main"
_COMMITS_OF_A_PACK: Final = 1_000

_LONGEST_WAIT: Final = 1_200.0
"""Seconds."""

_CACHED_BYTES: Final = 4_096
"""For each leaf; it needs half of that."""

_SHORT: Final = 10
"""How many times more calls there are of those that take a millisecond."""


@dataclass(slots=True)
class Sampled:
    """Some of the imported nodes, evenly spread.

    Attributes:
        leaves: Ids of nodes with a text.
        parents: Ids of nodes with ten children.
    """

    leaves: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)

    def over(self, entries: Iterator[Entry], count: int) -> Iterator[Entry]:
        """Yield the entries, with about ``count`` leaves among them, and keep the ids of some."""
        leaves = parents = 0
        for entry in entries:
            if isinstance(entry, Node) and entry.type == SUMMARY_TYPE:
                parents += 1
                if parents % max(1, count // 10 // _KEPT) == 0:
                    self.parents.append(entry.id)
            elif isinstance(entry, Node):
                leaves += 1
                if leaves % max(1, count // _KEPT) == 0:
                    self.leaves.append(entry.id)
            yield entry


async def measure(*, nodes: int, archives: int, commits: int, rounds: int) -> dict[str, list[float]]:
    """Return the figures of a workspace: milliseconds of each call, MiB of each process and part of the disk.

    Args:
        nodes: How many leaves there are; a tenth as many nodes are above them.
        archives: How many archives they are in; each has at least ten leaves.
        commits: How many commits follow the import, each of which changes a leaf.
        rounds: Calls of each kind.
    """
    talk, sampled = Talk(), Sampled()
    entries = (entry for number in range(archives) for entry in talk.archive(number, nodes // archives))
    with TemporaryDirectory(prefix="memotree-curves-") as name:
        data = Path(name) / "data"
        data.mkdir()
        figures = {"import": [1000 * await import_entries(data, sampled.over(entries, nodes))]}
        if commits:
            figures |= {"mirror": [1000 * await _write_commits(data, sampled.leaves, commits)]}
        async with _served(Path(name), nodes) as workspace:  # what one server leaves for the next is there from now on
            await workspace.recall("What was said?")
            await _until_optimised(data, nodes + commits)
        async with _served(Path(name), nodes) as workspace:
            figures |= await _calls(workspace, talk, sampled, rounds)
            figures |= {f"memory of {part}": [size] for part, size in _memory(data).items()}
        return figures | {f"disk of {part}": [size] for part, size in _disk(data).items()}


async def _write_commits(data: Path, leaves: Sequence[str], count: int) -> float:
    """Write commits in Git that change a leaf each; return the seconds until the stores have them all."""
    async with AsyncExitStack() as stack:
        store, _ = await open_store_and_models(load_settings(data_folder=data, log_level="warning"), stack)
        async with store.database.connection() as conn:
            workspace_id = (await registry.find_workspace(conn, WORKSPACE)).workspace_id
        repository = store.repositories.get(workspace_id)
        head = old = repository.refs()[_MAIN]
        files = {each: file for each, (file,) in entry_files(repository, head, sorted(leaves)).items()}
        changed = cycle(leaves)
        for start in range(0, count, _COMMITS_OF_A_PACK):
            with repository.open_pack() as pack:
                for number in range(start, min(start + _COMMITS_OF_A_PACK, count)):
                    file = files[next(changed)]
                    text = repository.read_blob(file.blob) + f"\nChanged by commit {number}.\n".encode()
                    who = service_signature()
                    draft = CommitDraft(head, {file.path: text}, f"Change {number}\n", who, who)
                    head = pack.write_commit(draft).commit_id
                pack.finish()
        repository.move_ref(_MAIN, old, head)
        begun = time.perf_counter()
        await store.catch_up(workspace_id)
        await store.indexer.current(workspace_id)
        await store.indexer.flush()
        return time.perf_counter() - begun


async def _until_optimised(data: Path, points: int) -> None:
    """Wait until the engine has optimised an index of at least so many points, which it does once writes pause."""
    waited_until = time.monotonic() + _LONGEST_WAIT
    while points >= OPTIMISED_FROM and not any((data / "qdrant").rglob("shard.json")):
        if time.monotonic() > waited_until:
            log = (data.parent / "server.log").read_text(encoding="utf-8", errors="replace")
            message = f"The engine has not optimised {points:,} points. The end of the server's log:\n{log[-2_000:]}"
            raise RuntimeError(message)
        await asyncio.sleep(1)


@asynccontextmanager
async def _served(folder: Path, leaves: int) -> AsyncIterator[AsyncWorkspace]:
    """A workspace of a server whose recall may cache all leaves before and after a change: by default 512 MiB."""
    cached = {"MEMOTREE_RECALL_CACHE_BYTES": str(max(CACHE_BYTES, _CACHED_BYTES * leaves))}
    async with (
        served_apart(folder, cached) as address,
        AsyncClient(address, timeout=600.0, on_warning=lambda _: None) as client,
    ):
        yield client.workspace(WORKSPACE)


async def _calls(workspace: AsyncWorkspace, talk: Talk, sampled: Sampled, rounds: int) -> dict[str, list[float]]:
    questions = iter(talk.questions(10 * rounds + 50))
    leaves, parents = cycle(sampled.leaves), cycle(sampled.parents)

    async def children() -> list[str]:
        return [node.id async for node in workspace.children(next(parents))]

    async def history() -> object:
        return await anext(workspace.revisions(next(leaves)))

    async def commit() -> object:
        content = f"Ada: at {time.time_ns()} the harbour was closed."
        return await workspace.commit([changes.update(next(leaves), content=content) for _ in range(10)])

    found = {"first Recall after a start": await timed(lambda: workspace.recall(next(questions)), 1, warm=0)}
    found["get"] = await timed(lambda: workspace.node(next(leaves)), _SHORT * rounds)
    found["children"] = await timed(children, _SHORT * rounds)
    found["history of a node"] = await timed(history, rounds)
    found["full text search"] = await timed(lambda: workspace.search(next(questions)), rounds)
    found["hybrid search"] = await timed(
        lambda: workspace.search(next(questions), search_type=SearchType.HYBRID), rounds
    )
    found["commit of 10"] = await timed(commit, rounds)
    found["Recall"], found["Recall after a commit"] = await alternately(
        workspace, questions, rounds, lambda number: update_leaf(workspace, number)
    )
    return {call: [1000 * seconds for seconds in samples] for call, samples in found.items()}


def _memory(data: Path) -> dict[str, float]:
    """MiB of each process of the server that runs on a data folder."""
    announced = read_announcement(data)
    return {} if announced is None else memory_mb(announced.pid)


def _disk(data: Path) -> dict[str, float]:
    """MiB on disk of each folder in a data folder."""
    found: Counter[str] = Counter()
    for path in data.rglob("*"):
        inside = path.relative_to(data).parts
        if len(inside) > 1 and path.is_file() and not path.is_symlink():
            found[inside[0]] += path.stat().st_blocks * 512
    return {part: size / _MIB for part, size in found.items()}
