"""The archive snapshots and search corpora in memory, bounded in bytes; what several of them share counts once."""

from collections import Counter, OrderedDict
from typing import TypeAlias

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot
from memotree.forest.recall.search_corpus import SearchCorpus

Kept: TypeAlias = ArchiveSnapshot | SearchCorpus


class KeptSnapshots:
    """Snapshots and corpora by key; the least recently used ones go first.

    Args:
        limit: The most bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._users: Counter[int] = Counter()
        """How many of the kept ones have each segment, by its `id`, which is unique as long as one of them has it."""
        self.weight = 0

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str | None) -> Kept | None:
        """Returns what is kept under a key, as the most recently used."""
        if key is None or key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: str, value: Kept) -> None:
        """Keeps a value, and lets go of others until all are within the limit."""
        if key in self._kept:
            self._drop(self._kept.pop(key))
        self._kept[key] = value
        self.weight += value.own_weight
        for segment in value.segments:
            self._users[id(segment)] += 1
            if self._users[id(segment)] == 1:
                self.weight += segment.weight
        while self.weight > self._limit:
            self._drop(self._kept.popitem(last=False)[1])

    def excess(self, value: Kept) -> tuple[int, int] | None:
        """Returns the bytes of a value that is too large to be kept at all, and the limit; ``None`` if it fits."""
        weight = value.own_weight + sum(segment.weight for segment in value.segments)
        return (weight, self._limit) if weight > self._limit else None

    def _drop(self, value: Kept) -> None:
        self.weight -= value.own_weight
        for segment in value.segments:
            self._users[id(segment)] -= 1
            if not self._users[id(segment)]:
                del self._users[id(segment)]
                self.weight -= segment.weight
