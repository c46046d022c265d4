"""Measures what a change costs the next Recall: after a commit, in a session, and after a start of the server."""

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

from memotree_storage.model.node import Entry, new_id

from bench.recall_asking import WORKSPACE, private_server
from bench.recall_scale import Talk, import_entries
from bench.table import Row
from memotree.client import Node
from memotree.client.workspace import AsyncWorkspace

Shape: TypeAlias = Literal["conversation", "notes", "archives"]
"""One archive that is a conversation, one archive of notes, or archives of a hundred leaves each."""

_LEAVES_OF_AN_ARCHIVE: Final = 100
_PER_COMMIT: Final = 1.5
_START_SECONDS: Final = 1.0
_AT: Final = 100_000


async def run(*, leaves: int, rounds: int) -> list[Row]:
    """Measure all shapes, with this many leaves each and this many changes of each kind."""
    rows: list[Row] = []
    shapes: tuple[Shape, ...] = ("conversation", "notes", "archives")
    for shape in shapes:
        with TemporaryDirectory(prefix="memotree-recall-") as name:
            rows += await _shape(shape, Path(name), leaves, rounds)
    return rows


async def _shape(shape: Shape, folder: Path, leaves: int, rounds: int) -> list[Row]:
    talk = Talk()
    await import_entries(folder, _entries(talk, shape, leaves))
    async with private_server(folder) as client:  # what one server leaves for the next is there from now on
        await client.workspace(WORKSPACE).recall("What was said?")
    async with private_server(folder) as client:
        workspace = client.workspace(WORKSPACE)
        questions = iter(talk.questions(10 * rounds + 10))
        begun = time.perf_counter()
        await workspace.recall(next(questions))
        first = time.perf_counter() - begun
        warm, after = await alternately(workspace, questions, rounds, lambda number: update_leaf(workspace, number))
        warm_2, created = await alternately(workspace, questions, rounds, lambda number: _create(workspace, number))
        warm_3, staged = await _in_session(workspace, questions, rounds)
    what = f"{leaves:,} leaves, {shape}"
    return [
        _row(f"Recall after a commit that changed one, {what}", after, warm, leaves),
        _row(f"Recall after a commit of a new one, {what}", created, warm_2, leaves),
        _row(f"Recall in a session after a change, {what}", staged, warm_3, leaves),
        Row(
            f"first Recall after a start, {what}",
            first,
            "s",
            budget=f"≤ {_START_SECONDS:g} s at 1e5",
            met=first <= _START_SECONDS if leaves >= _AT else None,
        ),
    ]


def _entries(talk: Talk, shape: Shape, leaves: int) -> Iterator[Entry]:
    if shape == "archives":
        for number in range(leaves // _LEAVES_OF_AN_ARCHIVE):
            yield from talk.archive(number)
        return
    yield from talk.archive(0, leaves, are_notes=shape == "notes")


def _row(work: str, changed: list[float], warm: list[float], leaves: int) -> Row:
    return Row.of_times(work, changed, "a warm one", warm, most=_PER_COMMIT, judged=leaves >= _AT, where="at 1e5")


async def alternately(
    workspace: AsyncWorkspace, questions: Iterator[str], rounds: int, change: Callable[[int], Awaitable[object]]
) -> tuple[list[float], list[float]]:
    """Return the seconds of calls of Recall that follow another one, and of those that follow a change."""
    warm, changed = [], []
    for number in range(rounds):
        await change(number)
        changed.append(await _seconds(workspace.recall(next(questions))))
        warm.append(await _seconds(workspace.recall(next(questions))))
    return warm, changed


async def _in_session(
    workspace: AsyncWorkspace, questions: Iterator[str], rounds: int
) -> tuple[list[float], list[float]]:
    warm, changed = [], []
    node = await _some_leaf(workspace, 1)
    async with workspace.session() as session:
        for number in range(rounds):
            await session.update(node.id, content=f"Draft {new_id()} says that the harbour opens at {number} o'clock.")
            changed.append(await _seconds(session.recall(next(questions))))
            warm.append(await _seconds(session.recall(next(questions))))
        await session.discard()
    return warm, changed


async def _seconds(call: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await call
    return time.perf_counter() - begun


async def _some_leaf(workspace: AsyncWorkspace, number: int) -> Node:
    """Return a leaf that the index finds."""
    found = await workspace.search("Ada Boris Chen", node_types=["leaf_chunk"], max_results=50)
    return found[number % len(found)].node


async def update_leaf(workspace: AsyncWorkspace, number: int) -> None:
    """Change the text of a leaf, and commit it."""
    node = await _some_leaf(workspace, number)
    async with workspace.session() as session:
        await session.update(node.id, content=f"Ada: fact {new_id()} is that the harbour opens at {number} o'clock.")
        await session.commit(f"Correct fact {number}")


async def _create(workspace: AsyncWorkspace, number: int) -> None:
    node = await _some_leaf(workspace, number)
    async with workspace.session() as session:
        # Another turn of a conversation has a speaker, too.
        facts = {name: node.attributes[name] for name in ("speaker", "time") if name in node.attributes}
        await session.create(f"Fact {number}", f"New fact {number}.", parent=node.parent_id, attributes=facts)
        await session.commit(f"Add fact {number}")
