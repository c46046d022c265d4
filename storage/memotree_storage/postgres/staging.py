"""The staged changes of sessions: durable, visible only inside the session, removed when a commit contains them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import args_row

from memotree_storage.concurrency.threads import LONG_BYTES, in_store_thread_if
from memotree_storage.conflicts import Absence, Conflict
from memotree_storage.model.codec import decode_entry, encode_entry
from memotree_storage.model.field_values import field_value, is_same_value
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.paths import entry_path
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection, fetched
from memotree_storage.postgres.projector import EntryChange
from memotree_storage.postgres.rows import FIELDS, Version, row_of, targets_of, tombstone_of
from memotree_storage.postgres.session_conflicts import OF_VALUES, conflicts_of, end_conflicts
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.tree import Snapshot


@dataclass(frozen=True, slots=True)
class Staged:
    """One staged change: the entry in the session (``None`` if deleted), and the blob that it was derived from.

    ``derived_blob`` is ``None`` for an entry created in the session.
    """

    version: Version
    derived_blob: str | None
    data: bytes
    revision: int
    messages: list[str]
    tools: list[str]

    @property
    def entry_id(self) -> str:
        """The node's or archive's id."""
        return self.version.entry_id

    @property
    def entry(self) -> Entry | None:
        """The whole entry with its content, or ``None`` if it is deleted."""
        if self.version.dead:
            return None
        shell = self.version.to_archive() if self.version.is_archive else self.version.to_node()
        return decode_entry(entry_path(shell), self.data)


_STAGED: Final = ", ".join(FIELDS) + ", derived_blob, data, revision, messages, tools"
_WITHOUT_DATA: Final = ", ".join(FIELDS) + ", derived_blob, ''::bytea as data, revision, messages, tools"
_WIDTH: Final = len(FIELDS)


def blob_id(data: bytes) -> str:
    """The id that Git gives a blob with these bytes."""
    return hashlib.sha1(b"blob %d\x00" % len(data) + data, usedforsecurity=False).hexdigest()


async def staged(
    conn: Connection,
    session_id: str,
    *,
    ids: Iterable[str] | None = None,
    after: str = "",
    limit: int | None = None,
    data: bool = True,
) -> list[Staged]:
    """Return staged changes of a session, ordered by id: of ``ids`` or all, and only ids greater than ``after``.

    Without ``data`` the rows have no contents, so ``entry`` must not be read.
    """
    columns = _STAGED if data else _WITHOUT_DATA
    named = "" if ids is None else " and entry_id = any(%(ids)s::text[])"
    async with conn.cursor(row_factory=args_row(_read_staged)) as cursor:
        await cursor.execute(
            f"select {columns} from work.staged where session_id = %(session)s and entry_id > %(after)s"  # noqa: S608
            f"{named} order by entry_id limit %(limit)s",
            {"session": session_id, "after": after, "ids": None if ids is None else list(ids), "limit": limit},
        )
        return await fetched(cursor)


def _read_staged(*row: Any) -> Staged:
    version = Version(*row[:_WIDTH])
    return Staged(version, *row[_WIDTH:])


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of an entry in a session: its new value, or ``entry=None`` to delete ``before``.

    ``before`` is the entry's current version in the session; ``None`` for a creation. The message and the tool are
    added to those that the staged change already has.
    """

    entry: Entry | None
    before: Version | None
    message: str = ""
    tool: str = ""


async def stage(
    conn: Connection, session: Session, edits: Sequence[Edit], derived: Mapping[str, str | None] | None = None
) -> set[str]:
    """Write edits into a session that the transaction holds.

    If an edit makes an entry equal to its base again, the staged change is removed; likewise if it deletes an entry
    that the session created. Returns the ids of these entries. An edit of a field ends the conflict about it.

    ``derived`` maps ids of staged entries to the blobs they were derived from, as far as the transaction has read them.
    """
    derived = dict(derived or {})
    again = [
        edit.before.entry_id
        for edit in edits
        if edit.before is not None and edit.before.commit_id is None and edit.before.entry_id not in derived
    ]
    rows = await staged(conn, session.session_id, ids=again, data=False) if again else []
    derived.update({row.entry_id: row.derived_blob for row in rows})
    dropped: set[str] = set()
    for start in range(0, len(edits), _STAGED_AT_ONCE):
        some = edits[start : start + _STAGED_AT_ONCE]
        is_much = len(some) > _FEW_EDITS or sum(_chars(edit.entry) for edit in some) > LONG_BYTES
        prepared = await in_store_thread_if(is_much, _prepared, session.session_id, some, derived)
        await _put_all(conn, [values for _, values in prepared if values is not None])
        dropped.update(entry_id for entry_id, values in prepared if values is None)
    if dropped:
        await unstage(conn, session.session_id, sorted(dropped))
    if session.has_conflicts:
        await _end_edited(conn, session.session_id, edits)
    return dropped


async def _end_edited(conn: Connection, session_id: str, edits: Sequence[Edit]) -> None:
    """End the conflicts of values whose field is another one now than on our side."""
    entries = {_id_of(edit): edit.entry for edit in edits}
    found = await conflicts_of(conn, session_id, ids=entries)
    ended = [
        (one.conflict.node_id, one.number)
        for one in found
        if one.conflict.kind.is_of_values and _is_edited(entries[one.conflict.node_id], one.conflict)
    ]
    await end_conflicts(conn, session_id, ended)


def _is_edited(entry: Entry | None, conflict: Conflict) -> bool:
    was_deleted = conflict.ours is Absence.DELETED
    if entry is None or was_deleted or not conflict.field:
        return (entry is None) != was_deleted
    return not is_same_value(field_value(entry, conflict.field), conflict.ours)


_STAGED_AT_ONCE: Final = 200
_FEW_EDITS: Final = 100
"""If there are more edits than these, or they are long, a thread encodes them, so that other calls go on meanwhile."""


def _chars(entry: Entry | None) -> int:
    return len(entry.content) if isinstance(entry, Node) else 0


def _prepared(
    session_id: str, edits: Sequence[Edit], derived: Mapping[str, str | None]
) -> list[tuple[str, tuple[Any, ...] | None]]:
    """Return each edit's entry id with the row to write, or with ``None`` if the entry equals its base again."""
    found: list[tuple[str, tuple[Any, ...] | None]] = []
    for edit in edits:
        entry_id = _id_of(edit)
        base = derived.get(entry_id, edit.before.blob if edit.before else None)
        data = b"" if edit.entry is None else encode_entry(edit.entry)
        blob = "" if edit.entry is None else blob_id(data)
        found.append((entry_id, None if blob == (base or "") else _row(session_id, edit, base, data, blob)))
    return found


def _id_of(edit: Edit) -> str:
    if edit.entry is not None:
        return edit.entry.id
    return edit.before.entry_id if edit.before else ""


async def _put_all(conn: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows in one round trip."""
    if len(rows) == 1:
        await conn.execute(_PUT, rows[0], prepare=True)
    elif rows:
        async with conn.cursor() as cursor:
            await cursor.executemany(_PUT, rows)


def _row(session_id: str, edit: Edit, derived: str | None, data: bytes, blob: str) -> tuple[Any, ...] | None:
    """Return the values of `_PUT`; ``None`` for an edit that has neither an entry nor a version before."""
    if edit.entry is not None:
        values, targets = row_of(edit.entry, blob), targets_of(edit.entry)
    elif edit.before is not None:
        values, targets = tombstone_of(edit.before), []
    else:
        return None
    return (
        *(session_id, *values, targets, derived, data),
        *([edit.message] if edit.message else [], [edit.tool] if edit.tool else []),
    )


_PUT: Final = (
    f"insert into work.staged as s (session_id, {', '.join(FIELDS)}, targets, derived_blob, data, messages, tools)"  # noqa: S608
    f" values ({', '.join(['%s'] * (_WIDTH + 6))}) on conflict (session_id, entry_id) do update set "
    + ", ".join(f"{name} = excluded.{name}" for name in (*FIELDS, "targets", "derived_blob", "data"))
    + ", revision = s.revision + 1, "
    " messages = s.messages || array(select m from unnest(excluded.messages) m where m <> all (s.messages)),"
    " earlier = (s.earlier || s.blob)[greatest(1, cardinality(s.earlier) - 48):],"
    " tools = array(select distinct t from unnest(s.tools || excluded.tools) t order by t)"
)


async def restage(
    conn: Connection, session_id: str, row: Staged, entry: Entry | None, derived_blob: str | None
) -> None:
    """Rebase a staged change: store the merged entry and the blob that it is now derived from."""
    edit, derived = Edit(entry, row.version), {row.entry_id: derived_blob}
    ((_, values),) = await in_store_thread_if(_chars(entry) > LONG_BYTES, _prepared, session_id, [edit], derived)
    if values is None:
        await unstage(conn, session_id, [row.entry_id])
    else:
        await _put_all(conn, [values])


async def unstage(conn: Connection, session_id: str, ids: Sequence[str]) -> None:
    """Delete the staged changes of some entries."""
    await conn.execute("delete from work.staged where session_id = %s and entry_id = any(%s)", (session_id, list(ids)))


_SETTLE: Final = """
  with c as (select * from unnest(%(ids)s::text[], %(blobs)s::text[]) as c (entry_id, blob)),
  gone as (
    delete from work.staged s using c
     where s.session_id = %(session)s and s.entry_id = c.entry_id and s.blob = c.blob returning 1),
  derived as (
    update work.staged s set derived_blob = nullif(c.blob, '') from c
     where s.session_id = %(session)s and s.entry_id = c.entry_id and s.blob <> c.blob and c.blob = any(s.earlier)),
  based as (
    update work.session set base_commit = %(commit)s, merged = null, files = '{}',
           brings = brings and (
             (select count(*) from work.staged s where s.session_id = %(session)s) > (select count(*) from gone)
             or exists (select from work.conflict o where o.session_id = %(session)s and o.kind = any(%(kinds)s)))
     where session_id = %(session)s and workspace_id = %(workspace)s and state = 'open')
  select (select count(*) from work.staged where session_id = %(session)s) - (select count(*) from gone)"""


async def settle(
    conn: Connection, workspace_id: str, session_id: str, commit_id: str, changes: Sequence[EntryChange]
) -> int:
    """Remove the changes that a commit contains from a session, and move the session's base to that commit.

    A merge of the session is in the commit, too.

    A staged row is deleted only if its blob is the committed one. If the entry was edited again after the committed
    change, its row stays and is now derived from the commit. Any other row keeps the blob it was derived from, and is
    merged when it is committed.

    Returns:
        How many changes are still staged.
    """
    arguments = {
        "ids": [change.entry_id for change in changes],
        "blobs": [change.blob for change in changes],
        "session": session_id,
        "workspace": workspace_id,
        "commit": commit_id,
        "kinds": OF_VALUES,
    }
    row = await (await conn.execute(_SETTLE, arguments)).fetchone()
    return int(row[0]) if row else 0


async def count_staged(conn: Connection, session_id: str) -> int:
    """Return the number of staged changes of a session."""
    cursor = await conn.execute("select count(*) from work.staged where session_id = %s", (session_id,))
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def id_was_used(conn: Connection, session: Session, ids: Sequence[str]) -> set[str]:
    """Return those of ``ids`` that ever named an entry in the session's lineage, alive or deleted."""
    return set(await tree.versions(Snapshot(conn, session.tree), ids, dead=True))


async def forget_words(
    conn: Connection, session_id: str, entry_id: str, messages: Sequence[str], title: str | None
) -> None:
    """Replace the notes of a staged change, forget the blobs that it had before, and set the title of a deleted one."""
    await conn.execute(
        "update work.staged set messages = %s, earlier = '{}', title = case when dead then coalesce(%s, title)"
        " else title end where session_id = %s and entry_id = %s",
        (list(messages), title, session_id, entry_id),
    )
