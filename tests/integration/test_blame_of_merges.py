"""Blame through merges: a line is credited to the commit that wrote it on its branch, not to the merge."""

from dataclasses import replace

import pytest
from integration.sides import Sides
from memotree_storage.model.node import Node

from memotree.v1 import history_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-5")


async def blame(sides: Sides, node: Node, revision: str = "", *, by_sentences: bool = False) -> list[tuple[str, str]]:
    request = pb.BlameNodeRequest(
        workspace=sides.world.workspace, node_id=node.id, revision=revision, by_sentences=by_sentences
    )
    answer = await sides.history.blame_node(request)
    return [(line.text, answer.commits[line.commit_index].id) for line in answer.lines]


async def test_lines_that_a_merge_brought_are_of_the_commits_of_the_branch(sides: Sides) -> None:
    world = sides.world
    one = replace(world.node("Five"), content="a\n\nb\n\nc")
    base = await sides.fork(one)
    theirs = await world.put(replace(one, content="a\n\nb\n\ntheirs"), branch="side", author="bob")
    ours = await world.put(replace(one, content="ours\n\nb\n\nc"))
    merged = (await sides.merge()).commit_id
    assert await blame(sides, one) == [("ours", ours), ("", base), ("b", base), ("", base), ("theirs", theirs)]
    later = await world.put(replace(one, content="ours\n\nb\n\ntheirs\nlater"))
    assert (await blame(sides, one))[-2:] == [("theirs", theirs), ("later", later)]
    assert (await blame(sides, one, merged))[-1] == ("theirs", theirs)
    assert [text for text, _ in await blame(sides, one, ours)] == ["ours", "", "b", "", "c"]


async def test_a_fast_forward_of_another_branch_changes_no_blame(sides: Sides) -> None:
    world = sides.world
    one = replace(world.node("Five"), content="a")
    base = await sides.fork(one)
    theirs = await world.put(replace(one, content="a\nb"), branch="side")
    assert await blame(sides, one, "side") == [("a", base), ("b", theirs)]


async def test_sentences_of_one_line_have_the_commits_that_wrote_them(sides: Sides) -> None:
    world = sides.world
    one = replace(world.node("Five"), content="Bake at five. Cool for an hour. Sell it.")
    base = await sides.fork(one)
    theirs = await world.put(
        replace(one, content="Bake at five. Cool for an hour. Sell it warm."), branch="side", author="bob"
    )
    ours = await world.put(replace(one, content="Bake at six. Cool for an hour. Sell it."))
    await sides.merge()
    assert await blame(sides, one, by_sentences=True) == [
        ("Bake at six.", ours),
        ("Cool for an hour.", base),
        ("Sell it warm.", theirs),
    ]


async def test_a_node_that_only_a_merged_branch_had_is_of_its_commits(sides: Sides) -> None:
    world = sides.world
    await sides.fork(world.node("Base"))
    new = replace(world.node("New"), content="a")
    first = await world.put(new, branch="side")
    second = await world.put(replace(new, content="a\nb"), branch="side")
    await world.put(world.node("Ours"))
    await sides.merge()
    assert await blame(sides, new) == [("a", first), ("b", second)]
