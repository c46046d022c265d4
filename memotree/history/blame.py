"""Blame: which commit wrote each line of a node's content."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from memotree_storage.model import trailers
from memotree_storage.model.node import Node
from memotree_storage.postgres import history
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.history import entry_ids
from memotree.history.log import commit_message
from memotree.request import lookup
from memotree.v1 import history_service_pb2 as pb

MOST_REVISIONS: Final = 2000
"""The most versions that are read; the oldest of them is credited with all lines that are older."""

_MOST_LINES: Final = 4000
"""The most lines in the changed middle of a text; a longer middle is not matched line by line."""

MOST_COST: Final = 2_000_000
"""The most pairs of equal lines in one answer, over all versions; matching them takes a few seconds."""

_READ_AT_ONCE: Final = 20

_Line = tuple[str, int]


class Blame:
    """Follows lines through the versions of a node, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def lines(self, request: pb.BlameNodeRequest) -> pb.BlameNodeResponse:
        """The lines of the content, each with the commit that wrote it."""
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            version = await entry_ids.alive(Snapshot(conn, place.state), request.node_id)
            rows = await history.list_revisions(
                Snapshot(conn, place.state), version.entry_id, after=None, limit=MOST_REVISIONS + 1
            )
        cut = len(rows) > MOST_REVISIONS
        rows = [row for row in reversed(rows[:MOST_REVISIONS]) if not row.version.dead]
        found, work = await self._found(place.state.workspace_id, rows)
        warnings = _warnings(cut=cut, cost=work)
        return await asyncio.to_thread(_answer, found, rows, warnings)

    async def _found(self, workspace_id: str, rows: Sequence[history.Revision]) -> tuple[list[_Line], int]:
        """The lines of the newest text, each with the index of the row that wrote it, and the cost of matching them.

        Only a few of the texts are in memory at a time.
        """
        lines: list[_Line] = []
        cost = 0
        for start in range(0, len(rows), _READ_AT_ONCE):
            some = rows[start : start + _READ_AT_ONCE]
            entries = await self._store.entries.load(workspace_id, [row.version for row in some])
            texts = [entry.content if isinstance(entry := entries[row.version.blob], Node) else "" for row in some]
            lines, cost = await asyncio.to_thread(_folded, lines, texts, start, cost)
        return lines, cost


def _answer(found: Sequence[_Line], rows: Sequence[history.Revision], warnings: list[str]) -> pb.BlameNodeResponse:
    used = sorted({number for _, number in found})
    place_of = {number: index for index, number in enumerate(used)}
    return pb.BlameNodeResponse(
        lines=[pb.BlameLine(text=text, commit_index=place_of[number]) for text, number in found],
        commits=[commit_message(rows[number].commit) for number in used],
        agents=[_agent(rows[number].commit) for number in used],
        warnings=warnings,
    )


def _warnings(*, cut: bool, cost: int) -> list[str]:
    warnings = []
    if cut:
        warnings.append(
            f"Only the last {MOST_REVISIONS} versions were read; older lines are credited to the first of them."
        )
    if cost > MOST_COST:
        warnings.append("The texts changed too much to match every line; some lines are credited to a later commit.")
    return warnings


def _agent(row: history.CommitRow) -> str:
    return trailers.trailers_of(row.message).get(trailers.AGENT, row.author_name)


def _folded(lines: list[_Line], texts: Iterable[str], first: int, cost: int) -> tuple[list[_Line], int]:
    """The lines of the last text, each with the number of the first text that has it; texts count from ``first``.

    ``cost`` is the cost so far; it is returned with the cost of these texts added.
    """
    for number, text in enumerate(texts, start=first):
        new = text.split("\n") if text else []
        head, tail = _common(lines, new)
        middle, fresh = lines[head : len(lines) - tail], new[head : len(new) - tail]
        cost += _cost(middle, fresh)
        carried = (
            _matched(middle, fresh, number)
            if cost <= MOST_COST and max(len(middle), len(fresh)) <= _MOST_LINES
            else [(line, number) for line in fresh]
        )
        lines = [*lines[:head], *carried, *lines[len(lines) - tail :]]
    return lines, cost


def _common(old: Sequence[_Line], new: Sequence[str]) -> tuple[int, int]:
    """The number of equal lines at the start of both, and at the end among the others."""
    most = min(len(old), len(new))
    head = 0
    while head < most and old[head][0] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail][0] == new[-1 - tail]:
        tail += 1
    return head, tail


def _cost(middle: Sequence[_Line], fresh: Sequence[str]) -> int:
    """The cost of matching: difflib visits the pairs of equal lines, once for each stretch between matches."""
    if not middle or not fresh:
        return 0
    counts = Counter(fresh)
    return len(middle) + len(fresh) + sum(counts[line] for line, _ in middle)


def _matched(middle: Sequence[_Line], fresh: Sequence[str], number: int) -> Iterator[_Line]:
    """The new lines of the changed part; lines that the old part has too keep their number."""
    matcher = SequenceMatcher(None, [line for line, _ in middle], fresh, autojunk=False)
    for kind, low, high, begin, end in matcher.get_opcodes():
        if kind == "equal":
            yield from middle[low:high]
        else:
            yield from ((line, number) for line in fresh[begin:end])
