"""Reverting commits and bringing them into other branches, whole or some of their changes, as new commits."""

from dataclasses import replace
from typing import Any

import pytest
from integration.damage import differences
from integration.histories import branch, git, kinds
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.commit.commit_pick import NoParentError
from memotree_storage.commit.merge_commit import MergeConflictError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.conflicts import Absence
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.change_selection import NoSuchChangeError
from memotree_storage.mirror.tree_check import IncompleteChoiceError
from memotree_storage.model.node import Node
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("GIT-6", "GIT-7")


async def test_a_revert_takes_back_what_a_commit_changed_and_nothing_else(world: World, sides: Sides) -> None:
    one, two, three = world.nodes(3)
    await world.put(one, two, three)
    new = world.node("New")
    changed = await world.put(
        replace(one, title="Wrong", tags=("t",)), replace(two, title="Wrong"), new, delete=[three]
    )
    later = await world.put(replace(one, title="Wrong", tags=("t", "u"), content="A better text."))
    made = await sides.revert(changed)
    assert (made.branch, made.change_count) == ("main", 4)
    assert git(world, "rev-parse", "main", "main^").split() == [made.commit_id, later]
    assert sides.at(one.id) == replace(one, tags=("u",), content="A better text.")
    assert (sides.at(two.id), sides.at(three.id), sides.at(new.id)) == (two, three, None)
    message = git(world, "log", "-1", "--format=%B", "main")
    assert message.startswith(f'Revert "Change something"\n\nThis reverts commit {changed}.\n\nCreated:\n- ')
    assert await differences(world) == []


async def test_undoing_an_undo_brings_the_changes_back(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await world.put(one, two)
    await world.put(replace(one, content="Changed."), delete=[two])
    await sides.revert()
    assert (sides.at(one.id), sides.at(two.id)) == (one, two)
    await sides.revert()
    assert (sides.at(one.id), sides.at(two.id)) == (replace(one, content="Changed."), None)
    subject = 'Revert "Revert "Change something""'
    assert git(world, "log", "-1", "--format=%s", "main").strip() == subject


async def test_what_was_changed_again_since_is_a_conflict(world: World, sides: Sides) -> None:
    one = world.node("Before")
    await world.put(one)
    changed = await world.put(replace(one, title="Wrong"))
    await world.put(replace(one, title="Right"))
    for only in (False, True):
        with pytest.raises(MergeConflictError) as caught:
            await sides.revert(changed, validate_only=only)
        (conflict,) = caught.value.conflicts
        assert (conflict.base, conflict.ours, conflict.theirs) == ("Wrong", "Right", "Before")
    assert git(world, "log", "--format=%s", "main").count("\n") == 5


async def test_taking_a_creation_back_from_under_later_children_is_a_conflict(world: World, sides: Sides) -> None:
    one = world.node()
    made = await world.put(one)
    await world.put(world.node("Below", parent=one))
    with pytest.raises(MergeConflictError) as caught:
        await sides.revert(made)
    (conflict,) = caught.value.conflicts
    assert (conflict.node_id, conflict.theirs) == (one.id, Absence.DELETED)


async def test_a_preview_writes_nothing_and_what_has_nothing_left_or_before_it_is_refused(
    world: World, sides: Sides
) -> None:
    one = world.node()
    await world.put(one)
    head = await world.put(replace(one, title="Changed"))
    told = await sides.revert(validate_only=True)
    assert (told.commit_id, told.change_count) == (head, 1)
    assert await world.head() == head
    made = await sides.revert()
    assert kinds(made.changes) == kinds(told.changes)
    with pytest.raises(NothingToCommitError):
        await sides.revert(head)
    with pytest.raises(NoParentError):
        await sides.revert(git(world, "rev-list", "--max-parents=0", "main").strip())


async def test_a_merge_is_reverted_against_one_of_its_parents(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await sides.fork(one, two)
    ours = await world.put(replace(one, title="Ours"))
    await world.put(replace(two, title="Theirs"), branch="side")
    merged = await sides.merge()
    with pytest.raises(InvalidInputError) as caught:
        await sides.revert()
    assert [violation.field for violation in caught.value.violations] == ["parent_number"]
    with pytest.raises(InvalidInputError):
        await sides.revert(parent_number=3)
    await sides.revert(parent_number=1)
    assert (sides.at(one.id), sides.at(two.id)) == (replace(one, title="Ours"), two)
    assert f"This reverts commit {merged.commit_id}, reversing changes made to {ours}." in git(
        world, "log", "-1", "--format=%B", "main"
    )


async def test_a_picked_commit_brings_its_changes_and_keeps_its_author(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await sides.fork(one, two)
    await world.put(replace(one, title="Ours"))
    await world.put(replace(two, title="Not wanted"), branch="side")
    wanted = await world.put(replace(one, content="Theirs."), branch="side", author="A writer", message="Wanted")
    made = await sides.pick(wanted[:12])
    assert made.change_count == 1
    assert sides.at(one.id) == replace(one, title="Ours", content="Theirs.")
    assert sides.at(two.id) == two
    assert git(world, "log", "-1", "--format=%an|%s", "main").strip() == "A writer|Wanted"
    assert f"(cherry picked from commit {wanted})" in git(world, "log", "-1", "--format=%B", "main")
    with pytest.raises(NothingToCommitError):
        await sides.pick(wanted)
    again = await sides.revert()
    assert again.change_count == 1
    author = types_pb2.CommitAuthor(name="A person")
    await sides.pick(wanted, author=author, message="Again")
    assert git(world, "log", "-1", "--format=%an|%s", "main").strip() == "A person|Again"
    assert await differences(world) == []


@pytest.mark.requirement("STORE-2")
async def test_a_repeated_request_has_the_first_answer(world: World, sides: Sides) -> None:
    one = world.node()
    await world.put(one)
    changed = await world.put(replace(one, title="Changed"))
    made = await sides.revert(changed, request_id="undo-1")
    assert await sides.revert(changed, request_id="undo-1") == made
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")
    assert (await sides.revert(changed, request_id="undo-1")).commit_id == made.commit_id
    with pytest.raises(RequestIdReusedError):
        await sides.revert(made.commit_id, request_id="undo-1")


# --- Some of the changes ----------------------------------------------------------------------------------------------


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


async def test_a_selection_that_is_none_or_has_no_change_and_a_style_that_claims_all_are_refused(sides: Sides) -> None:
    root, *_ = await forked(sides)
    nothing: tuple[dict[str, Any], ...] = ({}, {"tags": [""]}, {"agents": ["a"] * 1001}, {"node_ids": ["?"]})
    for only in (*nothing, {"subtree_ids": ["abc"]}):
        with pytest.raises(InvalidInputError):
            await sides.merge(only=pb.ChangeSelection(**only))
    with pytest.raises(NoSuchChangeError):
        await sides.merge(only={"node_ids": ["zzzz"]})
    for style in (pb.MERGE_STYLE_COMMIT, pb.MERGE_STYLE_FAST_FORWARD):
        with pytest.raises(InvalidInputError, match="SQUASH"):
            await sides.merge(only={"node_ids": [root.id]}, style=style)
