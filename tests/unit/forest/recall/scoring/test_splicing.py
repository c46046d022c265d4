"""Which leaves and documents are as before."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.recall.scoring.leaf_index import running
from memotree.forest.recall.scoring.runs import Runs
from memotree.forest.recall.scoring.splicing import Documents, Neighbours, Ranges

pytestmark = pytest.mark.requirement("FOREST-8")


def changed_leaves(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Some leaves and where they were before, with the documents now and before."""
    chance = random.Random(seed)
    before = chance.randint(0, 30)
    source = list(range(before))
    for _ in range(chance.randint(0, 4)):
        place = chance.randint(0, len(source))
        kind = chance.choice(["put", "take", "move"])
        if kind == "put":
            source.insert(place, -1)
        elif place < len(source):
            leaf = source.pop(place)
            if kind == "move":
                source.insert(chance.randint(0, len(source)), leaf)

    def starts(count: int) -> np.ndarray:  # type: ignore[type-arg]
        inner = [leaf for leaf in range(1, count) if chance.random() < 0.4]
        return np.array(sorted({0, *inner, count}), dtype=np.int64)

    return np.array(source, dtype=np.int32), starts(len(source)), starts(before)


@given(st.integers(0, 2**32))
def test_documents_are_found_by_runs_of_neighbours_as_one_by_one(seed: int) -> None:
    source, starts, before = changed_leaves(seed)
    near = Neighbours(Runs.of(source), int(before[-1]))
    documents = Documents(near, starts, before)
    leaves_before = [list(range(*pair)) for pair in zip(before[:-1].tolist(), before[1:].tolist(), strict=True)]
    for number, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        own = source[start:end].tolist()
        expected = leaves_before.index(own) if own in leaves_before else -1
        assert documents.same[number] == expected
        homes = {home for home, there in enumerate(leaves_before) for leaf in own if leaf in there}
        assert set(documents.homes(number)) >= {min(homes), max(homes)} if homes else not documents.homes(number)
        assert set(documents.homes(number)) <= homes
    ranges = Ranges(starts[:-1], starts[1:]), Ranges(before[:-1], before[1:])
    assert near.unchanged_one_by_one(*ranges).tolist() == documents.same.tolist()


@given(st.integers(0, 2**32))
def test_values_are_copied_by_runs_as_one_by_one(seed: int) -> None:
    source, _, before = changed_leaves(seed)
    near = Neighbours(Runs.of(source), int(before[-1]))
    old = np.arange(100, 100 + before[-1], dtype=np.int32)
    fresh = np.full(len(near.fresh), 7, dtype=np.int32)
    expected = [7 if leaf < 0 else int(old[leaf]) for leaf in source.tolist()]
    found = near.copied(old, fresh)
    assert found.tolist() == expected
    sums = near.running(running(old.astype(np.float32)), found.astype(np.float32))
    assert sums.tolist() == running(found.astype(np.float32)).tolist()


def test_an_array_in_which_nothing_differs_is_shared() -> None:
    old = np.array([5, 6, 7], dtype=np.int32)
    near = Neighbours(Runs.of(np.array([0, -1, 2])), 3)
    assert near.copied(old, np.array([6], dtype=np.int32)) is old
    assert near.copied(old, np.array([8], dtype=np.int32)).tolist() == [5, 8, 7]
    assert old.tolist() == [5, 6, 7]


@given(st.integers(0, 2**32))
def test_which_neighbours_are_others_than_before_is_known(seed: int) -> None:
    source, _, before = changed_leaves(seed)
    near = Neighbours(Runs.of(source), int(before[-1]))
    around = [-1, *source.tolist(), int(before[-1])]
    expected = [
        place
        for place, (one, other) in enumerate(pairwise(around))
        if other != one + 1 or (one < 0 and place > 0) or (other < 0)
    ]
    assert near.broken.tolist() == (expected if len(source) else [])
