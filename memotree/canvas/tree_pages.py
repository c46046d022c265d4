"""Pages of a tree that is listed parents first: where the next page begins, and which nodes end their siblings."""

from collections.abc import Mapping, Sequence
from typing import Any

from memotree_storage.postgres.tree import Branching


def cursor(found: Sequence[Branching], end: int) -> Mapping[str, Any]:
    """Where the page after the one that ends before ``end`` begins: after the last node shown, or at that number."""
    return {"after": found[end - 1].entry_id, "start": end}


def begin(found: Sequence[Branching], given: Mapping[str, Any]) -> int:
    """The index at which a page begins.

    In a session, nodes can be added and removed between two pages. The page then begins after the last node shown, or,
    if that one is gone, where its successor stood.
    """
    start, after = int(given["start"]), given["after"]
    if 0 < start <= len(found) and found[start - 1].entry_id == after:
        return start
    there = next((number for number, item in enumerate(found) if item.entry_id == after), None)
    return min(max(start - 1, 0), len(found)) if there is None else there + 1


def last_siblings(found: Sequence[Branching]) -> list[bool]:
    """For each node, whether no sibling follows it."""
    last = [True] * len(found)
    followed: list[bool] = []  # by depth: whether a sibling of that depth was seen after this place
    for number in range(len(found) - 1, -1, -1):
        depth = found[number].depth
        followed.extend([False] * (depth + 1 - len(followed)))
        last[number] = not followed[depth]
        followed[depth] = True
        del followed[depth + 1 :]
    return last
