"""How often something may happen: a token bucket, kept as one number (the generic cell rate algorithm).

The number is the time at which the bucket would be full again. So it costs no timer, and a bucket whose time has passed
needs not be kept.
"""

from dataclasses import dataclass
from typing import Final

_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls a minute.

    Attributes:
        per_minute: The calls, at least one.
        burst: How many may come at once, after a pause; 1 spreads all evenly.
    """

    per_minute: int
    burst: int = 1

    @property
    def interval(self) -> float:
        """Seconds after which one more call may come."""
        return _MINUTE / self.per_minute

    @property
    def longest(self) -> float:
        """Seconds in which a bucket that is empty becomes full."""
        return self.burst * self.interval

    def book(self, full_at: float, now: float) -> tuple[float, float]:
        """When the next call may begin, and when the bucket is full again if it does.

        Args:
            full_at: When the bucket is full, by the same clock as ``now``, in seconds.
            now: The time.
        """
        full_at = max(full_at, now)
        return max(now, full_at + self.interval - self.longest), full_at + self.interval
