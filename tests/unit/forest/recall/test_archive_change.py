"""The snapshot of a changed archive is the one that reading the whole archive would give."""

import random
from collections.abc import Iterator

import pytest
from campaigns import budget
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.forest.recall.trees import WIDE, Tree, assert_same_answers, changed, tree_of

from memotree.forest.recall.scoring import leaf_rows, row_blocks
from memotree.forest.recall.search_corpus import changed_corpus, make_corpus
from memotree.forest.recall.snapshot_comparison import same
from memotree.forest.recall.superseded import Superseded
from memotree.forest.recall.tree_order import UnclearOrderError

pytestmark = pytest.mark.requirement("FOREST-8")


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Segments and blocks stay apart although the archives here are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaf_rows, "_SMALL", 0)
        patch.setattr(row_blocks, "_LARGEST", 8)
        patch.setattr(row_blocks, "_LEAST", 3)
        yield


@settings(max_examples=budget(80))
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 6), st.integers(1, 5), st.booleans())
@example(
    seed=408, size=28, steps=5, most=2, is_document=True
)  # a heading above a node that moves is over the whole document afterwards
def test_a_changed_snapshot_is_that_of_the_whole_archive(
    seed: int, size: int, steps: int, most: int, is_document: bool
) -> None:
    tree = Tree(random.Random(seed))
    if is_document:
        tree.documents, tree.sizes = ("one",), (0, 40, 90, 200, 300)
    for _ in range(size):
        tree.change()
    kept = tree.whole()
    for _ in range(steps):
        ids: set[str] = set()
        for _ in range(tree.chance.randint(0, most)):
            ids |= tree.change()
        kept = changed(tree, kept, ids)
        whole = tree.whole()
        assert same(kept, whole)
        assert_same_answers(make_corpus([kept], WIDE), make_corpus([whole], WIDE))


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4))
def test_a_changed_corpus_is_that_of_all_archives(seed: int, archives: int, steps: int) -> None:
    chance = random.Random(seed)
    trees = [Tree(chance, f"a{number}") for number in range(archives)]
    for tree in trees:
        for _ in range(chance.randint(0, 12)):
            tree.change()
    kept = make_corpus([tree.whole() for tree in trees], WIDE)
    for _ in range(steps):
        snapshots = list(kept.snapshots)
        for place, tree in enumerate(trees):
            if chance.random() < 0.5:
                snapshots[place] = changed(tree, snapshots[place], tree.change())
        ended = {
            key: Superseded(0.0, is_over=True, by=()) for tree in trees for key in tree.nodes if chance.random() < 0.1
        }
        fresh = make_corpus([tree.whole() for tree in trees], WIDE, ended)
        made = changed_corpus(kept, snapshots, ended)
        kept = make_corpus(snapshots, WIDE, ended) if made is None else made
        assert made is not None or sum(map(bool, map(len, snapshots))) <= 1
        assert kept.starts.tolist() == fresh.starts.tolist()
        assert_same_answers(kept, fresh)


@pytest.mark.parametrize("size", [10, 40])
def test_a_node_that_moves_counts_although_the_order_of_leaves_stays(size: int) -> None:
    placed = [(letter, "b" if letter != "b" else "", "a" + letter) for letter in "bcdefg"]
    tree = tree_of(*placed)
    for key, node in tree.nodes.items():
        tree.nodes[key] = node._replace(type="note", tokens=size if node.parent_id else 0, document_id="one")
    tree.nodes["d" * 16] = tree.nodes["d" * 16]._replace(tokens=0)
    for letter in "ef":
        tree.nodes[letter * 16] = tree.nodes[letter * 16]._replace(parent_id="d" * 16)
    old = tree.whole()
    tree.nodes["d" * 16] = tree.nodes["d" * 16]._replace(parent_id="c" * 16)
    made = changed(tree, old, {"d" * 16})
    assert [made.leaf_id(number) for number in range(4)] == [old.leaf_id(number) for number in range(4)]
    assert same(made, tree.whole())


@pytest.mark.parametrize(
    "moved",
    [None, ("c", "a1"), ("z", "a1"), ("", "a" * 40)],
    ids=["what is below stays", "below itself", "below nothing", "a very long position"],
)
def test_if_the_order_is_unclear_the_whole_archive_is_read(moved: tuple[str, str] | None) -> None:
    tree = tree_of(("b", "", "a1"), ("c", "b", "a1"))
    old = tree.whole()
    if moved is None:
        del tree.nodes["b" * 16]
    else:
        tree.put("b" * 16, moved[0] * 16, moved[1])
    with pytest.raises(UnclearOrderError):
        changed(tree, old, {"b" * 16})


def test_a_misplaced_node_makes_the_order_unclear() -> None:
    tree = tree_of(("b", "", "a1"))
    tree.nodes["b" * 16] = tree.nodes["b" * 16]._replace(is_misplaced=True)
    with pytest.raises(UnclearOrderError):
        changed(tree, tree.whole(), set())
