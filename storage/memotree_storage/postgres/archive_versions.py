"""Reading archives, and the archives and nodes of ingested documents, at one state; see `tree`.

Each is found by an index, so that no call costs more where there are many others.
"""

from collections.abc import Collection, Iterable
from typing import Final

from memotree_storage.postgres.rows import ArchiveVersion, Version
from memotree_storage.postgres.tree import COLUMNS, LINE, Snapshot, is_on_nearer_line, listed, version_of

# A page: each line reads at most `limit` archives that are alive here, in the order of its index.
_ARCHIVES: Final = f"""
  with {LINE},
  candidate as (
    (select s.entry_id, s.title from work.staged s
      where s.session_id = %(session)s and s.is_archive and not s.dead
        and (s.title collate "C", s.entry_id) > (%(after_name)s::text collate "C", %(after_id)s::text collate "C")
      order by s.title collate "C", s.entry_id limit %(limit)s)
    union all
    select one.* from line cross join lateral (
      select v.entry_id, v.title from mirror.version v
       where v.line_id = line.line_id and v.is_archive and not v.dead and v.from_seq <= line.seq
         and (v.to_seq is null or v.to_seq > line.seq)
         and (v.title collate "C", v.entry_id) > (%(after_name)s::text collate "C", %(after_id)s::text collate "C")
         and not {is_on_nearer_line("version", "v.entry_id")}
         and not exists (select from work.staged s where s.session_id = %(session)s and s.entry_id = v.entry_id
                         offset 0)
       order by v.title collate "C", v.entry_id limit %(limit)s) one
  ),
  page as (select * from candidate order by title collate "C", entry_id limit %(limit)s)
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from page cross join lateral {version_of("page.entry_id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   order by v.title collate "C", v.entry_id"""  # noqa: S608

_ARCHIVES_NAMED: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s
     where s.session_id = %(session)s and s.is_archive and s.title = any(%(names)s::text[])
    union
    select v.entry_id from line cross join unnest(%(names)s::text[]) wanted (name) cross join lateral (
      select v.entry_id from mirror.version v
       where v.line_id = line.line_id and v.is_archive and v.title collate "C" = wanted.name collate "C" offset 0) v
  )
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and v.is_archive and v.title = any(%(names)s::text[]) order by v.title collate "C", v.entry_id"""  # noqa: S608

_IS_DOCUMENT: Final = "{0}.attributes ? 'document_id' and ({0}.is_archive or {0}.attributes ? 'sha256')"
"""SQL: whether a version is the archive of an ingested document, or its node in a joined archive; see the index."""

_DOCUMENTS: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s
     where s.session_id = %(session)s and {_IS_DOCUMENT.format("s")}
       and s.attributes ->> 'document_id' = any(%(ids)s::text[])
    union
    select v.entry_id from line cross join unnest(%(ids)s::text[]) wanted (id) cross join lateral (
      select v.entry_id from mirror.version v
       where v.line_id = line.line_id and {_IS_DOCUMENT.format("v")}
         and left(v.attributes ->> 'document_id', 100) collate "C" = left(wanted.id, 100) collate "C"
         and v.attributes ->> 'document_id' = wanted.id
      offset 0) v
  )
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id", COLUMNS)} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and {_IS_DOCUMENT.format("v")} and v.attributes ->> 'document_id' = any(%(ids)s::text[])
   order by v.is_archive desc, v.title collate "C", v.entry_id"""  # noqa: S608


async def archives(
    snapshot: Snapshot, *, after: tuple[str, str] = ("", ""), limit: int | None = None
) -> list[ArchiveVersion]:
    """Return the alive archives, ordered by name and id; ``after`` is the (name, id) after which to continue.

    With a limit the cost is that of a page, however many archives there are.
    """
    arguments = snapshot.state.arguments(after_name=after[0], after_id=after[1], limit=limit)
    return [ArchiveVersion.of(version) for version in await listed(snapshot.conn, _ARCHIVES, arguments)]


async def archives_named(snapshot: Snapshot, names: Collection[str]) -> list[ArchiveVersion]:
    """Return the alive archives with some names, ordered by name and id; several may have one name after a push.

    The cost does not grow with the number of archives.
    """
    wanted = [name for name in names if _can_be_stored(name)]
    if not wanted:
        return []
    found = await listed(snapshot.conn, _ARCHIVES_NAMED, snapshot.state.arguments(names=wanted))
    return [ArchiveVersion.of(version) for version in found]


def _can_be_stored(text: str) -> bool:
    """Whether PostgreSQL takes a text: no NUL, and no half of a surrogate pair."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


async def archive_named(snapshot: Snapshot, name: str) -> ArchiveVersion | None:
    """Return the alive archive with a name, or ``None``; of several, the one with the smallest id."""
    return next(iter(await archives_named(snapshot, [name])), None)


async def documents(snapshot: Snapshot, document_ids: Iterable[str]) -> list[Version]:
    """Return the alive archives and nodes of ingested documents, archives first.

    A document in a joined archive has a node there instead of an archive of its own. The cost does not grow with the
    number of archives or nodes.
    """
    wanted = [document_id for document_id in document_ids if _can_be_stored(document_id)]
    return await listed(snapshot.conn, _DOCUMENTS, snapshot.state.arguments(ids=wanted)) if wanted else []
