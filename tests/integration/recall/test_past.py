"""An answer tells that a note said something else before; a question about the past gets what it said then."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from integration.recall.talks import COLLAPSED, HYBRID, Models, leaves
from integration.worlds import World
from memotree_storage.model.node import Relation

from memotree.forest.recall.answers import ABOUT_PAST
from memotree.forest.recall.past import Past, past_asked
from memotree.forest.recall.recall import Recall
from memotree.v1 import forest_service_pb2 as pb

pytestmark = pytest.mark.requirement("USE-16")

NOW = "Mara lives in Porto, in the Rua do Almada."
THEN = "Mara lives in Gothenburg, on the third floor."
BEFORE = "Where did Mara live before she moved to Porto?"


async def recalled(world: World, question: str, revision: str = "", **wanted: object) -> pb.RecallResponse:
    fields = {"workspace": world.workspace, "revision": revision, "query": question, **wanted}
    return await Recall(world.store, world.limits, Models(world.store.embedder)).recall(pb.RecallRequest(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", [HYBRID, COLLAPSED])
async def test_a_question_about_the_past_gets_what_a_note_said_before(world: World, strategy: int) -> None:
    home = world.node("Home", content=THEN)
    await world.put(home, world.node("Coffee", content="Mara drinks her coffee black."))
    await world.put(replace(home, tags=("place",)))  # the text stays the same
    await world.put(replace(home, content=NOW), author="Ada")
    answer = await recalled(world, BEFORE, strategy=strategy)
    today = datetime.now(UTC).date().isoformat()
    assert f"Home: {NOW}\n(until {today} by Ada) Home: {THEN}" in answer.text
    assert ABOUT_PAST in answer.warnings

    present = await recalled(world, "Where does Mara live?", strategy=strategy)
    assert f"[{home.id}] (changed {today} by Ada)" in present.text
    assert THEN not in present.text
    assert ABOUT_PAST not in present.warnings
    (node,) = (one for one in (*leaves(present), *present.nodes) if one.node.id == home.id)
    assert [(one.text, one.changed_by) for one in node.former] == [(f"Home: {THEN}", "Ada")]
    assert node.former[0].since.ToDatetime() <= node.former[0].until.ToDatetime()
    assert not any(one.former for one in (*leaves(present), *present.nodes) if one.node.id != home.id)


async def test_a_session_and_a_branch_have_a_past_of_their_own(world: World) -> None:
    home = world.node("Home", content=THEN)
    await world.put(home)
    session_id = await world.open()
    await world.stage(session_id, replace(home, content=NOW))
    assert f"(until now) Home: {THEN}" in (await recalled(world, BEFORE, session_id)).text
    assert "(until" not in (await recalled(world, BEFORE)).text


@pytest.mark.parametrize("budget", [20, 40, 60])
async def test_what_was_said_before_takes_of_the_budget(world: World, budget: int) -> None:
    notes = [replace(node, content=f"Mara lives in house {number}.") for number, node in enumerate(world.nodes(12))]
    await world.put(*notes)
    await world.put(*(replace(note, content=f"{note.content} It is warm.") for note in notes))
    answer = await recalled(world, BEFORE, token_budget=budget)
    assert 0 < answer.tokens_used <= budget
    assert answer.tokens_used == sum(one.tokens for one in leaves(answer))
    found = await recalled(world, BEFORE, token_budget=budget, strategy=COLLAPSED)
    assert found.tokens_used == sum(one.tokens for one in found.nodes) <= budget


async def test_a_question_about_the_past_gets_a_superseded_note(world: World) -> None:
    old = world.node("Old home", content=THEN)
    await world.put(old)
    new = world.node("New home", content=NOW, relations=(Relation("SUPERSEDES", old.id, ""),))
    await world.put(new)
    assert "superseded by" in (await recalled(world, BEFORE)).text
    present = await recalled(world, "Where does Mara live?")
    assert THEN not in present.text
    (node,) = leaves(present)
    assert [(one.node_id, one.text) for one in node.former] == [(old.id, f"Old home: {THEN}")]


LAST_YEAR = datetime(2027, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("question", "past"),
    [
        (BEFORE, Past(None)),
        ("Which provider did we use until last year?", Past(None)),
        ("What was the limit previously?", Past(None)),
        ("Wo wohnte Mara früher?", Past(None)),
        ("¿Dónde vivía Mara antes?", Past(None)),
        ("玛拉以前住在哪里", Past(None)),
        ("Where did Mara live in 2026?", Past(LAST_YEAR)),
        ("Where did Mara live in December 2026?", Past(LAST_YEAR)),
        ("Where did Mara live on 2026-12-31?", Past(LAST_YEAR)),
        ("Until when is the intern with us?", None),
        ("Who has to agree before I add a library?", None),
        ("What is planned for 2026?", None),
        ("When did we plan to ship in 2028?", None),
        ("Where did Mara live on 2026-13-41?", None),
    ],
)
def test_words_and_dates_tell_a_question_about_the_past(question: str, past: Past | None) -> None:
    assert past_asked(question, datetime(2027, 3, 1, tzinfo=UTC).timestamp()) == past
