"""Blame: which commit wrote each line of a node's content."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from memotree_storage import trailers
from memotree_storage.node import Node
from memotree_storage.postgres import commits
from memotree_storage.store import Store

from memotree import lookup
from memotree.history.log import commit_message
from memotree.v1 import history_service_pb2 as pb

MOST_REVISIONS: Final = 2000
"""Versions that are read back at most; the oldest of them is taken to have written what is older."""

_MOST_LINES: Final = 4000
"""Lines of the changed middle of a text up to which its lines are matched one by one."""

_Line = tuple[str, int]


class Blame:
    """Follows lines through the versions of a node, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def lines(self, request: pb.BlameNodeRequest) -> pb.BlameNodeResponse:
        """Each line of the content with the commit that wrote it."""
        async with self._store.database.connection() as conn:
            place = await lookup.place(conn, request.workspace, request.revision)
            version = await lookup.node(conn, place.state, request.node_id)
            rows = await commits.list_revisions(
                conn, place.state, version.entry_id, after=None, limit=MOST_REVISIONS + 1
            )
        cut = len(rows) > MOST_REVISIONS
        rows = [row for row in reversed(rows[:MOST_REVISIONS]) if not row.version.dead]
        entries = await self._store.entries.load(place.state.workspace_id, [row.version for row in rows])
        texts = [entry.content if isinstance(entry := entries[row.version.blob], Node) else "" for row in rows]
        found = await asyncio.to_thread(_blamed, texts)
        used = sorted({number for _, number in found})
        place_of = {number: index for index, number in enumerate(used)}
        return pb.BlameNodeResponse(
            lines=[pb.BlameLine(text=text, commit_index=place_of[number]) for text, number in found],
            commits=[commit_message(rows[number].commit) for number in used],
            agents=[_agent(rows[number].commit) for number in used],
            warnings=[f"Only the last {MOST_REVISIONS} versions were read; older lines are put on the first of them."]
            if cut
            else [],
        )


def _agent(row: commits.CommitRow) -> str:
    return trailers.trailers_of(row.message).get(trailers.AGENT, row.author_name)


def _blamed(texts: Iterable[str]) -> list[_Line]:
    """The lines of the last text, each with the number of the text that it first stood in."""
    lines: list[_Line] = []
    for number, text in enumerate(texts):
        lines = list(_carried(lines, text.split("\n") if text else [], number))
    return lines


def _carried(old: Sequence[_Line], new: Sequence[str], number: int) -> Iterator[_Line]:
    """The new lines; those that stood in the old text keep their number."""
    head = 0
    while head < min(len(old), len(new)) and old[head][0] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail][0] == new[-1 - tail]:
        tail += 1
    yield from old[:head]
    middle, fresh = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(middle), len(fresh)) > _MOST_LINES:
        yield from ((line, number) for line in fresh)
    else:
        matcher = SequenceMatcher(None, [line for line, _ in middle], fresh, autojunk=False)
        for kind, low, high, begin, end in matcher.get_opcodes():
            if kind == "equal":
                yield from middle[low:high]
            else:
                yield from ((line, number) for line in fresh[begin:end])
    yield from old[len(old) - tail :]
