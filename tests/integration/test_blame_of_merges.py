"""Blame through merges: a line is credited to the commit that wrote it on its branch, not to the merge."""

import contextlib
import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from campaigns import budget
from integration.histories import branch
from integration.pushes import PERSON, push
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.commit.merge_commit import MergeConflictError
from memotree_storage.model.node import Node

from memotree.history import blame as blames
from memotree.v1 import history_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-5")


async def blame(sides: Sides, node: Node, revision: str = "") -> list[tuple[str, str]]:
    request = pb.BlameNodeRequest(workspace=sides.world.workspace, node_id=node.id, revision=revision)
    answer = await sides.history.blame_node(request)
    return [(line.text, answer.commits[line.commit_index].id) for line in answer.lines]


async def test_lines_that_a_merge_brought_are_of_the_commits_of_the_branch(world: World, sides: Sides) -> None:
    one = replace(world.node("Five"), content="a\n\nb\n\nc")
    base = await sides.fork(one)
    new = replace(world.node("Only there"), content="a")
    first = await world.put(new, branch="side")
    theirs = await world.put(replace(one, content="a\n\nb\n\ntheirs"), branch="side", author="bob")
    ours = await world.put(replace(one, content="ours\n\nb\n\nc"))
    merged = (await sides.merge()).commit_id
    assert await blame(sides, one) == [("ours", ours), ("", base), ("b", base), ("", base), ("theirs", theirs)]
    assert await blame(sides, new) == [("a", first)]
    later = await world.put(replace(one, content="ours\n\nb\n\ntheirs\nlater"))
    assert (await blame(sides, one))[-2:] == [("theirs", theirs), ("later", later)]
    assert (await blame(sides, one, merged))[-1] == ("theirs", theirs)
    assert [text for text, _ in await blame(sides, one, ours)] == ["ours", "", "b", "", "c"]


async def test_the_newest_of_many_versions_is_read_though_its_commit_is_dated_long_ago(
    world: World, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blames, "MOST_REVISIONS", 3)
    one = replace(world.node("Five"), content="0")
    for number in range(5):
        await world.put(replace(one, content="\n".join(map(str, range(number + 1)))))
    long_ago = replace(PERSON, when=datetime(2001, 1, 1, tzinfo=UTC))
    made = push(world, "main", replace(one, content="0\n1\n2\n3\n4\nold"), by=long_ago)
    await world.store.catch_up(world.workspace)
    request = pb.BlameNodeRequest(workspace=world.workspace, node_id=one.id)
    answer = await sides.history.blame_node(request)
    assert [line.text for line in answer.lines] == ["0", "1", "2", "3", "4", "old"]
    assert answer.commits[answer.lines[-1].commit_index].id == made
    assert "Only the last 3 versions" in answer.warnings[0]


async def test_a_session_has_the_blame_of_its_base(world: World, sides: Sides) -> None:
    one = replace(world.node("Five"), content="a")
    base = await sides.fork(one)
    session = await world.open()
    new = replace(world.node("New"), content="b")
    await world.stage(session, replace(one, content="a\nb"), new)
    assert await blame(sides, one, session) == [("a", base)]
    assert await blame(sides, new, session) == []
    await world.put(delete=[one])
    again = await world.open()
    await world.stage(again, one)
    assert await blame(sides, one, again) == []


@pytest.mark.parametrize("seed", range(budget(2)))
async def test_lines_that_are_written_once_are_credited_to_the_commits_that_wrote_them(sides: Sides, seed: int) -> None:
    """Compares with a plain model: random edits on three branches that merge each other crosswise."""
    chosen = random.Random(seed)
    world = sides.world
    node = replace(world.node("Five"), content="\n".join(f"first {number}" for number in range(60)))
    base = await sides.fork(node)
    await branch(sides.history, world, "other")
    wrote = dict.fromkeys(node.content.split("\n"), base)
    merged = 0
    for number in range(30):
        place = chosen.randrange(3)
        here = ["main", "side", "other"][place]
        if chosen.random() < 0.5:
            with contextlib.suppress(MergeConflictError):
                merged += not (await sides.merge(chosen.choice(["main", "side", "other"]), here)).already_merged
            continue
        lines = content(sides, node, here)
        third = len(lines) // 3
        at = third * place + chosen.randrange(3, third - 3)  # changes that touch would be conflicts
        kept = lines[at + 1 :] if len(lines) > 3 and chosen.random() < 0.4 else lines[at:]
        new = f"line {number}"
        wrote[new] = await world.put(replace(node, content="\n".join([*lines[:at], new, *kept])), branch=here)
    assert merged > 4
    for name in ("main", "side", "other"):
        assert await blame(sides, node, name) == [(line, wrote[line]) for line in content(sides, node, name)]


def content(sides: Sides, node: Node, revision: str) -> list[str]:
    found = sides.at(node.id, revision)
    assert isinstance(found, Node)
    return found.content.split("\n")
