"""The content of nodes as a reader gets it: a node's own, or that of a summary node, which is made from its leaves.

Derived content is not stored. The leaves are read in the order of the tree, in small groups, and no further than the
limit. So reading the root of a huge document costs no more than reading its beginning.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE
from memotree_storage.model.tokens import CHARS_PER_TOKEN, count_tokens, in_pieces
from memotree_storage.postgres import archive_trees, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

_FIRST_LOOK: Final = 16
_MOST_LOOKED_AT: Final = 256
"""How many nodes of a tree one statement reads; the number grows from the first to the second."""

_MOST_ROUNDS: Final = 200
"""The most rounds of reading. A deep and narrow tree yields one node per round; after this many, its whole archive is
listed at once."""

_MOST_READ: Final = 200


@dataclass(frozen=True, slots=True)
class Text:
    """A content with its tokens; if it is cut, both are those of its beginning only."""

    content: str
    tokens: int
    cut: bool = False


async def texts(snapshot: Snapshot, store: Store, versions: Iterable[Version], limit: int) -> dict[str, Text]:
    """The contents of nodes, by id.

    Args:
        store: The store.
        snapshot: The state from which the nodes are read.
        versions: The nodes.
        limit: The most bytes of UTF-8 of all derived contents together; what exceeds it is cut off.
    """
    chosen = list(versions)
    nodes = await read_nodes(snapshot, store.entries, chosen)
    found = {
        version.entry_id: Text(nodes[version.entry_id].content, version.tokens)
        for version in chosen
        if version.entry_id in nodes
    }
    for version in chosen:
        if version.type == SUMMARY_TYPE:
            text = await _derived(snapshot, store, version, limit)
            if text.content or text.cut:  # a file written by hand may have content but no leaves
                found[version.entry_id] = text
                limit -= len(text.content.encode())
    return found


async def _derived(snapshot: Snapshot, store: Store, top: Version, limit: int) -> Text:
    """The contents of the nodes below a node, joined; a blank line separates texts of different documents."""
    parts: list[str] = []
    room, last = limit, None
    async for some in _below(snapshot, top):
        for piece in in_pieces(some, _MOST_READ, max(limit // CHARS_PER_TOKEN, 1)):
            if room <= 0:
                return await asyncio.to_thread(_joined, parts, limit, cut=True)
            nodes = await read_nodes(snapshot, store.entries, piece)
            for version in piece:
                if version.entry_id not in nodes:
                    continue  # discarded or committed since its version was read
                text = nodes[version.entry_id].content
                parts.append(text if last is None or _continues(last, version) else f"\n\n{text}")
                room -= len(parts[-1].encode())
                last = version
    return await asyncio.to_thread(_joined, parts, limit, cut=room < 0)


def _continues(before: Version, after: Version) -> bool:
    """Whether one text continues in the next: both are pieces of one document, as their types or sources say."""
    if before.type == after.type == LEAF_TYPE:
        return True
    return bool(before.source and after.source and before.source["document_id"] == after.source["document_id"])


def _joined(parts: Sequence[str], limit: int, *, cut: bool) -> Text:
    text = "".join(parts)
    if cut:
        text = text.encode()[: max(limit, 0)].decode(errors="ignore")  # drops half a character at the end
    return Text(text, count_tokens(text), cut)


async def _below(snapshot: Snapshot, top: Version) -> AsyncIterator[list[Version]]:
    """The nodes below ``top`` that have their own content, in the order of the tree; read only as far as consumed."""
    waiting: list[str | Version] = [top.entry_id]  # a stack, the next item last; a plain id was not read yet
    seen: set[str] = set()
    size, given = _FIRST_LOOK, 0
    for _ in range(_MOST_ROUNDS):
        if not waiting:
            return
        places = [place for place in range(len(waiting) - 1, -1, -1) if isinstance(waiting[place], str)][:size]
        ids = [str(waiting[place]) for place in places]
        seen.update(ids)
        below = await tree.directly_below(snapshot, ids)
        versions = await tree.versions(snapshot, [entry_id for entry_id in ids if entry_id != top.entry_id])
        first = min(places, default=len(waiting))
        opened = _opened(waiting[first:], versions, below, seen)
        del waiting[first:]
        waiting += opened
        ready: list[Version] = []
        while waiting and isinstance(item := waiting[-1], Version):
            ready.append(item)
            waiting.pop()
        if ready:
            yield ready
        given += len(ready)
        size = min(2 * size, _MOST_LOOKED_AT)
    async for ready in _rest(snapshot, top, given):
        yield ready


async def _rest(snapshot: Snapshot, top: Version, given: int) -> AsyncIterator[list[Version]]:
    """The nodes that `_below` yields after the first ``given``, read from a list of the whole archive."""
    leaves = await archive_trees.ordered_nodes(snapshot, {top.archive_id})
    place = next((place for place, leaf in enumerate(leaves) if leaf.entry_id == top.entry_id), len(leaves))
    below = takewhile(lambda leaf: leaf.depth > leaves[place].depth, islice(leaves, place + 1, None))
    own = [leaf.entry_id for leaf in below if leaf.tokens and leaf.type != SUMMARY_TYPE][given:]
    for start in range(0, len(own), _MOST_LOOKED_AT):
        some = own[start : start + _MOST_LOOKED_AT]
        versions = await tree.versions(snapshot, some)
        yield [versions[entry_id] for entry_id in some if entry_id in versions]


def _opened(
    items: Sequence[str | Version],
    versions: Mapping[str, Version],
    below: Mapping[str, Sequence[str]],
    seen: set[str],
) -> list[str | Version]:
    """The stack with each id replaced by its children and, on top of those, the node itself if it has content."""
    opened: list[str | Version] = []
    for item in items:
        if isinstance(item, Version):
            opened.append(item)
            continue
        # A cycle, which only a push can create, is visited once.
        opened += [child for child in reversed(below.get(item, ())) if child not in seen]
        version = versions.get(item)
        if version is not None and version.tokens and version.type != SUMMARY_TYPE:
            opened.append(version)
    return opened
