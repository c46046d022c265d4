"""Every commit at which the answer to a question changed: by an edit, another note, a deletion, or a merge."""

from dataclasses import replace

import pytest
from integration.pushes import push
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Node, Source

from memotree.v1 import history_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-12")

QUESTION = "How often is a failed payment sent again?"


async def bisect(sides: Sides, query: str = QUESTION, **fields: int) -> pb.BisectAnswerResponse:
    request = pb.BisectAnswerRequest(workspace=sides.world.workspace, query=query, **fields)
    return await sides.history.bisect_answer(request)


def said(found: pb.BisectAnswerResponse) -> list[tuple[str, str]]:
    return [(change.before.title, change.after.title) for change in found.changes]


def note(sides: Sides, title: str, text: str) -> Node:
    return replace(sides.world.node(title), content=text, summary=text)


async def test_each_change_of_the_answer_is_found_and_nothing_else(world: World, sides: Sides) -> None:
    five = note(sides, "Five", "A failed payment is sent again at most five times.")
    await world.put(note(sides, "Deployments", "We deploy on Tuesdays."))
    made = [await world.put(five, author="ann")]
    three = replace(five, title="Three", content="A failed payment is sent again at most three times.")
    three = replace(three, summary=three.content, source=Source("manual.md", 3, 9))
    made.append(await world.put(three, author="bob"))
    await world.put(replace(three, tags=("payments",)), author="cid")
    await world.put(note(sides, "Lunch", "Lunch is at noon."))
    made.append(await world.put(five, author="dan"))
    made.append(await world.put(delete=[five], author="eve"))
    found = await bisect(sides)
    assert said(found) == [("Five", ""), ("Three", "Five"), ("Five", "Three"), ("", "Five")]
    assert [change.commit.id for change in found.changes] == made[::-1]
    assert [change.commit.author.name for change in found.changes] == ["eve", "dan", "bob", "ann"]
    assert found.changes[2].source.document_id == "manual.md"
    assert found.complete
    assert not found.HasField("answer")
    some = await bisect(sides, max_changes=2)
    assert (said(some), some.complete) == (said(found)[:2], False)


async def test_another_note_that_answers_better_is_a_change(world: World, sides: Sides) -> None:
    vague = note(sides, "Vague", "Payments may fail, and are sent again.")
    exact = note(sides, "Exact", "How often a failed payment is sent again: three times.")
    await world.put(vague)
    await world.put(exact)
    await world.put(delete=[exact])
    assert said(await bisect(sides))[:2] == [("Exact", "Vague"), ("Vague", "Exact")]


async def test_an_answer_that_a_merge_brought(world: World, sides: Sides) -> None:
    five = note(sides, "Five", "A failed payment is sent again at most five times.")
    await sides.fork(five)
    three = replace(five, title="Three", content=five.content.replace("five", "three"), summary="Three times.")
    theirs = await world.put(three, branch="side")
    await world.put(note(sides, "Lunch", "Lunch is at noon."))
    merged = (await sides.merge()).commit_id
    found = {change.commit.id: change.merged for change in (await bisect(sides)).changes}
    assert found.pop(merged) is True
    assert found.pop(theirs) is False
    assert list(found.values()) == [False]


async def test_a_question_that_nothing_answers_and_one_that_is_refused(sides: Sides) -> None:
    found = await bisect(sides)
    assert (list(found.changes), found.complete, found.HasField("answer")) == ([], True, False)
    with pytest.raises(InvalidInputError):
        await bisect(sides, " ")


async def test_many_versions_of_a_note_are_one_answer(world: World, sides: Sides) -> None:
    five = note(sides, "Five", "How often a failed payment is sent again: five times.")
    vague = note(sides, "Vague", "Payments may fail, and are sent again.")
    await world.put(vague)
    await world.put(five)
    for number in range(70):
        push(world, "main", replace(five, tags=(f"t{number}",)))
    await world.store.catch_up(world.workspace)
    found = await bisect(sides)
    assert said(found) == [("Vague", "Five"), ("", "Vague")]
    assert found.complete
    assert found.answer.title == "Five"


async def test_what_was_not_looked_at_is_told(world: World, sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    five = note(sides, "Five", "A failed payment is sent again at most five times.")
    await world.put(five)
    for number in range(5):
        await world.put(replace(five, tags=(f"t{number}",)))
    assert (await bisect(sides, max_changes=1)).complete
    for limit in ("_MOST_VERSIONS", "_MOST_COMMITS"):
        with monkeypatch.context() as patched:
            patched.setattr(f"memotree.history.answers.{limit}", 4)
            assert not (await bisect(sides)).complete
    with pytest.raises(InvalidInputError):
        await bisect(sides, max_changes=-1)


async def test_the_reason_is_that_of_the_note_that_went(world: World, sides: Sides) -> None:
    exact = note(sides, "Exact", "How often a failed payment is sent again: three times.")
    await world.put(note(sides, "Vague", "Payments may fail, and are sent again."), exact)
    session_id = await world.open()
    await world.stage(session_id, delete=[exact], note="It was wrong.\n\nNora has looked it up.")
    await world.commit(session_id)
    found = (await bisect(sides)).changes[0]
    assert (found.before.title, found.reason) == ("Exact", "It was wrong.\n\nNora has looked it up.")
