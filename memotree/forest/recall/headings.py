"""The headings above the leaves of an archive, as far as they tell leaves of a document apart."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MOST_HEADINGS: Final = 8
"""The most headings above a leaf that count; notes can be nested without limit."""

WHOLE: Final = 0.9
"""A heading over this share of a document's leaves is its title, and tells no two of them apart."""

Numbers = NDArray[np.int32]


class HeadingTree:
    """The headings of an archive's nodes.

    Args:
        parents: For each node in pre-order the index of its parent; -1 for a root.
        ends: For each node the index after its last descendant.
        places: The index of each leaf.
        starts: The first leaf of each document, and the number of leaves.
        headings: The distinct headings; the first one is "".
        heading_of: For each node the index of its heading; 0 for none.
    """

    def __init__(
        self,
        parents: Numbers,
        ends: Numbers,
        places: Numbers,
        starts: NDArray[np.int64],
        headings: Sequence[str],
        heading_of: Numbers,
    ) -> None:
        self._parents, self._ends, self._places = parents, ends, places
        self._starts = starts
        self._headings = headings
        self.heading_of = heading_of

    def every(self) -> list[tuple[str, ...]]:
        """Returns the nearest headings above each leaf, outermost first, without those over its whole document."""
        if not self.heading_of.any():
            return [()] * len(self._places)
        widths = self.widths(np.arange(len(self._ends))).tolist()
        sizes = np.repeat(np.diff(self._starts), np.diff(self._starts)).tolist()
        above: list[tuple[tuple[str, int], ...]] = []
        heading_of = self.heading_of.tolist()
        for parent in self._parents.tolist():
            if parent < 0:
                above.append(())
                continue
            heading = self._headings[heading_of[parent]]
            path = (*above[parent], (heading, widths[parent])) if heading else above[parent]
            above.append(path[-_MOST_HEADINGS:])
        return [
            tuple(heading for heading, width in above[place] if _is_shown(width, size))
            for place, size in zip(self._places.tolist(), sizes, strict=True)
        ]

    def of(self, leaf: int) -> tuple[str, ...]:
        """Returns the same for one leaf."""
        found: list[str] = []
        size = self.size_around(leaf)
        place, left = int(self._parents[self._places[leaf]]), _MOST_HEADINGS
        while place >= 0 and left:
            number = int(self.heading_of[place])
            if number:
                left -= 1
                if _is_shown(int(self.widths(np.array([place]))[0]), size):
                    found.append(self._headings[number])
            place = int(self._parents[place])
        return tuple(reversed(found))

    def widths(self, nodes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the number of leaves at and below each of some nodes."""
        found: NDArray[np.int64] = np.searchsorted(self._places, self._ends[nodes]) - np.searchsorted(
            self._places, nodes
        )
        return found

    def size_around(self, leaf: int) -> int:
        """Returns the number of leaves of a leaf's document."""
        number = int(np.searchsorted(self._starts, leaf, side="right")) - 1
        return int(self._starts[number + 1] - self._starts[number])

    def shown(self, nodes: NDArray[np.integer], size: int) -> NDArray[np.bool_]:
        """Returns for each of some nodes whether its heading counts for the leaves of a document of this size."""
        if size == 1:
            return np.ones(len(nodes), dtype=bool)
        found: NDArray[np.bool_] = self.widths(nodes) < WHOLE * size
        return found

    def over(self, document: int) -> NDArray[np.int64]:
        """Returns the nodes with a heading that are above leaves of a document."""
        first, last = (int(self._places[self._starts[document + end] - end]) for end in (0, 1))
        above, place = [], int(self._parents[first])
        while place >= 0:
            above.append(place)
            place = int(self._parents[place])
        inside = first + np.flatnonzero(self.heading_of[first : last + 1])
        nodes = np.array(above[::-1], dtype=np.int64)
        return np.concatenate([nodes[self.heading_of[nodes] > 0], inside]) if len(nodes) else inside

    def leaves_below(self, node: int) -> tuple[int, int]:
        """Returns the range of leaves below a node, without the node itself."""
        start, end = np.searchsorted(self._places, [node + 1, self._ends[node]]).tolist()
        return int(start), int(end)


def _is_shown(width: int, size: int) -> bool:
    return size == 1 or width < WHOLE * size
