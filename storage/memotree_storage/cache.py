"""A cache that forgets the least recently used values when they weigh too much together."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Least-recently-used values within a total weight (bytes, or whatever ``weigh`` counts); thread-safe."""

    def __init__(self, limit: int, weigh: Callable[[V], int]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    @property
    def weight(self) -> int:
        """What the cached values weigh together now."""
        return self._weight

    def get(self, key: K) -> V | None:
        """The value of ``key``, now the most recently used one, or ``None``."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> None:
        """Keep ``value``; one that outweighs a quarter of the whole cache would flush it and is not kept."""
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
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._weight = 0
