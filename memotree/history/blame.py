"""Blame: which commit wrote each line of a node's content."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.model import trailers
from memotree_storage.model.line_matching import common_ends, matches
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

MOST_COST: Final = 1_000_000
"""The most lines that are compared for one answer, over all versions; that takes a few seconds."""

_READ_AT_ONCE: Final = 20

_COMPARED_TOGETHER: Final = 1 << 18
"""Texts that are read at once and have more characters are compared one by one, in the threads for comparisons."""

_Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Blamed:
    """The lines of a text, each with the number of the version that wrote it.

    Attributes:
        lines: The lines.
        cost: How many lines have been compared.
        is_complete: Whether all lines that changed were compared.
    """

    lines: list[_Line] = field(default_factory=list)
    cost: int = 0
    is_complete: bool = True


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
        blamed = await self._blamed(place.state.workspace_id, rows)
        warnings = _warnings(is_cut=cut, is_complete=blamed.is_complete)
        return await asyncio.to_thread(_answer, blamed.lines, rows, warnings)

    async def _blamed(self, workspace_id: str, rows: Sequence[history.Revision]) -> _Blamed:
        """The lines of the newest text, each with the index of the row that wrote it.

        Only a few of the texts are in memory at a time.
        """
        blamed = _Blamed()
        for start in range(0, len(rows), _READ_AT_ONCE):
            some = rows[start : start + _READ_AT_ONCE]
            entries = await self._store.entries.load(workspace_id, [row.version for row in some])
            texts = [entry.content if isinstance(entry := entries[row.version.blob], Node) else "" for row in some]
            if sum(map(len, texts)) <= _COMPARED_TOGETHER:
                blamed = await asyncio.to_thread(_folded, blamed, texts, start)
                continue
            for number, text in enumerate(texts, start=start):
                blamed = await in_comparison_thread(_folded, blamed, [text], number)
        return blamed


def _answer(found: Sequence[_Line], rows: Sequence[history.Revision], warnings: list[str]) -> pb.BlameNodeResponse:
    used = sorted({number for _, number in found})
    place_of = {number: index for index, number in enumerate(used)}
    return pb.BlameNodeResponse(
        lines=[pb.BlameLine(text=text, commit_index=place_of[number]) for text, number in found],
        commits=[commit_message(rows[number].commit) for number in used],
        agents=[_agent(rows[number].commit) for number in used],
        warnings=warnings,
    )


def _warnings(*, is_cut: bool, is_complete: bool) -> list[str]:
    warnings = []
    if is_cut:
        warnings.append(
            f"Only the last {MOST_REVISIONS} versions were read; older lines are credited to the first of them."
        )
    if not is_complete:
        warnings.append("The texts changed too much to match every line; some lines are credited to a later commit.")
    return warnings


def _agent(row: history.CommitRow) -> str:
    return trailers.trailers_of(row.message).get(trailers.AGENT, row.author_name)


def _folded(blamed: _Blamed, texts: Iterable[str], first: int) -> _Blamed:
    """The lines of the last text, each with the number of the first text that has it; texts count from ``first``."""
    for number, text in enumerate(texts, start=first):
        blamed = _followed(blamed, text.split("\n") if text else [], number)
    return blamed


def _followed(blamed: _Blamed, new: Sequence[str], number: int) -> _Blamed:
    """The lines of the next text; those that the text before has too keep their number."""
    lines = blamed.lines
    head, tail = common_ends([line for line, _ in lines], new)
    middle, fresh = lines[head : len(lines) - tail], new[head : len(new) - tail]
    carried = [(line, number) for line in fresh]
    cost, is_complete = blamed.cost, blamed.is_complete
    if middle and fresh:
        cost += len(middle) + len(fresh)
        found = matches([line for line, _ in middle], fresh) if cost <= MOST_COST else None
        is_complete = is_complete and found is not None
        for match in found or ():
            carried[match.after : match.after + match.count] = middle[match.before : match.before + match.count]
    return _Blamed([*lines[:head], *carried, *lines[len(lines) - tail :]], cost, is_complete)
