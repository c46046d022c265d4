"""Where each archive and node of a state stands in an export.

An archive is a folder, and its description a file of the same name beside it. So is a node with others below it: its
file keeps its place when the first child comes. The names follow from ids and titles alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from memotree.client.markdown.file_names import SUFFIX, names_in_folder, width_at
from memotree.client.node_values import Archive, TreeNode

MANIFEST: Final = "memotree-export.json"
"""The file at the top of an export that says what it is of."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands: its archive, its parent ("" for a root), and how deep it is, from 0."""

    archive_id: str
    parent_id: str
    depth: int
    title: str


@dataclass(slots=True)
class Structure:
    """The archives and nodes of a state, without their texts; nodes in the order of the tree, parents first."""

    archives: dict[str, Archive] = field(default_factory=dict)
    nodes: dict[str, Place] = field(default_factory=dict)
    _way: list[str] = field(default_factory=list)

    def add_archive(self, archive: Archive) -> None:
        """Adds an archive; its nodes follow."""
        self.archives[archive.id] = archive
        self._way = []

    def add(self, archive_id: str, found: TreeNode) -> Place:
        """Adds the next node of an archive. What is shown among its roots is a root, whatever its own file says."""
        del self._way[found.depth :]
        parent_id = self._way[-1] if self._way else ""
        self._way.append(found.node.id)
        place = Place(archive_id, parent_id, found.depth, found.node.title)
        self.nodes[found.node.id] = place
        return place


@dataclass(frozen=True, slots=True)
class Layout:
    """The path of each archive and node, without suffix, by its id."""

    paths: dict[str, str]

    @classmethod
    def of(cls, structure: Structure) -> "Layout":
        """The layout of a state."""
        titles = {archive.id: archive.name for archive in structure.archives.values()}
        paths = names_in_folder(titles, width_at(0), [MANIFEST])
        below: dict[str, dict[str, str]] = {}
        for node_id, place in structure.nodes.items():
            below.setdefault(place.parent_id or place.archive_id, {})[node_id] = place.title
        homes: Iterable[str] = [*structure.archives, *structure.nodes]  # parents come before their children
        for home in homes:
            children = below.get(home)
            if children:
                depth = structure.nodes[home].depth + 1 if home in structure.nodes else 0
                names = names_in_folder(children, width_at(depth))
                paths |= {node_id: f"{paths[home]}/{name}" for node_id, name in names.items()}
        return cls(paths)

    def file(self, entry_id: str) -> str:
        """The path of the file of an archive or node."""
        return self.paths[entry_id] + SUFFIX

    def name(self, entry_id: str) -> str:
        """The name of that file, without suffix."""
        return self.paths[entry_id].rpartition("/")[2]
