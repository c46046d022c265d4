"""Bisecting an answer: every commit at which another note answers a question best, or the same one says another thing.

All versions of notes that a commit has behind it are searched once, by words and by meaning. The answer at any of its
commits is the best of them that is alive there, so it can only change at a commit that wrote one of these notes: only
those are looked at, with their parents, in the rows of the mirror. No old state is built, changes on merged branches
and changes there and back again are found, and the answer is judged by one measure everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memotree_storage.commit.message import notes_of
from memotree_storage.errors import InvalidInputError
from memotree_storage.index.search import PastHits
from memotree_storage.model.node import Entry, Node
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import Revision
from memotree_storage.postgres.merge_bases import history_of
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history.bisecting import source_message
from memotree.history.log import commit_message
from memotree.request import lookup
from memotree.request.messages import SUMMARY, node_message
from memotree.request.questions import check_question
from memotree.v1 import history_service_pb2 as pb

_FLOOR: Final = 0.5
"""A version answers if it has at least this share of the best version's score; else nothing did."""

_MOST_VERSIONS: Final = 1000
"""The versions of one candidate that are read, the newest first."""

_MOST_COMMITS: Final = 300
"""The commits that one call looks at, the newest first."""

_MOST_TRIES: Final = 4
"""How often a search begins again since the lines of the mirror were rebuilt meanwhile."""

_DEFAULT_CHANGES: Final = 20
_MOST_CHANGES: Final = 100


@dataclass(frozen=True, slots=True)
class _Answer:
    """The best candidate that is alive at a commit, and what it says."""

    version: Version
    says: tuple[str, str, str]


@dataclass(slots=True)
class _States:
    """The answers at commits, each found once."""

    conn: Connection
    store: Store
    workspace_id: str
    scores: Mapping[tuple[str, str], float]
    known: dict[str, _Answer | None] = field(default_factory=dict)

    async def at(self, commit_id: str) -> _Answer | None:
        if commit_id not in self.known:
            snapshot = Snapshot(self.conn, State(self.workspace_id, commit_id))
            alive = await tree.versions(snapshot, {node_id for node_id, _ in self.scores})
            scored = [(self.scores.get((one.entry_id, one.blob), 0.0), one) for one in alive.values()]
            best = max(scored, key=lambda each: (each[0], each[1].entry_id), default=(0.0, None))
            self.known[commit_id] = await self._answer(best[1]) if best[1] is not None and best[0] > 0 else None
        return self.known[commit_id]

    async def _answer(self, version: Version) -> _Answer:
        entry = (await self.store.entries.load(self.workspace_id, [version]))[version.blob]
        content = entry.content if isinstance(entry, Node) else ""
        return _Answer(version, (version.entry_id, version.title, content))


class AnswerBisecting:
    """Finds the commits that changed the answer to a question."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def changes(self, request: pb.BisectAnswerRequest) -> pb.BisectAnswerResponse:
        """The changes, newest first."""
        check_question("query", request.query)
        if request.max_changes < 0:
            raise InvalidInputError.at("max_changes", "is 0 or more.")
        most = min(request.max_changes or _DEFAULT_CHANGES, _MOST_CHANGES)
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            state = State(place.workspace.workspace_id, place.state.commit_id)
            reached = await history_of(conn, state.workspace_id, state.commit_id)
        for _ in range(_MOST_TRIES):
            hits = await self._store.search.find_in_history(state, reached, request.query)
            async with self._store.database.repeatable_read() as conn:
                now = await history_of(conn, state.workspace_id, state.commit_id)
                if now == reached:
                    break
                reached = now
        async with self._store.database.repeatable_read() as conn:
            return await self._found(conn, state, reached, hits, most)

    async def _found(
        self, conn: Connection, state: State, reached: Mapping[int, int], hits: PastHits, most: int
    ) -> pb.BisectAnswerResponse:
        floor = _FLOOR * max(hits.scores.values(), default=0.0)
        scores = {key: score for key, score in hits.scores.items() if score >= floor}
        complete = hits.complete
        rows: list[Revision] = []
        for node_id in sorted({node_id for node_id, _, _ in scores}):
            limit = _MOST_VERSIONS + 1
            some = await history.reached_revisions(Snapshot(conn, state), reached, node_id, after=None, limit=limit)
            complete = complete and len(some) <= _MOST_VERSIONS
            rows += some
        by_blob = {
            (row.version.entry_id, row.version.blob): scores[key]
            for row in rows
            if (key := (row.version.entry_id, row.version.line_id or 0, row.version.from_seq or 0)) in scores
        }
        states = _States(conn, self._store, state.workspace_id, by_blob)
        found: list[pb.AnswerChange] = []
        commits = _newest_first(rows)
        for row in commits[:_MOST_COMMITS]:
            change = await _change(row, states)
            found += [] if change is None else [change]
            if len(found) > most:
                break
        now = await states.at(state.commit_id)
        return pb.BisectAnswerResponse(
            answer=None if now is None else node_message(now.version, SUMMARY),
            changes=found[:most],
            complete=complete and len(commits) <= _MOST_COMMITS and len(found) <= most,
        )


def _newest_first(rows: Sequence[Revision]) -> list[Revision]:
    """One version of each commit, newest first."""
    by_commit = {row.commit.commit_id: row for row in rows}
    key = lambda row: (row.commit.committed_at, row.version.line_id or 0, row.version.from_seq or 0)  # noqa: E731
    return sorted(by_commit.values(), key=key, reverse=True)


async def _change(row: Revision, states: _States) -> pb.AnswerChange | None:
    """What the commit of a version changed in the answer; ``None`` for nothing."""
    commit = row.commit
    after = await states.at(commit.commit_id)
    before = [await states.at(parent) for parent in commit.parents]
    first = before[0] if before else None
    if _says(after) == _says(first):
        return None
    notes = (notes_of(commit.message, each.version.entry_id) for each in (after, first) if each is not None)
    entry: Entry | None = None
    if after is not None:
        entry = (await states.store.entries.load(states.workspace_id, [after.version]))[after.version.blob]
    return pb.AnswerChange(
        commit=commit_message(commit),
        agent=commit.agent,
        before=None if first is None else node_message(first.version, SUMMARY),
        after=None if after is None else node_message(after.version, SUMMARY),
        source=source_message(entry),
        reason=next(filter(None, notes), ""),
        merged=any(_says(after) == _says(other) for other in before[1:]),
    )


def _says(answer: _Answer | None) -> tuple[str, str, str] | None:
    return None if answer is None else answer.says
