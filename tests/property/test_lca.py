"""The lowest common ancestor is the deepest node of those that are above (or are) every hit of a tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.recall.ancestry import Hit, lowest_common_ancestor, representatives

forests = st.lists(st.integers(-1, 30), min_size=1, max_size=32).map(
    lambda wanted: [min(parent, number - 1) for number, parent in enumerate(wanted)]
)
"""Trees as the number of each node's parent, which has a lower number; -1 for a root."""


def way(parents: list[int], number: int) -> tuple[str, ...]:
    above = way(parents, parents[number]) if parents[number] >= 0 else ()
    return (*above, str(number))


def model(parents: list[int], numbers: set[int]) -> int:
    """Computed by sets of ancestors: the common ancestor with most nodes above it."""
    common = set.intersection(*({int(step) for step in way(parents, number)} for number in numbers))
    return max(common, key=lambda number: len(way(parents, number)))


@pytest.mark.requirement("FOREST-6")
@given(forests, st.data())
def test_hits_of_one_root_become_their_deepest_common_ancestor_with_the_best_score(
    parents: list[int], data: st.DataObject
) -> None:
    numbers = data.draw(st.sets(st.integers(0, len(parents) - 1), min_size=1))
    scores = {number: data.draw(st.sampled_from([0.2, 0.4, 0.6, 0.8])) for number in sorted(numbers)}
    found = representatives([Hit(way(parents, number), scores[number]) for number in sorted(numbers)])
    expected = []
    for root in {way(parents, number)[0] for number in numbers}:
        tree = {number for number in numbers if way(parents, number)[0] == root}
        expected.append((str(model(parents, tree)), max(scores[number] for number in tree), len(tree)))
    assert sorted((one.node_id, one.score, len(one.hits)) for one in found) == sorted(expected)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@pytest.mark.requirement("FOREST-6")
def test_paths_are_compared_by_segments_and_not_by_characters() -> None:
    assert lowest_common_ancestor([("1", "5", "12"), ("1", "52", "12")]) == "1"
    assert lowest_common_ancestor([("1", "5"), ("1", "5", "18")]) == "5"
