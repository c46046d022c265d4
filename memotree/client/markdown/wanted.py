"""What a folder says: the archives and nodes that it wants, each with the file that says so."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from memotree.client.node_values import Relation, Source

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 16


def derived_id(*names: str) -> str:
    """An id of a new note: the same for the same names, so that a folder that is imported twice makes no note twice."""
    number = int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[: 5 * _LENGTH // 8], "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))


@dataclass(frozen=True, slots=True)
class WantedArchive:
    """An archive; ``None`` leaves a field as it is."""

    id: str
    file: str
    name: str
    model_id: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A node; ``None`` leaves a field as it is, and gives a new node its default.

    Attributes:
        file: The file that says so, from the top of the folder.
        brief: Empty to take a given one away.
        summary: Likewise.
        shown_summary: A summary that MemoTree made and that the file only shows; another one is a given one.
        unix: Whether carriage returns of the content count.
        is_new: Whether it must not exist yet.
        old_relations: Relations that the node had from its file before; those that are not wanted any more are removed.
            ``None`` if all of its relations are in its file.
    """

    id: str
    file: str
    title: str | None = None
    type: str | None = None
    content: str | None = None
    tags: tuple[str, ...] | None = None
    brief: str | None = None
    summary: str | None = None
    shown_summary: str = ""
    attributes: Mapping[str, str] | None = None
    relations: tuple[Relation, ...] | None = None
    old_relations: tuple[Relation, ...] | None = None
    source: Source | None = None
    unix: bool = True
    is_new: bool = False


@dataclass(slots=True)
class WantedTree:
    """The archives and nodes of a folder.

    Attributes:
        children: The ids of the nodes below each archive and node, in their order.
        fixed: Nodes that stay where they are, wherever that is.
        is_export: Whether the folder has all of the archives, in order. If not, nodes that came from no file are left
            alone, and new ones come last.
        warnings: What was left out or could not be understood, as sentences.
    """

    archives: dict[str, WantedArchive] = field(default_factory=dict)
    nodes: dict[str, WantedNode] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    is_export: bool = True
    warnings: list[str] = field(default_factory=list)

    def add(self, node: WantedNode, home: str) -> None:
        """Adds a node as the last one below an archive or node."""
        self.nodes[node.id] = node
        self.children.setdefault(home, []).append(node.id)
