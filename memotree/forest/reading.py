"""Reads nodes of one state with their contents: committed ones from Git, staged ones from the session."""

import asyncio
from collections.abc import Sequence
from typing import Final

from memotree_storage.model.node import Entry, Node
from memotree_storage.postgres import staging
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

_AT_ONCE: Final = 500


async def read_nodes(store: Store, state: State, versions: Sequence[Version]) -> dict[str, Node]:
    """Returns the nodes of versions that were read at a state, with their contents, by id.

    A staged node that has been committed since is left out.
    """
    committed = [version for version in versions if version.commit_id is not None]
    entries = await store.entries.load(state.workspace_id, committed)
    found = {version.entry_id: entry for version in committed if isinstance(entry := entries[version.blob], Node)}
    pending = [version.entry_id for version in versions if version.commit_id is None]
    for start in range(0, len(pending), _AT_ONCE):
        async with store.database.connection() as conn:
            rows = await staging.staged(conn, state.session_id or "", ids=pending[start : start + _AT_ONCE])
        decoded = await asyncio.to_thread(_decoded, rows)
        found |= {entry.id: entry for entry in decoded if isinstance(entry, Node)}
    return found


def _decoded(rows: Sequence[Staged]) -> list[Entry | None]:
    return [row.entry for row in rows]
