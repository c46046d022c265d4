"""A state of the tree as a plain dictionary, and what every reading of it must give."""

from collections.abc import Iterable, Mapping

from memotree_storage.node import Archive, Entry, Node

Tree = Mapping[str, Entry]
"""The alive entries of one state by id."""


def children(state: Tree, parent_id: str | None, archive_id: str | None = None) -> list[str]:
    """The ids below a parent (or the roots of an archive) in their order."""
    below = [
        node
        for node in state.values()
        if isinstance(node, Node)
        and node.parent_id == parent_id
        and (archive_id is None or node.archive_id == archive_id)
    ]
    return [node.id for node in sorted(below, key=lambda node: (node.position.encode(), node.id))]


def subtree(state: Tree, tops: Iterable[str], above: tuple[str, ...] = ()) -> list[tuple[str, int]]:
    """Ids with their depths, parents before children; a cycle is walked once."""
    found: list[tuple[str, int]] = []
    for top in tops:
        if top not in above:
            found.append((top, len(above)))
            found += subtree(state, children(state, top), (*above, top))
    return found


def archive_tree(state: Tree, archive_id: str) -> list[tuple[str, int]]:
    """All that the roots of an archive reach."""
    return subtree(state, children(state, None, archive_id))


def ancestors(state: Tree, entry_id: str) -> list[str]:
    """The ids above an entry, root first; it ends where a parent is not alive or comes again."""
    way: list[str] = []
    node = state.get(entry_id)
    while isinstance(node, Node) and node.parent_id and node.parent_id not in way:
        way.append(node.parent_id)
        node = state.get(node.parent_id)
    return way[::-1]


def faults(state: Tree) -> list[str]:
    """What keeps a state from being a forest: orphans, cycles, subtrees of two archives, names given twice."""
    found = []
    names: set[str] = set()
    for entry in state.values():
        if isinstance(entry, Archive):
            if entry.name in names:
                found.append(f"{entry.name} names two archives")
            names.add(entry.name)
            continue
        if not isinstance(state.get(entry.archive_id), Archive):
            found.append(f"{entry.id} is in no archive")
        if entry.parent_id is None:
            continue
        parent = state.get(entry.parent_id)
        if not isinstance(parent, Node):
            found.append(f"{entry.id} is an orphan")
        elif parent.archive_id != entry.archive_id:
            found.append(f"{entry.id} and its parent are in two archives")
        if entry.id in ancestors(state, entry.id):
            found.append(f"{entry.id} stands below itself")
    return found
