"""Who made the commits that one commit has behind it and another one lacks."""

from typing import Final

from memotree_storage.model.trailers import AGENT
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.merge_bases import history_of

_NAMES: Final = """
  select distinct name from unnest(%(lines)s::bigint[], %(lows)s::bigint[], %(highs)s::bigint[])
                                 part (line_id, low, high)
    join mirror.commit c on c.line_id = part.line_id and c.seq > part.low and c.seq <= part.high
   cross join lateral (values (c.author_name), (substring(c.message from %(agent)s))) told (name)
   where name is not null and name <> ''"""


async def contributors(conn: Connection, workspace_id: str, head: str, lacking: str) -> set[str]:
    """Return the authors and agents of the commits that ``head`` reaches and ``lacking`` does not, through all parents.

    A merge that renews nothing counts, too: whoever merges has chosen what to keep.
    """
    ours, theirs = await history_of(conn, workspace_id, head), await history_of(conn, workspace_id, lacking)
    parts = {line: (theirs.get(line, 0), seq) for line, seq in ours.items() if seq > theirs.get(line, 0)}
    cursor = await conn.execute(
        _NAMES,
        {
            "lines": list(parts),
            "lows": [low for low, _ in parts.values()],
            "highs": [high for _, high in parts.values()],
            "agent": rf"\n{AGENT}: ([^\n]+)",
        },
    )
    return {str(row[0]) for row in await cursor.fetchall()}
