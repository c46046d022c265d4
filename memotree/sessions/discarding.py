"""Checks that the changes which a session keeps are a tree without those that it discards."""

from collections.abc import Collection, Mapping
from typing import Final

from memotree_storage.concurrency.threads import LONG_BYTES, in_store_thread_if
from memotree_storage.mirror.tree_check import IncompleteChoiceError, check_tree
from memotree_storage.model.node import Entry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot

_MOST_TOLD: Final = 10
"""The most ids in the message; the details of the status have more."""


async def check_discard(conn: Connection, session: Session, rows: Mapping[str, Staged], ids: Collection[str]) -> None:
    """Refuse a discard that breaks the tree. Faults that existed before it (by a commit of others) do not count.

    Args:
        conn: In a transaction that holds the session.
        session: The session.
        rows: All its staged changes, by id.
        ids: Those to discard.

    Raises:
        IncompleteChoiceError: Other changes need them; ``nodes`` has all that would have to be discarded too.
    """
    entries: dict[str, Entry | None] = await in_store_thread_if(
        sum(len(row.data) for row in rows.values()) > LONG_BYTES,
        lambda: {key: row.entry for key, row in rows.items()},
    )
    gone = set(ids)
    needing = await _needing(conn, session, entries, gone)
    if not needing:
        return
    before = await check_tree(Snapshot(conn, session.base), entries, set())
    known = {(item.node_id, item.field, item.description) for item in before.conflicts}
    while needing := await _needing(conn, session, entries, gone, known):
        gone |= needing
    others = sorted(gone.difference(ids))
    if others:
        told = f"{', '.join(others[:_MOST_TOLD])}{' and others' if len(others) > _MOST_TOLD else ''}"
        error = IncompleteChoiceError(
            f"Other changes of the session need those to discard: {told}. Discard these as well, or none."
        )
        error.nodes = [rows[entry_id].version for entry_id in others]
        raise error


async def _needing(
    conn: Connection,
    session: Session,
    entries: Mapping[str, Entry | None],
    gone: set[str],
    known: Collection[tuple[str, str, str]] = (),
) -> set[str]:
    """The ids of the remaining changes that need a discarded one, apart from known faults."""
    stay = {key: entry for key, entry in entries.items() if key not in gone}
    found = await check_tree(Snapshot(conn, session.base), stay, gone)
    fresh = {item.node_id for item in found.conflicts if (item.node_id, item.field, item.description) not in known}
    return fresh | {item.needed_by for item in found.missing}
