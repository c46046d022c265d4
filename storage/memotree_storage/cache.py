"""A thread-safe cache with a limit on total weight; it evicts the least recently used values."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Least-recently-used values up to a total weight (bytes, or whatever ``weigh`` counts); thread-safe."""

    def __init__(self, limit: int, weigh: Callable[[V], int]) -> None:
        self._limit = limit
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
        """Cache ``value``, unless it outweighs a quarter of the limit and would evict most of the cache."""
        weight = self._weigh(value)
        if weight > self._limit // 4:
            return
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            self._values[key] = (value, weight)
            self._weight += weight
            while self._weight > self._limit:
                _, (_, dropped) = self._values.popitem(last=False)
                self._weight -= dropped

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._weight = 0
