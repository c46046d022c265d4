"""Siblings are put in order by moving as few of them as possible."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.position import many_between

from memotree.forest.ingestion.positions import new_positions

pytestmark = pytest.mark.requirement("FOREST-5")

PLACES = many_between(None, None, 8)


def ordered(wanted: list[tuple[str, str | None]]) -> list[str]:
    """The ids in the order that their positions give."""
    found = new_positions(wanted)
    places = {node_id: found.get(node_id, position) for node_id, position in wanted}
    assert None not in places.values()
    return sorted(places, key=lambda node_id: (str(places[node_id]), node_id))


def most_staying(positions: list[str | None]) -> int:
    """The fewest moves, found by trying all subsets."""
    known = [position for position in positions if position is not None]
    for count in range(len(known), 0, -1):
        for some in combinations(known, count):
            if all(left < right for left, right in pairwise(some)):
                return count
    return 0


@given(st.permutations(PLACES), st.lists(st.integers(0, 8), max_size=5))
def test_siblings_get_the_wanted_order_with_the_fewest_moves(places: list[str], new: list[int]) -> None:
    wanted: list[tuple[str, str | None]] = [(f"n{place}", place) for place in places]
    for number, at in enumerate(new):
        wanted.insert(at, (f"new {number}", None))
    assert ordered(wanted) == [node_id for node_id, _ in wanted]
    moved = [node_id for node_id in new_positions(wanted) if not node_id.startswith("new")]
    assert len(places) - len(moved) == most_staying([position for _, position in wanted])


def test_siblings_in_order_are_not_moved_and_those_at_the_same_position_get_different_ones() -> None:
    assert new_positions([(f"n{place}", place) for place in PLACES]) == new_positions([]) == {}
    assert ordered([("b", "a0"), ("a", "a0"), ("c", "a0")]) == ["b", "a", "c"]
