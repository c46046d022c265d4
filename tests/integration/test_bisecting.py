"""Every commit at which a node, a field of it, or the answer to a question changed, with who and why."""

from dataclasses import replace
from typing import Any

import pytest
from integration.histories import paged
from integration.pushes import push
from integration.sides import Sides
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.node import Node, Source

from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-5", "GIT-12")


async def bisect(sides: Sides, node: Node, field: str = "", **fields: Any) -> list[pb.ValueChange]:
    request = pb.BisectNodeRequest(workspace=sides.world.workspace, node_id=node.id, field=field, **fields)
    return await paged(sides.history.bisect_node, request, "changes")


def titles(found: list[pb.ValueChange]) -> list[tuple[str, str]]:
    return [(field.old_value, field.new_value) for change in found for field in change.fields]


async def test_each_change_of_a_field_is_found_there_and_back_again(world: World, sides: Sides) -> None:
    one = replace(world.node("Five"), tags=("kept",))
    made = [
        await world.put(one, author="ann"),
        await world.put(replace(one, title="Three"), author="bob"),
        await world.put(replace(one, title="Three", tags=("other",)), author="ann"),
        await world.put(replace(one, tags=("other",)), author="cid"),
    ]
    found = await bisect(sides, one, "title")
    assert titles(found) == [("Three", "Five"), ("Five", "Three"), ("", "Five")]
    assert [change.commit.id for change in found] == [made[3], made[1], made[0]]
    assert [change.commit.author.name for change in found] == ["cid", "bob", "ann"]
    assert [change.kind for change in found] == [
        types_pb2.CHANGE_KIND_UPDATED,
        types_pb2.CHANGE_KIND_UPDATED,
        types_pb2.CHANGE_KIND_CREATED,
    ]
    assert [change.commit.id for change in await bisect(sides, one, "tags")] == [made[2], made[0]]
    assert len(await bisect(sides, one)) == 4
    assert await bisect(sides, one, "title", page_size=1) == found
    assert titles(await bisect(sides, one, "title", revision=made[1])) == [("Five", "Three"), ("", "Five")]
    gone = await world.put(delete=[one])
    last = (await bisect(sides, one, "title"))[0]
    assert (last.commit.id, last.kind, titles([last])) == (gone, types_pb2.CHANGE_KIND_DELETED, [("Five", "")])


async def test_a_change_on_a_merged_branch_is_found_with_the_merge_that_brought_it(world: World, sides: Sides) -> None:
    one = world.node("Five")
    await sides.fork(one)
    theirs = await world.put(replace(one, title="Three"), branch="side", author="bob")
    await world.put(replace(one, tags=("later",)))
    merged = (await sides.merge()).commit_id
    found = await bisect(sides, one, "title")
    by_commit = {change.commit.id: (change.merged, change.agent, change.commit.author.name) for change in found}
    assert by_commit.pop(merged) == (True, "agent", "agent")
    assert by_commit.pop(theirs) == (False, "agent", "bob")
    assert sorted(titles(found)) == [("", "Five"), ("Five", "Three"), ("Five", "Three")]


async def test_the_source_and_the_place(world: World, sides: Sides) -> None:
    one = replace(world.node("Five"), source=Source("manual.md", 3, 9))
    two = world.node("Two")
    await world.put(one, two)
    await world.put(replace(one, parent_id=two.id))
    found = (await bisect(sides, one, "parent"))[0]
    assert (found.source.document_id, found.source.start) == ("manual.md", 3)
    assert two.id in found.fields[0].new_value


async def test_the_reason_is_what_the_call_has_said(wire: Wire) -> None:
    node = await wire.create("Retries", content="At most five.")
    await wire.commit("Write it down")
    await wire("UpdateNode", node_id=node.id, content="At most three.", commit_message="Ann has looked it up.\nTwice.")
    await wire.create("Other")
    await wire.commit("Correct it")
    found = (await wire("BisectNode", node_id=node.id, field="content")).changes
    assert [change.reason for change in found] == ["Ann has looked it up.\nTwice.", ""]
    assert [change.agent for change in found] == ["tester", "tester"]
    assert [change.commit.subject for change in found] == ["Correct it", "Write it down"]


async def test_many_versions_that_do_not_matter_are_passed_page_by_page(
    world: World, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memotree.history.bisecting._MOST_COMPARED", 4)
    one = world.node("Five")
    await world.put(one)
    for number in range(10):
        await world.put(replace(one, tags=(f"t{number}",)))
    assert titles(await bisect(sides, one, "title")) == [("", "Five")]


async def test_what_is_refused(sides: Sides) -> None:
    one = sides.world.node()
    await sides.world.put(one)
    with pytest.raises(InvalidInputError, match="field"):
        await bisect(sides, one, "colour")
    with pytest.raises(NotFoundError):
        await bisect(sides, sides.world.node())


# --- The answer to a question -----------------------------------------------------------------------------------------

QUESTION = "How often is a failed payment sent again?"


async def bisect_answer(sides: Sides, query: str = QUESTION, **fields: int) -> pb.BisectAnswerResponse:
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
    found = await bisect_answer(sides)
    assert said(found) == [("Five", ""), ("Three", "Five"), ("Five", "Three"), ("", "Five")]
    assert [change.commit.id for change in found.changes] == made[::-1]
    assert [change.commit.author.name for change in found.changes] == ["eve", "dan", "bob", "ann"]
    assert found.changes[2].source.document_id == "manual.md"
    assert found.complete
    assert not found.HasField("answer")
    some = await bisect_answer(sides, max_changes=2)
    assert (said(some), some.complete) == (said(found)[:2], False)


async def test_another_note_that_answers_better_is_a_change(world: World, sides: Sides) -> None:
    vague = note(sides, "Vague", "Payments may fail, and are sent again.")
    exact = note(sides, "Exact", "How often a failed payment is sent again: three times.")
    await world.put(vague)
    await world.put(exact)
    await world.put(delete=[exact])
    assert said(await bisect_answer(sides))[:2] == [("Exact", "Vague"), ("Vague", "Exact")]


async def test_an_answer_that_a_merge_brought(world: World, sides: Sides) -> None:
    five = note(sides, "Five", "A failed payment is sent again at most five times.")
    await sides.fork(five)
    three = replace(five, title="Three", content=five.content.replace("five", "three"), summary="Three times.")
    theirs = await world.put(three, branch="side")
    await world.put(note(sides, "Lunch", "Lunch is at noon."))
    merged = (await sides.merge()).commit_id
    found = {change.commit.id: change.merged for change in (await bisect_answer(sides)).changes}
    assert found.pop(merged) is True
    assert found.pop(theirs) is False
    assert list(found.values()) == [False]


async def test_a_question_that_nothing_answers_and_one_that_is_refused(sides: Sides) -> None:
    found = await bisect_answer(sides)
    assert (list(found.changes), found.complete, found.HasField("answer")) == ([], True, False)
    with pytest.raises(InvalidInputError):
        await bisect_answer(sides, " ")


async def test_many_versions_of_a_note_are_one_answer(world: World, sides: Sides) -> None:
    five = note(sides, "Five", "How often a failed payment is sent again: five times.")
    vague = note(sides, "Vague", "Payments may fail, and are sent again.")
    await world.put(vague)
    await world.put(five)
    for number in range(70):
        push(world, "main", replace(five, tags=(f"t{number}",)))
    await world.store.catch_up(world.workspace)
    found = await bisect_answer(sides)
    assert said(found) == [("Vague", "Five"), ("", "Vague")]
    assert found.complete
    assert found.answer.title == "Five"


async def test_what_was_not_looked_at_is_told(world: World, sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    five = note(sides, "Five", "A failed payment is sent again at most five times.")
    await world.put(five)
    for number in range(5):
        await world.put(replace(five, tags=(f"t{number}",)))
    assert (await bisect_answer(sides, max_changes=1)).complete
    for limit in ("_MOST_VERSIONS", "_MOST_COMMITS"):
        with monkeypatch.context() as patched:
            patched.setattr(f"memotree.history.answers.{limit}", 4)
            assert not (await bisect_answer(sides)).complete
    with pytest.raises(InvalidInputError):
        await bisect_answer(sides, max_changes=-1)


async def test_the_reason_is_that_of_the_note_that_went(world: World, sides: Sides) -> None:
    exact = note(sides, "Exact", "How often a failed payment is sent again: three times.")
    await world.put(note(sides, "Vague", "Payments may fail, and are sent again."), exact)
    session_id = await world.open()
    await world.stage(session_id, delete=[exact], note="It was wrong.\n\nNora has looked it up.")
    await world.commit(session_id)
    found = (await bisect_answer(sides)).changes[0]
    assert (found.before.title, found.reason) == ("Exact", "It was wrong.\n\nNora has looked it up.")
