"""Blame: which commit wrote each line, or each sentence, of a node's content, through merges too."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Final

from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.model import trailers
from memotree_storage.model.line_matching import Match, common_ends, matches
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.sentences import LineSentences
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.history import CommitRow, Revision
from memotree_storage.postgres.merge_bases import history_of
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history import entry_ids
from memotree.history.log import commit_message
from memotree.request import lookup
from memotree.v1 import history_service_pb2 as pb

MOST_REVISIONS: Final = 2000
"""The most versions that are read; the oldest of them is credited with all lines that are older."""

MOST_COST: Final = 1_000_000
"""The most lines that are compared for one answer, over all versions; that takes a few seconds."""

MOST_KEPT: Final = 1_000_000
"""The most lines of versions that are kept for merges to come; above that, those of the first ones are forgotten."""

_READ_AT_ONCE: Final = 20

_COMPARED_TOGETHER: Final = 1 << 18
"""Texts that are read at once and have more characters are compared one by one, in the threads for comparisons."""

_Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Step:
    """A version whose lines are to be found.

    Attributes:
        number: The number of the version.
        before: The numbers of the versions that it replaced; those of the first parent first.
        text: Its content; ``None`` if it is a deletion.
    """

    number: int
    before: Sequence[int]
    text: str | None


class _Blaming:
    """The lines of versions, each with the number of the version that wrote it.

    A line is credited to the first version before that has it, as Git does: a merge is credited with what none of its
    parents has. Lines of a version are kept until all that replaced it are known.
    """

    def __init__(self, followers: Mapping[int, int], *, by_sentences: bool = False) -> None:
        """Creates it; ``followers`` says of each version how many others replaced it."""
        self._followers = dict(followers)
        self._sentences = LineSentences() if by_sentences else None
        self._kept: dict[int, list[_Line]] = {}
        self.lines: list[_Line] = []
        self.places: list[int] = []
        """The number of the line for each item of ``lines``, counted from 1."""
        self.cost = 0
        self.is_complete = True

    def add(self, steps: Iterable[_Step]) -> None:
        """Finds the lines of versions; each comes after all that it replaced. The last one's are in ``lines``."""
        for step in steps:
            before = [self._kept.get(number, []) for number in step.before]
            if step.text is None:
                self.lines = before[0] if before else []
            else:
                self._divide(step.text, step.number)
                for lines in before:
                    self._credit(lines, step.number)
            self._keep(step)

    def _divide(self, text: str, number: int) -> None:
        if not text:
            self.lines, self.places = [], []
            return
        lines = self._sentences.of(text) if self._sentences else [[line] for line in text.split("\n")]
        self.lines = [(part, number) for line in lines for part in line]
        self.places = [place for place, line in enumerate(lines, start=1) for _ in line]

    def _credit(self, before: Sequence[_Line], number: int) -> None:
        """Credits what the version has from one that it replaced and has not been credited yet."""
        old, new = [line for line, _ in before], [line for line, _ in self.lines]
        head, tail = common_ends(old, new)
        self._take(Match(0, 0, head), before, number)
        self._take(Match(len(old) - tail, len(new) - tail, tail), before, number)
        old, new = old[head : len(old) - tail], new[head : len(new) - tail]
        if not old or not new:
            return
        self.cost += len(old) + len(new)
        found = matches(old, new) if self.cost <= MOST_COST else None
        self.is_complete = self.is_complete and found is not None
        for match in found or ():
            self._take(Match(head + match.before, head + match.after, match.count), before, number)

    def _take(self, match: Match, before: Sequence[_Line], number: int) -> None:
        taken = slice(match.after, match.after + match.count)
        had = before[match.before : match.before + match.count]
        self.lines[taken] = [new if new[1] != number else old for new, old in zip(self.lines[taken], had, strict=True)]

    def _keep(self, step: _Step) -> None:
        for number in step.before:
            self._followers[number] -= 1
            if not self._followers[number]:
                self._kept.pop(number, None)
        if self._followers.get(step.number):
            self._kept[step.number] = self.lines
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
            self.is_complete = False


class Blame:
    """Follows lines through the versions of a node, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def lines(self, request: pb.BlameNodeRequest) -> pb.BlameNodeResponse:
        """The lines or sentences of the content, each with the commit that wrote it."""
        async with self._store.database.repeatable_read() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            node_id = (await entry_ids.alive(Snapshot(conn, place.state), request.node_id)).entry_id
            state = State(place.state.workspace_id, place.state.commit_id)
            snapshot = Snapshot(conn, state)
            reached = await history_of(conn, state.workspace_id, state.commit_id)
            rows = await history.reached_revisions(snapshot, reached, node_id, after=None, limit=MOST_REVISIONS + 1)
            cut = len(rows) > MOST_REVISIONS
            rows = rows[:MOST_REVISIONS]
            before = await history.versions_before(conn, state.workspace_id, node_id, rows)
            newest = (await tree.versions(snapshot, [node_id], dead=True)).get(node_id)
        steps = _steps(rows, before, newest.commit_id or "") if newest is not None else []
        blaming = await self._blamed(state.workspace_id, rows, steps, by_sentences=request.by_sentences)
        warnings = _warnings(is_cut=cut, is_complete=blaming.is_complete)
        return await asyncio.to_thread(_answer, blaming, rows, warnings)

    async def _blamed(
        self, workspace_id: str, rows: Sequence[Revision], steps: Sequence[_Step], *, by_sentences: bool
    ) -> _Blaming:
        """The lines of the last step; only a few of the texts are in memory at a time."""
        followers = Counter(number for step in steps for number in step.before)
        blaming = _Blaming(followers, by_sentences=by_sentences)
        for start in range(0, len(steps), _READ_AT_ONCE):
            some = steps[start : start + _READ_AT_ONCE]
            alive = [rows[step.number].version for step in some if not rows[step.number].version.dead]
            entries = await self._store.entries.load(workspace_id, alive)
            read = [_read(step, rows[step.number], entries) for step in some]
            if sum(len(step.text or "") for step in read) <= _COMPARED_TOGETHER:
                await asyncio.to_thread(blaming.add, read)
                continue
            for step in read:
                await in_comparison_thread(blaming.add, [step])
        return blaming


def _read(step: _Step, row: Revision, entries: Mapping[str, Entry]) -> _Step:
    if row.version.dead:
        return step
    entry = entries[row.version.blob]
    return replace(step, text=entry.content if isinstance(entry, Node) else "")


def _steps(rows: Sequence[Revision], before: Mapping[str, Sequence[str]], newest: str) -> list[_Step]:
    """The versions that the newest one comes from, each after those that it replaced, still without texts.

    The time of a commit that somebody made with git may be any, so the order comes from what replaced what.
    """
    number_of = {row.commit.commit_id: number for number, row in enumerate(rows)}
    replaced: dict[int, list[int]] = {}
    waiting = [number_of[newest]] if newest in number_of else []
    while waiting:
        number = waiting.pop()
        if number not in replaced:
            names = dict.fromkeys(before[rows[number].commit.commit_id])
            replaced[number] = [number_of[name] for name in names if name in number_of]
            waiting += replaced[number]
    return [_Step(number, replaced[number], None) for number in TopologicalSorter(replaced).static_order()]


def _answer(blaming: _Blaming, rows: Sequence[Revision], warnings: list[str]) -> pb.BlameNodeResponse:
    used = sorted({number for _, number in blaming.lines})
    place_of = {number: index for index, number in enumerate(used)}
    return pb.BlameNodeResponse(
        lines=[
            pb.BlameLine(text=text, commit_index=place_of[number], line=line)
            for (text, number), line in zip(blaming.lines, blaming.places, strict=True)
        ],
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


def _agent(row: CommitRow) -> str:
    return trailers.trailers_of(row.message).get(trailers.AGENT, row.author_name)
