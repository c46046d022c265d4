"""Search by words, meaning and relations, within scopes, in any script; and ids by prefix."""

from typing import Any

import pytest
from integration.wires import Wire, family

from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS


@pytest.mark.requirement("CANVAS-5")
@pytest.mark.parametrize("kind", [0, pb.SEARCH_TYPE_FULL_TEXT, pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID], ids=str)
async def test_a_hit_has_a_score_a_marked_preview_and_a_reason(wire: Wire, kind: int) -> None:
    await wire.create("Roses", content="A rose needs water and much sunlight to grow.", tags=["garden"])
    await wire.create("Engines", content="A diesel engine burns fuel under pressure.")
    await wire.commit()
    found = await wire("SearchNodes", query="roses sunlight", search_type=kind)
    best = found.hits[0]
    assert best.node.title == "Roses"
    assert all(0 <= hit.score <= 1 for hit in found.hits)
    assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True)
    assert "**sunlight**" in best.preview
    assert set(best.matched_terms) >= {"rose", "sunlight"}
    assert best.reason
    assert (best.lexical_score > 0, best.semantic_score > 0) == (
        kind != pb.SEARCH_TYPE_SEMANTIC,
        kind in {pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID},
    )
    assert found.commit_id


@pytest.mark.requirement("CANVAS-5")
async def test_previews_have_their_length_and_can_be_left_out(wire: Wire) -> None:
    await wire.create("Long", content="word " * 500 + "needle " + "word " * 500)
    short = (await wire("SearchNodes", revision=wire.session, query="needle", preview_length=50)).hits[0].preview
    usual = (await wire("SearchNodes", revision=wire.session, query="needle")).hits[0].preview
    none = (await wire("SearchNodes", revision=wire.session, query="needle", include_preview=False)).hits[0].preview
    assert "**needle**" in short
    assert len(short) <= 54
    assert 150 < len(usual) <= 204
    assert none == ""


@pytest.mark.requirement("CANVAS-5")
async def test_filters_and_the_number_of_results_narrow_a_search(wire: Wire) -> None:
    await wire("CreateArchive", name="plans")
    for number in range(12):
        await wire.create(f"apple {number}", tags=["even", "x"] if number % 2 == 0 else ["odd"])
    await wire("CreateNode", archive_id="plans", title="apple of plans", type="plan")
    assert len(await wire.search("apple")) == 10
    assert len(await wire.search("apple", max_results=3)) == 3
    assert len(await wire.search("apple", max_results=100)) == 13
    assert await wire.search("apple", node_types=["plan", "code"]) == ["apple of plans"]
    assert len(await wire.search("apple", tags=["even", "x"])) == 6
    assert await wire.search("apple", tags=["even", "odd"]) == []
    assert await wire.search("apple", archives=["plans"]) == ["apple of plans"]


@pytest.mark.requirement("CANVAS-5")
async def test_scopes_limit_a_search_to_a_subtree_a_view_or_related_nodes(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    for node in (root, child, leaf):
        await wire("UpdateNode", node_id=node.id, content="apple")
    outside = await wire.create("Outside", content="apple")
    assert set(await wire.search("apple")) == {"Root", "Child", "Leaf", "Outside"}
    subtree = {"scope": pb.SEARCH_SCOPE_SUBTREE, "scope_node_id": child.id}
    assert set(await wire.search("apple", **subtree)) == {"Child", "Leaf"}
    view = {"scope": pb.SEARCH_SCOPE_CURRENT_VIEW, "view_name": "mine"}
    assert set(await wire.search("apple", **view)) == {"Root", "Outside"}
    await wire("ExpandNode", revision=wire.session, view_name="mine", node_id=leaf.id)
    assert set(await wire.search("apple", **view)) == {"Root", "Outside", "Leaf"}
    await wire("AddRelation", node_id=outside.id, relation=types_pb2.Relation(type=EXTENDS, target_id=leaf.id))
    await wire("AddRelation", node_id=leaf.id, relation=types_pb2.Relation(type=REFERENCES, target_id=root.id))
    related = {"scope": pb.SEARCH_SCOPE_RELATED, "scope_node_id": outside.id}
    assert set(await wire.search("apple", **related)) == {"Leaf", "Root"}
    assert await wire.search("apple", **related, max_depth=1) == ["Leaf"]
    assert await wire.search("apple", **related, relation_types=[REFERENCES]) == []


@pytest.mark.requirement("CANVAS-5")
@pytest.mark.parametrize(
    ("scope", "field"),
    [
        (pb.SEARCH_SCOPE_CURRENT_VIEW, "view_name"),
        (pb.SEARCH_SCOPE_SUBTREE, "scope_node_id"),
        (pb.SEARCH_SCOPE_RELATED, "scope_node_id"),
    ],
)
async def test_a_scope_without_its_argument_is_refused(wire: Wire, scope: int, field: str) -> None:
    refusal = await wire.refused("SearchNodes", query="apple", scope=scope)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (field,))


@pytest.mark.requirement("CANVAS-12")
async def test_a_search_along_relations_shows_the_way_in_both_directions(wire: Wire) -> None:
    a, b, c, d = [await wire.create(title, content=f"{title} text") for title in ("alpha", "beta", "gamma", "delta")]
    for source, kind, aim in ((a, REFERENCES, b), (c, EXTENDS, b), (c, REFERENCES, d)):
        relation = types_pb2.Relation(type=kind, target_id=aim.id, description="d")
        await wire("AddRelation", node_id=source.id, relation=relation)
    kind = pb.SEARCH_TYPE_RELATION

    async def ways(**fields: Any) -> dict[str, list[tuple[bool, str]]]:
        found = await wire("SearchNodes", revision=wire.session, search_type=kind, **fields)
        assert all(0 <= hit.score <= 1 and hit.reason for hit in found.hits)
        return {hit.node.title: [(step.outgoing, step.node.title) for step in hit.relation_path] for hit in found.hits}

    two_steps = {"beta": [(True, "beta")], "gamma": [(True, "beta"), (False, "gamma")]}
    assert await ways(scope_node_id=a.id) == two_steps
    assert await ways(query="alpha") == two_steps
    three = await ways(scope_node_id=a.id, max_depth=3)
    assert three["delta"] == [(True, "beta"), (False, "gamma"), (True, "delta")]
    assert await ways(scope_node_id=a.id, relation_types=[REFERENCES]) == {"beta": [(True, "beta")]}
    assert await ways(scope_node_id=d.id, max_depth=1) == {"gamma": [(False, "gamma")]}


@pytest.mark.requirement("CANVAS-14")
async def test_unspaced_text_is_found_down_to_a_single_character(wire: Wire) -> None:
    await wire.create("机器学习入门", content="深度学习是机器学习的一个分支。")
    await wire.create("東京の天気", content="今日はとても暑いです。")
    await wire.create("서울", content="한국어 문장입니다.")
    await wire.commit()
    for query, title in (
        ("学", "机器学习入门"),
        ("分支", "机器学习入门"),
        ("机器学习", "机器学习入门"),
        ("暑", "東京の天気"),
        ("天気", "東京の天気"),
        ("문장", "서울"),
    ):
        assert await wire.search(query, revision="") == [title], query
    assert await wire.search("猫", revision="") == []


@pytest.mark.requirement("CANVAS-14")
async def test_a_node_of_the_greatest_size_is_found_by_its_last_word(wire: Wire) -> None:
    filler = " ".join(f"w{number}" for number in range(200_000))[: 2**20 - 12]
    node = await wire.create("Big", content=f"{filler} lastzebra")
    assert await wire.search("lastzebra") == ["Big"]
    await wire.commit()
    found = await wire("SearchNodes", query="lastzebra")
    assert [hit.node.id for hit in found.hits] == [node.id]
    assert "**lastzebra**" in found.hits[0].preview


@pytest.mark.requirement("CANVAS-5", "STORE-5", "GIT-4")
async def test_a_search_sees_the_session_the_branch_and_old_commits_each_as_they_are(wire: Wire) -> None:
    node = await wire.create("Node", content="zebra", auto_generate_summary=False)
    first = await wire.commit()
    await wire("UpdateNode", node_id=node.id, content="giraffe")
    assert (await wire.search("zebra"), await wire.search("giraffe")) == ([], ["Node"])
    assert (await wire.search("zebra", ""), await wire.search("giraffe", "")) == (["Node"], [])
    await wire.commit()
    assert (await wire.search("zebra", ""), await wire.search("giraffe", "")) == ([], ["Node"])
    assert (await wire.search("zebra", first), await wire.search("giraffe", first)) == (["Node"], [])


@pytest.mark.requirement("CANVAS-13")
async def test_a_unique_prefix_of_four_characters_names_a_node(wire: Wire) -> None:
    same = "abcd"
    one, two = [await wire.create(f"Twin {end}", node_id=f"{same}{end * 12}") for end in ("0", "1")]
    assert (await wire.get("abcd0")).id == one.id
    assert (await wire("MoveNode", node_id="abcd1", parent_id="abcd0")).node.parent_id == one.id
    refusal = await wire.refused("GetNode", revision=wire.session, node_id=same)
    assert (refusal.code, refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", "AMBIGUOUS_ID", ("node_id",))
    assert [(node.id, node.title) for node in refusal.nodes] == [(one.id, "Twin 0"), (two.id, "Twin 1")]
    await wire("DeleteNode", node_id=two.id)
    assert (await wire.get(same)).id == one.id, "only alive nodes count"
    refusal = await wire.refused("GetNode", revision=wire.session, node_id="abc")
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "INVALID_ID")
