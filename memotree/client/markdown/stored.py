"""The state that a folder is compared with: archives and nodes of a commit, with hashes in place of contents."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memotree.client.enums import Level
from memotree.client.markdown.layout import Structure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memotree.client.node_values import Archive, Node
    from memotree.client.revision import AsyncRevision


def text_hash(text: str, *, unix: bool = True) -> bytes:
    """A hash of a text; without ``unix``, of the text without carriage returns before line feeds."""
    return hashlib.sha256((text if unix else text.replace("\r\n", "\n")).encode()).digest()


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node, mostly without its content, and the hashes of that, as it is and without carriage returns."""

    node: Node
    content: bytes
    unix_content: bytes

    def has_content(self, text: str, *, unix: bool) -> bool:
        """Whether a text is the content; without ``unix``, whether it is apart from carriage returns."""
        if unix:
            return text_hash(text) == self.content
        return text_hash(text, unix=False) == self.unix_content


@dataclass(slots=True)
class StoredState:
    """The archives and nodes that a folder is compared with.

    Attributes:
        commit_id: The commit.
        children: The ids below each archive and node, in order.
    """

    commit_id: str
    structure: Structure = field(default_factory=Structure)
    nodes: dict[str, StoredNode] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)

    def home(self, node_id: str) -> str:
        """The parent of a node, or the archive of a root."""
        place = self.structure.nodes[node_id]
        return place.parent_id or place.archive_id


async def stored_state(at: AsyncRevision, archives: Iterable[Archive], *, keep_contents: bool = False) -> StoredState:
    """Reads the state of some archives at a commit, in pages."""
    state = StoredState(at.revision)
    for archive in sorted(archives, key=lambda each: each.id):
        state.structure.add_archive(archive)
        async with aclosing(at.walk(archive=archive, level=Level.DETAIL)) as found:  # type: ignore[type-var]
            async for each in found:
                node = each.node
                place = state.structure.add(archive.id, each)
                content, unix = text_hash(node.content), text_hash(node.content, unix=False)
                state.nodes[node.id] = StoredNode(node if keep_contents else replace(node, content=""), content, unix)
                state.children.setdefault(place.parent_id or archive.id, []).append(node.id)
    return state
