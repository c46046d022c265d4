"""Whether a summary is out of date follows from the nodes alone."""

import pytest
from memotree_storage.model.node import Node
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    PENDING_MODEL,
    hash_of_children,
    hash_of_content,
    with_provenance,
    without_provenance,
)
from memotree_storage.postgres.rows import Version, staged_version

from memotree.forest.summaries.staleness import Reason, Scope, stale

pytestmark = pytest.mark.requirement("FOREST-5")


def leaf(node_id: str, summary: str, pending: str = "") -> Version:
    attributes = with_provenance({}, "x", hash_of_content("text"), pending)
    return staged_version(
        Node(node_id, "a", "top", "a0", "leaf_chunk", title=node_id, summary=summary, attributes=attributes), ""
    )


def parent(node_id: str, children: list[Version], pending: str = "", above: str | None = None) -> Version:
    made_of = hash_of_children((child.entry_id, child.summary) for child in children)
    attributes = with_provenance({}, "x", made_of, pending)
    return staged_version(
        Node(node_id, "a", above, "a0", "summary_node", title=node_id, summary="s", attributes=attributes), ""
    )


def found(
    levels: list[list[Version]], children: dict[str, list[str]], *, with_models: bool = True
) -> dict[str, Reason]:
    versions = {version.entry_id: version for level in levels for version in level}
    scope = Scope([[version.entry_id for version in level] for level in levels], versions, children)
    return {item.version.entry_id: item.reason for item in stale(scope, with_models=with_models)}


@pytest.mark.parametrize("now", [["b", "c"], ["c", "b"], ["b"], ["b", "c", "d"], []])
def test_changed_children_or_another_order_make_a_parent_stale(now: list[str]) -> None:
    leaves = [leaf("b", "B"), leaf("c", "C")]
    expected = {} if now == ["b", "c"] else {"top": Reason.CHILDREN}
    assert found([[*leaves, leaf("d", "D")], [parent("top", leaves)]], {"top": now}) == expected


def test_a_changed_summary_of_a_child_makes_all_ancestors_stale() -> None:
    before, now = [leaf("b", "B")], [leaf("b", "other")]
    middle = parent("middle", before, above="top")
    levels = [now, [middle], [parent("top", [middle])]]
    assert found(levels, {"middle": ["b"], "top": ["middle"]}) == dict.fromkeys(("middle", "top"), Reason.CHILDREN)


def test_a_changed_content_is_always_stale_and_a_pending_summary_only_if_a_model_is_configured() -> None:
    leaves = [leaf("b", "B", PENDING_CONTENT)]
    assert found([leaves], {}, with_models=False) == {"b": Reason.CONTENT}
    leaves = [leaf("b", "B", PENDING_MODEL)]
    assert found([leaves], {}, with_models=False) == {}
    assert found([leaves], {}) == {"b": Reason.PENDING}


def test_a_summary_written_by_a_person_is_never_stale() -> None:
    children = [leaf("b", "B")]
    top = parent("top", [leaf("c", "C")])
    by_hand = staged_version(
        Node("top", "a", None, "a0", "summary_node", attributes=without_provenance(top.attributes)), ""
    )
    assert found([children, [by_hand]], {"top": ["b"]}) == {}
