"""Reads nodes and builds their messages."""

from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.model.validation import DEFAULT_LIMITS
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import PlacedVersion, Store

from memotree.canvas.derived_content import Text, texts
from memotree.request.lookup import NodeNotFoundError
from memotree.request.messages import DETAIL, Level, node_message
from memotree.v1 import types_pb2

_NO_TEXT: Final = Text("", 0)
_MOST_BYTES: Final = DEFAULT_LIMITS.content_bytes


async def node_at(
    snapshot: Snapshot,
    store: Store,
    entry_id: str,
    level: Level.ValueType,
    *,
    limit: int = _MOST_BYTES,
) -> types_pb2.Node:
    """The message of one node, with the path from its root and the number of its children.

    Args:
        store: The store.
        snapshot: The state from which it is read.
        entry_id: Its full id.
        level: The level of detail of its texts.
        limit: The most bytes of a derived content.

    Raises:
        NodeNotFoundError: It is not alive at that state.
    """
    state = snapshot.state
    found = _remembered(state, store, entry_id)
    if found is None:
        key = _key(state, store, entry_id)  # first: rows that a rebuild replaces meanwhile belong to the old generation
        placed = await tree.one(snapshot, entry_id)
        if placed is None or placed.version.is_archive:
            raise NodeNotFoundError(entry_id)
        if state.session_id is None:
            store.placed.put(key, placed)
        found = placed
    version, path, count = found
    text: Text | None = _NO_TEXT
    if level >= DETAIL and version.type == SUMMARY_TYPE:
        text = (await texts(snapshot, store, [version], limit)).get(entry_id)
    elif level >= DETAIL and version.tokens and version.commit_id is None:
        node = (await read_nodes(snapshot, store.entries, [version])).get(entry_id)
        text = Text(node.content, version.tokens) if node is not None else None
    elif level >= DETAIL and version.tokens:
        text = Text((await store.entries.node(snapshot.state.workspace_id, version)).content, version.tokens)
    if text is None:  # committed or discarded between the two reads, so read again
        return await node_at(snapshot, store, entry_id, level, limit=limit)
    tokens = text.tokens if level >= DETAIL else None
    return node_message(version, level, content=text.content, tokens=tokens, cut=text.cut, path=path, child_count=count)


async def remembered_node(state: State, store: Store, entry_id: str, level: Level.ValueType) -> types_pb2.Node | None:
    """The message of a node that was read before at this commit, made without a connection.

    ``None`` if it was not, or if its content is not stored but made of others'.
    """
    found = _remembered(state, store, entry_id)
    if found is None or (level >= DETAIL and found[0].type == SUMMARY_TYPE):
        return None
    version, path, count = found
    content, tokens = "", None
    if level >= DETAIL:
        content = (await store.entries.node(state.workspace_id, version)).content if version.tokens else ""
        tokens = version.tokens
    return node_message(version, level, content=content, tokens=tokens, path=path, child_count=count)


def _remembered(state: State, store: Store, entry_id: str) -> PlacedVersion | None:
    return store.placed.get(_key(state, store, entry_id)) if state.session_id is None else None


def _key(state: State, store: Store, entry_id: str) -> tuple[str, int, str, str]:
    return (state.workspace_id, store.generations[state.workspace_id], state.commit_id, entry_id)


async def nodes_at(
    snapshot: Snapshot,
    store: Store,
    ids: Sequence[str],
    level: Level.ValueType,
    *,
    limit: int = _MOST_BYTES,
    ways: Mapping[str, Sequence[str]] | None = None,
) -> list[types_pb2.Node]:
    """The messages of the alive nodes among ``ids``, in the given order, with their paths and child counts.

    ``limit`` applies to all derived contents together. A caller that knows the ancestors of each node, root first,
    gives them as ``ways``; so they are not read for each.
    """
    versions = await tree.versions(snapshot, ids)
    present = [versions[entry_id] for entry_id in ids if entry_id in versions]
    if ways is None:
        ways = await tree.ancestors(snapshot, [version.entry_id for version in present])
    counts = await tree.child_counts(snapshot, [version.entry_id for version in present])
    found: Mapping[str, Text] = {}
    if level >= DETAIL:
        found = await texts(snapshot, store, present, limit)
    messages = []
    for version in present:
        text = found.get(version.entry_id)
        messages.append(
            node_message(
                version,
                level,
                content=text.content if text else "",
                tokens=text.tokens if text else None,
                cut=text is not None and text.cut,
                path=ways[version.entry_id],
                child_count=counts[version.entry_id],
            )
        )
    return messages
