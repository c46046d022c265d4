"""Search by words, meaning and relations, within scopes, in any script; and ids by prefix."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from integration.wires import Wire, family
from integration.worlds import World
from memotree_storage.index import search
from memotree_storage.index.preview import Preview, PreviewMaker
from memotree_storage.index.search import Search, SearchQuery
from memotree_storage.ports import IndexHit, IndexQuery, TermVector
from memotree_storage.postgres import staging
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import State

from memotree.canvas import search as canvas_search
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS


async def relate(wire: Wire, source: types_pb2.Node, aim: types_pb2.Node, kind: int = REFERENCES) -> None:
    await wire("AddRelation", node_id=source.id, relation=types_pb2.Relation(type=kind, target_id=aim.id))


@pytest.mark.requirement("CANVAS-5")
async def test_a_hit_has_a_score_a_marked_preview_and_a_reason(wire: Wire) -> None:
    await wire.create("Roses", content="A rose needs water and much sunlight to grow.", tags=["garden"])
    await wire.create("Engines", content="A diesel engine burns fuel under pressure.")
    await wire.commit()
    for kind, signals in (
        (0, (True, False)),
        (pb.SEARCH_TYPE_FULL_TEXT, (True, False)),
        (pb.SEARCH_TYPE_SEMANTIC, (False, True)),
        (pb.SEARCH_TYPE_HYBRID, (True, True)),
    ):
        found = await wire("SearchNodes", query="roses sunlight", search_type=kind)
        best = found.hits[0]
        assert best.node.title == "Roses", kind
        assert all(0 <= hit.score <= 1 for hit in found.hits), kind
        assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True), kind
        assert "**sunlight**" in best.preview, kind
        assert set(best.matched_terms) >= {"rose", "sunlight"}, kind
        assert best.reason, kind
        assert (best.lexical_score > 0, best.semantic_score > 0) == signals, kind
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
    await relate(wire, outside, leaf, EXTENDS)
    await relate(wire, leaf, root)
    related = {"scope": pb.SEARCH_SCOPE_RELATED, "scope_node_id": outside.id}
    assert set(await wire.search("apple", **related)) == {"Leaf", "Root"}
    assert await wire.search("apple", **related, max_depth=1) == ["Leaf"]
    assert await wire.search("apple", **related, relation_types=[REFERENCES]) == []


@pytest.mark.requirement("CANVAS-5")
async def test_a_scope_without_its_argument_is_refused(wire: Wire) -> None:
    for scope, field in (
        (pb.SEARCH_SCOPE_CURRENT_VIEW, "view_name"),
        (pb.SEARCH_SCOPE_SUBTREE, "scope_node_id"),
        (pb.SEARCH_SCOPE_RELATED, "scope_node_id"),
    ):
        refusal = await wire.refused("SearchNodes", query="apple", scope=scope)
        assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (field,))


@pytest.mark.requirement("CANVAS-12")
async def test_a_search_along_relations_follows_both_directions_and_shows_the_path(wire: Wire) -> None:
    a, b, c, d = [await wire.create(title, content=f"{title} text") for title in ("alpha", "beta", "gamma", "delta")]
    await relate(wire, a, b)
    await relate(wire, c, b, EXTENDS)
    await relate(wire, c, d)
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
    await wire("DeleteNode", node_id=b.id)
    assert await ways(scope_node_id=a.id, max_depth=3) == {}, "no way passes through a deleted node"
    related = {"scope": pb.SEARCH_SCOPE_RELATED, "scope_node_id": a.id, "max_depth": 3}
    assert await wire.search("gamma", **related) == []


@pytest.mark.requirement("CANVAS-14")
async def test_unspaced_text_is_found_down_to_a_single_character(wire: Wire) -> None:
    await wire.create("机器学习入门", content="深度学习是机器学习的一个分支。")
    await wire.create("東京の天気", content="今日はとても暑いです。")
    await wire.create("서울", content="한국어 문장입니다.")
    await wire.commit()
    for query, title in (
        ("学", "机器学习入门"),
        ("机器学习", "机器学习入门"),
        ("天気", "東京の天気"),
        ("문장", "서울"),
    ):
        assert await wire.search(query, revision="") == [title], query
    assert await wire.search("猫", revision="") == []


@pytest.mark.requirement("STORE-8", "STORE-9")
async def test_the_previews_of_a_search_look_into_a_bounded_part_of_long_nodes(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = "Lorem ipsum dolor sit amet. " * 400
    for number in range(4):
        await wire.create(f"Long {number}", content=f"{filler} lastzebra", brief=f"Brief {number}", summary="Short.")
    for number in range(150):
        await wire.create(f"Note {number}", content=f"A lastzebra and {number} others.")
    await wire.commit()
    await wire.create("Staged", content=f"{filler} lastzebra")

    async def found(most: int) -> tuple[list[Any], list[str]]:
        monkeypatch.setattr(canvas_search, "_MOST_LONG_TOKENS", most)
        made.clear()
        answer = await wire("SearchNodes", revision=wire.session, query="lastzebra", max_results=1000)
        assert len(answer.hits) == 155
        assert all("**lastzebra**" in hit.preview for hit in answer.hits if hit.node.title.startswith("Note"))
        return [hit for hit in answer.hits if not hit.node.title.startswith("Note")], list(answer.warnings)

    made: list[int] = []

    class Counted(PreviewMaker):
        def make(self, text: str, *given: Any, **fields: Any) -> Preview:
            made.append(len(text))
            return super().make(text, *given, **fields)

    monkeypatch.setattr(canvas_search, "PreviewMaker", Counted)
    tokens = len(filler) // 4
    hits, warnings = await found(canvas_search._MOST_LONG_TOKENS)
    assert (["**lastzebra**" in hit.preview for hit in hits], warnings) == ([True] * 5, [])
    hits, warnings = await found(2 * tokens + 100)
    assert ["**lastzebra**" in hit.preview for hit in hits] == [True, True, False, False, False]
    assert sum(length > len(filler) for length in made) == 2
    assert all(hit.preview.startswith(("Long", "Staged")) for hit in hits[2:])
    assert "3 are shown by summaries" in warnings[0]


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
async def test_a_prefix_of_four_characters_names_the_only_node_that_is_alive(wire: Wire) -> None:
    one, two = [await wire.create(f"Twin {end}", node_id=f"abcd{end * 12}") for end in ("0", "1")]
    assert (await wire("MoveNode", node_id="abcd1", parent_id="abcd0")).node.parent_id == one.id
    assert (await wire.refused("GetNode", revision=wire.session, node_id="abcd")).reason == "AMBIGUOUS_ID"
    await wire("DeleteNode", node_id=two.id)
    assert (await wire.get("abcd")).id == one.id


@pytest.mark.requirement("CANVAS-12", "CANVAS-5")
async def test_scopes_and_filters_of_a_search_along_relations_are_about_its_results(wire: Wire) -> None:
    root = await wire.create("Root", content="quokka", type="plan", tags=["start"])
    child = await wire.create("Child", parent_id=root.id, content="text", tags=["end"])
    outside = await wire.create("Outside", content="text", tags=["end"])
    for aim in (child, outside):
        await relate(wire, root, aim)
    kind = {"search_type": pb.SEARCH_TYPE_RELATION}
    subtree = {"scope": pb.SEARCH_SCOPE_SUBTREE, "scope_node_id": root.id}
    assert await wire.search("quokka", **kind, **subtree) == ["Child"]
    assert await wire.search("", **kind, **subtree) == ["Child"]
    assert set(await wire.search("quokka", **kind, node_types=["note"])) == {"Child", "Outside"}
    assert set(await wire.search("quokka", **kind, tags=["end"])) == {"Child", "Outside"}
    assert await wire.search("quokka", **kind, tags=["start"]) == []
    refusal = await wire.refused("SearchNodes", **kind)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("query",))


@pytest.mark.requirement("CANVAS-5")
async def test_words_of_the_brief_and_the_summary_are_shown_as_the_reason(wire: Wire) -> None:
    await wire.create("Node", content="plain text", brief="a wombat", summary="The kiwi sleeps.")
    for query, word in (("wombat", "wombat"), ("kiwis", "kiwi")):
        hit = (await wire("SearchNodes", revision=wire.session, query=query)).hits[0]
        assert (f"**{word}**" in hit.preview, list(hit.matched_terms)) == (True, [word])
    hit = (await wire("SearchNodes", revision=wire.session, query="kiwi text")).hits[0]
    assert ("plain **text**" in hit.preview, list(hit.matched_terms)) == (True, ["kiwi", "text"])


def interrupt(monkeypatch: pytest.MonkeyPatch, world: World, before: Callable[[], Awaitable[None]]) -> None:
    """Let something happen just before the index answers a query."""
    ask = world.store.index.best_terms

    async def late(query: IndexQuery, terms: TermVector) -> list[IndexHit]:
        await before()
        return await ask(query, terms)

    monkeypatch.setattr(world.store.index, "best_terms", late)


@pytest.mark.requirement("STORE-5")
async def test_a_search_during_a_rebuild_is_not_empty(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(world.workspace, await world.put(world.node("zebra")))
    asked = 0

    async def rebuild() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await world.store.rebuild(world.workspace)

    interrupt(monkeypatch, world, rebuild)
    found = await world.store.search.find(state, SearchQuery("zebra", 10))
    assert ([hit.version.title for hit in found], asked) == (["zebra"], 2)


@pytest.mark.requirement("STORE-5")
async def test_a_search_holds_no_connection_while_the_index_is_asked(
    world: World, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(world.workspace, await world.put(world.node("zebra")))
    database = Database(database_url, min_size=1, max_size=1)
    await database.open()

    async def need_the_only_connection() -> None:
        async with database.connection() as conn:
            await conn.execute("select 1")

    interrupt(monkeypatch, world, need_the_only_connection)
    store = world.store
    try:
        async with asyncio.timeout(60):
            searching = Search(database, store.index, store.embedder, store.indexer)
            found = await searching.find(state, SearchQuery("zebra", 10))
    finally:
        await database.close()
    assert [hit.version.title for hit in found] == ["zebra"]


@pytest.mark.requirement("STORE-5")
async def test_a_version_that_the_index_does_not_yet_know_to_have_ended_is_no_hit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(world.workspace, await world.put(world.node("zebra")))
    ask = world.store.index.best_terms

    async def earlier(query: IndexQuery, terms: TermVector) -> list[IndexHit]:
        return [replace(hit, from_seq=hit.from_seq - 1) for hit in await ask(query, terms)]

    monkeypatch.setattr(world.store.index, "best_terms", earlier)
    assert await world.store.search.find(state, SearchQuery("zebra", 10)) == []


@pytest.mark.requirement("CANVAS-5")
@pytest.mark.parametrize("few_parts", [1, 100])
async def test_a_scope_of_very_many_nodes_hides_none_behind_better_matches_outside(
    world: World, monkeypatch: pytest.MonkeyPatch, few_parts: int
) -> None:
    monkeypatch.setattr(search, "_MOST_IDS", 2)
    monkeypatch.setattr(search, "_FEW_PARTS", few_parts)
    monkeypatch.setattr(search, "_MOST_CANDIDATES", 30)
    outside = world.nodes(60, content="apple")
    inside = world.nodes(5, content="apple " + "other words " * 200)
    state = State(world.workspace, await world.put(*outside, *inside))
    ids = {node.id for node in inside}
    for limit in (2, 10):
        found = await world.store.search.find(state, SearchQuery("apple", limit, node_ids=ids))
        assert len(found) == min(limit, 5)
        assert {hit.version.entry_id for hit in found} <= ids


@pytest.mark.requirement("CANVAS-5")
@pytest.mark.parametrize("meaning", [False, True])
async def test_staged_contents_are_read_for_a_search_once(
    world: World, monkeypatch: pytest.MonkeyPatch, meaning: bool
) -> None:
    monkeypatch.setattr(search, "_TOKENS_AT_ONCE", 10_000)
    session = await world.open()
    await world.stage(session, *world.nodes(120, content="apple " * 100))
    read: list[int] = []
    staged = staging.staged

    async def recorded(*args: Any, **fields: Any) -> list[Staged]:
        rows = await staged(*args, **fields)
        read.append(sum(1 for row in rows if row.data))
        return rows

    monkeypatch.setattr(staging, "staged", recorded)
    state = State(world.workspace, "", session)
    query = SearchQuery("apple", 200, meaning=meaning)
    first = await world.store.search.find(state, query)
    assert (len(first), sum(read)) == (120, 120)
    assert max(read) < 120, "not all contents are in memory at once"
    read.clear()
    assert await world.store.search.find(state, query) == first
    assert sum(read) == 0


@pytest.mark.requirement("CANVAS-5")
async def test_scores_fall_with_what_was_found_and_a_search_that_finds_nothing_close_says_so(wire: Wire) -> None:
    await wire.create("Roses", content="A rose needs water and much sunlight to grow.")
    await wire.create("Engines", content="A diesel engine burns fuel under pressure.")
    hybrid = {"revision": wire.session, "search_type": pb.SEARCH_TYPE_HYBRID}
    good = (await wire("SearchNodes", query="roses sunlight", **hybrid)).hits
    weak = (await wire("SearchNodes", query="roses qwertyuiop asdfgh", **hybrid)).hits
    none = (await wire("SearchNodes", query="qwertyuiop", **hybrid)).hits
    assert good[0].score > weak[0].score > max((hit.score for hit in none), default=0.0)
    for hits in (good, weak, none):
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert all(hit.score <= max(hit.lexical_score, hit.semantic_score) for hit in hits)
    for kind in (pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID):
        found = await wire("SearchNodes", revision=wire.session, query="hotel booking Rome", search_type=kind)
        assert found.hits, kind
        for hit in found.hits:
            assert hit.score < 0.3
            assert hit.semantic_score < 0.3
            assert "not close" in hit.reason, kind
        (warning,) = found.warnings
        assert "Probably no hit is about the query" in warning
        found = await wire("SearchNodes", revision=wire.session, query="flowers in the sun", search_type=kind)
        assert "close in meaning" in found.hits[0].reason, kind
        assert found.hits[0].node.title == "Roses", kind
        assert list(found.warnings) == [], kind
    await wire.create("Lighthouse")
    best = (await wire("SearchNodes", query="Lighthouse", **hybrid)).hits[0]  # the first by words and by meaning
    assert best.score == pytest.approx((best.lexical_score + best.semantic_score) / 2, abs=0.001)
    assert best.score > 0.9


@pytest.mark.requirement("CANVAS-5")
async def test_a_search_for_an_unregistered_type_or_in_an_unused_view_has_a_warning(wire: Wire) -> None:
    await wire.create("apple", type="plan")
    found = await wire("SearchNodes", revision=wire.session, query="apple", node_types=["nope", "plan"])
    assert [hit.node.title for hit in found.hits] == ["apple"]
    (warning,) = found.warnings
    assert "'nope'" in warning
    assert "plan" in warning
    found = await wire("SearchNodes", revision=wire.session, query="apple", node_types=["code"])
    assert (len(found.hits), len(found.warnings)) == (0, 0)
    node = await wire.create("banana")
    fields = {"revision": wire.session, "query": "banana", "scope": pb.SEARCH_SCOPE_CURRENT_VIEW, "view_name": "nope"}
    found = await wire("SearchNodes", **fields)
    (warning,) = found.warnings
    assert "no view 'nope' yet" in warning
    await wire("ExpandNode", revision=wire.session, view_name="nope", node_id=node.id)
    assert list((await wire("SearchNodes", **fields)).warnings) == []
