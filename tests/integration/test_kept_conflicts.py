"""Conflicts that a session keeps stay right while the branch moves, and no choice loses an edit of somebody else."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from integration.damage import differences
from integration.histories import branch, git
from integration.sides import Sides, changes, conflicts, rebase, resolve
from integration.worlds import World
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.commit.session_merge import UnresolvedConflictsError
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.state_merge import FileConflictError
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.paths import entry_path

from memotree.v1 import history_service_pb2 as history
from memotree.v1 import session_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = [pytest.mark.requirement("GIT-6"), pytest.mark.own_store]

OURS, THEIRS, BASE = types_pb2.CONFLICT_SIDE_OURS, types_pb2.CONFLICT_SIDE_THEIRS, types_pb2.CONFLICT_SIDE_BASE
SQUASH = history.MERGE_STYLE_SQUASH

LINES = "one\ntwo\nthree\nfour\nfive"


async def merging(sides: Sides, *entries: tuple[Entry, Entry, Entry]) -> str:
    """A session that merges ``side``; both sides have changed each entry: as it was, ours, and theirs."""
    world = sides.world
    base, ours, theirs = zip(*entries, strict=True)
    await sides.fork(*base)
    await world.put(*ours)
    await world.put(*theirs, branch="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    return session_id


def titled(one: Node) -> tuple[Node, Node, Node]:
    """A node of which both sides have changed the title."""
    return one, replace(one, title="Ours"), replace(one, title="Theirs")


def in_lines(one: Node, *changes: tuple[str, str]) -> Node:
    """The node with other words in its content."""
    content = one.content
    for old, new in changes:
        content = content.replace(old, new)
    return replace(one, content=content)


def content(sides: Sides, node: Node) -> str:
    """What the branch has."""
    found = sides.at(node.id)
    assert isinstance(found, Node)
    return found.content


async def test_a_choice_keeps_what_the_branch_has_changed_meanwhile(world: World, sides: Sides) -> None:
    nodes = world.nodes(2, content=LINES)
    ours = [in_lines(one, ("two", "two of ours")) for one in nodes]
    theirs = [in_lines(one, ("two", "two of theirs")) for one in nodes]
    session_id = await merging(sides, *zip(nodes, ours, theirs, strict=True))
    await world.put(*(in_lines(one, ("five", "five, urgently mended")) for one in ours))
    await rebase(world, session_id)
    assert ["urgently" in each.our_value.text for each in await conflicts(world, session_id)] == [True, True]
    choices: list[dict[str, Any]] = [{"side": THEIRS}, {"hunks": {"hunks": [{"side": THEIRS}]}}]
    await resolve(world, session_id, *({"node_id": n.id, **how} for n, how in zip(nodes, choices, strict=True)))
    await world.commit(session_id)
    for one in nodes:
        assert content(sides, one) == "one\ntwo of theirs\nthree\nfour\nfive, urgently mended"


async def test_our_value_is_the_one_that_the_session_has(world: World, sides: Sides) -> None:
    one = world.node("Base")
    session_id = await merging(sides, titled(one))
    await world.put(replace(one, title="Third"))
    await rebase(world, session_id)
    (conflict,) = await conflicts(world, session_id)
    assert (conflict.our_value.text, conflict.their_value.text) == ("Third", "Theirs")
    await world.stage(session_id, replace(one, title="Third", tags=("later",)))
    assert len(await conflicts(world, session_id)) == 1, "an edit of another field is no choice"
    with pytest.raises(ConflictError):
        await world.commit(session_id)


async def test_a_node_in_conflict_that_the_branch_deletes_meanwhile(world: World, sides: Sides) -> None:
    nodes = world.nodes(2)
    session_id = await merging(sides, *map(titled, nodes))
    await world.put(delete=nodes)
    await rebase(world, session_id)
    found = {(each.kind, each.field) for each in await conflicts(world, session_id)}
    assert found == {(types_pb2.CONFLICT_KIND_CHANGED_AND_DELETED, "")}
    await resolve(world, session_id, {"node_id": nodes[0].id, "side": OURS}, others=THEIRS)
    await world.commit(session_id)
    assert [sides.at(one.id) for one in nodes] == [None, replace(nodes[1], title="Theirs")]


@pytest.mark.parametrize("side", [OURS, THEIRS])
async def test_a_node_with_more_changes_that_the_branch_deletes_meanwhile(sides: Sides, side: int) -> None:
    """Then the session has the node, and the branch does not: that is one conflict more."""
    world = sides.world
    one = world.node("Base")
    theirs = replace(one, title="Theirs", tags=("theirs",))
    session_id = await merging(sides, (one, replace(one, title="Ours"), theirs))
    await world.put(delete=[one])
    await rebase(world, session_id)
    assert [each.field for each in await conflicts(world, session_id)] == ["title", ""]
    assert (await resolve(world, session_id, others=side)).conflict_count == 1, "in it, ours is the session"
    await resolve(world, session_id, {"node_id": one.id, "side": side})
    await world.commit(session_id)
    assert sides.at(one.id) == (replace(theirs, title="Ours") if side == OURS else None)


async def test_a_side_for_all_deletes_nothing(world: World, sides: Sides) -> None:
    top = world.node("Top")
    await sides.fork(top)
    child = world.node("Child", parent=top)
    await world.put(child)
    await world.put(delete=[top], branch="side")
    for style in (SQUASH, history.MERGE_STYLE_COMMIT):
        session_id = await world.open()
        await sides.merge(session_id=session_id, style=style)
        (conflict,) = await conflicts(world, session_id)
        assert conflict.our_value.child_id == child.id
        assert (await resolve(world, session_id, others=THEIRS)).conflict_count == 1
        assert (await resolve(world, session_id, others=OURS)).conflict_count == 0
        with pytest.raises(NothingToCommitError) if style == SQUASH else nullcontext():
            await world.commit(session_id)
        assert (sides.at(top.id), sides.at(child.id)) == (top, child)


async def test_new_nodes_that_are_below_each_other_do_not_come_in(world: World, sides: Sides) -> None:
    await sides.fork(world.node())
    one, two = world.nodes(2)
    pushed = [replace(one, parent_id=two.id), replace(two, parent_id=one.id)]
    await sides.write({entry_path(each): encode_entry(each) for each in pushed}, onto="side")
    for style in (SQUASH, history.MERGE_STYLE_COMMIT):
        session_id = await world.open()
        await sides.merge(session_id=session_id, style=style)
        assert {each.kind for each in await conflicts(world, session_id)} == {types_pb2.CONFLICT_KIND_CYCLE}
        with pytest.raises(ConflictError):
            await world.commit(session_id)


async def test_a_restore_of_what_the_session_has_deleted_is_an_edit(world: World, sides: Sides) -> None:
    one = world.node("One")
    before = await world.put(one)
    await world.put(replace(one, title="Changed"))
    session_id = await world.open()
    await world.stage(session_id, delete=[one])
    request = history.RestoreNodesRequest(
        workspace=world.workspace, node_ids=[one.id], revision=before, session_id=session_id
    )
    await sides.history.restore_nodes(request)
    assert [change.kind for change in await changes(world, session_id)] == [types_pb2.CHANGE_KIND_UPDATED]
    await world.commit(session_id)
    assert sides.at(one.id) == one


async def test_one_choice_is_for_a_place_in_two_conflicts(world: World, sides: Sides) -> None:
    one, two, near, far = world.nodes(4)
    await sides.fork(one, two, near, far)
    await world.put(*(replace(each, parent_id=near.id) for each in (one, two)), delete=[far])
    await world.put(*(replace(each, parent_id=far.id) for each in (one, two)), branch="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    place = {"place": {"archive_id": world.archive.id, "parent_id": near.id}, "field": "parent"}
    choices = ({"node_id": one.id, "side": BASE}, {"node_id": two.id, **place})
    assert (await resolve(world, session_id, *choices)).conflict_count == 0
    await world.commit(session_id)
    places = [found.parent_id for each in (one, two) if isinstance(found := sides.at(each.id), Node)]
    assert places == [None, near.id]
    assert await differences(world) == []


async def test_a_side_for_all_does_not_depend_on_the_order_of_ids(world: World, sides: Sides) -> None:
    nodes = sorted(world.nodes(2), key=lambda node: node.id)
    for parent, child in (nodes, nodes[::-1]):
        three = world.node("Three")
        await world.put(parent, child, three)
        name = f"b-{parent.id}"
        await branch(sides.history, world, name)
        await world.put(replace(child, parent_id=three.id), delete=[parent])
        await world.put(replace(parent, title="Changed"), replace(child, parent_id=parent.id), branch=name)
        session_id = await world.open()
        await sides.merge(name, session_id=session_id)
        assert (await resolve(world, session_id, others=THEIRS)).conflict_count == 0
        await world.commit(session_id)
        assert sides.at(child.id) == replace(child, parent_id=parent.id)
        await world.put(delete=[child, parent, three])


async def test_no_choice_gives_a_time_that_ends_before_it_begins(world: World, sides: Sides) -> None:
    one, two = nodes = world.nodes(2, attributes={"valid_to": "2025-01-01"})
    theirs = {"valid_from": "2022-01-01", "valid_to": "2025-01-01"}
    session_id = await merging(
        sides,
        *(
            (each, replace(each, attributes={"valid_to": "2021-01-01"}), replace(each, attributes=theirs))
            for each in nodes
        ),
    )
    assert {conflict.field for conflict in await conflicts(world, session_id)} == {"attributes.valid_to"}
    with pytest.raises(InvalidInputError, match="resolutions"):
        await resolve(world, session_id, {"node_id": one.id, "side": OURS})
    await resolve(
        world,
        session_id,
        {"node_id": one.id, "field": "attributes.valid_to", "remove": True},
        {"node_id": two.id, "side": THEIRS},
    )
    await world.commit(session_id)
    times = [found.attributes.get("valid_to") for each in nodes if isinstance(found := sides.at(each.id), Node)]
    assert times == [None, "2025-01-01"]


async def test_a_change_in_conflict_lets_nothing_more_in_and_is_discarded_without_a_staged_row(sides: Sides) -> None:
    world = sides.world
    one = world.node("Base")
    session_id = await merging(sides, titled(one))
    with pytest.raises(UnresolvedConflictsError):
        await sides.pick("side", session_id=session_id)
    assert await changes(world, session_id) == []
    request = pb.DiscardChangesRequest(workspace=world.workspace, session_id=session_id, node_ids=[one.id])
    assert (await world.sessions.discard_changes(request)).session.conflict_count == 0


async def test_a_file_that_the_branch_changed_too_is_no_dead_end(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    await sides.write({"LICENCE": b"Theirs\n"}, onto="side")
    await world.put(replace(one, title="Theirs"), branch="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    await sides.write({"LICENCE": b"Of a person\n"}, onto="main")
    with pytest.raises(FileConflictError, match="rebase"):
        await world.commit(session_id)
    await rebase(world, session_id)
    commit_id = await world.commit(session_id)
    assert git(world, "show", f"{commit_id}:LICENCE") == "Of a person\n"
    assert sides.at(one.id) == replace(one, title="Theirs")


async def test_a_pick_whose_file_the_branch_has_by_now_commits_nothing(world: World, sides: Sides) -> None:
    await sides.fork(world.node())
    await sides.write({"LICENCE": b"Theirs\n"}, onto="side")
    session_id = await world.open()
    await sides.pick("side", session_id=session_id)
    await sides.write({"LICENCE": b"Theirs\n"}, onto="main")
    with pytest.raises(NothingToCommitError):
        await world.commit(session_id)


async def test_what_only_moved_below_a_restored_node_goes_back(world: World, sides: Sides) -> None:
    root, away = world.nodes(2)
    before = await world.put(root, away)
    new = world.node("New", parent=root)
    await world.put(replace(away, parent_id=root.id), new)
    request = history.RestoreNodesRequest(
        workspace=world.workspace, node_ids=[root.id], revision=before, recursive=True, delete_others=True
    )
    await sides.history.restore_nodes(request)
    assert (sides.at(away.id), sides.at(new.id)) == (away, None)


async def test_the_conflicts_of_the_tree_are_gone_with_the_changes(world: World) -> None:
    parent, node, other = world.nodes(3)
    await world.put(parent, node, other)
    session_id = await world.open()
    await world.stage(session_id, replace(node, parent_id=parent.id), replace(other, title="Other"))
    await world.put(delete=[parent])
    await world.commit(session_id, specific_nodes=[other.id])
    assert len(await conflicts(world, session_id)) == 1
    await world.put(parent)
    await world.commit(session_id)
    assert await conflicts(world, session_id) == []


async def test_our_side_of_a_content_keeps_what_they_alone_have_changed(world: World, sides: Sides) -> None:
    nodes = world.nodes(3, content=LINES)
    ours = [in_lines(one, ("two", "two of ours")) for one in nodes]
    theirs = [in_lines(one, ("two", "two of theirs"), ("five", "five of theirs")) for one in nodes]
    session_id = await merging(sides, *zip(nodes, ours, theirs, strict=True))
    choices: list[dict[str, Any]] = [{"side": OURS}, {"hunks": {"hunks": [{"side": OURS}]}}]
    named = ({"node_id": one.id, **how} for one, how in zip(nodes, choices, strict=False))
    await resolve(world, session_id, *named, others=OURS)
    await world.commit(session_id)
    for one in nodes:
        assert content(sides, one) == "one\ntwo of ours\nthree\nfour\nfive of theirs"


async def test_a_content_that_the_branch_took_back_is_still_a_choice(world: World, sides: Sides) -> None:
    nodes = world.nodes(2, content=LINES)
    ours = [in_lines(one, ("two", "two of ours")) for one in nodes]
    theirs = [in_lines(one, ("two", "two of theirs")) for one in nodes]
    session_id = await merging(sides, *zip(nodes, ours, theirs, strict=True))
    await world.put(*nodes)
    await rebase(world, session_id)
    for conflict in await conflicts(world, session_id):
        assert (conflict.our_value.text, list(conflict.hunks)) == (LINES, [])
    await resolve(world, session_id, {"node_id": nodes[0].id, "side": OURS}, {"node_id": nodes[1].id, "side": THEIRS})
    await world.commit(session_id)
    assert [sides.at(one.id) for one in nodes] == [nodes[0], theirs[1]]


async def test_a_commit_of_the_rest_leaves_the_conflict_up_to_date(world: World, sides: Sides) -> None:
    one, two = world.nodes(2, content=LINES)
    await sides.fork(one, two)
    ours = replace(one, content=LINES.replace("two", "two of ours"))
    await world.put(ours)
    theirs = replace(one, content=LINES.replace("two", "two of theirs"))
    await world.put(theirs, replace(two, title="Theirs"), branch="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id, style=SQUASH)
    await world.put(replace(ours, content=ours.content.replace("five", "five, mended")))
    await world.commit(session_id, specific_nodes=[two.id])
    (conflict,) = await conflicts(world, session_id)
    assert "mended" in conflict.our_value.text
    await world.stage(session_id, replace(ours, content=conflict.our_value.text, tags=("later",)))
    assert len(await conflicts(world, session_id)) == 1
    for _ in range(2):
        await world.store.maintenance.tidy()
    assert f"{session_id}." in git(world, "for-each-ref", "refs/memotree/keep")
    await resolve(world, session_id, others=THEIRS)
    await world.commit(session_id)
    assert content(sides, one) == "one\ntwo of theirs\nthree\nfour\nfive, mended"


async def test_ours_is_the_branch_in_all_conflicts_of_a_merge(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await sides.fork(one, two)
    await world.put(replace(one, title="One of main"))
    await world.put(replace(one, title="One of side"), replace(two, title="Two of side"), branch="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    await world.put(replace(two, title="Two of main"))
    await rebase(world, session_id)
    found = {(each.our_value.text, each.their_value.text) for each in await conflicts(world, session_id)}
    assert found == {("One of main", "One of side"), ("Two of main", "Two of side")}
    await resolve(world, session_id, others=THEIRS)
    await world.commit(session_id)
    assert sides.at(one.id) == replace(one, title="One of side")
    assert sides.at(two.id) == replace(two, title="Two of side")


async def test_a_missing_parent_is_restored_into_the_session(world: World, sides: Sides) -> None:
    top = world.node("Top")
    before = await sides.fork(top)
    below = world.node("Below", parent=top)
    await world.put(delete=[top])
    await world.put(below, branch="side")
    session_id = await world.open()
    await sides.merge(session_id=session_id)
    assert [each.kind for each in await conflicts(world, session_id)] == [types_pb2.CONFLICT_KIND_PARENT_DELETED]
    for wrong in ({"text": "an id"}, {"remove": True}):
        with pytest.raises(InvalidInputError):
            await resolve(world, session_id, {"node_id": below.id, **wrong})
        assert [change.node_id for change in await changes(world, session_id)] == [below.id], "nothing was deleted"
    request = history.RestoreNodesRequest(
        workspace=world.workspace, node_ids=[top.id], revision=before, session_id=session_id
    )
    assert (await sides.history.restore_nodes(request)).conflict_count == 0
    await world.commit(session_id)
    assert (sides.at(top.id), sides.at(below.id)) == (top, below)


async def test_an_archive_in_conflict_that_the_branch_deletes_meanwhile(world: World, sides: Sides) -> None:
    archive = Archive(new_id(), "plans", "an-agent", attributes={"colour": "red"})
    ours, theirs = (replace(archive, attributes={"colour": colour}) for colour in ("blue", "green"))
    session_id = await merging(sides, (archive, ours, theirs))
    await world.put(delete=[archive])
    world.store.entries = EntryReader(world.store.repositories)
    await rebase(world, session_id)
    (conflict,) = await conflicts(world, session_id)
    assert conflict.kind == types_pb2.CONFLICT_KIND_CHANGED_AND_DELETED
    await resolve(world, session_id, others=THEIRS)
    await world.commit(session_id)
    assert sides.at(archive.id) == theirs


async def test_a_stale_session_follows_the_branch(world: World) -> None:
    one, two = world.nodes(2)
    await world.put(one, two)
    session_id = await world.open()
    await world.stage(session_id, replace(one, title="Session"), delete=[two])
    await world.put(replace(one, title="Branch"), replace(two, title="Branch"))
    assert (await rebase(world, session_id)).conflict_count == 2
    await world.put(replace(one, title="Third"))
    await rebase(world, session_id)
    assert [each.their_value.text for each in await conflicts(world, session_id) if each.field] == ["Third"]
    await world.put(replace(one, title="Session"), delete=[two])
    assert (await rebase(world, session_id)).conflict_count == 0


@pytest.mark.requirement("GIT-7")
async def test_a_revert_of_the_changes_of_one_agent(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await world.put(one, author="alice")
    commit = await world.put(replace(one, title="Of bob"), two, author="bob")
    made = await sides.revert(commit, only={"agents": ["bob"]})
    assert made.change_count == 2
    assert (sides.at(one.id), sides.at(two.id)) == (one, None)
