"""The merge with a heap gives the same as the plain algorithm, which compares every adjacent pair in every round."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from campaigns import effort
from hypothesis import example, given
from hypothesis import strategies as st
from steps import LINEAR, growth

from memotree.forest.tree_building.merging import MERGED_LEVELS, Merging, Vector, merge, merge_now, similarity


def merge_plainly(
    vectors: Sequence[Vector], lengths: Sequence[int], threshold: float, limit: int, levels: int = 32
) -> Merging:
    """The plain loop over the current roots: neighbours are in document order, and a parent replaces its pair."""
    known = list(vectors)
    sizes = list(lengths)
    below = [0] * len(lengths)
    roots = list(range(len(lengths)))
    pairs = []
    while len(roots) > 1:
        best = None
        highest = -2.0
        for place, (left, right) in enumerate(pairwise(roots)):
            found = similarity(known[left], known[right])
            fits = sizes[left] + sizes[right] <= limit and max(below[left], below[right]) < levels
            if found > threshold and fits and found > highest:
                best, highest = place, found
        if best is None:
            break
        left, right = roots[best], roots[best + 1]
        pairs.append((left, right))
        known.append(parent_of(left, right, known[left], known[right]))
        sizes.append(sizes[left] + sizes[right])
        below.append(max(below[left], below[right]) + 1)
        roots[best : best + 2] = [len(known) - 1]
    return Merging(len(lengths), tuple(pairs), tuple(roots))


def parent_of(left: int, right: int, one: Vector, two: Vector) -> Vector:
    """A vector that depends on both; small integers, so that ties also occur on upper levels."""
    mixed: Vector = (one + two + (left * right) % 3).astype(np.float32)
    return np.fmod(mixed, 4).astype(np.float32)


class Parents:
    """Makes the vectors of parents, and knows those that it has made."""

    def __init__(self, vectors: Sequence[Vector]) -> None:
        self._known = list(vectors)

    def __call__(self, left: int, right: int) -> Vector:
        self._known.append(parent_of(left, right, self._known[left], self._known[right]))
        return self._known[-1]


coordinates = st.integers(-2, 2)
inputs = st.lists(st.tuples(st.lists(coordinates, min_size=3, max_size=3), st.integers(0, 30)), min_size=0, max_size=40)


@pytest.mark.requirement("FOREST-2")
@effort(120)
@given(inputs, st.sampled_from([-1.0, -0.5, 0.0, 0.5, 0.9]), st.integers(0, 200), st.sampled_from([0, 1, 2, 3, 32]))
@example([([1, 0, 0], 1), ([0, 1, 0], 1)], 0.0, 200, 32)  # as similar as the threshold, and not more
def test_the_heap_merges_as_the_plain_algorithm_does_with_many_ties(
    given_leaves: list[tuple[list[int], int]], threshold: float, limit: int, levels: int
) -> None:
    vectors = [np.array(vector, dtype=np.float32) for vector, _ in given_leaves]
    lengths = [length for _, length in given_leaves]
    merged = merge_now(vectors, lengths, Parents(vectors), threshold=threshold, limit=limit, levels=levels)
    assert merged == merge_plainly(vectors, lengths, threshold, limit, levels)


@pytest.mark.requirement("FOREST-2")
@given(st.integers(0, 2**32 - 1), st.integers(2, 80), st.sampled_from([7, 64, 256]))
def test_the_heap_merges_as_the_plain_algorithm_does_on_real_numbers(seed: int, count: int, width: int) -> None:
    random = np.random.default_rng(seed)
    distinct = random.normal(size=(max(2, count // 3), width)).astype(np.float32)
    vectors = list(distinct[random.integers(0, len(distinct), count)])  # repeated vectors tie
    lengths = random.integers(1, 100, count).tolist()
    heap = merge_now(vectors, lengths, Parents(vectors), threshold=-0.2, limit=700)
    assert heap == merge_plainly(vectors, lengths, -0.2, 700)


@pytest.mark.requirement("STORE-8")
def test_alike_leaves_do_not_merge_into_a_chain_of_any_length() -> None:
    same = [np.ones(4, dtype=np.float32)] * 800
    merged = merge_now(same, [10] * 800, lambda _left, _right: same[0], threshold=0.5, limit=8000)
    below = [0] * 800
    for left, right in merged.pairs:
        below.append(1 + max(below[left], below[right]))
    assert max(below) == MERGED_LEVELS


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(0, 7))
def test_a_similarity_has_the_same_bits_at_every_position_of_its_vectors(seed: int, width: int, shift: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(9, width)).astype(np.float32)
    moved = np.zeros(9 * width + shift, dtype=np.float32)[shift:].reshape(9, width)
    moved[:] = rows
    vectors = list(rows)
    heap = merge_now(vectors, [1] * 9, lambda _l, _r: vectors[0], threshold=-1, limit=9)
    assert heap == merge_now(moved, [1] * 9, lambda _l, _r: vectors[0], threshold=-1, limit=9)
    assert similarity(rows[0], rows[1]) == similarity(moved[0], moved[1])


def test_zero_vectors_are_similar_to_no_vector_and_each_leaf_needs_one() -> None:
    assert similarity(np.zeros(3), np.ones(3)) == similarity(np.zeros(3), np.zeros(3)) == 0.0
    with pytest.raises(ValueError, match="one of each"):
        merge_now([np.ones(2)], [1, 2], lambda _l, _r: np.ones(2), threshold=0, limit=9)


async def test_sections_merge_at_the_same_time_and_a_section_pair_by_pair() -> None:
    random = np.random.default_rng(1)
    sections = [random.normal(size=(20, 8)) for _ in range(5)]
    running: set[int] = set()
    together = 0

    async def grow(number: int) -> Merging:
        parents = Parents(sections[number])

        async def make(left: int, right: int) -> Vector:
            nonlocal together
            assert number not in running
            running.add(number)
            together = max(together, len(running))
            await asyncio.sleep(0)
            running.discard(number)
            return parents(left, right)

        return await merge(sections[number], [1] * 20, make, threshold=-1, limit=20)

    grown = await asyncio.gather(*(grow(number) for number in range(5)))
    assert together > 1
    for number, merged in enumerate(grown):
        assert merged == merge_now(sections[number], [1] * 20, Parents(sections[number]), threshold=-1, limit=20)


def test_thousands_of_leaves_merge_in_linear_steps() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(20_000, 64)).astype(np.float32)
    parents = vectors[random.integers(0, len(vectors), len(vectors))]

    def merged(size: int) -> Merging:
        return merge_now(
            vectors[:size], [100] * size, lambda left, _right: parents[left % size], threshold=-1, limit=6400
        )

    assert growth(merged, 1_000) < LINEAR
    assert len(merged(len(vectors)).pairs) > 18_000
