"""A state of the tree as a plain dictionary, and the answers that every read of it must give."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.postgres import tree, tree_pages
from memotree_storage.postgres.tree import Snapshot

Tree = Mapping[str, Entry]
"""The alive entries of one state by id."""


def children(state: Tree, home_id: str) -> list[str]:
    """The ids directly below a node, or the roots of an archive, in their order."""
    return [entry_id for entry_id, _ in placed_children(state, home_id)]


def placed_children(state: Tree, home_id: str) -> list[tuple[str, str]]:
    """The same with their positions."""
    below = [
        node for node in state.values() if isinstance(node, Node) and (node.parent_id or node.archive_id) == home_id
    ]
    return [(node.id, node.position) for node in sorted(below, key=lambda node: (node.position.encode(), node.id))]


async def check_children(snapshot: Snapshot, alive: Tree, home_id: str) -> None:
    """Check the children: all at once, page by page, and the last one alone."""
    expected = placed_children(alive, home_id)
    assert await tree.children(snapshot, home_id) == expected
    assert await tree.last_position(snapshot, home_id) == (expected[-1][1] if expected else None)
    after = ("", "")
    for start in range(0, len(expected), 2):
        page = await tree.children(snapshot, home_id, after=after, limit=2)
        assert page == expected[start : start + 2]
        after = (page[-1][1], page[-1][0])
    found = await tree.one_with_last(snapshot, home_id)
    assert found is not None
    assert found.last_position == (expected[-1][1] if expected else None)


def subtree(state: Tree, tops: Iterable[str], above: tuple[str, ...] = ()) -> list[tuple[str, int]]:
    """Ids with their depths, parents before children; a cycle is walked once."""
    found: list[tuple[str, int]] = []
    for top in tops:
        if top not in above:
            found.append((top, len(above)))
            found += subtree(state, children(state, top), (*above, top))
    return found


def archive_tree(state: Tree, archive_id: str) -> list[tuple[str, int]]:
    """The roots of an archive and everything below them."""
    return subtree(state, children(state, archive_id))


async def check_tree(snapshot: Snapshot, alive: Tree, turn: int) -> None:
    """Check everything that reads of the tree tell; the turn decides of which trees the pages are."""
    assert await tree.ancestors(snapshot, alive) == {key: ancestors(alive, key) for key in alive}
    for entry in alive.values():
        if isinstance(entry, Archive):
            below = await tree.archive_tree(snapshot, entry.id)
            assert [(item.entry_id, item.depth) for item in below] == archive_tree(alive, entry.id)
        await check_children(snapshot, alive, entry.id)
    await check_pages(snapshot, alive, turn)


async def check_pages(snapshot: Snapshot, alive: Tree, turn: int) -> None:
    """Check the pages of some trees; the turn decides of which, their size, and how deep they go."""
    for top_id in sorted(alive)[turn % 3 :: 3]:
        await _check_pages_of(snapshot, alive, top_id, size=1 + turn % 4, max_depth=(None, 2, 1)[turn // 3 % 3])


async def _check_pages_of(snapshot: Snapshot, alive: Tree, top_id: str, *, size: int, max_depth: int | None) -> None:
    """Check that the pages, joined, are the tree, with the ancestors of each node, and whether a sibling follows."""
    is_archive = isinstance(alive[top_id], Archive)
    whole = archive_tree(alive, top_id) if is_archive else subtree(alive, [top_id])
    expected = [(entry_id, depth) for entry_id, depth in whole if max_depth is None or depth <= max_depth]
    found: list[tree_pages.PagedNode] = []
    after = None
    while not found or after is not None:
        page = await tree_pages.page(snapshot, tree_pages.Top(top_id, is_archive, max_depth), size, after)
        assert len(page.nodes) == min(size, len(expected) - len(found))
        assert page.has_more == (len(found) + len(page.nodes) < len(expected))
        found += page.nodes
        after = page.nodes[-1].place if page.has_more else None
        if not expected:
            break
    assert [(one.place.entry_id, one.depth) for one in found] == expected
    for one in found:
        entry_id, home_id, _ = one.place
        siblings = [key for key in children(alive, home_id) if key != top_id] if home_id else [entry_id]
        assert one.is_last == (siblings[-1] == entry_id)
        assert one.way == _way(alive, entry_id, top_id)


def _way(state: Tree, entry_id: str, top_id: str) -> tuple[str, ...]:
    """The ids from the top, or from the root, to the parent of a node."""
    way: list[str] = []
    node = state[entry_id]
    while node.id != top_id and isinstance(node, Node) and node.parent_id:
        way.append(node.parent_id)
        node = state[node.parent_id]
    return tuple(reversed(way))


def ancestors(state: Tree, entry_id: str) -> list[str]:
    """The ids above an entry, root first; stops at a parent that is not alive or was visited before."""
    way: list[str] = []
    node = state.get(entry_id)
    while isinstance(node, Node) and node.parent_id and node.parent_id not in way:
        way.append(node.parent_id)
        node = state.get(node.parent_id)
    return way[::-1]


def shown(state: Tree) -> tuple[dict[str, Entry], dict[str, str]]:
    """The state as listings show it, and the kinds of fault by id: nodes that stand nowhere are roots of an archive."""
    archives = sorted((entry.name.encode(), entry.id) for entry in state.values() if isinstance(entry, Archive))
    placed, found = dict(state), dict[str, str]()
    for node in state.values():
        if not isinstance(node, Node):
            continue
        above = state.get(node.parent_id or "")
        fault = ""
        if node.parent_id and not isinstance(above, Node):
            fault = "orphan"
        elif node.id == min(_cycle(state, node), default=""):
            fault = "cycle"
        elif isinstance(above, Node):
            fault = "other_archive" if above.archive_id != node.archive_id else ""
        elif not isinstance(state.get(node.archive_id), Archive):
            fault = "no_archive"
        if fault:
            found[node.id] = fault
        if fault not in ("", "other_archive"):
            has_archive = isinstance(state.get(node.archive_id), Archive)
            if has_archive or archives:
                archive_id = node.archive_id if has_archive else archives[0][1]
                placed[node.id] = replace(node, archive_id=archive_id, parent_id=None)
    return placed, found


def _cycle(state: Tree, node: Node) -> list[str]:
    """The ids of the cycle that a node is in; none if it is in none."""
    way = [node.id]
    above = state.get(node.parent_id or "")
    while isinstance(above, Node) and above.id not in way:
        way.append(above.id)
        above = state.get(above.parent_id or "")
    return way if above is not None and above.id == node.id else []


def faults(state: Tree) -> list[str]:
    """The reasons why a state is no forest: orphans, cycles, subtrees across two archives, archive names used twice."""
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
