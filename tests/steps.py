"""What a piece of work costs, counted in steps that are the same on a fast machine and on a busy one.

A step is a line of Python that runs, or a call of any function. What one call of a C function costs is not seen: where
that could explode (a regular expression, a copy of the whole text), a test takes the full size besides and ends only
because the work does.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Final, Self

TIMES: Final = 4

LINEAR: Final = 5.0
"""What ``growth`` stays below when the cost is in proportion to the size, or to the size times its logarithm."""


class Steps:
    """The steps of what runs inside, in this thread.

    with Steps() as steps:
        work()
    assert steps.count < 1000
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace(), sys.getprofile()
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        trace, profile = self._before
        sys.setprofile(profile)
        sys.settrace(trace)

    def _trace(self, _frame: FrameType, _event: str, _argument: object) -> object:
        self.count += 1
        return self._trace

    def _profile(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event == "c_call"


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times the steps of ``work(size)`` it takes to do ``work(4 * size)``: 4 when they grow in proportion."""
    counts = []
    for each in (size, TIMES * size):
        with Steps() as steps:
            work(each)
        counts.append(steps.count)
    return counts[1] / counts[0]
