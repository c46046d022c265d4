"""Reverting commits and bringing them into other branches, as new commits."""

from dataclasses import replace

import pytest
from integration.damage import differences
from integration.histories import git, kinds
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.commit.commit_pick import NoParentError
from memotree_storage.commit.merge_commit import MergeConflictError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.conflicts import Absence
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-7")


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
