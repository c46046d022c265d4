"""A thread-safe cache with a limit on total weight; it evicts the least recently used values."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Misremembered:
    """Something of a commit that a cache has otherwise than the rows.

    Attributes:
        what: A noun for it, such as ``node``.
        commit_id: The commit.
        entry_id: The node or archive that it is about, or ``""``.
    """

    what: str
    commit_id: str
    entry_id: str = ""


def _one(_value: object) -> int:
    return 1


class BoundedCache(Generic[K, V]):
    """Keeps values up to a total weight, and evicts the least recently used ones beyond that. Thread-safe.

    Each method holds a lock for about a microsecond; ``weigh`` runs outside of it. Two threads that miss a key at
    the same time both compute the value, and the later ``put`` wins; so a value should be determined by its key.

    Args:
        limit: The maximum total weight.
        weigh: The weight of one value, such as its size in bytes plus overhead; called once, in `put`. By
            default each value weighs 1, and ``limit`` is how many are kept.
        heaviest: The greatest weight of a value that is kept; a quarter of the limit by default, since a heavier one
            would evict most of the cache.
    """

    def __init__(self, limit: int, weigh: Callable[[V], int] = _one, *, heaviest: int | None = None) -> None:
        self._limit = limit
        self._heaviest = limit // 4 if heaviest is None else heaviest
        self._weigh = weigh
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    @property
    def weight(self) -> int:
        """The total weight of the cached values."""
        return self._weight

    def get(self, key: K) -> V | None:
        """Return the value of ``key`` and mark it as most recently used; ``None`` if it is not cached."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> None:
        """Cache ``value``, unless it is heavier than any value may be."""
        weight = self._weigh(value)
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            if weight > self._heaviest:
                return
            self._values[key] = (value, weight)
            self._weight += weight
            while self._weight > self._limit:
                _, (_, dropped) = self._values.popitem(last=False)
                self._weight -= dropped

    def items(self) -> list[tuple[K, V]]:
        """Return all keys with their values, the least recently used first."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._values.items()]

    def remove(self, is_unwanted: Callable[[K], bool]) -> None:
        """Remove the values of some keys; looks at all of them."""
        with self._lock:
            for key in [key for key in self._values if is_unwanted(key)]:
                self._weight -= self._values.pop(key)[1]

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._weight = 0
