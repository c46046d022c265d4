"""The order of a tree's nodes after a change, made from the order before it.

The nodes of a tree are in pre-order: parents before children, siblings by position and id. A change takes some nodes
out and puts some in; whatever stands below a node that moves moves with it. Each step is a few passes over arrays of
numbers, so it costs microseconds for ten thousands of nodes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from memotree_storage.model.node import ID_LENGTH
from numpy.typing import NDArray

from memotree.forest.recall.scoring.runs import Runs

_ROOT: Final = -1
_OUT: Final = -2
"""The parent of a root, and of a node that is not in the tree."""

Places = NDArray[np.int32]


class UnclearOrderError(Exception):
    """The nodes before and the changes do not say where every node stands, so the whole tree has to be read."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node that is put into a tree: its id, the id of its parent ("" for a root), and its position."""

    entry_id: str
    parent_id: str
    position: str


@dataclass(frozen=True, slots=True, eq=False)
class TreeOrder:
    """Nodes in pre-order.

    Attributes:
        runs: What each node was before; -1 for one that is put in.
        place_of: For each node before, and then for each that is put in, its place; -1 if it is not in the tree.
        parents: For each node the place of its parent; -1 for a root.
        ends: For each node the place after its last descendant.
    """

    runs: Runs
    place_of: Places
    parents: Places
    ends: Places


def unchanged_order(parents: Places, ends: Places) -> TreeOrder:
    """Returns the order of nodes that stay where they are."""
    count = len(parents)
    return TreeOrder(Runs.identity(count), np.arange(count, dtype=np.int32), parents, ends)


def reordered(
    ids: NDArray[np.bytes_],
    parents: Places,
    ends: Places,
    positions: NDArray[np.bytes_],
    taken: Collection[int],
    moved: Mapping[int, int],
    put: Sequence[Placed],
) -> TreeOrder:
    """Returns the order of a tree's nodes after a change.

    Args:
        ids: The ids of the nodes before.
        parents: For each of them the place of its parent; -1 for a root.
        ends: For each the place after its last descendant.
        positions: For each its position.
        taken: The places of nodes that are gone. What is below them must be gone or moved, too.
        moved: For each node that has another parent or position, its place before and its place in ``put``.
        put: The nodes that are put in: new ones, and those that moved.

    Raises:
        UnclearOrderError: If a node would stand nowhere, or below itself.
    """
    if not taken and not moved and len(put) == 1:  # usual, and several times faster so
        return _with_one(ids, parents, ends, positions, put[0])
    work = _Work(ids, parents, ends, positions, put)
    for place in sorted([*taken, *moved], reverse=True):  # what is below comes out first
        if place in moved:
            work.take(place, moved[place])
        else:
            work.remove(place)
    work.put_all()
    return work.order()


def places_of(ids: NDArray[np.bytes_], wanted: Collection[str]) -> dict[str, int]:
    """Returns the place of each id that is there."""
    asked = sorted(each for each in wanted if len(each) == ID_LENGTH)
    if not len(ids) or not asked:
        return {}
    halves, keys = (
        np.ascontiguousarray(each).view(np.uint64).reshape(len(each), -1)
        for each in (ids, np.array(asked, dtype=f"S{ID_LENGTH}"))
    )
    found = {}
    for text, key in zip(asked, keys, strict=True):
        near = np.flatnonzero(halves[:, 1] == key[1])
        near = near[halves[near, 0] == key[0]]
        if len(near):
            found[text] = int(near[0])
    return found


def _with_one(
    ids: NDArray[np.bytes_], parents: Places, ends: Places, positions: NDArray[np.bytes_], node: Placed
) -> TreeOrder:
    """Returns the order of a tree's nodes after one was put in."""
    count = len(ids)
    parent = places_of(ids, [node.parent_id]).get(node.parent_id) if node.parent_id else _ROOT
    if parent is None:
        raise UnclearOrderError
    first, place = (0, count) if parent == _ROOT else (parent + 1, int(ends[parent]))
    own = (node.position.encode(), node.entry_id.encode())
    if first < place:
        last = place - 1
        while parents[last] != parent:
            last = int(parents[last])
        if (positions[last], ids[last]) > own:
            siblings = first + np.flatnonzero(parents[first:place] == parent)
            after = positions[siblings] > own[0]
            after |= (positions[siblings] == own[0]) & (ids[siblings] > own[1])
            place = int(siblings[int(np.argmax(after))])
    new_parents, new_ends = np.empty((2, count + 1), dtype=np.int32)
    new_parents[:place], new_parents[place], new_parents[place + 1 :] = parents[:place], parent, parents[place:]
    new_parents[place + 1 :] += parents[place:] >= place
    new_ends[:place], new_ends[place] = ends[:place], place + 1
    np.add(ends[place:], 1, out=new_ends[place + 1 :])
    while parent >= 0:
        new_ends[parent] += 1
        parent = int(parents[parent])
    runs = Runs.made([(0, place, 0), (place, place + 1, -1), (place + 1, count + 1, place)])
    place_of = np.arange(count + 1, dtype=np.int32)
    place_of[place:] += 1
    place_of[count] = place
    return TreeOrder(runs, place_of, new_parents, new_ends)


class _Work:
    def __init__(
        self,
        ids: NDArray[np.bytes_],
        parents: Places,
        ends: Places,
        positions: NDArray[np.bytes_],
        put: Sequence[Placed],
    ) -> None:
        count = len(ids)
        self._old, self._put = count, put
        self._old_ids = ids
        self._ids = np.concatenate([ids, np.array([each.entry_id.encode() for each in put], dtype=ids.dtype)])
        self._positions = np.concatenate([positions, np.array([each.position.encode() for each in put], dtype="S")])
        self._parents = np.concatenate([parents, np.full(len(put), _OUT, dtype=np.int32)])
        self._sizes = np.concatenate(
            [ends - np.arange(count, dtype=np.int32), np.ones(len(put), dtype=np.int32)]
        ).astype(np.int32)
        self._order = np.arange(count, dtype=np.int32)
        self._pieces: dict[int, Places] = {}
        """What comes with each node that is put in: its descendants, in pre-order."""

    # --- Out ---

    def take(self, row: int, number: int) -> None:
        """Takes a node out with everything below it; it will be put in again under another number."""
        piece = self._cut(row)
        new = self._old + number
        self._pieces[number] = piece[1:]
        self._sizes[new] = len(piece)
        self._parents[piece[1:][self._parents[piece[1:]] == row]] = new
        self._parents[row] = _OUT

    def remove(self, row: int) -> None:
        """Takes a node out for good."""
        if self._sizes[row] > 1:
            raise UnclearOrderError
        self._cut(row)
        self._parents[row] = _OUT

    def _cut(self, row: int) -> Places:
        start = self._place(row)
        size = int(self._sizes[row])
        piece = self._order[start : start + size].copy()
        self._order = np.concatenate([self._order[:start], self._order[start + size :]])
        self._grow(int(self._parents[row]), -size)
        return piece

    # --- In ---

    def put_all(self) -> None:
        numbers = {each.entry_id: number for number, each in enumerate(self._put)}
        if len(numbers) < len(self._put):
            raise UnclearOrderError
        waiting = dict.fromkeys(range(len(self._put)))
        while waiting:
            way = [next(iter(waiting))]
            while (above := self._above(way[-1], numbers)) in waiting:
                if above in way:
                    raise UnclearOrderError
                way.append(above)
            self._insert(way[-1], self._parent(way[-1], numbers))
            del waiting[way[-1]]

    def _parent(self, number: int, numbers: Mapping[str, int]) -> int:
        """The row of the parent of a node that is put in."""
        parent_id = self._put[number].parent_id
        if not parent_id:
            return _ROOT
        if parent_id in numbers:
            return self._old + numbers[parent_id]
        place = places_of(self._old_ids, [parent_id]).get(parent_id)
        if place is None or self._parents[place] == _OUT:
            raise UnclearOrderError
        return place

    def _above(self, number: int, numbers: Mapping[str, int]) -> int:
        """The nearest node above a node that is put in, too; -1 if there is none."""
        row = self._parent(number, numbers)
        while 0 <= row < self._old:
            row = int(self._parents[row])
        return row - self._old if row >= 0 else -1

    def _insert(self, number: int, parent: int) -> None:
        row = self._old + number
        start = self._gap(row, parent)
        piece = np.concatenate([np.array([row], dtype=np.int32), self._pieces.get(number, self._order[:0])])
        self._order = np.concatenate([self._order[:start], piece, self._order[start:]])
        self._parents[row] = parent
        self._grow(parent, len(piece))

    def _gap(self, row: int, parent: int) -> int:
        """The place at which a node comes to stand below a parent, by its position."""
        first = 0 if parent == _ROOT else self._place(parent) + 1
        end = len(self._order) if parent == _ROOT else first - 1 + int(self._sizes[parent])
        if first == end:
            return first
        last = int(self._order[end - 1])
        while self._parents[last] != parent:
            last = int(self._parents[last])
        if self._is_before(last, row):  # usual: it is the last one
            return end
        inside = self._order[first:end]
        siblings = inside[self._parents[inside] == parent]
        after = self._positions[siblings] > self._positions[row]
        same = self._positions[siblings] == self._positions[row]
        after[same] = self._ids[siblings[same]] > self._ids[row]
        return self._place(int(siblings[int(np.argmax(after))]))

    def _is_before(self, one: int, other: int) -> bool:
        return (self._positions[one], self._ids[one]) < (self._positions[other], self._ids[other])

    # --- Both ---

    def _place(self, row: int) -> int:
        return int(np.argmax(self._order == row))

    def _grow(self, row: int, more: int) -> None:
        while row >= 0:
            self._sizes[row] += more
            row = int(self._parents[row])

    def order(self) -> TreeOrder:
        rows = self._order
        place_of = np.full(len(self._parents) + 1, _ROOT, dtype=np.int32)
        place_of[rows] = np.arange(len(rows), dtype=np.int32)
        parents = place_of[self._parents[rows]]  # the last one is that of the parent of a root, -1
        ends = np.arange(len(rows), dtype=np.int32) + self._sizes[rows]
        runs = Runs.of(np.where(rows < self._old, rows, np.int32(-1)))
        return TreeOrder(runs, place_of[:-1], parents, ends)
