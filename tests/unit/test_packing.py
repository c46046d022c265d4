"""Packing: within the budget always, the best first, in the order of the documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.grove import Grove, grove, leaf_features
from memotree.forest.packing import MOST_MISFITS, pack
from memotree.forest.scoring import Scores

sizes = st.lists(st.integers(min_value=1, max_value=60), min_size=1, max_size=80)


def leaves(tokens: list[int]) -> Grove:
    return grove(leaf_features(["abcd" * size for size in tokens], np.ones((len(tokens), 2), dtype=np.float32)))


def scored(total: list[float]) -> Scores:
    zero = np.zeros(len(total), dtype=np.float32)
    return Scores(np.array(total, dtype=np.float32), zero, zero, zero, zero, zero)


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
def test_it_takes_what_taking_one_by_one_takes(tokens: list[int], data: st.DataObject, budget: int) -> None:
    grades = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    total = data.draw(st.lists(grades, min_size=len(tokens), max_size=len(tokens)))
    found = pack(scored(total), leaves(tokens), budget)
    assert found.tolist() == one_by_one(total, tokens, budget)


@given(sizes, st.data(), st.integers(min_value=0, max_value=800), st.sampled_from([0.0, 0.2]))
def test_it_is_never_over_the_budget(tokens: list[int], data: st.DataObject, budget: int, density: float) -> None:
    chances = st.floats(min_value=0, max_value=1, width=32)
    total = data.draw(st.lists(chances, min_size=len(tokens), max_size=len(tokens)))
    admitted = np.array(data.draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens))), dtype=bool)
    found = pack(scored(total), leaves(tokens), budget, admitted, density=density)
    assert sum(tokens[place] for place in found) <= budget
    assert found.tolist() == sorted(set(found.tolist()))
    assert admitted[found].all()


def test_short_leaves_come_first_when_density_is_asked_for() -> None:
    assert pack(scored([1.0, 0.9]), leaves([60, 6]), 60).tolist() == [0]
    assert pack(scored([1.0, 0.9]), leaves([60, 6]), 60, density=0.2).tolist() == [1]


@pytest.mark.parametrize("budget", [0, 100])
def test_nothing_is_taken_of_nothing(budget: int) -> None:
    assert not len(pack(scored([0.0, 0.0]), leaves([3, 4]), budget))
