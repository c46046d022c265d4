"""The number of steps shows whether work grows in proportion to its size."""

import sys

import pytest
from steps import LINEAR, Steps, growth


def one_by_one(size: int) -> int:
    return sum(number % 7 for number in range(size))


def each_with_each(size: int) -> int:
    return sum(one == other for one in range(size) for other in range(size))


def looked_up(size: int) -> int:
    text = "ab" * size
    return sum(text.count("b", place, place + 2) for place in range(size))


def test_linear_growth_is_distinguished_from_quadratic_growth() -> None:
    assert growth(one_by_one, 500) == pytest.approx(4, rel=0.1)
    assert growth(looked_up, 500) == pytest.approx(4, rel=0.1)
    assert growth(each_with_each, 20) > 2 * LINEAR


def test_the_same_work_is_the_same_number_of_steps() -> None:
    counts = set()
    for _ in range(3):
        with Steps() as steps:
            one_by_one(1000)
        counts.add(steps.count)
    assert len(counts) == 1


def test_no_steps_are_counted_after_the_block() -> None:
    before = sys.gettrace(), sys.getprofile()
    with pytest.raises(ZeroDivisionError), Steps() as steps:
        _ = 1 // 0
    counted = steps.count
    one_by_one(100)
    assert steps.count == counted
    assert (sys.gettrace(), sys.getprofile()) == before
