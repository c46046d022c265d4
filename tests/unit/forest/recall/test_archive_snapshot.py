"""A snapshot has an archive as it was read: its nodes, its leaves, their properties and their features."""

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.index.leaf_features import LeafFeatureBlock, LeafFeatures
from memotree_storage.index.terms import count_terms
from memotree_storage.postgres.archive_trees import TreeNode

from memotree.forest.recall.archive_snapshot import make_snapshots
from memotree.forest.recall.filters import Filter
from memotree.forest.recall.leaf_blocks import block_of, picked

pytestmark = pytest.mark.requirement("FOREST-8")

WIDE = 3
trees = st.lists(st.tuples(st.integers(-1, 30), st.booleans(), st.booleans()), max_size=30)
"""For each node its parent's number, whether it has a content, and whether that is staged."""


def features(number: int) -> LeafFeatures:
    terms = np.arange(number % 4, dtype=np.uint32) + number
    return LeafFeatures(
        terms, np.full(len(terms), number, np.uint16), number, number, np.full(WIDE, number, np.float32)
    )


def leaf(number: int, parent: int, archive: str = "a", **fields: object) -> TreeNode:
    names = ("time", "speaker", "document_id", "heading", "valid_from", "valid_to")
    known = dict.fromkeys(names) | {"position": "a0", "type": "note", "tokens": 1, "tags": [], "depth": 0}
    known |= {"committed_at": datetime(2024, 1, 1, tzinfo=UTC), "archive_id": archive}
    known |= {"entry_id": f"{number:016d}", "parent_id": f"{parent:016d}" if parent >= 0 else ""}
    known |= {"version_id": number, "blob": f"{number:040d}"}
    return TreeNode(**{**known, **fields})  # type: ignore[arg-type]


def block(numbers: list[int]) -> LeafFeatureBlock:
    made = block_of([features(number) for number in numbers], WIDE)
    return LeafFeatureBlock(
        np.array(numbers, np.int64), made.tokens, made.lengths, made.offsets, made.terms, made.counts, made.vectors
    )


def in_order(wanted: list[tuple[int, bool, bool]]) -> list[TreeNode]:
    """The nodes in the store's order: parents before children, and all descendants directly after their node."""
    parents = [min(parent, number - 1) for number, (parent, _, _) in enumerate(wanted)]
    ordered: list[int] = []

    def add(number: int) -> None:
        ordered.append(number)
        for child, parent in enumerate(parents):
            if parent == number:
                add(child)

    for number, parent in enumerate(parents):
        if parent < 0:
            add(number)
    versions = [None if is_staged else number for number, (_, _, is_staged) in enumerate(wanted)]
    return [leaf(each, parents[each], tokens=int(wanted[each][1]), version_id=versions[each]) for each in ordered]


@given(trees, st.randoms(use_true_random=False))
def test_leaves_keep_their_order_their_paths_and_their_features(
    wanted: list[tuple[int, bool, bool]],
    rng: st.randoms,  # type: ignore[valid-type]
) -> None:
    nodes = in_order(wanted)
    with_content = [node for node in nodes if node.tokens]
    stored = [node.version_id for node in with_content if node.version_id is not None]
    rng.shuffle(stored)  # type: ignore[attr-defined]
    extra = {node.blob: features(int(node.blob)) for node in with_content if node.version_id is None}
    (made,) = make_snapshots(["a"], nodes, block(stored), extra, WIDE)
    assert [made.leaf_id(number) for number in range(len(made))] == [node.entry_id for node in with_content]
    parents = {node.entry_id: node.parent_id for node in nodes}
    terms = np.repeat(made.leaf_index.text.terms, np.diff(made.leaf_index.text.bounds))
    for number, node in enumerate(with_content):
        way = [node.entry_id]
        while parents[way[0]]:
            way.insert(0, parents[way[0]])
        assert made.above(number) == way[:-1]
        assert made.blob(number) == node.blob
        expected, postings = features(int(node.blob)), np.flatnonzero(made.leaf_index.text.leaves == number)
        assert terms[postings].tolist() == expected.terms.tolist()
        assert made.leaf_index.text.counts[postings].tolist() == expected.counts.tolist()
        assert made.leaf_index.vectors[number].tolist() == expected.vector.tolist()
    for top in nodes:
        mask = made.admitted(Filter(scope_id=top.entry_id))
        inside = [top.entry_id in [*made.above(number), made.leaf_id(number)] for number in range(len(made))]
        assert mask is not None
        assert mask.tolist() == inside
    assert made.own_weight > 0


def test_a_filter_is_a_mask_over_leaves_or_none_if_it_admits_all() -> None:
    dated, plan = leaf(1, -1, tags=["x", "y"], time="2023-05-08"), leaf(2, -1, tags=["x"], type="plan")
    nodes = [dated, plan, leaf(3, -1, time="not a time", committed_at=None)]
    (made,) = make_snapshots(["a"], nodes, block([1, 2, 3]), {}, WIDE)
    admitted = {
        Filter(): None,
        Filter(tags=frozenset({"x"})): [True, True, False],
        Filter(tags=frozenset({"x", "y"}), types=frozenset({"note"})): [True, False, False],
        Filter(types=frozenset({"plan", "code"})): [False, True, False],
        Filter(since=datetime(2023, 5, 8, tzinfo=UTC), until=datetime(2024, 1, 1, tzinfo=UTC)): [True, False, False],
        Filter(since=datetime(2024, 1, 1, tzinfo=UTC)): [False, True, True],
        Filter(until=datetime(9999, 1, 1, tzinfo=UTC)): [True, True, False],
        Filter(scope_id="9" * 16): [False, False, False],
    }
    for wanted, expected in admitted.items():
        mask = made.admitted(wanted)
        assert (None if mask is None else mask.tolist()) == expected


def test_an_archive_without_leaves_has_an_empty_snapshot() -> None:
    empty, bare = make_snapshots(["e", "a"], [leaf(1, -1, tokens=0)], block([]), {}, WIDE)
    assert (len(empty), len(bare)) == (0, 0)
    assert empty.leaf_index.vectors.shape == bare.leaf_index.vectors.shape == (0, WIDE)


def test_a_joined_archive_has_several_documents_and_a_tree_has_its_inner_nodes() -> None:
    spoken, dated = leaf(1, 0, document_id="x", speaker="Ann"), leaf(2, 0, document_id="x", time="2023-05-08")
    nodes = [leaf(0, -1, tokens=0), spoken, dated, leaf(3, 0, document_id="y")]
    (made,) = make_snapshots(["a"], nodes, block([1, 2, 3]), {}, WIDE)
    assert made.leaf_index.starts.tolist() == [0, 2, 3]
    assert [made.leaf_index.labels[number] for number in made.leaf_index.label_of] == ["Ann", "", ""]
    (may,) = count_terms("May").frequencies
    assert may in made.leaf_index.text.terms.tolist()


def test_rows_can_be_selected_in_any_order() -> None:
    whole = block([3, 5, 6])
    some = picked(whole, [2, 0])
    assert some.version_ids.tolist() == [6, 3]
    assert [some.terms[a:b].tolist() for a, b in pairwise(some.offsets)] == [[6, 7], [3, 4, 5]]
