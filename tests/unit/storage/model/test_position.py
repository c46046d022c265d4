"""Positions: their form, their ends and their errors."""

import random
from itertools import pairwise

import pytest
from memotree_storage.model.position import (
    FIRST,
    MAX_LENGTH,
    InvalidPositionError,
    PositionExhaustedError,
    between,
    check_position,
    many_between,
    position_fault,
)


@pytest.mark.requirement("CANVAS-10")
def test_a_hundred_thousand_at_the_end_and_many_at_the_beginning_keep_positions_short() -> None:
    rng = random.Random(7)
    first = last = between(None, None, rng)
    for number in range(100_000):
        position = between(last, None, rng)
        assert last < position
        last = position
        if number % 10 == 0:
            position = between(None, first, rng)
            assert position < first
            first = position
    assert max(len(first), len(last)) <= 8
    check_position(first)
    check_position(FIRST)
    assert many_between(None, None, 0) == []


def test_two_appends_at_once_rarely_choose_the_same_position() -> None:
    assert len({between("a0", None) for _ in range(1000)}) > 990
    assert len({between("a0", "a1") for _ in range(100)}) > 85


@pytest.mark.parametrize(
    "text", ["", "a", "0", "a00", "a0 ", "b1", "a0-", "a0\u00e9", "1a", "a" + "1" * MAX_LENGTH, "z1", "a0\n"]
)
def test_other_texts_are_no_positions(text: str) -> None:
    assert position_fault(text)
    for check in (check_position, lambda text: between(text, None), lambda text: between(None, text)):
        with pytest.raises(InvalidPositionError):
            check(text)


def test_neighbours_out_of_order_are_refused() -> None:
    for after in ("a0", "a1"):
        with pytest.raises(InvalidPositionError, match="in front of"):
            between("a1", after)


def test_an_impossible_position_is_an_error_and_not_an_endless_string() -> None:
    tight = "a0" + "0" * (MAX_LENGTH - 3) + "1"
    for before, after in (("a0", tight), ("z" + "z" * 26, None), (None, "A" + "0" * 26)):
        with pytest.raises(PositionExhaustedError):
            between(before, after)


def test_the_byte_order_is_the_order_of_the_numbers() -> None:
    ascending = ["X000", "Y00", "Yzz", "Z0", "Zz", "a0", "a0V", "a1", "az", "b00", "bzz", "c000"]
    assert sorted(ascending, key=str.encode) == ascending
    for left, right in pairwise(ascending):
        assert left < between(left, right) < right
