"""Merging a revision into a branch, and the preview of it."""

from dataclasses import replace

import pytest
from integration.damage import differences
from integration.histories import branch, git, kinds
from integration.sides import Sides
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.commit.branch_merge import NotFastForwardError
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.conflicts import Absence, Place
from memotree_storage.mirror.state_merge import FileConflictError, UnreadableFilesError, UnrelatedHistoriesError
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, new_id
from memotree_storage.model.paths import entry_path, node_path
from memotree_storage.model.validation import InvalidNodeError
from memotree_storage.ports import CommitDraft, FileContent
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-6")


async def test_edits_of_different_nodes_and_fields_merge_into_a_commit_with_both_parents(sides: Sides) -> None:
    world = sides.world
    one, two, three = world.nodes(3)
    base = await sides.fork(one, two, three)
    ours = await world.put(replace(one, title="Ours"), replace(two, tags=("a",)))
    new = world.node("New", parent=three)
    theirs = await world.put(replace(one, content="Theirs."), replace(two, tags=("b",)), new, branch="side")
    previewed = await sides.preview(include_fields=True)
    assert (previewed.branch_commit_id, previewed.source_commit_id) == (ours, theirs)
    assert (list(previewed.base_commit_ids), previewed.change_count) == ([base], 3)
    assert (previewed.already_merged, previewed.fast_forward_possible) == (False, False)
    made = await sides.merge(author=types_pb2.CommitAuthor(name="A reviewer"), message="Take the side in")
    assert (made.branch, made.change_count, made.already_merged) == ("main", 3, False)
    assert git(world, "rev-parse", "main", "main^1", "main^2").split() == [made.commit_id, ours, theirs]
    assert git(world, "log", "-1", "--format=%an %s", "main").strip() == "A reviewer Take the side in"
    assert sides.at(one.id) == replace(one, title="Ours", content="Theirs.")
    assert sides.at(two.id) == replace(two, tags=("a", "b"))
    assert sides.at(new.id) == new
    found = await sides.history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision="main"))
    assert kinds(found.changes) == kinds(previewed.changes)
    assert await differences(world) == []


@pytest.mark.requirement("STORE-5")
async def test_what_a_merge_brings_is_found_on_the_branch_and_not_before_it(wire: Wire) -> None:
    node = await wire.create("Lighthouse", content="It stands on a cliff.")
    before = await wire.commit()
    await wire("CreateBranch", name="side")
    await wire.open(branch="side")
    await wire("UpdateNode", node_id=node.id, content="It stands on a sandbank.")
    await wire.create("Foghorn", content="It is loud.")
    await wire.commit()
    assert await wire.search("sandbank", "main") == []
    merged = await wire("MergeBranch", source="side")
    assert await wire.search("sandbank", "main") == ["Lighthouse"]
    assert await wire.search("foghorn", "main") == ["Foghorn"]
    assert await wire.search("cliff", "main") == []
    assert await wire.search("cliff", before) == ["Lighthouse"]
    assert await wire.search("sandbank", merged.commit_id) == ["Lighthouse"]


async def test_each_kind_of_conflict_is_told_with_the_values_of_both_sides(world: World, sides: Sides) -> None:
    two_titles, gone_there, gone_here, same_there, same_here, one, two, above_here, above_there = world.nodes(9)
    both = world.node("Made on both sides")
    await sides.fork(two_titles, gone_there, gone_here, same_there, same_here, one, two, above_here, above_there)
    await world.put(
        replace(two_titles, title="Ours"),
        replace(gone_there, title="Changed"),
        replace(same_there, content="Its file has the same name, since its title is the same."),
        replace(one, parent_id=two.id),
        world.node("Below", parent=above_there),
        Archive(new_id(), "plans", "an-agent", ""),
        both,
        delete=[gone_here, same_here, above_here],
    )
    plans, below = Archive(new_id(), "plans", "an-agent", ""), world.node("Below", parent=above_here)
    await world.put(
        replace(two_titles, title="Theirs"),
        replace(gone_here, title="Changed"),
        replace(same_here, content="Changed."),
        replace(two, parent_id=one.id),
        below,
        plans,
        replace(both, content="Another text."),
        delete=[gone_there, same_there, above_there],
        branch="side",
    )
    found = await sides.conflicts()
    gone = (gone_there, gone_here, same_there, same_here, above_there)
    fields = {(two_titles.id, "title"), (two.id, "parent"), (below.id, "parent"), (plans.id, "name")}
    assert set(found) == {*fields, (both.id, "content"), *((node.id, "") for node in gone)}
    titles = found[two_titles.id, "title"]
    assert (titles.base, titles.ours, titles.theirs) == (two_titles.title, "Ours", "Theirs")
    for node in (gone_there, same_there):
        assert found[node.id, ""].theirs == Absence.DELETED
    for node in (gone_here, same_here):
        assert found[node.id, ""].ours == Absence.DELETED
    cycle = found[two.id, "parent"]
    assert "cycle" in cycle.description
    assert [each.parent_id for each in (cycle.ours, cycle.theirs) if isinstance(each, Place)] == ["", one.id]


async def test_a_merge_that_was_made_is_not_made_again(world: World, sides: Sides) -> None:
    one = world.node("A harbour")
    await sides.fork(one)
    await world.put(world.node())
    await world.put(replace(one, content="Another text."), branch="side")
    made = await sides.merge()
    message = git(world, "log", "-1", "--format=%B", "main")
    assert message.startswith("Merge side into main\n\nChanged:\n- A harbour")
    again = await sides.merge()
    assert (again.commit_id, again.already_merged, again.change_count) == (made.commit_id, True, 0)
    assert (await sides.preview()).already_merged
    back = await sides.merge("main", "side", style=pb.MERGE_STYLE_FAST_FORWARD)
    assert back.commit_id == made.commit_id == await world.head("side")


@pytest.mark.requirement("GIT-3")
async def test_a_fast_forward_moves_the_branch_and_only_when_nothing_is_lost(world: World, sides: Sides) -> None:
    one = world.node()
    base = await sides.fork(one)
    theirs = await world.put(replace(one, title="Theirs"), branch="side")
    assert (await sides.preview()).fast_forward_possible
    await branch(sides.history, world, "other")
    await sides.merge(into="other")  # without another style this is a commit, where a fast-forward is possible, too
    assert git(world, "rev-parse", "other^1", "other^2").split() == [base, theirs]
    made = await sides.merge(style=pb.MERGE_STYLE_FAST_FORWARD)
    assert (made.commit_id, made.change_count) == (theirs, 1)
    assert git(world, "rev-parse", "main").strip() == theirs == await world.head()
    await world.put(replace(one, title="Later"))
    await world.put(world.node(), branch="side")
    with pytest.raises(NotFastForwardError):
        await sides.merge("main", "side", style=pb.MERGE_STYLE_FAST_FORWARD)
    assert await differences(world) == []


async def test_a_squashed_merge_has_the_changes_and_not_the_history(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    ours = await world.put(world.node())
    await world.put(replace(one, title="First"), branch="side")
    await world.put(replace(one, title="Second"), branch="side")
    made = await sides.merge(style=pb.MERGE_STYLE_SQUASH)
    assert git(world, "log", "-1", "--format=%P", "main").split() == [ours]
    assert sides.at(one.id) == replace(one, title="Second")
    again = await sides.merge(style=pb.MERGE_STYLE_SQUASH)
    assert (again.commit_id, again.already_merged) == (made.commit_id, True)


@pytest.mark.requirement("STORE-2")
async def test_a_repeated_request_has_the_first_answer(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    await world.put(world.node())
    await world.put(replace(one, title="Theirs"), branch="side")
    made = await sides.merge(request_id="merge-1")
    await world.put(world.node())
    assert await sides.merge(request_id="merge-1") == made
    with pytest.raises(RequestIdReusedError):
        await sides.merge("main", "side", request_id="merge-1")
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")
    again = await sides.merge(request_id="merge-1")
    assert (again.commit_id, again.already_merged) == (made.commit_id, False)


async def test_branches_that_merged_each_other_crosswise_merge_from_the_merge_of_their_bases(sides: Sides) -> None:
    """From either base alone, one side's old value would look like a change."""
    world = sides.world
    one = world.node("Start", tags=("x",))
    await sides.fork(one)
    ours = await world.put(replace(one, title="Ours"))
    theirs = await world.put(replace(one, tags=("y",)), branch="side")
    await sides.merge(theirs)
    await sides.merge(ours, "side")
    joined = replace(one, title="Ours", tags=("y",))
    assert sides.at(one.id) == sides.at(one.id, "side") == joined
    await world.put(replace(joined, title="Later"))
    await world.put(replace(joined, tags=("z",)), branch="side")
    assert len((await sides.preview()).base_commit_ids) == 2
    await sides.merge()
    assert sides.at(one.id) == replace(one, title="Later", tags=("z",))
    assert await differences(world) == []


async def test_where_crosswise_bases_conflict_their_resolutions_conflict(world: World, sides: Sides) -> None:
    one = world.node("Start")
    base = await sides.fork(one)
    ours = await world.put(replace(one, title="Ours"))
    theirs = await world.put(replace(one, title="Theirs"), branch="side")
    by = world.repository.commit_info(base).author
    for name, first, second, title in (("main", ours, theirs, "Ours"), ("side", theirs, ours, "Theirs")):
        files = {node_path(one.id, "Start"): None, node_path(one.id, title): encode_entry(replace(one, title=title))}
        commit = world.repository.write_commit(CommitDraft(first, files, "Resolved\n", by, by, merged=(second,)))
        git(world, "update-ref", f"refs/heads/{name}", commit.commit_id)
    await world.store.catch_up(world.workspace)
    assert set(await sides.conflicts()) == {(one.id, "title")}


async def test_files_that_are_no_nodes_come_along(world: World, sides: Sides) -> None:
    stray = node_path(new_id())
    await sides.write({stray: b"what is this?\n"}, "main")
    await sides.fork(world.node())
    await world.put(world.node())
    readme = git(world, "show", "side:README.md").encode() + b"\nAsk Anna.\n"
    others: dict[str, FileContent | None] = {"LICENSE": b"As you like.\n", "docs/how.md": b"Like this.\n"}
    await sides.write({**others, "README.md": readme, stray: None}, "side")
    await sides.merge()
    for path, data in {**others, "README.md": readme}.items():
        assert git(world, "show", f"main:{path}").encode() == data
    assert stray not in git(world, "ls-tree", "-r", "--name-only", "main")
    assert await differences(world) == []
    await sides.write({"LICENSE": b"Ours.\n"}, "main")
    await sides.write({"LICENSE": b"Theirs.\n"}, "side")
    with pytest.raises(FileConflictError, match="LICENSE"):
        await sides.merge()


async def test_a_node_whose_file_was_only_renamed_is_no_obstacle(world: World, sides: Sides) -> None:
    """A name may say anything; the blob is the same."""
    one, two = world.nodes(2)
    await sides.fork(one, two)
    await world.put(world.node())
    await sides.write({entry_path(one): None, node_path(one.id, "Another name"): encode_entry(one)}, "side")
    await world.put(replace(two, title="Theirs"), branch="side")
    assert (await sides.merge()).change_count == 1
    assert (sides.at(one.id), sides.at(two.id)) == (one, replace(two, title="Theirs"))
    assert await differences(world) == []


async def test_of_three_merge_bases_none_wins_alone(world: World, sides: Sides) -> None:
    """From one base a side has changed nothing, from another one it has; which is right cannot be told."""
    one = world.node("Base")
    first = await sides.fork(one)
    by = world.repository.commit_info(first).author

    def titled(title: str) -> dict[str, FileContent | None]:
        node = replace(one, title=title)
        return {entry_path(one): None, entry_path(node): encode_entry(node)}

    tips = []
    for number, title in enumerate(("First", "Base", "Base")):
        draft = CommitDraft(first, titled(title), f"{title} {number}\n", by, by)
        tips.append(world.repository.write_commit(draft).commit_id)
    for name, title in (("main", "Base"), ("side", "First")):
        draft = CommitDraft(tips[1], titled(title), f"Join for {name}\n", by, by, merged=(tips[0], tips[2]))
        git(world, "update-ref", f"refs/heads/{name}", world.repository.write_commit(draft).commit_id)
    await world.store.catch_up(world.workspace)
    assert len((await sides.preview()).base_commit_ids) == 3
    assert set(await sides.conflicts()) == {(one.id, "title")}


async def test_what_exceeds_a_limit_only_together_is_told_by_the_preview(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    first, second = (tuple(f"{side}{number:02}" for number in range(60)) for side in ("a", "b"))
    await world.put(replace(one, tags=first))
    await world.put(replace(one, tags=second), branch="side")
    for call in (sides.preview, sides.merge):
        with pytest.raises(InvalidNodeError):
            await call()


async def test_files_that_cannot_be_read_unrelated_histories_and_unknown_branches_are_not_merged(
    world: World, sides: Sides
) -> None:
    await sides.fork(world.node())
    for call in (sides.merge, sides.preview):
        with pytest.raises(BranchNotFoundError):
            await call("main", "nowhere")
    await sides.write({node_path(new_id()): b"what is this?\n"}, "side")
    with pytest.raises(UnreadableFilesError, match="ListFaults"):
        await sides.merge()
    by = world.repository.commit_info(sides.commit("main")).author
    root = world.repository.write_commit(CommitDraft(None, {"README": b"Other\n"}, "Other\n", by, by)).commit_id
    git(world, "update-ref", "refs/heads/side", root)
    await world.store.catch_up(world.workspace)
    with pytest.raises(UnrelatedHistoriesError):
        await sides.merge()


async def test_pages_of_a_preview_have_every_change_and_conflict(world: World, sides: Sides) -> None:
    nodes = world.nodes(7)
    await sides.fork(*nodes)
    await world.put(*(replace(node, title="Ours") for node in nodes[:5]))
    await world.put(*(replace(node, title="Theirs", tags=("t",)) for node in nodes), branch="side")
    whole = await sides.preview()
    request = pb.PreviewMergeRequest(workspace=world.workspace, source="side", page_size=2)
    changes, conflicts = list[str](), list[str]()
    while True:
        page = await sides.history.preview_merge(request)
        assert (page.change_count, page.conflict_count) == (7, 5)
        changes += [change.node_id for change in page.changes]
        conflicts += [conflict.node_id for conflict in page.conflicts]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
        await world.put(world.node())
    assert changes == [change.node_id for change in whole.changes]
    assert conflicts == [conflict.node_id for conflict in whole.conflicts]


async def test_a_session_goes_on_after_its_branch_was_merged_into(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    await sides.fork(one, two)
    session = await world.open()
    await world.stage(session, replace(two, title="In the session"))
    await world.put(replace(one, title="Theirs"), branch="side")
    await sides.merge()
    await world.commit(session)
    assert sides.at(one.id) == replace(one, title="Theirs")
    assert sides.at(two.id) == replace(two, title="In the session")
