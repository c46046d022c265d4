"""A cache that forgets the least recently used values when they weigh too much together."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(_value: object) -> int:
    return 1


class BoundedCache(Generic[K, V]):
    """Keeps values until they weigh too much together, then forgets those that were not used for the longest time.

    Every method may be called from any thread: each holds a lock, for about a microsecond. ``weigh`` runs outside of
    it. Nothing is computed here, so two threads that miss the same key at once both make the value, and the later
    ``put`` stays; a value should therefore follow from its key.

    Args:
        limit: The most that all values may weigh.
        weigh: The weight of one value, such as its bytes with the cost of keeping it; asked once, when it is put. By
            default each value weighs 1, and ``limit`` is how many are kept.
    """

    def __init__(self, limit: int, weigh: Callable[[V], int] = _one) -> None:
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
        """Keep ``value`` in place of what ``key`` had; a value over a quarter of the limit is not kept."""
        weight = self._weigh(value)
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            if weight > self._limit // 4:  # it would drive out too many others
                return
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
