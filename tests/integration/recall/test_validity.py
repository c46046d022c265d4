"""What no longer holds is not recalled: ended by its valid time, or superseded by another node."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random

import pytest
from integration.recall.talks import COLLAPSED, HYBRID, LCA, MUCH, Models, leaves
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.model.node import Archive, Node, Relation, new_id

from memotree.forest.recall.recall import Recall
from memotree.v1 import forest_service_pb2 as pb
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


async def test_a_new_node_that_supersedes_another_begins_now_and_stays_when_it_is_edited(wire: Wire) -> None:
    old = await wire.create("Home", content="Ada lives in Rome.")
    await wire.commit()
    relation = types_pb2.Relation(type=SUPERSEDES, target_id=old.id)
    given = await wire.create("Home", content="Ada lives in Paris.", relations=[relation])
    begun = given.attributes["valid_from"]
    assert abs(datetime.fromisoformat(begun) - datetime.now(UTC)) < timedelta(minutes=10)
    dated = await wire.create("Home", relations=[relation], attributes={"valid_from": "2024-05-01"})
    assert dated.attributes["valid_from"] == "2024-05-01"
    late = await wire.create("Home", content="Ada lives in Oslo.")
    added = (await wire("AddRelation", node_id=late.id, relation=relation)).node
    assert added.attributes["valid_from"]
    await wire.commit()
    committed = await wire.create("Home", content="Ada lives in Bonn.")
    await wire.commit()
    kept = (await wire("AddRelation", node_id=committed.id, relation=relation)).node
    assert "valid_from" not in kept.attributes, "it held before it was known to supersede another"


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"valid_from": "soon"}, "attributes['valid_from']"),
        ({"valid_to": ""}, "attributes['valid_to']"),
        ({"valid_from": "2024-05-01", "valid_to": "2024-05-01"}, "attributes['valid_to']"),
    ],
)
async def test_a_valid_time_that_cannot_be_right_is_refused(wire: Wire, attributes: dict[str, str], field: str) -> None:
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Home", attributes=attributes)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (field,))
    node = await wire.create("Home")
    refusal = await wire.refused("UpdateNode", node_id=node.id, attributes=attributes)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (field,))


# --- Beside a plain model --------------------------------------------------------------------------------------------

DAYS = ["2020-01-01", "2021-01-01", "2022-01-01", "2023-01-01"]


@dataclass(frozen=True)
class Step:
    """One change: of fact ``number``, to these days and to the fact that it supersedes, or its deletion."""

    number: int
    begin: int | None
    end: int | None
    supersedes: int | None
    delete: bool


def some_steps(dice: Random) -> list[Step]:
    """Random changes of four facts."""
    return [
        Step(
            number=dice.randrange(4),
            begin=dice.choice([None, 0, 1]),
            end=dice.choice([None, None, 2, 3]),
            supersedes=dice.choice([None, 0, 1, 2, 3]),
            delete=dice.random() < 0.2,
        )
        for _ in range(8)
    ]


@pytest.mark.parametrize("seed", range(10))
async def test_in_sessions_and_at_old_commits_exactly_what_holds_is_recalled(world: World, seed: int) -> None:
    dice = Random(seed)
    await _compare(world, some_steps(dice), cut=dice.randrange(9))


async def _compare(world: World, steps: list[Step], cut: int) -> None:
    """Make changes, from the ``cut``th on in a session, and compare what is recalled at each state with a model."""
    recalling, ids = Recalling(world), [new_id() for _ in range(4)]
    homes = [Archive(new_id(), "even"), Archive(new_id(), "odd")]
    await world.put(*homes)
    states: list[tuple[str, dict[int, Step]]] = []
    alive: dict[int, Step] = {}
    session = ""

    async def apply(step: Step) -> None:
        targets = [] if step.supersedes is None else [step.supersedes]
        days = {"valid_from": step.begin, "valid_to": step.end}
        node = Node(
            ids[step.number],
            homes[step.number % 2].id,
            None,
            "a0",
            title=f"Fact {step.number}",
            content=f"Fact number {step.number} says so.",
            relations=tuple(Relation("SUPERSEDES", ids[each]) for each in targets if each != step.number),
            attributes={name: DAYS[each] for name, each in days.items() if each is not None},
        )
        if session:
            await world.stage(session, *([] if step.delete else [node]), delete=[node] if step.delete else [])
        else:
            await world.put(*([] if step.delete else [node]), delete=[node] if step.delete else [])

    for place, step in enumerate(steps):
        if step.delete and step.number not in alive:
            continue
        if place >= cut and not session:
            session = await world.open()
        await apply(step)
        alive = {**alive, step.number: step}
        if step.delete:
            del alive[step.number]
        states.append((session or await world.head(), alive))
    if session:  # only its last state can be read
        states = [state for state in states if state[0] != session] + states[-1:]
    for (revision, facts), day in product(states, [None, *DAYS]):
        wanted = {} if day is None else {"valid_at": day}
        found = await recalling.titles("Which fact says so?", revision, **wanted)
        assert found == {f"Fact {number}" for number in facts if _holds(number, facts, day)}, (revision, facts, day)


def _holds(number: int, facts: dict[int, Step], day: str | None) -> bool:
    """Whether a fact holds: on a day, or now, when everything that has begun or ended has done so."""
    step = facts[number]
    begins = [
        DAYS[other.begin] if other.begin is not None else "now"
        for key, other in facts.items()
        if other.supersedes == number and key != number
    ]
    ends = [*([DAYS[step.end]] if step.end is not None else []), *begins]
    if day is None:
        return not ends
    begun = step.begin is None or DAYS[step.begin] <= day
    return begun and all(day < end for end in ends)
