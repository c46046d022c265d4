"""What repeated calls took: their median, and the interval of nine in ten."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of a call in milliseconds: the median, the 5th and the 95th percentile, and how many there were."""

    median_ms: float
    low_ms: float
    high_ms: float
    rounds: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """The figure of some times in milliseconds."""
        return cls(_percentile(samples, 0.5), _percentile(samples, 0.05), _percentile(samples, 0.95), len(samples))


def _percentile(samples: Sequence[float], share: float) -> float:
    """The percentile with linear interpolation."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
