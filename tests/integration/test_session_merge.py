"""A merge, revert or cherry-pick with conflicts is kept in a session; its commit is the merge commit."""

from dataclasses import replace

import pytest
from integration.damage import differences
from integration.histories import delete_branch, git
from integration.sides import Sides, conflicts, resolve
from integration.worlds import World
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.commit.session_merge import SessionMergesError
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.state_merge import FileConflictError
from memotree_storage.mirror.tree_check import IncompleteChoiceError
from memotree_storage.model.node import Node

from memotree.v1 import history_service_pb2 as history
from memotree.v1 import session_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = [pytest.mark.requirement("GIT-6"), pytest.mark.own_store]

THEIRS = types_pb2.CONFLICT_SIDE_THEIRS
OURS = types_pb2.CONFLICT_SIDE_OURS


async def session_of(world: World, session_id: str) -> pb.Session:
    request = pb.GetSessionRequest(workspace=world.workspace, session_id=session_id)
    return (await world.sessions.get_session(request)).session


async def forked(sides: Sides) -> tuple[Node, Node, str]:
    """A node with another title on each side, one that their side alone changed, and a session that merges them."""
    world = sides.world
    one, two = world.nodes(2)
    await sides.fork(one, two)
    await world.put(replace(one, title="Ours"), message="Ours")
    await world.put(replace(one, title="Theirs"), replace(two, tags=("theirs",)), branch="side", message="Theirs")
    session_id = await world.open()
    answer = await sides.merge(session_id=session_id)
    assert (answer.commit_id, answer.branch, answer.change_count, answer.conflict_count) == ("", "main", 1, 1)
    return one, two, session_id


def parents(sides: Sides, commit_id: str) -> list[str]:
    return git(sides.world, "show", "-s", "--format=%P", commit_id).split()


async def test_a_merge_is_resolved_in_its_session_and_committed_with_both_parents(world: World, sides: Sides) -> None:
    one, two, session_id = await forked(sides)
    before = await world.head()
    session = await session_of(world, session_id)
    assert (session.conflict_count, session.merge_commit_id) == (1, sides.commit("side"))
    (conflict,) = await conflicts(world, session_id)
    assert (conflict.our_value.text, conflict.their_value.text) == ("Ours", "Theirs")
    with pytest.raises(ConflictError):
        await world.commit(session_id)
    await resolve(world, session_id, {"node_id": one.id, "side": THEIRS})
    commit_id = await world.commit(session_id, "Merge side")
    assert parents(sides, commit_id) == [before, sides.commit("side")]
    assert sides.at(one.id) == replace(one, title="Theirs")
    assert sides.at(two.id) == replace(two, tags=("theirs",))
    after = await session_of(world, session_id)
    assert (after.merge_commit_id, after.change_count, after.conflict_count) == ("", 0, 0)
    assert (await sides.preview()).already_merged
    assert await differences(world) == []


async def test_a_merge_is_committed_although_the_branch_has_moved(world: World, sides: Sides) -> None:
    one, two, session_id = await forked(sides)
    await resolve(world, session_id, others=THEIRS)
    moved = await world.put(replace(two, title="Later"))
    commit_id = await world.commit(session_id, "Merge side")
    assert parents(sides, commit_id) == [moved, sides.commit("side")]
    assert sides.at(one.id) == replace(one, title="Theirs")
    assert sides.at(two.id) == replace(two, title="Later", tags=("theirs",))


async def test_the_same_merge_made_by_another_call_meanwhile(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    await world.put(replace(one, tags=("theirs",)), branch="side")
    await world.put(world.node("Further"))
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    await sides.merge()
    with pytest.raises(NothingToCommitError):
        await world.commit(session_id)
    await world.stage(session_id, replace(one, tags=("theirs",), title="More"))
    commit_id = await world.commit(session_id)
    assert len(parents(sides, commit_id)) == 1


async def test_a_merge_that_changes_no_node_is_still_recorded_and_a_squash_has_one_parent(
    world: World, sides: Sides
) -> None:
    one = world.node()
    await sides.fork(one)
    for branch in ("main", "side"):
        await world.put(replace(one, title="The same"), branch=branch)
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    assert len(parents(sides, await world.commit(session_id))) == 2
    assert (await sides.preview()).already_merged
    await world.put(replace(one, title="Theirs"), branch="side")
    await sides.merge(session_id=session_id, style=history.MERGE_STYLE_SQUASH)
    assert (await session_of(world, session_id)).merge_commit_id == ""
    assert len(parents(sides, await world.commit(session_id))) == 1


async def test_a_merge_is_committed_whole(world: World, sides: Sides) -> None:
    one, two, session_id = await forked(sides)
    await resolve(world, session_id, others=THEIRS)
    with pytest.raises(IncompleteChoiceError):
        await world.commit(session_id, specific_nodes=[two.id])
    with pytest.raises(SessionMergesError):
        await sides.merge(session_id=session_id)
    for fields in ({"message": "m"}, {"into": "main"}, {"style": history.MERGE_STYLE_FAST_FORWARD}):
        with pytest.raises(InvalidInputError):  # only a commit has these
            await sides.merge(session_id=session_id, **fields)
    request = pb.DiscardChangesRequest(workspace=world.workspace, session_id=session_id, node_ids=[two.id])
    await world.sessions.discard_changes(request)
    await world.commit(session_id)
    assert (sides.at(one.id), sides.at(two.id)) == (replace(one, title="Theirs"), two)


async def test_changes_of_the_session_are_merged_too(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await sides.fork(one, two)
    await world.put(replace(one, title="Theirs"), replace(two, tags=("theirs",)), branch="side")
    session_id = await world.open()
    await world.stage(session_id, replace(one, title="Of the session"), replace(two, title="Of the session"))
    answer = await sides.merge(session_id=session_id)
    assert answer.conflict_count == 1
    (conflict,) = await conflicts(world, session_id)
    assert (conflict.our_value.text, conflict.their_value.text) == ("Of the session", "Theirs")
    await resolve(world, session_id, others=THEIRS)
    await world.commit(session_id)
    assert sides.at(one.id) == replace(one, title="Theirs")
    assert sides.at(two.id) == replace(two, title="Of the session", tags=("theirs",))


async def test_a_node_that_only_one_side_has_left(world: World, sides: Sides) -> None:
    one, two, three, four = nodes = world.nodes(4)
    changed = [replace(node, title="Changed") for node in nodes]
    await sides.fork(*nodes)
    await world.put(changed[1], changed[3], delete=[one, three])
    await world.put(changed[0], changed[2], delete=[two, four], branch="side")
    session_id = await world.open()
    assert (await sides.merge(session_id=session_id)).conflict_count == 4
    await resolve(world, session_id, *({"node_id": node.id, "side": OURS} for node in (one, two)), others=THEIRS)
    await world.commit(session_id)
    assert [sides.at(node.id) for node in nodes] == [None, changed[1], changed[2], None]
    assert await differences(world) == []


async def test_other_files_come_along_and_clash(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    await sides.write({"LICENCE": b"Theirs\n"}, onto="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    clashing = await world.open()
    await sides.merge(session_id=clashing)
    commit_id = await world.commit(session_id, "Merge side")
    assert git(world, "show", f"{commit_id}:LICENCE") == "Theirs\n"
    await sides.write({"LICENCE": b"Of a person\n"}, onto="main")
    await world.stage(clashing, replace(one, title="More"))
    with pytest.raises(FileConflictError):
        await world.commit(clashing)


async def test_the_merged_commit_is_kept_while_the_session_is_open(world: World, sides: Sides) -> None:
    _, _, session_id = await forked(sides)
    theirs = sides.commit("side")
    await delete_branch(sides.history, world, "side")
    for _ in range(2):
        await world.store.maintenance.tidy()
    assert theirs in git(world, "for-each-ref", "--format=%(objectname)", "refs/memotree/keep")
    await resolve(world, session_id, others=THEIRS)
    commit_id = await world.commit(session_id)
    assert parents(sides, commit_id)[1] == theirs
    assert await differences(world) == []
    for _ in range(2):
        await world.store.maintenance.tidy()
    assert f"{session_id}." not in git(world, "for-each-ref", "refs/memotree/keep")


async def test_a_revert_and_a_cherry_pick_are_resolved_in_a_session(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await sides.fork(one, two)
    wrong = await world.put(replace(one, title="Wrong"), replace(two, tags=("wrong",)))
    await world.put(replace(one, title="Later"), replace(two, tags=("wrong",)))
    session_id = await world.open()
    answer = await sides.revert(wrong, session_id=session_id)
    assert (answer.commit_id, answer.change_count, answer.conflict_count) == ("", 1, 1)
    await resolve(world, session_id, others=THEIRS)
    commit_id = await world.commit(session_id, "Take it back")
    assert (sides.at(one.id), sides.at(two.id)) == (one, two)
    assert len(parents(sides, commit_id)) == 1
    picked = await sides.pick(wrong, session_id=session_id)
    assert (picked.change_count, picked.conflict_count) == (2, 0)
    await world.commit(session_id, "Bring it again")
    assert sides.at(one.id) == replace(one, title="Wrong")
