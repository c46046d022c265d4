"""Whole entries of one state, with their contents: committed ones from Git, staged ones from their session."""

from collections.abc import Iterable, Sequence
from typing import Final

from memotree_storage.concurrency.threads import LONG_BYTES, in_store_thread_if
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.model.node import Entry, Node
from memotree_storage.postgres import staging
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot, State

_AT_ONCE: Final = 500
"""Staged entries that one statement reads."""

_FEW_ROWS: Final = 100
"""More staged entries than this, or long ones, are decoded in a thread, so that other calls go on."""


async def read_entries(snapshot: Snapshot, reader: EntryReader, versions: Iterable[Version]) -> dict[str, Entry]:
    """The entries of versions of a state, by id.

    A staged entry is left out if it was committed or discarded since its version was read.
    """
    chosen = list(versions)
    found = await read_staged(snapshot, _staged_ids(chosen))
    return found | await _committed(snapshot.state, reader, chosen)


async def read_nodes(snapshot: Snapshot, reader: EntryReader, versions: Iterable[Version]) -> dict[str, Node]:
    """The same for nodes only. A summary node has no content of its own; it is derived elsewhere."""
    return _nodes(await read_entries(snapshot, reader, versions))


async def read_nodes_at(
    state: State, database: Database, reader: EntryReader, versions: Iterable[Version]
) -> dict[str, Node]:
    """The same for a caller without a connection: takes one only for staged nodes, and holds none during Git reads."""
    chosen = list(versions)
    found: dict[str, Entry] = {}
    if ids := _staged_ids(chosen):
        async with database.connection() as conn:
            found = await read_staged(Snapshot(conn, state), ids)
    return _nodes(found | await _committed(state, reader, chosen))


async def read_staged(snapshot: Snapshot, ids: Sequence[str]) -> dict[str, Entry]:
    """Return those of the given entries that the session has staged; staged deletions are left out."""
    found: dict[str, Entry] = {}
    if snapshot.state.session_id is None:
        return found
    for start in range(0, len(ids), _AT_ONCE):
        rows = await staging.staged(snapshot.conn, snapshot.state.session_id, ids=ids[start : start + _AT_ONCE])
        is_much = len(rows) > _FEW_ROWS or sum(len(row.data) for row in rows) > LONG_BYTES
        found |= await in_store_thread_if(is_much, _decoded, rows)
    return found


async def _committed(state: State, reader: EntryReader, versions: Sequence[Version]) -> dict[str, Entry]:
    committed = [version for version in versions if version.commit_id is not None]
    entries = await reader.load(state.workspace_id, committed)
    return {version.entry_id: entries[version.blob] for version in committed}


def _staged_ids(versions: Sequence[Version]) -> list[str]:
    return [version.entry_id for version in versions if version.commit_id is None]


def _nodes(entries: dict[str, Entry]) -> dict[str, Node]:
    return {entry_id: entry for entry_id, entry in entries.items() if isinstance(entry, Node)}


def _decoded(rows: Sequence[Staged]) -> dict[str, Entry]:
    return {row.entry_id: entry for row in rows if (entry := row.entry) is not None}
