"""Runs say what an array would, and rows in blocks are those of one array, whatever was changed before."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.recall.scoring import row_blocks
from memotree.forest.recall.scoring.leaf_windows import LeafWindows
from memotree.forest.recall.scoring.row_blocks import RowBlocks
from memotree.forest.recall.scoring.runs import Runs

pytestmark = pytest.mark.requirement("FOREST-8")

sources = st.lists(st.integers(-1, 30), max_size=40)


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_blocks, "_LARGEST", 8)
        patch.setattr(row_blocks, "_LEAST", 3)
        yield


def source_of(runs: Runs) -> list[int]:
    return runs.source_at(np.arange(len(runs))).tolist()


# --- Runs ------------------------------------------------------------------------------------------------------------


@given(sources)
def test_runs_say_what_each_leaf_was_before(source: list[int]) -> None:
    runs = Runs.of(np.array(source, dtype=np.int32))
    assert source_of(runs) == source
    assert runs.fresh.tolist() == [place for place, leaf in enumerate(source) if leaf < 0]
    assert list(runs.each()) == list(Runs.made(list(runs.each())).each())  # as few as possible
    for before in (len(source), 7):
        stay = all(leaf in {-1, place} for place, leaf in enumerate(source))
        assert runs.in_place(before) == (stay and len(source) == before)


@given(sources, st.lists(st.tuples(st.integers(0, 45), st.integers(0, 45)), max_size=6))
def test_ranges_of_leaves_become_fresh(source: list[int], ranges: list[tuple[int, int]]) -> None:
    expected = [-1 if any(start <= place < end for start, end in ranges) else leaf for place, leaf in enumerate(source)]
    found = Runs.of(np.array(source, dtype=np.int32)).with_fresh(ranges)
    assert source_of(found) == expected
    assert list(found.each()) == list(Runs.of(np.array(expected, dtype=np.int32)).each())


@given(sources, st.integers(0, 5), st.integers(0, 5))
def test_runs_stand_within_those_of_more_leaves(source: list[int], before: int, behind: int) -> None:
    was = max([0, *(leaf + 1 for leaf in source)])
    found = Runs.of(np.array(source, dtype=np.int32)).within(before, before + was, before + was + behind)
    own = [leaf if leaf < 0 else leaf + before for leaf in source]
    assert source_of(found) == [*range(before), *own, *range(before + was, before + was + behind)]


# --- Rows in blocks --------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 6))
def test_blocks_have_the_rows_of_one_array(seed: int, count: int, steps: int) -> None:
    chance = random.Random(seed)
    plain = np.arange(2 * count, dtype=np.int16).reshape(count, 2)
    rows = RowBlocks.of(plain)
    for step in range(steps):
        low, high = sorted(chance.randint(0, len(plain)) for _ in range(2))
        new = np.full((chance.randint(0, 12), 2), 100 + step, dtype=np.int16)
        kept = rows.array.copy()
        if chance.random() < 0.5:
            new = new[: len(plain) - low]
            after = rows.with_rows([(low, new)])
            plain = np.concatenate([plain[:low], new, plain[low + len(new) :]])
        else:
            after = rows.composed([(0, low), new, (high, len(plain))])
            plain = np.concatenate([plain[:low], new, plain[high:]])
        assert np.array_equal(rows.array, kept)
        rows = after
        assert np.array_equal(rows.array, plain)
        assert len(rows) == len(plain)
        assert all(len(block) <= 16 for block in rows.blocks)
        assert all(len(block) >= 3 for block in rows.blocks[:-1])
    some = np.array(sorted(chance.sample(range(len(plain)), len(plain) // 2)), dtype=np.int64)
    assert np.array_equal(rows.take(some), plain[some])
    assert [rows.row(place).tolist() for place in some.tolist()] == plain[some].tolist()


def test_a_change_copies_only_the_blocks_that_it_touches() -> None:
    rows = RowBlocks.of(np.arange(80, dtype=np.int32))
    for after in (
        rows.with_rows([(33, np.array([1, 2], dtype=np.int32)), (35, np.array([3], dtype=np.int32))]),
        rows.of_runs(Runs.of(np.array([*range(33), -1, *range(33, 80)]))),
        rows.of_runs(Runs.of(np.array([*range(33), -1, *range(34, 80)])), np.array([7], dtype=np.int32)),
    ):
        shared = {id(block) for block in rows.blocks} & {id(block) for block in after.blocks}
        assert len(shared) == len(rows.blocks) - 1


@given(st.integers(0, 2**32), st.integers(0, 20), st.sampled_from([5, 40_000]))
def test_borders_are_kept_however_far_they_are(seed: int, count: int, far: int) -> None:
    chance = np.random.default_rng(seed)
    borders = chance.integers(-far, far, (4, 3, count)).astype(np.int32)
    norms = chance.random((2, 3, count)).astype(np.float32)
    kept = LeafWindows.of(borders, norms)
    half = count // 2
    nothing = LeafWindows.of(np.zeros_like(borders), norms)
    parts = [(half, borders[:, :, half:], norms[:, :, half:]), (0, borders[:, :, :half], norms[:, :, :half])]
    made = nothing.with_intervals(parts)  # type: ignore[arg-type]
    every = np.arange(count)
    for each in (kept, made):
        found = each.of_leaves(every)
        assert np.array_equal(np.stack(found[:4]), borders)
        assert np.array_equal(np.stack(found[4:]), norms)
        for scale, (low, high) in enumerate(each.windows_of(every, range(3))):
            assert np.array_equal(np.stack([low, high]), borders[:2, scale])
