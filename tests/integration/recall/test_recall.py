"""Recall on real stores: the three strategies, budgets, filters, and states that change."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from integration.recall.talks import (
    COLLAPSED,
    EVERYTHING,
    GARDEN,
    HYBRID,
    LCA,
    MUCH,
    SEA,
    TRACTOR,
    Forest,
    Models,
    leaves,
    talk,
    texts,
)
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.node import Archive, Node, Source, new_id
from memotree_storage.model.position import many_between
from memotree_storage.model.tokens import count_tokens
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas.node_messages import nodes_at
from memotree.forest.citations import content_hash
from memotree.forest.recall.recall import Recall
from memotree.request.messages import DETAIL
from memotree.v1 import forest_service_pb2 as pb

# --- HYBRID ----------------------------------------------------------------------------------------------------------


LIKED = [{"tractor": 0.1}, {"tractor": 1.0}, {"roses": 0.9, "tractor": 0.4}, {"boat": 0.05}]


@pytest.mark.requirement("USE-4")
async def test_half_of_a_score_is_the_relevance_by_the_reranking_model(still: Forest) -> None:
    before = {one.node.id: one.score for one in leaves(await still(TRACTOR, token_budget=MUCH))}
    unlike = 0.001 * max(before.values())  # such notes are left out, unless the model likes them
    for liked in LIKED:
        recalling = Recall(still.world.store, still.world.limits, Models(still.world.store.embedder, liked))
        answer = await replace(still, recalling=recalling)(TRACTOR, token_budget=MUCH, include_trace=True)
        after = {one.node.id: one for one in leaves(answer)}
        for node_id, one in after.items():
            relevance = max((value for word, value in liked.items() if word in one.node.content), default=0.0)
            near = 1e-6 if node_id in before else unlike
            assert one.score == pytest.approx(0.5 * before.get(node_id, 0.0) + 0.5 * relevance, abs=near)
            signals = {signal.name: signal.score for signal in one.trace.signals}
            assert signals.get("rerank", 0.0) == pytest.approx(0.5 * relevance)
            assert sum(signals.values()) == pytest.approx(one.score, abs=1e-6)
        assert answer.likelihood == pytest.approx(max(one.score for one in after.values()), abs=1e-6)


async def test_a_copy_of_a_document_does_not_fill_the_budget_twice(forest: Forest) -> None:
    words = "The lighthouse keeper repaired the lamp before the storm, and wrote it into the log of the year."
    copies = [Archive(new_id(), f"log {number}") for number in range(3)]
    for archive in copies:
        await forest.world.put(archive, *talk(archive.id, [words, "Thanks!"]))
    found = [one.node.content for one in leaves(await forest("lighthouse keeper thanks", token_budget=MUCH))]
    assert found.count(words) == 1
    assert found.count("Thanks!") == len(copies)


@pytest.mark.requirement("FOREST-8")
@pytest.mark.parametrize("strategy", [HYBRID, COLLAPSED])
async def test_a_budget_that_covers_the_text_holds_for_headings_ids_and_excerpts(
    forest: Forest, strategy: pb.RecallStrategy.ValueType
) -> None:
    house = forest.world.node("House of the keeper, by the sea", content="The key of the tractor is here.")
    shed = forest.world.node("Shed", content=f"{TRACTOR} It does since the winter.", parent_id=house.id)
    long = forest.world.node("Log", content="The diesel engine was cleaned by Ann. " * 60, parent_id=house.id)
    short = forest.world.node("Port", content="7319", attributes={"valid_from": "2024-01-01"})
    await forest.world.put(house, shed, long, short)
    for query, budget in product((TRACTOR, "Which port?"), (1, 5, 8, 9, 12, 20, 30, 50, 90, 150, 400)):
        answer = await forest(query, token_budget=budget, budget_covers_text=True, strategy=strategy)
        assert count_tokens(answer.text) <= budget
        assert answer.text or any("greater budget" in each for each in answer.warnings)
        shown = {one.node.id for one in [*leaves(answer), *answer.nodes]}
        dropped = {each.node_id for each in answer.receipt.dropped}
        assert shown.isdisjoint(dropped)
        assert dropped or shown
        assert (await forest(query, receipt=answer.receipt)).text == answer.text


@pytest.mark.requirement("FOREST-8", "FOREST-15")
async def test_recall_packs_leaves_in_document_order_under_the_budget(still: Forest) -> None:
    answer = await still(token_budget=40)
    assert "tractor" in answer.text
    assert 0 < answer.tokens_used <= answer.token_budget == 40
    assert answer.tokens_used == sum(one.tokens for one in leaves(answer))
    assert answer.leaves_considered == len(GARDEN) + len(SEA)
    assert answer.commit_id == still.commit
    for passage in answer.passages:
        lines = GARDEN if passage.archive_name == "notes" else SEA
        places = [lines.index(one.node.content) for one in passage.nodes]
        assert places == list(range(places[0], places[0] + len(places)))
        assert passage.text == "\n".join(one.node.content for one in passage.nodes)
        assert passage.score == max(one.score for one in passage.nodes)
    documents = list(dict.fromkeys(passage.archive_id for passage in answer.passages))
    best = [max(one.score for one in answer.passages if one.archive_id == document) for document in documents]
    assert best == sorted(best, reverse=True)


@pytest.mark.requirement("FOREST-8")
async def test_no_budget_is_ever_exceeded(still: Forest) -> None:
    for budget in (1, 5, 11, 12, 13, 30, 60, 100):
        answer = await still(token_budget=budget)
        assert sum(count_tokens(text) for text in texts(answer)) == answer.tokens_used <= budget
        is_refused = any("too small for anything" in warning for warning in answer.warnings)
        assert is_refused == (answer.tokens_used == 0) == (budget < 8), "no silence without its reason"
        assert not is_refused or len(answer.warnings) == 1, "and of no excerpt"


@pytest.mark.requirement("FOREST-8")
async def test_a_trace_has_shares_that_add_up_the_path_from_the_root_and_a_sentence(still: Forest) -> None:
    for strategy in (LCA, COLLAPSED, HYBRID):
        answer = await still(strategy=strategy, include_trace=True)
        found = [*leaves(answer), *answer.nodes]
        assert found
        for one in found:
            assert 0 <= one.score <= 1
            assert sum(signal.score for signal in one.trace.signals) == pytest.approx(one.score, abs=1e-6)
            assert all(signal.score >= 0 for signal in one.trace.signals)
            assert [node.id for node in one.trace.route] == list(one.node.path)
            assert one.trace.reason.endswith(".")
    without = await still()
    assert not any(one.HasField("trace") for one in leaves(without))


@pytest.mark.requirement("FOREST-8")
async def test_only_headings_show_where_sections_were_left_out(forest: Forest) -> None:
    world = forest.world
    manual = Archive(new_id(), "Manual of the pump")
    top = Node(new_id(), manual.id, None, "a0", title="Manual of the pump")
    parts = []
    lines = {
        "Safety": "Wear gloves of strong leather and a helmet, and never work alone near the water. " * 3,
        "Starting": "Press the green button twice, wait for the lamp, then press the button once more. " * 3,
        "Repair": "Call Zoe, who has the spare parts and the long ladder, before you open the case. " * 3,
    }
    for place, (title, text) in zip(many_between(None, None, 3), lines.items(), strict=True):
        head, pair = (Node(new_id(), manual.id, None, place, type="summary_node", title=title) for _ in range(2))
        head = replace(head, parent_id=top.id, attributes={"section": "1"})
        pair = replace(pair, parent_id=head.id, title="A made up title")
        span = Source("pump", heading=f"Manual of the pump > {title}")
        leaf = Node(new_id(), manual.id, pair.id, "a0", type="leaf_chunk", title=title, content=text, source=span)
        parts += [head, pair, leaf]
    await world.put(manual, top, *parts)
    here = pb.RecallFilter(archives=[manual.id])
    answer = await forest("Which button has to be pressed?", token_budget=70, filter=here)
    assert list(answer.passages[0].headings) == ["Manual of the pump", "Starting"]
    assert answer.text == f"# Manual of the pump\n\n## Starting\n\n[{parts[5].id}] {lines['Starting']}"


@pytest.mark.requirement("FOREST-8")
async def test_a_leaf_over_the_budget_is_cut_to_its_best_part_with_a_warning(forest: Forest) -> None:
    lines = [f"Line {number} is about nothing at all." for number in range(400)]
    lines[250] = "The zeppelin lands on the roof of the town hall."
    long = forest.world.node("Long", content="\n".join(lines))
    await forest.world.put(long)
    answer = await forest("Where does the zeppelin land?", token_budget=60)
    cut = next(one for one in leaves(answer) if one.node.id == long.id)
    assert "zeppelin" in cut.node.content
    assert cut.node.content in long.content
    assert cut.node.content_cut
    assert cut.citation.content_sha256 == content_hash(long.content)
    assert answer.tokens_used <= 60
    assert any(long.id in warning for warning in answer.warnings)
    assert answer.passages[0].text.startswith("Long:\n"), "it keeps its title"


# --- LCA and COLLAPSED -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-6", "FOREST-15")
async def test_several_hits_of_one_tree_become_their_common_ancestor_with_the_best_score(still: Forest) -> None:
    single = await still("ferry to the island", strategy=LCA, top_k=1)
    assert [one.node.id for one in single.nodes] == [still.ferry[1].id]
    assert single.nodes[0].node.content == SEA[0]
    answer = await still("ferry to the island", strategy=LCA, top_k=MUCH, filter=pb.RecallFilter(archives=["sea"]))
    assert [one.node.id for one in answer.nodes] == [still.ferry[0].id]
    assert answer.nodes[0].score == pytest.approx(single.nodes[0].score)
    assert answer.nodes[0].node.summary
    assert not answer.nodes[0].node.content


@pytest.mark.requirement("FOREST-15")
async def test_collapsed_returns_the_best_nodes_of_all_levels_within_the_budget(still: Forest) -> None:
    answer = await still("people talk about a tractor", strategy=COLLAPSED, top_k=5)
    assert 3 <= len(answer.nodes) <= 5
    assert {one.node.type for one in answer.nodes} == {"summary_node", "leaf_chunk"}
    assert [one.score for one in answer.nodes] == sorted((one.score for one in answer.nodes), reverse=True)
    narrow = await still("people talk about a tractor", strategy=COLLAPSED, top_k=5, token_budget=16)
    assert 0 < narrow.tokens_used == sum(one.tokens for one in narrow.nodes) <= 16


# --- Filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-8")
@pytest.mark.parametrize("strategy", [LCA, COLLAPSED, HYBRID])
async def test_a_filter_by_model_or_archive_excludes_all_others(still: Forest, strategy: int) -> None:
    for wanted in (
        pb.RecallFilter(model_id="another-agent"),
        pb.RecallFilter(archives=["sea"]),
        pb.RecallFilter(archives=["sea", "notes"], model_id="another-agent"),
        pb.RecallFilter(scope_node_id=still.ferry[0].id),
    ):
        answer = await still(strategy=strategy, filter=wanted)  # type: ignore[arg-type]
        found = [one.node.archive_id for one in [*leaves(answer), *answer.nodes]]
        assert found
        assert set(found) == {still.sea.id}
    nobody = await still(strategy=strategy, filter=pb.RecallFilter(model_id="nobody"))  # type: ignore[arg-type]
    assert not [*leaves(nobody), *nobody.nodes]
    assert any("nobody" in warning for warning in nobody.warnings)
    for missing in ({"archives": ["nowhere"]}, {"scope_node_id": "0" * 16}):
        with pytest.raises(NotFoundError):
            await still(strategy=strategy, filter=pb.RecallFilter(**missing))  # type: ignore[arg-type]


@pytest.mark.requirement("FOREST-8")
@pytest.mark.parametrize("strategy", [COLLAPSED, HYBRID])
async def test_nodes_are_filtered_by_tag_type_time_and_scope(forest: Forest, strategy: int) -> None:
    world = forest.world
    old = world.node(
        "Old", content="The tractor was red.", tags=("farm", "x"), attributes={"time": "1:56 pm on 8 May, 2023"}
    )
    new = world.node("New", content="The tractor is blue.", tags=("farm",), attributes={"time": "2024-01-05T10:00:00Z"})
    top = world.node("Top", content="Of tractors.", type="plan")
    below = world.node("Below", content="A tractor below.", parent=top)
    await world.put(old, new, top, below)
    now = datetime.now(UTC)

    async def found(**wanted: Any) -> set[str]:
        answer = await forest(
            "tractor", strategy=strategy, top_k=100, token_budget=MUCH, filter=pb.RecallFilter(**wanted)
        )
        return {one.node.title for one in [*leaves(answer), *answer.nodes]}

    assert await found(tags=["farm"]) == {"Old", "New"}
    assert await found(tags=["farm", "x"]) == {"Old"}
    assert await found(node_types=["plan"]) == {"Top"}
    assert await found(scope_node_id=top.id) == {"Top", "Below"}
    assert await found(until="2023-06-01") == {"Old"}
    assert await found(since="2023-05-08T13:56:00Z", until="2024-01-05T10:00:00Z") == {"Old"}
    assert await found(since="2023-05-08T13:56:01Z", tags=["farm"]) == {"New"}
    assert "Below" in await found(since=(now - timedelta(days=1)).isoformat())
    assert await found(since=(now + timedelta(days=1)).isoformat()) == set()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"query": " "}, "query"),
    ({"query": "x" * 8193}, "query"),
    ({"query": "a\x00b"}, "query"),
    ({"token_budget": -1}, "token_budget"),
    ({"token_budget": 200_001}, "token_budget"),
    ({"top_k": -1}, "top_k"),
    ({"strategy": 9}, "strategy"),
    ({"filter": pb.RecallFilter(since="yesterday")}, "filter.since"),
    ({"filter": pb.RecallFilter(since="2024-01-01", until="2023-01-01")}, "filter.until"),
]


@pytest.mark.requirement("FOREST-8")
async def test_a_request_that_cannot_be_right_is_refused_by_field(still: Forest) -> None:
    for fields, field in WRONG:
        with pytest.raises(InvalidInputError) as caught:
            await still(**fields)
        assert [fault.field for fault in caught.value.violations] == [field], fields


# --- Citations -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-8")
async def test_a_citation_is_checked_by_the_hash_of_what_git_has_at_its_commit(forest: Forest) -> None:
    cited = replace(forest.garden[4], source=Source("talk-1", 10, 60, 0, "A talk", content_hash(GARDEN[3])))
    commit = await forest.world.put(cited)
    for strategy in (COLLAPSED, HYBRID):
        answer = await forest(strategy=strategy)
        one = next(one for one in [*leaves(answer), *answer.nodes] if one.node.id == cited.id).citation
        assert (one.commit_id, one.archive_id, one.archive_name) == (commit, cited.archive_id, "notes")
        assert (one.source.document_id, one.source.start, one.source.end) == ("talk-1", 10, 60)
        assert one.content_sha256 == one.source.sha256 == content_hash(GARDEN[3])
    state = State(forest.world.workspace, commit)
    everything = await forest(f"{EVERYTHING} People talk.", strategy=COLLAPSED, top_k=100)
    async with forest.world.store.database.connection() as conn:
        ids = [one.node.id for one in everything.nodes]
        read = {node.id: node for node in await nodes_at(Snapshot(conn, state), forest.world.store, ids, DETAIL)}
    assert {one.node.type for one in everything.nodes} == {"leaf_chunk", "summary_node"}
    cites = {one.citation.node_id: one.citation.content_sha256 for one in everything.nodes}
    assert cites == {node_id: content_hash(node.content) for node_id, node in read.items()}
