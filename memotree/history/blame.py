"""Blame: which commit wrote each line, or each sentence, of a node's content, through merges too."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.concurrency.threads import in_comparison_thread
from memotree_storage.model.line_matching import Match, common_ends, matches
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.sentences import LineSentences
from memotree_storage.postgres import history
from memotree_storage.postgres.history import Revision
from memotree_storage.postgres.merge_bases import history_of
from memotree_storage.postgres.replaced_versions import versions_before
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

MOST_DIVIDED: Final = 4_000_000
"""The most lines that all versions may have together; above that, versions between are passed over."""

MOST_KEPT: Final = 1 << 27
"""About how many bytes of versions are kept for merges to come; above that, what is needed last is forgotten."""

_BYTES_OF_LINE: Final = 64

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

    def __init__(self, steps: Sequence[_Step], *, by_sentences: bool = False) -> None:
        """Creates it for steps that are then added in this order; their texts do not matter yet."""
        self._uses: dict[int, list[int]] = {}
        for place, step in reversed(list(enumerate(steps))):
            for number in step.before:
                self._uses.setdefault(number, []).append(place)
        self._last = steps[-1].number if steps else 0
        self._sentences = LineSentences() if by_sentences else None
        self._kept: dict[int, list[_Line]] = {}
        self._sizes: dict[int, int] = {}
        self.lines: list[_Line] = []
        self.places: list[int] = []
        """The number of the line for each item of ``lines``, counted from 1."""
        self.divided = 0
        self.cost = 0
        self.is_complete = True

    def is_passed_over(self, step: _Step) -> bool:
        """Whether the text of a version is not looked at: all but the last one's, when too much was read."""
        return self.divided > MOST_DIVIDED and step.number != self._last

    def add(self, steps: Iterable[_Step]) -> None:
        """Finds the lines of versions; each comes after all that it replaced. The last one's are in ``lines``."""
        for step in steps:
            before = [self._kept.get(number, []) for number in step.before]
            if step.text is None:
                self.lines, self.places = _deleted(before), []
            elif self.is_passed_over(step):
                self.lines, self.places = before[0] if before else [], []
                self.is_complete = False
            else:
                self._divide(step.text, step.number)
                for lines in before:
                    self._credit(lines, step.number)
            self._keep(step)

    def _divide(self, text: str, number: int) -> None:
        if not text:
            self.lines, self.places = [], []
            return
        lines = _divided(text, self._sentences)
        self.lines = [(part, number) for line in lines for part in line]
        self.places = [place for place, line in enumerate(lines, start=1) for _ in line]
        self.divided += len(self.lines)

    def _credit(self, before: Sequence[_Line], number: int) -> None:
        """Credits what the version has from one that it replaced and has not been credited yet."""
        if not any(one == number for _, one in self.lines):
            return
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
            self._uses[number].pop()
            if not self._uses[number]:
                self._drop(number)
        if self._uses.get(step.number):
            self._kept[step.number] = self.lines
            self._sizes[step.number] = sum(len(line) + _BYTES_OF_LINE for line, _ in self.lines)
        while len(self._kept) > 1 and sum(self._sizes.values()) > MOST_KEPT:
            self._drop(max(self._kept, key=lambda number: self._uses[number][-1]))
            self.is_complete = False

    def _drop(self, number: int) -> None:
        self._kept.pop(number, None)
        self._sizes.pop(number, None)


def _divided(text: str, sentences: LineSentences | None) -> list[list[str]]:
    """The lines of a text, each as its sentences, or as one item without ``sentences``."""
    return sentences.of(text) if sentences else [[line] for line in text.split("\n")]


def _deleted(before: Sequence[Sequence[_Line]]) -> list[_Line]:
    """What may come back after a deletion: the lines of the first parent, and what only the others have."""
    lines = list(before[0]) if before else []
    for others in before[1:]:
        known = set(lines)
        lines += [line for line in others if line not in known]
    return lines


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
            newest = await history.list_revisions(snapshot, node_id, limit=1)
            if newest and newest[0].commit.commit_id not in {row.commit.commit_id for row in rows}:
                rows += newest  # the time of its commit is older than that of many before it
            before = await versions_before(conn, state.workspace_id, rows, reached)
        steps = _steps(rows, before, newest[0].commit.commit_id) if newest and not newest[0].version.dead else []
        blaming = await self._blamed(state.workspace_id, rows, steps, by_sentences=request.by_sentences)
        warnings = _warnings(is_cut=cut, is_complete=blaming.is_complete)
        return await asyncio.to_thread(_answer, blaming, rows, warnings)

    async def _blamed(
        self, workspace_id: str, rows: Sequence[Revision], steps: Sequence[_Step], *, by_sentences: bool
    ) -> _Blaming:
        """The lines of the last step; only a few of the texts are in memory at a time."""
        blaming = _Blaming(steps, by_sentences=by_sentences)
        for start in range(0, len(steps), _READ_AT_ONCE):
            some = steps[start : start + _READ_AT_ONCE]
            wanted = [rows[step.number].version for step in some if not blaming.is_passed_over(step)]
            alive = [version for version in wanted if not version.dead]
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
    entry = entries.get(row.version.blob)
    return replace(step, text=entry.content if isinstance(entry, Node) else "")


def _steps(rows: Sequence[Revision], before: Mapping[str, Sequence[str]], newest: str) -> list[_Step]:
    """The versions that the newest one comes from, each after those that it replaced, still without texts.

    The time of a commit that somebody made with git may be any, so the order comes from what replaced what. A branch
    comes right before its merge, so few versions wait for one.
    """
    number_of = {row.commit.commit_id: number for number, row in enumerate(rows)}
    done: set[int] = set()
    steps: list[_Step] = []
    waiting = [(number_of[newest], False)]
    while waiting:
        number, is_reached = waiting.pop()
        if number in done:
            continue
        names = dict.fromkeys(before[rows[number].commit.commit_id])
        replaced = [number_of[name] for name in names if name in number_of]
        if is_reached:
            done.add(number)
            steps.append(_Step(number, replaced, None))
        else:
            waiting += [(number, True), *((one, False) for one in reversed(replaced))]
    return steps


def _answer(blaming: _Blaming, rows: Sequence[Revision], warnings: list[str]) -> pb.BlameNodeResponse:
    used = sorted({number for _, number in blaming.lines})
    place_of = {number: index for index, number in enumerate(used)}
    return pb.BlameNodeResponse(
        lines=[
            pb.BlameLine(text=text, commit_index=place_of[number], line=line)
            for (text, number), line in zip(blaming.lines, blaming.places, strict=True)
        ],
        commits=[commit_message(rows[number].commit) for number in used],
        agents=[rows[number].commit.agent for number in used],
        warnings=warnings,
    )


def _warnings(*, is_cut: bool, is_complete: bool) -> list[str]:
    warnings = []
    if is_cut:
        warnings.append(
            f"Only the last {MOST_REVISIONS} versions were read; older lines are credited to the first of them."
        )
    if not is_complete:
        warnings.append(
            "The versions were too long or changed too much to match every line; some are credited to a later commit."
        )
    return warnings
