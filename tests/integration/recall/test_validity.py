"""What no longer holds is not recalled: ended by its valid time, or superseded by another node."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from integration.recall.talks import COLLAPSED, HYBRID, LCA, MUCH, Models, leaves
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.model.node import Archive, Node, Relation, new_id

from memotree.forest.recall.recall import Recall
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2 as node_pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("USE-12")

SUPERSEDES = types_pb2.RELATION_TYPE_SUPERSEDES
EVERY = [LCA, COLLAPSED, HYBRID]


class Recalling:
    """Recall over one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._recall = Recall(world.store, world.limits, Models(world.store.embedder))

    async def answer(
        self, query: str, revision: str = "", strategy: int = HYBRID, **wanted: object
    ) -> pb.RecallResponse:
        request = pb.RecallRequest(
            workspace=self._world.workspace,
            revision=revision,
            query=query,
            strategy=strategy,  # type: ignore[arg-type]
            token_budget=MUCH,
            top_k=1000,
            filter=pb.RecallFilter(**wanted),  # type: ignore[arg-type]
        )
        return await self._recall.recall(request)

    async def titles(self, query: str, revision: str = "", strategy: int = HYBRID, **wanted: object) -> set[str]:
        answer = await self.answer(query, revision, strategy, **wanted)
        return {one.node.title for one in (*leaves(answer), *answer.nodes)}


@pytest.fixture
def recalling(world: World) -> Recalling:
    return Recalling(world)


def city(world: World, name: str, **fields: object) -> Node:
    return world.node(f"Home in {name}", content=f"Ada lives in {name}.", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", EVERY)
async def test_a_node_counts_from_its_beginning_to_its_end(world: World, recalling: Recalling, strategy: int) -> None:
    await world.put(
        city(world, "Rome", attributes={"valid_to": "2020-05-01"}),
        city(world, "Paris", attributes={"valid_from": "2020-05-01", "valid_to": "2099-01-01"}),
        city(world, "Oslo", attributes={"valid_from": "2099-01-01"}),
    )

    async def homes(**wanted: object) -> set[str]:
        return await recalling.titles("Where does Ada live?", strategy=strategy, **wanted)

    rome, paris, oslo = "Home in Rome", "Home in Paris", "Home in Oslo"
    assert await homes() == {paris, oslo}, "what will hold is known, too"
    assert await homes(valid_at="2019-12-31") == {rome}
    assert await homes(valid_at="2020-04-30T23:59:59Z") == {rome}
    assert await homes(valid_at="2020-05-01") == {paris}
    assert await homes(valid_at="2100-01-01") == {oslo}
    assert await homes(include_outdated=True) == {rome, paris, oslo}


@pytest.mark.parametrize("strategy", EVERY)
async def test_a_superseded_node_is_not_recalled_as_current_and_comes_back_with_the_relation(
    world: World, recalling: Recalling, strategy: int
) -> None:
    rome = city(world, "Rome")
    await world.put(rome)
    paris = city(world, "Paris", relations=(Relation("SUPERSEDES", rome.id),))
    session = await world.open()
    await world.stage(session, paris)

    async def homes(**wanted: object) -> set[str]:
        return await recalling.titles("Where does Ada live?", strategy=strategy, **wanted)  # type: ignore[arg-type]

    assert await homes(revision=session) == {"Home in Paris"}, "as soon as it is staged"
    assert await homes() == {"Home in Rome"}, "elsewhere not yet"
    before = await world.head()
    await world.commit(session)
    assert await homes() == {"Home in Paris"}
    assert await homes(include_outdated=True) == {"Home in Paris", "Home in Rome"}
    assert await homes(revision=before) == {"Home in Rome"}, "an earlier commit does not know of it"
    assert await homes(valid_at="2001-01-01") == {"Home in Rome", "Home in Paris"}, "it held until then"
    await world.put(delete=[paris])
    assert await homes() == {"Home in Rome"}


async def test_a_superseding_node_counts_from_whichever_archive_and_outside_of_the_filter(
    world: World, recalling: Recalling
) -> None:
    rome = city(world, "Rome", tags=("home",))
    await world.put(rome)
    assert await recalling.titles("Ada", tags=["home"]) == {"Home in Rome"}
    other = Archive(new_id(), "corrections")
    await world.put(other)
    paris = replace(city(world, "Paris", relations=(Relation("SUPERSEDES", rome.id),)), archive_id=other.id)
    await world.put(paris)
    assert await recalling.titles("Ada", tags=["home"]) == set()
    assert await recalling.titles("Ada", archives=[world.archive.id]) == set()
    answer = await recalling.answer("Ada", tags=["home"])
    assert answer.outdated_left_out == 1
    assert any("do not hold" in warning for warning in answer.warnings)


async def test_what_does_not_hold_says_so_where_it_is_asked_for(world: World, recalling: Recalling) -> None:
    rome = city(world, "Rome")
    paris = city(world, "Paris", relations=(Relation("SUPERSEDES", rome.id),), attributes={"valid_from": "2024-05-01"})
    await world.put(rome, paris)
    answer = await recalling.answer("Where does Ada live?", include_outdated=True)
    found = {one.node.id: one for one in leaves(answer)}
    assert found[rome.id].valid_to.ToDatetime(tzinfo=UTC) == datetime(2024, 5, 1, tzinfo=UTC)
    assert list(found[rome.id].superseded_by) == [paris.id]
    assert found[paris.id].valid_from.ToDatetime(tzinfo=UTC) == datetime(2024, 5, 1, tzinfo=UTC)
    assert not found[paris.id].HasField("valid_to")
    assert f"[{rome.id}] (valid until 2024-05-01, superseded by {paris.id})" in answer.text
    assert f"[{paris.id}] (valid from 2024-05-01)" in answer.text


async def test_the_end_of_a_superseded_node_stays_when_the_correction_is_edited_later(
    world: World, recalling: Recalling
) -> None:
    rome = city(world, "Rome")
    await world.put(rome)
    paris = city(world, "Paris", relations=(Relation("SUPERSEDES", rome.id),))
    await world.put(paris)

    async def end() -> datetime:
        answer = await recalling.answer("Ada", include_outdated=True)
        (found,) = (one for one in leaves(answer) if one.node.id == rome.id)
        return found.valid_to.ToDatetime(tzinfo=UTC)

    before = await end()
    moment = int(time.time())
    while int(time.time()) == moment:  # noqa: ASYNC110 - commits have whole seconds
        await asyncio.sleep(0.01)
    await world.put(replace(paris, content="Ada lives in Paris, by the river."))
    assert await end() == before


ODD_DATES = [
    {"valid_to": "9999-12-31T23:59:59.999999Z"},
    {"valid_to": "9999-12-31"},
    {"valid_from": "0001-01-01"},
    {"valid_from": "0900-05-01T10:00:00+14:00", "valid_to": "9999-12-31T23:59:59-12:00"},
    {"valid_from": "2024-01-01", "valid_to": "2023-01-01"},
    {"valid_from": "soon"},
]


async def test_no_date_of_a_pushed_file_stops_recall(world: World, recalling: Recalling) -> None:
    await world.put(*(city(world, str(number), attributes=dates) for number, dates in enumerate(ODD_DATES)))
    every = {f"Home in {number}" for number in range(len(ODD_DATES))}
    for strategy in EVERY:
        for wanted in ({}, {"include_outdated": True}, {"valid_at": "2024-06-01"}):
            assert await recalling.titles("Where does Ada live?", strategy=strategy, **wanted) == every
        for day in ("0001-01-01", "9999-12-31T23:59:59.999999Z"):
            await recalling.titles("Ada", strategy=strategy, valid_at=day)


async def test_a_circle_of_nodes_that_supersede_each_other_is_refused(wire: Wire) -> None:
    nodes = [await wire.create(f"Home {number}") for number in range(3)]
    for one, other in pairwise(nodes):
        relation = types_pb2.Relation(type=SUPERSEDES, target_id=other.id)
        await wire("AddRelation", node_id=one.id, relation=relation)
    relation = types_pb2.Relation(type=SUPERSEDES, target_id=nodes[0].id)
    refusal = await wire.refused("AddRelation", node_id=nodes[2].id, relation=relation)
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "SUPERSEDING_CYCLE")


async def test_nodes_that_hold_at_different_times_are_not_merged_into_one(wire: Wire) -> None:
    old = await wire.create("Home", content="Ada lives in Rome.", attributes={"valid_to": "2024-01-01"})
    new = await wire.create("Home", content="Ada lives in Paris.", attributes={"valid_from": "2024-01-01"})
    refusal = await wire.refused("MergeNodes", node_ids=[old.id, new.id])
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "VALID_TIME_DIFFERS")
    plain, other = await wire.create("Tea"), await wire.create("Tea")
    relation = types_pb2.Relation(type=SUPERSEDES, target_id=other.id)
    await wire("AddRelation", node_id=plain.id, relation=relation)
    assert (await wire.refused("MergeNodes", node_ids=[plain.id, other.id])).reason == "VALID_TIME_DIFFERS"


async def test_the_parts_of_a_superseded_node_are_superseded_too(wire: Wire) -> None:
    old = await wire.create("Home", content="Ada lives in Rome. She likes it.")
    relation = types_pb2.Relation(type=SUPERSEDES, target_id=old.id, description="moved")
    new = await wire.create("Home", content="Ada lives in Paris.", relations=[relation])
    parts = [node_pb.SplitPart(title="Home", content="Rome."), node_pb.SplitPart(title="Mood", content="Likes it.")]
    made = [node.id for node in (await wire("SplitNode", node_id=old.id, parts=parts)).nodes]
    relations = (await wire.get(new.id)).relations
    assert {(each.target_id, each.description) for each in relations} == {(key, "moved") for key in made}


WRONG_TIMES = [
    ({"valid_from": "soon"}, "valid_from"),
    ({"valid_to": "2024-13-01"}, "valid_to"),
    ({"valid_from": "2024-05-01", "valid_to": "2024-05-01"}, "valid_to"),
]


async def test_an_empty_valid_time_takes_an_earlier_one_away(world: World, recalling: Recalling) -> None:
    home = city(world, "Oslo", attributes={"valid_to": "2024-05-01"})
    await world.put(home)
    assert await recalling.titles("Where does Ada live?") == set()
    await world.put(replace(home, attributes={"valid_to": ""}))
    assert await recalling.titles("Where does Ada live?") == {"Home in Oslo"}


async def test_a_valid_time_that_cannot_be_right_is_refused(wire: Wire) -> None:
    node = await wire.create("Home")
    for attributes, name in WRONG_TIMES:
        for refusal in (
            await wire.refused("CreateNode", archive_id="notes", title="Home", attributes=attributes),
            await wire.refused("UpdateNode", node_id=node.id, attributes=attributes),
        ):
            assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (f"attributes['{name}']",))
