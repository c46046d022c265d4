"""DrillDown: one level down, by relevance."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Node, Source
from memotree_storage.model.position import many_between
from memotree_storage.store import Store

from memotree.forest.asking.drill_down import MOST_RERANKED, DrillDown
from memotree.forest.citations import content_hash
from memotree.models.cache import AnswerCache
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request.lookup import NodeNotFoundError
from memotree.request.messages import DETAIL, SUMMARY
from memotree.v1 import forest_service_pb2 as pb


class Marked:
    """A reranker that gives each text the score in it, such as ``score=0.7``, and records the texts."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        assert query
        assert isinstance(meter, Meter)
        self.read = list(texts)
        return [float(text.partition("score=")[2].split()[0]) if "score=" in text else 0.0 for text in texts]


@pytest.fixture
def marked() -> Marked:
    return Marked()


@pytest.fixture
def drilling(world: World, marked: Marked) -> DrillDown:
    return DrillDown(world.store, marked)


async def drill(world: World, drilling: DrillDown, node: Node | str, **fields: Any) -> pb.DrillDownResponse:
    node_id = node.id if isinstance(node, Node) else node
    fields.setdefault("query", "what is said of the bridge")
    return await drilling.drill_down(pb.DrillDownRequest(workspace=world.workspace, node_id=node_id, **fields))


def ids(answer: pb.DrillDownResponse) -> list[str]:
    return [found.node.id for found in answer.nodes]


async def build(world: World, scores: Sequence[float]) -> tuple[Node, list[Node]]:
    """A summary node with a leaf for each score."""
    top = world.node("Top", type="summary_node", content="", summary="All of it.")
    leaves = [
        world.node(f"Leaf {number}", parent=top, position=place, type="leaf_chunk", content=f"score={score} text")
        for number, (place, score) in enumerate(zip(many_between(None, None, len(scores)), scores, strict=True))
    ]
    await world.put(top, *leaves)
    return top, leaves


@pytest.mark.requirement("FOREST-7")
async def test_children_above_the_threshold_come_by_score_others_are_counted(world: World, drilling: DrillDown) -> None:
    top, leaves = await build(world, [0.6, 0.2, 0.91, 0.5, 0.91, 0.6, 0.0])
    answer = await drill(world, drilling, top)
    assert ids(answer) == [leaves[place].id for place in (2, 4, 0, 5, 3)], "equal ones in the order of the document"
    assert [round(found.score, 2) for found in answer.nodes] == [0.91, 0.91, 0.6, 0.6, 0.5]
    assert (answer.below_threshold, answer.commit_id, list(answer.warnings)) == (2, await world.head(), [])
    assert set(ids(await drill(world, drilling, top, threshold=0.0))) == {leaf.id for leaf in leaves}
    answer = await drill(world, drilling, top, threshold=0.95)
    assert (ids(answer), answer.below_threshold) == ([], 7)
    assert "0.91" in answer.warnings[0], "the best score"


@pytest.mark.requirement("FOREST-7")
async def test_a_leaf_returns_itself_with_score_1(world: World, drilling: DrillDown, marked: Marked) -> None:
    _, (leaf,) = await build(world, [0.1])
    answer = await drill(world, drilling, leaf, threshold=1.0)
    assert ids(answer) == [leaf.id]
    assert answer.nodes[0].score == 1.0
    assert answer.nodes[0].node.content == leaf.content
    assert answer.nodes[0].node.level == DETAIL
    assert not marked.read, "nothing is reranked"


async def test_one_level_is_ranked_by_the_content_of_leaves_and_the_summaries_of_others(
    world: World, drilling: DrillDown, marked: Marked
) -> None:
    top = world.node("Top", type="summary_node", content="")
    leaf = world.node("Leaf", parent=top, summary="In short.", content="The words themselves.")
    inner = world.node("Inner", parent=top, summary="score=0.8", content="Own words.", position="a1")
    deep = world.node("Deep", parent=inner, content="score=1.0")
    await world.put(top, leaf, inner, deep)
    answer = await drill(world, drilling, top)
    assert marked.read == ["Leaf\nIn short.\nThe words themselves.", "Inner\nscore=0.8"]
    (found,) = answer.nodes
    assert (found.node.id, found.node.level, found.node.child_count) == (inner.id, SUMMARY, 1)
    assert found.node.summary == "score=0.8"
    assert ids(await drill(world, drilling, inner)) == [deep.id], "children of a node that is no summary"


@pytest.mark.requirement("FOREST-4")
async def test_every_node_is_cited_with_its_source_and_hash(world: World, drilling: DrillDown) -> None:
    source = Source("doc-1", 10, 27, 2, "Bridges > Stone", content_hash("score=0.9 stone"))
    top = world.node("Top", type="summary_node", content="")
    leaf = world.node("Leaf", parent=top, content="score=0.9 stone", source=source)
    await world.put(top, leaf)
    cited = (await drill(world, drilling, top)).nodes[0].citation
    assert (cited.node_id, cited.commit_id, cited.archive_name) == (leaf.id, await world.head(), "notes")
    assert (cited.source.document_id, cited.source.start, cited.source.end, cited.source.page) == ("doc-1", 10, 27, 2)
    assert cited.content_sha256 == content_hash(leaf.content)


async def test_a_session_sees_its_children_and_an_old_commit_the_old_ones(world: World, drilling: DrillDown) -> None:
    top, (first, second) = await build(world, [0.6, 0.7])
    before = await world.head()
    session = await world.open()
    fresh = world.node("Fresh", parent=top, content="score=0.8", position="b00")
    await world.stage(session, fresh, delete=[second])
    assert ids(await drill(world, drilling, top, revision=session)) == [fresh.id, first.id]
    await world.commit(session)
    assert ids(await drill(world, drilling, top)) == [fresh.id, first.id]
    assert ids(await drill(world, drilling, top, revision=before)) == [second.id, first.id]


async def test_of_very_many_children_the_best_are_ranked(world: World, drilling: DrillDown, marked: Marked) -> None:
    count = 3 * MOST_RERANKED
    top, leaves = await build(world, [0.1] * count)
    wanted = replace(leaves[-1], content="score=0.9 the bridge", title="Bridge", summary="What is said of the bridge.")
    await world.put(wanted)
    answer = await drill(world, drilling, top)
    assert ids(answer) == [wanted.id]
    assert len(marked.read) == MOST_RERANKED
    assert f"{count - MOST_RERANKED} were skipped" in answer.warnings[0]
    assert answer.below_threshold == MOST_RERANKED - 1


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"query": " "}, "query"),
    ({"query": "x" * 8193}, "query"),
    ({"query": "a\0b"}, "query"),
    ({"threshold": 1.1}, "threshold"),
    ({"threshold": -0.1}, "threshold"),
    ({"threshold": float("nan")}, "threshold"),
]


async def test_an_invalid_argument_is_refused(world: World, drilling: DrillDown, subtests: pytest.Subtests) -> None:
    for fields, field in INVALID:
        with subtests.test(fields=fields, field=field):
            top, _ = await build(world, [0.1])
            with pytest.raises(InvalidInputError) as refused:
                await drill(world, drilling, top, **fields)
            assert refused.value.violations[0].field == field


async def test_a_node_that_is_not_alive_there_is_not_found(world: World, drilling: DrillDown) -> None:
    top, _ = await build(world, [0.1])
    await world.put(delete=[top, *_])
    with pytest.raises(NodeNotFoundError):
        await drill(world, drilling, top)
    with pytest.raises(NodeNotFoundError):
        await drill(world, drilling, world.archive.id)


@pytest.mark.requirement("FOREST-13")
async def test_the_built_in_ranking_prefers_the_child_that_answers(world: World, store: Store) -> None:
    top = world.node("City", type="summary_node", content="")
    texts = [
        "The old bridge over the river was rebuilt in stone after the flood of 1784.",
        "The bakery sells rye bread and sweet rolls from six in the morning.",
        "Three schools share the gymnasium behind the town hall.",
    ]
    leaves = [
        world.node(f"Part {number}", parent=top, content=text, summary=text, position=f"a{number}")
        for number, text in enumerate(texts)
    ]
    await world.put(top, *leaves)
    answer = await drill(
        world, DrillDown(store, Models(AnswerCache(store.database))), top, query="When was the bridge rebuilt?"
    )
    assert ids(answer)[0] == leaves[0].id
    assert answer.nodes[0].score > 0.5
