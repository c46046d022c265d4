"""Limits how often each principal calls tools. A call that comes too soon is refused and told when it may come."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from memotree_storage.errors import TooLargeError

from memotree.request.principal import Principal
from memotree.request.rate import Rate

MOST_BUCKETS: Final = 10_000
"""How many principals have a bucket of their own at one time; further ones share one."""

_SHARED: Final = ""
"""The name of the bucket of those who have no role, or are not known."""

_CLEARED_AT_ONCE: Final = 2
"""More than are added by one call, so that all buckets of idle principals are cleared in time."""

_TOLERANCE: Final = 1e-6
"""Seconds; who waits as long as it was told is not refused for the last digit of a time."""


class ToolRateError(TooLargeError):
    """The principal has called tools as often as it may for now.

    Attributes:
        retry_after: Seconds after which the next call may come.
    """

    reason = "TOOL_RATE_EXCEEDED"
    passes = True

    def __init__(self, rate: Rate, retry_after: float) -> None:
        self.retry_after = math.ceil(1000 * (retry_after - _TOLERANCE)) / 1000
        super().__init__(
            f"Each caller may call tools {rate.per_minute} times a minute here, {rate.burst} of them at once (the "
            "server's settings tools_calls_per_minute and tools_burst). This call was not begun; send it again in "
            f"{self.retry_after:g} seconds."
        )


class ToolRateLimit:
    """A token bucket for each principal; for one event loop.

    Args:
        rate: How often each may call; ``None`` for no limit.
        clock: Returns a time in seconds that never goes back.
    """

    def __init__(self, rate: Rate | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()  # those that were used last are the last

    def change(self, rate: Rate | None) -> None:
        """Set how often each may call from now on; calls that were made count."""
        self._rate = rate
        if rate is None:
            self._full_at.clear()

    @property
    def buckets(self) -> int:
        """How many buckets are kept."""
        return len(self._full_at)

    def count(self, who: Principal) -> None:
        """Count a call of a tool.

        Raises:
            ToolRateError: It comes too soon; it does not count.
        """
        rate = self._rate
        if rate is None:
            return
        now = self._clock()
        self._clear(now)
        name = self._bucket(who)
        begin, full_at = rate.book(min(self._full_at.get(name, now), now + rate.longest), now)
        if begin > now + _TOLERANCE:
            raise ToolRateError(rate, begin - now)
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)

    def _bucket(self, who: Principal) -> str:
        name = who.name if who.is_known and who.grants else _SHARED
        return name if name in self._full_at or len(self._full_at) < MOST_BUCKETS else _SHARED

    def _clear(self, now: float) -> None:
        """Forget full buckets, a few at each call: a new one is full."""
        for name in list(self._oldest()):
            if self._full_at[name] <= now:
                del self._full_at[name]

    def _oldest(self) -> list[str]:
        return [name for name, _ in zip(self._full_at, range(_CLEARED_AT_ONCE), strict=False)]
