"""Loads full nodes with their own content: staged ones from the session, the others from Git."""

import asyncio
from collections.abc import Sequence
from typing import Final

from memotree_storage.model.node import Node
from memotree_storage.postgres import staging
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

_FEW_ROWS: Final = 100
_FEW_BYTES: Final = 1 << 16
"""More staged nodes or bytes than these are decoded in a thread, so that other calls are not blocked."""


async def contents(snapshot: Snapshot, store: Store, versions: Sequence[Version]) -> dict[str, Node]:
    """The full nodes of these versions, by id; without the derived content of summary nodes (see `derived_content`)."""
    found: dict[str, Node] = {}
    fresh = [version.entry_id for version in versions if version.commit_id is None]
    if fresh and snapshot.state.session_id:
        rows = await staging.staged(snapshot.conn, snapshot.state.session_id, ids=fresh)
        is_much = len(rows) > _FEW_ROWS or sum(len(row.data) for row in rows) > _FEW_BYTES
        found.update(await asyncio.to_thread(_decoded, rows) if is_much else _decoded(rows))
    committed = [version for version in versions if version.commit_id is not None]
    if committed:
        entries = await store.entries.load(snapshot.state.workspace_id, committed)
        for version in committed:
            entry = entries[version.blob]
            if isinstance(entry, Node):
                found[version.entry_id] = entry
    return found


def _decoded(rows: Sequence[Staged]) -> dict[str, Node]:
    return {row.entry_id: entry for row in rows if isinstance(entry := row.entry, Node)}
