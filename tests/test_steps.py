"""The count of steps tells what grows in proportion from what does not."""

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


def test_what_grows_in_proportion_is_told_from_what_grows_with_the_square() -> None:
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


def test_nothing_is_counted_afterwards() -> None:
    before = sys.gettrace(), sys.getprofile()
    with pytest.raises(ZeroDivisionError), Steps() as steps:
        _ = 1 // 0
    counted = steps.count
    one_by_one(100)
    assert steps.count == counted
    assert (sys.gettrace(), sys.getprofile()) == before
