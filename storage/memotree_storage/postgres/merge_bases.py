"""What a commit has behind it, and merge bases: the newest commits that two histories have in common.

Both go through all parents; merge bases are those of ``git merge-base --all``.

Git walks over commits. Here a history is a few ranges instead: on each line that it reaches, all commits up to a seq.
So the work grows with the lines and with the merge commits, and not with the commits between them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.postgres.database import Connection

_LINEAGES: Final = """
  select given.commit_id, line.line_id, line.seq from unnest(%(commits)s::text[]) given (commit_id)
   cross join lateral mirror.lineage(%(workspace)s, given.commit_id) line"""

_MERGED: Final = """
  select further.commit_id from unnest(%(lines)s::bigint[], %(lows)s::bigint[], %(highs)s::bigint[])
                                  part (line_id, low, high)
   cross join lateral (
     select c.parents from mirror.commit c
      where c.line_id = part.line_id and c.seq > part.low and c.seq <= part.high and cardinality(c.parents) > 1
      offset 0) merge
   cross join lateral unnest(merge.parents[2:]) further (commit_id)
   group by further.commit_id"""

_COMMITS: Final = """
  select c.line_id, c.commit_id, c.committed_at from unnest(%(lines)s::bigint[], %(seqs)s::bigint[]) at (line_id, seq)
    join mirror.commit c on c.line_id = at.line_id and c.seq = at.seq"""

History = Mapping[int, int]
"""For each line that a commit reaches, the last seq there that it reaches."""


async def merge_bases(conn: Connection, workspace_id: str, one: str, other: str) -> list[str]:
    """Return the common ancestors of two commits that no other common ancestor reaches; the newest first.

    A commit is its own ancestor: if one of the two reaches the other, that is the only one. Unrelated histories have
    none, and histories that merged each other crosswise have several.
    """
    ours, theirs = await history_of(conn, workspace_id, one), await history_of(conn, workspace_id, other)
    common = {line: min(seq, theirs[line]) for line, seq in ours.items() if line in theirs}
    cursor = await conn.execute(_COMMITS, {"lines": list(common), "seqs": list(common.values())})
    newest = {row[0]: (row[2], str(row[1])) for row in await cursor.fetchall()}
    # A commit is removed if the history of another one has it. Those removed need no history of their own, since what
    # they reach is reached by the one that removed them; so of a long lineage of lines only the nearest one is read.
    left = sorted(newest, key=newest.__getitem__, reverse=True)
    found: list[int] = []
    while left:
        line = left.pop(0)
        reached = await history_of(conn, workspace_id, newest[line][1])
        left, found = ([one for one in some if reached.get(one, 0) < common[one]] for some in (left, found))
        found.append(line)
    return [newest[line][1] for line in sorted(found, key=newest.__getitem__, reverse=True)]


async def is_ancestor(conn: Connection, workspace_id: str, commit_id: str, of: str) -> bool:
    """Whether one commit is the other or is behind it, through merges too."""
    cursor = await conn.execute(
        "select line_id, seq from mirror.commit where workspace_id = %s and commit_id = %s", (workspace_id, commit_id)
    )
    row = await cursor.fetchone()
    return row is not None and (await history_of(conn, workspace_id, of)).get(row[0], 0) >= row[1]


async def history_of(conn: Connection, workspace_id: str, commit_id: str) -> History:
    """What a commit reaches through all parents; each merge commit in it is looked at once."""
    reached: dict[int, int] = {}
    commits: Sequence[str] = [commit_id]
    while commits:
        cursor = await conn.execute(_LINEAGES, {"workspace": workspace_id, "commits": list(commits)})
        grown: dict[int, tuple[int, int]] = {}
        for _, line, seq in await cursor.fetchall():
            low, high = grown.get(line, (reached.get(line, 0), 0))
            if seq > max(low, high):
                grown[line] = low, seq
        reached.update({line: high for line, (_, high) in grown.items()})
        lows, highs = ([bounds[at] for bounds in grown.values()] for at in (0, 1))
        cursor = await conn.execute(_MERGED, {"lines": list(grown), "lows": lows, "highs": highs})
        commits = [row[0] for row in await cursor.fetchall()]
    return reached
