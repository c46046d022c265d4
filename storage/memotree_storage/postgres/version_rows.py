"""The rows of versions that a commit begins, ends or hides, with their rows in the outbox of the index."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.concurrency.threads import in_turns
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import FIELDS, Version

_FEW_ROWS: Final = 20
"""Versions that are written by a statement each, all in one round trip; more of them are copied."""


@dataclass(frozen=True, slots=True)
class LinePosition:
    """The position of a commit: its line, and its number on that line, counted from 1."""

    line_id: int
    seq: int


# An entry has one open version on a line at most, so the old one must end first. PostgreSQL promises no order of the
# statements of a ``with``, but one that reads the rows of another comes after it.
_VERSION: Final = f"""
  with ended as (
    update mirror.version set to_seq = %(seq)s where line_id = %(line)s and entry_id = %(entry_id)s and to_seq is null
    returning version_id, dead, is_archive),
  begun as (
    insert into mirror.version (line_id, from_seq, {", ".join(FIELDS)}, targets)
    values ((select %(line)s::bigint from (select count(*) from ended) as after), %(seq)s,
            {", ".join(f"%({name})s" for name in FIELDS)}, %(targets)s)
    returning version_id, dead, is_archive)
  insert into mirror.outbox (workspace_id, version_id, changed, index_number, counted)
  select %(workspace)s, one.version_id, one.changed, i.number, not i.answers
    from (select version_id, true as changed from ended where not dead and not is_archive
          union all
          select version_id, false from begun where not dead and not is_archive) one
   cross join mirror.fed_index i"""  # noqa: S608 - own names


async def replace_versions(
    conn: Connection, workspace_id: str, place: LinePosition, rows: Sequence[tuple[object, ...]]
) -> None:
    """End the open versions that entries have on this line, and begin their new ones; with the rows of the outbox.

    Versions on lines that this one forked from stay open: a version on a nearer line hides them.

    Args:
        conn: In the transaction that mirrors the commit.
        workspace_id: The workspace.
        place: The place of the commit.
        rows: The new versions, one for each entry: the values of `FIELDS`, and the targets of its relations.
    """
    if not rows:
        return
    of_commit = {"workspace": workspace_id, "line": place.line_id, "seq": place.seq}
    if len(rows) <= _FEW_ROWS:
        few = [{**of_commit, **dict(zip((*FIELDS, "targets"), row, strict=True))} for row in rows]
        async with conn.cursor() as cursor:
            await (cursor.execute(_VERSION, few[0]) if len(few) == 1 else cursor.executemany(_VERSION, few))
        return
    await conn.execute(
        """
        with ended as (
          update mirror.version set to_seq = %(seq)s
           where line_id = %(line)s and entry_id = any(%(ids)s) and to_seq is null
          returning version_id, dead, is_archive)
        insert into mirror.outbox (workspace_id, version_id, changed, index_number, counted)
        select %(workspace)s, version_id, true, i.number, not i.answers
          from ended cross join mirror.fed_index i where not dead and not is_archive
        """,
        {**of_commit, "ids": [row[0] for row in rows]},
    )
    async with (
        conn.cursor() as cursor,
        cursor.copy(f"copy mirror.version (line_id, from_seq, {', '.join(FIELDS)}, targets) from stdin") as copy,
    ):
        async for row in in_turns(rows):
            await copy.write_row((place.line_id, place.seq, *row))
    await conn.execute(
        "insert into mirror.outbox (workspace_id, version_id, changed, index_number, counted)"
        " select %s, version_id, false, i.number, not i.answers from mirror.version cross join mirror.fed_index i"
        " where line_id = %s and from_seq = %s and from_seq > 0 and not dead and not is_archive order by version_id",
        (workspace_id, place.line_id, place.seq),
    )


async def override_versions(
    conn: Connection, workspace_id: str, place: LinePosition, before: Sequence[Version]
) -> None:
    """Note which versions of other lines are hidden on this one from here on.

    That is at most one for each entry and line: the one that was alive where this line forked off.
    """
    hidden = [one for one in before if one.line_id is not None and one.line_id != place.line_id and not one.is_archive]
    if not hidden:
        return
    await conn.execute(
        """
        with hidden as (
          insert into mirror.overridden
          select v.version_id, %(line)s, %(seq)s
            from unnest(%(lines)s::bigint[], %(ids)s::text[], %(seqs)s::bigint[]) as found(line_id, entry_id, seq)
            join mirror.version v on v.line_id = found.line_id and v.entry_id = found.entry_id
             and v.from_seq = found.seq
          returning version_id)
        insert into mirror.outbox (workspace_id, version_id, changed, index_number, counted)
        select %(workspace)s, version_id, true, i.number, not i.answers from hidden cross join mirror.fed_index i
        """,
        {
            "workspace": workspace_id,
            "line": place.line_id,
            "seq": place.seq,
            "lines": [one.line_id for one in hidden],
            "ids": [one.entry_id for one in hidden],
            "seqs": [one.from_seq for one in hidden],
        },
    )
