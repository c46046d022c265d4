"""Reading nodes, children and trees as messages."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.node import Node
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.lookup import NodeNotFoundError
from memotree.messages import DETAIL, Level, node_message
from memotree.v1 import types_pb2

_FEW_ROWS: Final = 100
_FEW_BYTES: Final = 1 << 16
"""More staged nodes or bytes are decoded in a thread, so that other calls go on meanwhile."""


async def contents(conn: Connection, store: Store, state: State, versions: Sequence[Version]) -> dict[str, Node]:
    """The whole nodes of versions by id: staged ones from the session, the others from Git."""
    found: dict[str, Node] = {}
    fresh = [version.entry_id for version in versions if version.commit_id is None]
    if fresh and state.session_id:
        rows = await staging.staged(conn, state.session_id, ids=fresh)
        is_much = len(rows) > _FEW_ROWS or sum(len(row.data) for row in rows) > _FEW_BYTES
        found.update(await asyncio.to_thread(_decoded, rows) if is_much else _decoded(rows))
    committed = [version for version in versions if version.commit_id is not None]
    if committed:
        entries = await store.entries.load(state.workspace_id, committed)
        for version in committed:
            entry = entries[version.blob]
            if isinstance(entry, Node):
                found[version.entry_id] = entry
    return found


def _decoded(rows: Sequence[Staged]) -> dict[str, Node]:
    return {row.entry_id: entry for row in rows if isinstance(entry := row.entry, Node)}


async def node_at(
    conn: Connection, store: Store, state: State, entry_id: str, level: Level.ValueType
) -> types_pb2.Node:
    """One node with its way from the root and the number of its children.

    Raises:
        NodeNotFoundError: It is not alive there.
    """
    key = (state.workspace_id, state.commit_id, entry_id)
    found = store.placed.get(key) if state.session_id is None else None
    if found is None:
        found = await tree.one(conn, state, entry_id)
        if found is None or found[0].is_archive:
            raise NodeNotFoundError(entry_id)
        if state.session_id is None:
            store.placed.put(key, found)
    version, path, count = found
    text = ""
    if level >= DETAIL and version.tokens:
        if version.commit_id is None:
            text = (await contents(conn, store, state, [version]))[entry_id].content
        else:
            text = (await store.entries.node(state.workspace_id, version)).content
    return node_message(version, level, content=text, path=path, child_count=count)


async def nodes_at(
    conn: Connection, store: Store, state: State, ids: Sequence[str], level: Level.ValueType
) -> list[types_pb2.Node]:
    """Several alive nodes in the order given, with their ways and child counts."""
    versions = await tree.versions(conn, state, ids)
    present = [versions[entry_id] for entry_id in ids if entry_id in versions]
    ways = await tree.ancestors(conn, state, [version.entry_id for version in present])
    counts = await tree.child_counts(conn, state, [version.entry_id for version in present])
    texts: Mapping[str, Node] = {}
    if level >= DETAIL:
        texts = await contents(conn, store, state, present)
    return [
        node_message(
            version,
            level,
            content=texts[version.entry_id].content if version.entry_id in texts else "",
            path=ways[version.entry_id],
            child_count=counts[version.entry_id],
        )
        for version in present
    ]
