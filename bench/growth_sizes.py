"""Measures one workspace of a given size: the times of calls, the memory of each process, the disk of each part.

The server is a process of its own, and is started anew after the import, so that nothing is warm by accident.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from memotree_storage.model.node import SUMMARY_TYPE, Entry, Node

from bench.recall_asking import WORKSPACE
from bench.recall_changes import alternately, update_leaf
from bench.recall_scale import Talk, import_entries
from bench.table import timed
from bench.worlds import served_apart
from memotree.client import AsyncClient, SearchType, changes
from memotree.client.workspace import AsyncWorkspace
from memotree.server.announcement import read_announcement

_MIB: Final = 2**20
_KEPT: Final = 1000
"""About how many nodes are read and changed, spread over all."""

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


async def measure(*, nodes: int, archives: int, rounds: int) -> dict[str, list[float]]:
    """Return the figures of a workspace: milliseconds of each call, MiB of each process and part of the disk.

    Args:
        nodes: How many leaves there are; a tenth as many nodes are above them.
        archives: How many archives they are in; each has at least ten leaves.
        rounds: Calls of each kind.
    """
    talk, sampled = Talk(), Sampled()
    entries = (entry for number in range(archives) for entry in talk.archive(number, nodes // archives))
    with TemporaryDirectory(prefix="memotree-curves-") as name:
        data = Path(name) / "data"
        data.mkdir()
        figures = {"import": [1000 * await import_entries(data, sampled.over(entries, nodes))]}
        async with _served(Path(name)) as workspace:  # what one server leaves for the next is there from now on
            await workspace.recall("What was said?")
        async with _served(Path(name)) as workspace:
            figures |= await _calls(workspace, talk, sampled, rounds)
            figures |= {f"memory of {part}": [size] for part, size in _memory(data).items()}
        return figures | {f"disk of {part}": [size] for part, size in _disk(data).items()}


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[AsyncWorkspace]:
    async with (
        served_apart(folder) as address,
        AsyncClient(address, timeout=600.0, on_warning=lambda _: None) as client,
    ):
        yield client.workspace(WORKSPACE)


async def _calls(workspace: AsyncWorkspace, talk: Talk, sampled: Sampled, rounds: int) -> dict[str, list[float]]:
    questions = iter(talk.questions(10 * rounds + 50))
    leaves, parents = cycle(sampled.leaves), cycle(sampled.parents)

    async def children() -> list[str]:
        return [node.id async for node in workspace.children(next(parents))]

    async def commit() -> object:
        content = f"Ada: at {time.time_ns()} the harbour was closed."
        return await workspace.commit([changes.update(next(leaves), content=content) for _ in range(10)])

    found = {"first Recall after a start": await timed(lambda: workspace.recall(next(questions)), 1, warm=0)}
    found["get"] = await timed(lambda: workspace.node(next(leaves)), _SHORT * rounds)
    found["children"] = await timed(children, _SHORT * rounds)
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
    """MiB of the server and of its PostgreSQL, shared pages divided among those that share them; empty without /proc.

    Args:
        data: The folder of a server that runs.
    """
    announced = read_announcement(data)
    if announced is None or not Path("/proc/self/smaps_rollup").exists():
        return {}
    found: Counter[str] = Counter()
    for process in _descendants(announced.pid):
        try:
            sizes = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
            name = Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
        except OSError:  # it ended meanwhile
            continue
        kib = sum(int(line.split()[1]) for line in sizes.splitlines() if line.startswith("Pss:"))
        found["PostgreSQL" if name == "postgres" else "the server"] += kib
    return {name: kib / 1024 for name, kib in found.items()}


def _descendants(root: int) -> list[int]:
    """The process and all that it started, directly or not."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    found = [root]
    for process in found:  # grows while it is read
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _disk(data: Path) -> dict[str, float]:
    """MiB on disk of each folder in a data folder."""
    found: Counter[str] = Counter()
    for path in data.rglob("*"):
        inside = path.relative_to(data).parts
        if len(inside) > 1 and path.is_file() and not path.is_symlink():
            found[inside[0]] += path.stat().st_blocks * 512
    return {part: size / _MIB for part, size in found.items()}
