"""A merge, pick or revert of some changes: by node, subtree, tag or agent, with a dry run."""

from dataclasses import replace
from typing import Any

import pytest
from integration.histories import branch
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.change_selection import NoSuchChangeError
from memotree_storage.mirror.tree_check import IncompleteChoiceError
from memotree_storage.model.node import Node

from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import session_service_pb2

pytestmark = pytest.mark.requirement("GIT-6", "GIT-7")


async def forked(sides: Sides) -> tuple[Node, Node, Node, Node]:
    """Four nodes that ``side`` has changed: a root, one below it, and two others; anna made the last change."""
    world = sides.world
    root, one, two = world.nodes(3)
    below = world.node("Below", parent=root)
    await sides.fork(root, below, one, two)
    changed = [replace(each, title=f"{each.title}, changed") for each in (root, below, one)]
    await world.put(changed[0], changed[1], replace(changed[2], tags=("plan",)), branch="side", author="bob")
    await world.put(delete=[two], branch="side", author="anna")
    return root, below, one, two


CASES: list[tuple[dict[str, Any], str]] = [
    ({"node_ids": "root"}, "root"),
    ({"subtree_ids": "root"}, "root below"),
    ({"node_ids": "two", "subtree_ids": "root"}, "root below two"),
    ({"tags": ["plan", "other"]}, "one"),
    ({"agents": ["anna"]}, "two"),
    ({"agents": ["bob", "nobody"]}, "root below one"),
    ({"subtree_ids": "archive", "tags": ["plan"]}, "one"),
]


async def test_only_the_chosen_changes_come(world: World, sides: Sides) -> None:
    entries = dict(zip(("root", "below", "one", "two"), await forked(sides), strict=True))
    ids = {name: entry.id for name, entry in entries.items()} | {"archive": world.archive.id}
    for number, (only, expected) in enumerate(CASES):
        into = f"into-{number}"
        await branch(sides.history, world, into, "main")
        named = {key: [ids[value]] if isinstance(value, str) else value for key, value in only.items()}
        told = await sides.preview(into=into, only=named)
        made = await sides.merge(into=into, only=named)
        wanted = {ids[name] for name in expected.split()}
        assert {change.node_id for change in told.changes} == wanted, only
        assert made.change_count == len(wanted), only
        assert {one.id for one in entries.values() if sides.at(one.id, into) != one} == wanted, only
        assert len(world.repository.commit_info(made.commit_id).parents) == 1
        rest = await sides.merge(into=into)
        assert rest.change_count == len(entries) - len(wanted), only


async def test_a_pick_and_a_revert_of_one_node(sides: Sides) -> None:
    root, below, one, _ = await forked(sides)
    commit = sides.commit("side~1")
    made = await sides.pick(commit, only={"node_ids": [one.id]})
    assert [change.node_id for change in made.changes] == [one.id]
    await sides.pick(commit, only={"subtree_ids": [root.id]})
    assert sides.at(below.id) == replace(below, title="Below, changed")
    told = await sides.revert("main", only={"node_ids": [below.id[:6]]}, validate_only=True)
    assert [change.node_id for change in told.changes] == [below.id]
    await sides.revert("main", only={"node_ids": [below.id]})
    assert (sides.at(below.id), sides.at(root.id)) == (below, replace(root, title="Node 0, changed"))


async def test_a_choice_that_needs_others_names_them(world: World, sides: Sides) -> None:
    await sides.fork(world.node())
    parent = world.node("Parent")
    child = world.node("Child", parent=parent)
    await world.put(parent, child, branch="side")
    with pytest.raises(IncompleteChoiceError) as caught:
        await sides.merge(only={"node_ids": [child.id]})
    assert [node.entry_id for node in caught.value.nodes] == [parent.id]  # type: ignore[attr-defined]
    await sides.merge(only={"node_ids": [child.id, parent.id]})
    assert sides.at(child.id) == child


async def test_in_a_session(sides: Sides) -> None:
    _, _, one, _ = await forked(sides)
    session_id = await sides.world.open()
    made = await sides.merge(session_id=session_id, only={"tags": ["plan"]})
    assert made.change_count == 1
    request = session_service_pb2.GetSessionRequest(workspace=sides.world.workspace, session_id=session_id)
    assert (await sides.world.sessions.get_session(request)).session.merge_commit_id == ""
    await sides.world.commit(session_id)
    assert sides.at(one.id) == replace(one, title="Node 1, changed", tags=("plan",))


NO_SELECTIONS: list[dict[str, Any]] = [
    {},
    {"tags": [""]},
    {"agents": ["a"] * 1001},
    {"node_ids": ["?"]},
    {"subtree_ids": ["abc"]},
]


async def test_a_selection_that_is_none_or_has_no_change_and_a_style_that_claims_all_are_refused(sides: Sides) -> None:
    root, *_ = await forked(sides)
    for only in NO_SELECTIONS:
        with pytest.raises(InvalidInputError):
            await sides.merge(only=pb.ChangeSelection(**only))
    with pytest.raises(NoSuchChangeError):
        await sides.merge(only={"node_ids": ["zzzz"]})
    for style in (pb.MERGE_STYLE_COMMIT, pb.MERGE_STYLE_FAST_FORWARD):
        with pytest.raises(InvalidInputError, match="SQUASH"):
            await sides.merge(only={"node_ids": [root.id]}, style=style)
