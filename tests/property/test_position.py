"""Positions against a plain list."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.position import between, check_position, many_between, position_fault

SEEDS = st.integers(0, 2**32)


@pytest.mark.requirement("CANVAS-10")
@given(SEEDS, st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), max_size=60))
def test_siblings_stay_in_the_order_of_a_plain_list(seed: int, insertions: list[tuple[float, int]]) -> None:
    rng = random.Random(seed)
    model: list[int] = []
    placed: dict[int, str] = {}
    for share, count in insertions:
        at = int(share * len(model))
        before = placed[model[at - 1]] if at else None
        after = placed[model[at]] if at < len(model) else None
        positions = many_between(before, after, count, rng)
        assert len(positions) == count
        added = list(range(len(placed), len(placed) + count))
        placed |= dict(zip(added, positions, strict=True))
        model[at:at] = added
    assert sorted(placed, key=lambda number: placed[number].encode()) == model
    assert len(set(placed.values())) == len(placed)
    for text in placed.values():
        check_position(text)


@given(SEEDS, st.lists(st.booleans(), min_size=1, max_size=300))
def test_halving_one_gap_costs_less_than_a_quarter_of_a_character_a_time(seed: int, sides: list[bool]) -> None:
    rng = random.Random(seed)
    low, high = "a0", "a1"
    for upper in sides:
        middle = between(low, high, rng)
        assert low < middle < high
        low, high = (middle, high) if upper else (low, middle)
    assert len(middle) <= 8 + len(sides) / 4


@given(SEEDS, st.text("0123456789AZaz", min_size=1, max_size=8), st.text("0123456789AZaz", min_size=1, max_size=8))
def test_a_position_can_be_made_between_any_two_different_positions(seed: int, first: str, second: str) -> None:
    left, right = sorted((first, second))
    if left != right and not position_fault(left) and not position_fault(right):
        middle = between(left, right, random.Random(seed))
        assert left < middle < right
        check_position(middle)


@given(SEEDS, st.one_of(st.none(), st.just("a0")), st.integers(0, 4000))
def test_a_batch_is_spread_evenly_with_short_keys(seed: int, before: str | None, count: int) -> None:
    positions = many_between(before, None, count, random.Random(seed))
    assert positions == sorted(positions)
    assert len(set(positions)) == count
    assert max(map(len, positions), default=0) <= 8


@given(SEEDS, SEEDS)
def test_two_batches_at_one_place_do_not_interleave(first: int, second: int) -> None:
    ours = many_between("a0", "a5", 20, random.Random(first))
    theirs = many_between("a0", "a5", 20, random.Random(second))
    if ours != theirs:
        assert ours[-1] < theirs[0] or theirs[-1] < ours[0]
