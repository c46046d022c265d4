"""Which versions of an entry each of its versions replaced: one for each parent of its commit.

On a line of first parents that is the version before. Only merges and the first version of each line need more: the
line and the seq of their parents, and from which line each line was forked. Both are read once, and the rest is looked
up in the versions themselves, so neither the number of merges nor the depth of the lines multiplies.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import Revision


async def versions_before(
    conn: Connection, workspace_id: str, revisions: Sequence[Revision], lines: Collection[int]
) -> dict[str, list[str]]:
    """Return, by the commit of each version of one entry, the commits of those that it replaced.

    Args:
        conn: Reads the mirror.
        workspace_id: The workspace.
        revisions: The versions, in any order; others are taken for none.
        lines: The lines that their commits reach.

    Returns:
        The commits in the order of the parents. Parents at which the entry never was are left out.
    """
    found: dict[str, list[str]] = {}
    asked: list[Revision] = []
    last: dict[int, str] = {}
    for revision in sorted(revisions, key=lambda each: each.version.from_seq or 0):
        commit, line = revision.commit, revision.version.line_id or 0
        if line in last and len(commit.parents) == 1:
            found[commit.commit_id] = [last[line]]
        else:
            asked.append(revision)
        last[line] = commit.commit_id
    places = await _places(conn, workspace_id, {parent for each in asked for parent in each.commit.parents})
    nearest = _Nearest(revisions, await _forks(conn, lines))
    for revision in asked:
        parents = (places[parent] for parent in revision.commit.parents if parent in places)
        before = (nearest.at(line, seq) for line, seq in parents)
        found[revision.commit.commit_id] = [commit_id for commit_id in before if commit_id is not None]
    return found


class _Nearest:
    """Finds the version of an entry at a place of the history."""

    def __init__(self, revisions: Sequence[Revision], forks: Mapping[int, tuple[int, int]]) -> None:
        self._forks = forks
        self._seqs: defaultdict[int, list[int]] = defaultdict(list)
        self._commits: defaultdict[int, list[str]] = defaultdict(list)
        for revision in sorted(revisions, key=lambda each: each.version.from_seq or 0):
            line = revision.version.line_id or 0
            self._seqs[line].append(revision.version.from_seq or 0)
            self._commits[line].append(revision.commit.commit_id)
        self._at_fork: dict[int, str | None] = {}

    def at(self, line: int, seq: int) -> str | None:
        """The commit of the last version on a line up to a seq, or else where the line was forked."""
        passed: list[int] = []  # lines without a version up to there
        while True:
            number = bisect_right(self._seqs.get(line, ()), seq)
            if number:
                found: str | None = self._commits[line][number - 1]
                break
            if line in self._at_fork:
                found = self._at_fork[line]
                break
            passed.append(line)
            if line not in self._forks:
                found = None
                break
            line, seq = self._forks[line]
        self._at_fork.update(dict.fromkeys(passed, found))
        return found


async def _places(conn: Connection, workspace_id: str, commit_ids: Collection[str]) -> dict[str, tuple[int, int]]:
    cursor = await conn.execute(
        "select commit_id, line_id, seq from mirror.commit where workspace_id = %s and commit_id = any(%s::text[])",
        (workspace_id, list(commit_ids)),
    )
    return {commit_id: (line, seq) for commit_id, line, seq in await cursor.fetchall()}


async def _forks(conn: Connection, lines: Collection[int]) -> dict[int, tuple[int, int]]:
    cursor = await conn.execute(
        "select line_id, parent_line, fork_seq from mirror.line"
        " where line_id = any(%s::bigint[]) and parent_line is not null",
        (list(lines),),
    )
    return {line: (parent, seq) for line, parent, seq in await cursor.fetchall()}
