"""Which nodes are superseded at a state: the targets of the SUPERSEDES relations of alive nodes."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from psycopg.rows import args_row

from memotree_storage.model.attribute_names import VALID_FROM
from memotree_storage.model.validity import SUPERSEDES
from memotree_storage.postgres.tree import LINE, Snapshot, version_of

# Any relation with the type among its texts; a description may be the same word, so the type is compared once more.
_HAS_RELATION: Final = f"""relations @> '[["{SUPERSEDES}"]]'"""

_READ: Final = "v.archive_id, v.entry_id, v.relations, v.attributes, v.dead"
_STATEMENT: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s where s.session_id = %(session)s and s.{_HAS_RELATION} {{targets}}
    union
    select v.entry_id from line cross join lateral (
      select v.entry_id from mirror.version v where v.line_id = line.line_id
         and v.{_HAS_RELATION} and v.from_seq <= line.seq and (v.to_seq is null or v.to_seq > line.seq)
         {{archives}} {{targets}} offset 0) v
  )
  select v.archive_id, v.entry_id, relation ->> 1, v.attributes ->> '{VALID_FROM}', first.committed_at
    from candidate
    cross join lateral {version_of("candidate.entry_id", _READ)} v
    cross join lateral jsonb_array_elements(v.relations) relation
    cross join lateral (
      select min(c.committed_at) as committed_at
        from line cross join lateral (
          select w.line_id, w.from_seq, w.relations from mirror.version w
           where w.line_id = line.line_id and w.entry_id = v.entry_id and w.from_seq <= line.seq offset 0) w
        join mirror.commit c on c.line_id = w.line_id and c.seq = w.from_seq
       where w.relations @> jsonb_build_array(jsonb_build_array('{SUPERSEDES}', relation ->> 1))) first
   where not v.dead and relation ->> 0 = '{SUPERSEDES}'
     {{archives}}
     and (%(targets)s::text[] is null or relation ->> 1 = any(%(targets)s::text[]))"""  # noqa: S608

_IN_ARCHIVES: Final = "and v.archive_id = any(%(archives)s::text[])"
_TO_TARGETS: Final = "and targets && %(targets)s::text[] and targets <> '{}'"


@dataclass(frozen=True, slots=True)
class Superseding:
    """One relation: a node of ``archive_id`` that supersedes another.

    Attributes:
        archive_id: The archive of the superseding node.
        entry_id: The superseding node.
        target_id: The node that it supersedes.
        valid_from: The superseding node's attribute of that name, or ``None``.
        since: When the first commit with the relation was made; ``None`` while it is staged.
    """

    archive_id: str
    entry_id: str
    target_id: str
    valid_from: str | None
    since: datetime | None


async def superseding(
    snapshot: Snapshot, archive_ids: Collection[str] | None = None, targets: Collection[str] | None = None
) -> list[Superseding]:
    """Return the SUPERSEDES relations of alive nodes at a state. The cost follows the number of such relations.

    Args:
        snapshot: The state.
        archive_ids: Only those of nodes in these archives.
        targets: Only those to these nodes.
    """
    arguments = snapshot.state.arguments(
        archives=None if archive_ids is None else sorted(archive_ids),
        targets=None if targets is None else sorted(targets),
    )
    async with snapshot.conn.cursor(row_factory=args_row(Superseding)) as cursor:
        await cursor.execute(
            _STATEMENT.replace("{archives}", "" if archive_ids is None else _IN_ARCHIVES).replace(
                "{targets}", "" if targets is None else _TO_TARGETS
            ),
            arguments,
        )
        return await cursor.fetchall()
