"""Counts the cost of work in steps, which are the same on a fast machine and on a busy one.

A step is an executed line of Python or a call of any function. The cost inside a C function is not counted. Where it
could explode (a regular expression, a copy of the whole text), a test also runs the full size, and would not end if the
cost exploded. What is given to the functions that are known to be costly is counted: `sorted_marks`.
"""

import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, groupby
from types import FrameType
from typing import Final, Self

import pytest
from memotree_storage.model import normal_form

TIMES: Final = 4

LINEAR: Final = 5.0
"""The bound of ``growth`` for a cost in proportion to the size, or to the size times its logarithm."""


class Steps:
    """Counts the steps of the block, in this thread.

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
    """The steps of ``work(4 * size)`` divided by those of ``work(size)``: 4 if they grow in proportion to the size."""
    counts = []
    for each in (size, TIMES * size):
        with Steps() as steps:
            work(each)
        counts.append(steps.count)
    return counts[1] / counts[0]


@contextmanager
def sorted_marks() -> Iterator[list[int]]:
    """Gives the lengths of the runs of marks that are sorted in the block; each costs the square of its length."""
    lengths: list[int] = []
    decomposed = cache(partial(unicodedata.normalize, "NFKD"))  # of single characters, which sorts nothing

    def counted(form: str, text: str) -> str:
        classes = map(unicodedata.combining, chain.from_iterable(map(decomposed, text)))
        lengths.extend(len(list(run)) for is_mark, run in groupby(classes, bool) if is_mark)
        return unicodedata.normalize(form, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal_form, "normalize", counted)
        yield lengths
