"""Packing: always within the budget, the best leaves first, returned in document order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.recall.scoring.leaf_index import LeafIndex, leaf_features, make_leaf_index
from memotree.forest.recall.scoring.packing import MOST_MISFITS, pack

sizes = st.lists(st.integers(min_value=1, max_value=60), min_size=1, max_size=80)


def leaves(tokens: list[int]) -> LeafIndex:
    return make_leaf_index(
        leaf_features(["abcd" * size for size in tokens], np.ones((len(tokens), 2), dtype=np.float32))
    )


def one_by_one(total: list[float], tokens: list[int], budget: float) -> list[int]:
    taken, missed = list[int](), 0
    for place in sorted(range(len(total)), key=lambda place: (-total[place], place)):
        if total[place] <= 0 or missed == MOST_MISFITS:
            break
        if sum(tokens[each] for each in taken) + tokens[place] <= budget:
            taken.append(place)
        else:
            missed += 1
    return sorted(taken)


@given(sizes, st.data(), st.integers(min_value=0, max_value=800))
def test_packing_equals_taking_leaves_one_by_one(tokens: list[int], data: st.DataObject, budget: int) -> None:
    grades = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    total = data.draw(st.lists(grades, min_size=len(tokens), max_size=len(tokens)))
    found = pack(np.array(total), leaves(tokens), budget)
    assert found.tolist() == one_by_one(total, tokens, budget)


@given(sizes, st.data(), st.integers(min_value=0, max_value=800))
def test_packing_never_exceeds_the_budget(tokens: list[int], data: st.DataObject, budget: int) -> None:
    chances = st.floats(min_value=0, max_value=1, width=32)
    total = data.draw(st.lists(chances, min_size=len(tokens), max_size=len(tokens)))
    found = pack(np.array(total), leaves(tokens), budget)
    assert sum(tokens[place] for place in found) <= budget
    assert found.tolist() == sorted(set(found.tolist()))
    assert all(total[place] > 0 for place in found)
    assert not len(pack(np.array([0.0, 0.0]), leaves([3, 4]), budget))
