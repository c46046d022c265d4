"""Assigns positions to siblings so that they get a wanted order, and moves as few of them as possible."""

from bisect import bisect_left
from collections.abc import Sequence

from memotree_storage.model.position import many_between


def new_positions(wanted: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """Returns new positions for those siblings that need one.

    Args:
        wanted: (id, current position) of each sibling in the wanted order; the position is ``None`` for a new sibling.
    """
    staying = _longest_ascending([position for _, position in wanted])
    found: dict[str, str] = {}
    before: str | None = None
    moving: list[str] = []
    for index, (node_id, position) in enumerate(wanted):
        if index not in staying:
            moving.append(node_id)
            continue
        found |= dict(zip(moving, many_between(before, position, len(moving)), strict=True))
        before, moving = position, []
    found |= dict(zip(moving, many_between(before, None, len(moving)), strict=True))
    return found


def _longest_ascending(positions: Sequence[str | None]) -> set[int]:
    """Returns the indexes of a longest strictly ascending subsequence (patience sorting; Fredman, 1975)."""
    tails: list[str] = []
    last: list[int] = []
    before: dict[int, int] = {}
    for index, position in enumerate(positions):
        if position is None:
            continue
        place = bisect_left(tails, position)
        if place:
            before[index] = last[place - 1]
        if place == len(tails):
            tails.append(position)
            last.append(index)
        else:
            tails[place], last[place] = position, index
    kept: set[int] = set()
    at = last[-1] if last else None
    while at is not None:
        kept.add(at)
        at = before.get(at)
    return kept
