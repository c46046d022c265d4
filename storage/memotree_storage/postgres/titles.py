"""Finds nodes by their title at one state.

The index holds the first characters of each version's title. A candidate is any version of the lineage with that title;
what it is at the state decides. So the cost follows the versions that have the title, not the tree.
"""

from typing import Final

from psycopg.rows import args_row

from memotree_storage.postgres.rows import FIELDS, Version
from memotree_storage.postgres.tree import LINE, Snapshot, version_of

_INDEXED: Final = 100
"""How many characters of a title are indexed, as in ``mirror.sql``."""
_HIGHEST: Final = "\U0010ffff"
_COLUMNS: Final = ", ".join(f"v.{name}" for name in FIELDS)

_TITLED: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s
     where s.session_id = %(session)s and left(s.title, {_INDEXED}) collate "C" between %(low)s and %(high)s
    union
    select v.entry_id from line cross join lateral (
      select one.entry_id from mirror.version one where one.line_id = line.line_id and one.title >= ''
         and left(one.title, {_INDEXED}) collate "C" between %(low)s and %(high)s) v
  )
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where v.dead = %(dead)s and not v.is_archive
     and case when %(prefix)s then starts_with(v.title, %(title)s) else v.title = %(title)s end
   order by v.title collate "C", v.entry_id limit %(limit)s"""  # noqa: S608 - expressions of this package


async def titled(
    snapshot: Snapshot, title: str, *, prefix: bool = False, dead: bool = False, limit: int
) -> list[Version]:
    """Return the alive nodes with a title (or, with ``prefix``, that begin with it), ordered by title and id.

    With ``dead``, return the deleted ones, which keep the title that they had last.
    """
    low = title[:_INDEXED]
    arguments = snapshot.state.arguments(
        low=low, high=low + _HIGHEST if prefix else low, title=title, prefix=prefix, dead=dead, limit=limit
    )
    async with snapshot.conn.cursor(row_factory=args_row(Version)) as cursor:
        await cursor.execute(_TITLED, arguments)
        return await cursor.fetchall()
