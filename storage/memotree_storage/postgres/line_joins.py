"""Joins the lines of a branch that went on along the commits of another one, so that its lineage stays short.

A branch that is made, gets commits, and is then merged into the default branch by a fast-forward has a line of its own:
at its first commit nobody can know which of the two will go on. After the fast-forward the default branch would have a
lineage that is longer by one line, for ever, and a read of it costs a look-up for each line. So the rows of the nearer
line become rows of the line that it forked from, if it forked at that line's tip. Every commit keeps its state; only
its line and number change. A row is moved at most once for each fast-forward that it was part of.
"""

from typing import Final, NamedTuple

from memotree_storage.postgres import outbox, registry
from memotree_storage.postgres.database import Connection, fetched


class _Join(NamedTuple):
    """A line, and the one that it goes on from at its tip."""

    near: int
    far: int
    far_tip: int
    branch: str


_NEXT: Final = """
  select near.line_id, far.line_id, far.tip_seq,
         case when lineage.depth = 0 and lineage.seq = near.tip_seq then %(branch)s else near.branch end
    from mirror.lineage(%(workspace)s, %(head)s) lineage
    join mirror.line near on near.line_id = lineage.line_id
    join mirror.line far on far.line_id = near.parent_line and far.tip_seq = near.fork_seq
   order by lineage.depth desc limit 1"""

# What is open on the farther line ends before the nearer line's open rows become its own.
_END: Final = """
  update mirror.version v set to_seq = %(tip)s + begun.from_seq
    from (select entry_id, min(from_seq) as from_seq from mirror.version where line_id = %(near)s
           group by entry_id) begun
   where v.line_id = %(far)s and v.entry_id = begun.entry_id and v.to_seq is null
  returning v.version_id"""

_END_PLACEMENTS: Final = """
  update mirror.placement p set to_seq = %(tip)s + begun.from_seq
    from (select entry_id, min(from_seq) as from_seq from mirror.placement where line_id = %(near)s
           group by entry_id) begun
   where p.line_id = %(far)s and p.entry_id = begun.entry_id and p.to_seq is null"""

_MOVE_COMMITS: Final = "update mirror.commit set line_id = %(far)s, seq = seq + %(tip)s where line_id = %(near)s"
_MOVE: Final = """
  update mirror.version set line_id = %(far)s, from_seq = from_seq + %(tip)s, to_seq = to_seq + %(tip)s
   where line_id = %(near)s returning version_id"""

_MOVE_PLACEMENTS: Final = """
  update mirror.placement set line_id = %(far)s, from_seq = from_seq + %(tip)s, to_seq = to_seq + %(tip)s
   where line_id = %(near)s"""

# What the nearer line hid on the farther one has ended there; what it hid on others is hidden by the farther line now.
_SHOW: Final = """
  delete from mirror.overridden o using mirror.version v
   where o.by_line = %(near)s and v.version_id = o.version_id and v.line_id = %(far)s"""

_HIDE: Final = """
  update mirror.overridden set by_line = %(far)s, from_seq = from_seq + %(tip)s where by_line = %(near)s
  returning version_id"""

_MOVE_FORKS: Final = (
    "update mirror.line set parent_line = %(far)s, fork_seq = fork_seq + %(tip)s where parent_line = %(near)s"
)
_EXTEND: Final = """
  update mirror.line l set tip_seq = %(tip)s + near.tip_seq, branch = %(branch)s
    from mirror.line near where l.line_id = %(far)s and near.line_id = %(near)s"""

_DELETE: Final = "delete from mirror.line where line_id = %(near)s"

_STEPS: Final = (
    *(_END, _END_PLACEMENTS, _MOVE_COMMITS, _MOVE, _MOVE_PLACEMENTS),
    *(_SHOW, _HIDE, _MOVE_FORKS, _EXTEND, _DELETE),
)
_OF_VERSIONS: Final = frozenset({_END, _MOVE, _HIDE})
"""The steps that return versions whose points change."""


async def join_lines(conn: Connection, workspace_id: str, branch: str, head: str) -> int:
    """Join the lines of a commit's lineage where one goes on from another one's tip; return how many were joined.

    Args:
        conn: In a transaction that holds the workspace's row.
        workspace_id: The workspace.
        branch: The branch whose line it is to be.
        head: Its commit.
    """
    arguments: dict[str, object] = {"workspace": workspace_id, "branch": branch, "head": head}
    joined = 0
    while row := await (await conn.execute(_NEXT, arguments)).fetchone():
        found = _Join(*row)
        if not joined:
            # The indexer would write points of the old line meanwhile, and mark them as written.
            await registry.lock_workspace(conn, workspace_id, alone=True)
        values = {**found._asdict(), "tip": found.far_tip}
        changed: set[int] = set()
        for step in _STEPS:
            cursor = await conn.execute(step, values)
            if step in _OF_VERSIONS:
                changed.update(row[0] for row in await fetched(cursor))
        await outbox.put_again(conn, workspace_id, changed)
        joined += 1
    return joined
