"""Which leaves and documents are as before."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.recall.scoring import splicing
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
    near = Neighbours(source, int(before[-1]))
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


@given(st.integers(0, 2**32), st.booleans())
def test_values_are_copied_by_runs_as_one_by_one(seed: int, shift: bool) -> None:
    source, _, before = changed_leaves(seed)
    near = Neighbours(source, int(before[-1]))
    old = np.arange(100, 100 + before[-1], dtype=np.int32)
    fresh = np.full(len(near.fresh), 7, dtype=np.int32)
    moved = (np.arange(len(source)) - source) * shift
    expected = [7 if leaf < 0 else int(old[leaf] + moved[place]) for place, leaf in enumerate(source.tolist())]
    assert near.copied(old, fresh, shift=shift).tolist() == expected
    assert near.copied_all([old, old], shift=shift)[1].tolist() == [0 if each == 7 else each for each in expected]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splicing, "_MOST_RUNS", 0)
        assert near.copied(old, fresh, shift=shift).tolist() == expected
