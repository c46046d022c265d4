"""Every commit at which a node, or a field of it, changed: through merges, there and back again, with who and why."""

from dataclasses import replace
from typing import Any

import pytest
from integration.sides import Sides
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.node import Node, Source

from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-5", "GIT-12")


async def bisect(sides: Sides, node: Node, field: str = "", **fields: Any) -> list[pb.ValueChange]:
    found: list[pb.ValueChange] = []
    token = ""
    while True:
        request = pb.BisectNodeRequest(
            workspace=sides.world.workspace, node_id=node.id, field=field, page_token=token, **fields
        )
        answer = await sides.history.bisect_node(request)
        found += answer.changes
        token = answer.next_page_token
        if not token:
            return found


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


async def test_a_deletion_and_what_was_deleted(world: World, sides: Sides) -> None:
    one = world.node("Five")
    await world.put(one)
    gone = await world.put(delete=[one])
    found = await bisect(sides, one, "title")
    assert (found[0].commit.id, found[0].kind) == (gone, types_pb2.CHANGE_KIND_DELETED)
    assert titles(found) == [("Five", ""), ("", "Five")]


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
