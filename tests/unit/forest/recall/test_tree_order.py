"""The order of a tree's nodes after one was put in is the same however it is found."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.forest.recall.trees import Tree

from memotree.forest.recall import tree_order
from memotree.forest.recall.tree_order import Placed, TreeOrder, UnclearOrderError, reordered

pytestmark = pytest.mark.requirement("FOREST-8")


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_one_node_is_put_in_as_several_are(seed: int, size: int) -> None:
    tree = Tree(random.Random(seed))
    for _ in range(size):
        tree.change()
    old = tree.whole()
    node = Placed("x" * 16, tree.chance.choice(["", *tree.nodes]), tree.position())
    arguments = (old.ids, old.parents, old.ends, old.order.positions)
    made = reordered(*arguments, [], {}, [node])
    work = tree_order._Work(*arguments, [node])
    work.put_all()
    assert _lists(made) == _lists(work.order())


def _lists(order: TreeOrder) -> list[object]:
    arrays = (order.place_of, order.parents, order.ends)
    return [list(order.runs.each()), *(each.tolist() for each in arrays)]


def test_a_node_below_none_of_the_tree_makes_the_order_unclear() -> None:
    old = Tree(random.Random(1)).whole()
    with pytest.raises(UnclearOrderError):
        reordered(old.ids, old.parents, old.ends, old.order.positions, [], {}, [Placed("x" * 16, "y" * 16, "a1")])
