"""Groups of similar vectors."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.ports import Vectors
from steps import LINEAR, growth

from memotree.forest.joining.similarity_groups import MOST_MEMBERS, groups


def unit(rows: list[list[float]]) -> Vectors:
    vectors = np.array(rows, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_two_similar_vectors_are_a_group_without_a_different_third() -> None:
    (group,) = groups(unit([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1]]), 0.6)
    assert group.members == (0, 1)
    assert 0.99 < group.similarity <= 1.0


def test_a_chain_is_no_group() -> None:
    vectors = unit([[1, 0], [1, 1], [0, 1]])  # each is near the next one, but the ends are not similar
    found = groups(vectors, 0.6)
    assert [group.members for group in found] in ([(0, 1)], [(1, 2)])


def test_the_most_similar_group_comes_first() -> None:
    found = groups(unit([[1, 0, 0, 0], [1, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0.01]]), 0.6)
    assert [group.members for group in found] == [(2, 3), (0, 1)]
    assert groups(np.zeros((0, 4), dtype=np.float32), 0.6) == []
    assert groups(unit([[1, 2]]), 0.6) == []


@given(
    st.lists(st.lists(st.floats(-1, 1, width=16), min_size=3, max_size=3).filter(any), min_size=2, max_size=12),
    st.sampled_from([0.0, 0.5, 0.8, 1.0]),
)
def test_groups_are_disjoint_and_similar_throughout_and_no_two_could_be_merged(
    rows: list[list[float]], threshold: float
) -> None:
    vectors = unit(rows)
    found = groups(vectors, threshold)
    members = [place for group in found for place in group.members]
    assert len(members) == len(set(members))
    similar = vectors @ vectors.T
    alone = [(place,) for place in range(len(rows)) if place not in members]
    for group in found:
        assert len(group.members) > 1
        assert similar[np.ix_(group.members, group.members)].min() >= threshold - 1e-5
    blocks = [group.members for group in found] + alone
    for number, one in enumerate(blocks):
        for other in blocks[:number]:
            assert similar[np.ix_(one, other)].min() < threshold + 1e-5


def test_many_equal_vectors_make_groups_of_readable_size_in_linear_steps() -> None:
    vectors = np.zeros((1_000, 256), dtype=np.float32)
    vectors[:, 0] = 1.0
    found = groups(vectors, 0.6)
    assert growth(lambda size: groups(vectors[:size], 0.6), 200) < LINEAR
    assert max(len(group.members) for group in found) <= MOST_MEMBERS
