"""What people audit: the log, the life of a node, differences between states, branches and tags."""

import random
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration.worlds import World
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.git.refs import InvalidRefNameError
from memotree_storage.node import Node, Relation, new_id
from memotree_storage.postgres import registry
from memotree_storage.postgres.registry import RevisionNotFoundError
from memotree_storage.validation import InvalidTextError

from memotree.history import HistoryOperations
from memotree.history.log import PAGE_BYTES, SessionIsNoCommitError
from memotree.history.refs import BranchProtectedError
from memotree.history.texts import unified
from memotree.lookup import NodeNotFoundError
from memotree.messages import timestamp
from memotree.naming import (
    BranchExistsError,
    BranchNotFoundError,
    ConfusingNameError,
    TagExistsError,
    TagNotFoundError,
)
from memotree.pages import InvalidPageSizeError, InvalidPageTokenError
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2

CREATED = types_pb2.CHANGE_KIND_CREATED
UPDATED = types_pb2.CHANGE_KIND_UPDATED
DELETED = types_pb2.CHANGE_KIND_DELETED
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL


@pytest.fixture
def history(world: World) -> HistoryOperations:
    return HistoryOperations(world.store, world.pages, world.limits)


async def log(history: HistoryOperations, world: World, **fields: Any) -> list[str]:
    """The ids of all commits that a call lists, over all its pages."""
    request = pb.ListCommitsRequest(workspace=world.workspace, **fields)
    found: list[str] = []
    while True:
        response = await history.list_commits(request)
        found += [commit.id for commit in response.commits]
        if not response.next_page_token:
            return found
        request.page_token = response.next_page_token


async def life(history: HistoryOperations, world: World, node: Node | str, **fields: Any) -> list[pb.NodeRevision]:
    """All revisions of a node, over all pages."""
    node_id = node if isinstance(node, str) else node.id
    request = pb.ListNodeRevisionsRequest(workspace=world.workspace, node_id=node_id, **fields)
    found: list[pb.NodeRevision] = []
    while True:
        response = await history.list_node_revisions(request)
        found += response.revisions
        if not response.next_page_token:
            return found
        request.page_token = response.next_page_token


async def diff(history: HistoryOperations, world: World, **fields: Any) -> list[pb.EntryChange]:
    """All differences, over all pages."""
    request = pb.DiffRevisionsRequest(workspace=world.workspace, **fields)
    found: list[pb.EntryChange] = []
    while True:
        response = await history.diff_revisions(request)
        found += response.changes
        if not response.next_page_token:
            return found
        request.page_token = response.next_page_token


def kinds(changes: Sequence[pb.EntryChange]) -> dict[str, int]:
    return {change.node_id: change.kind for change in changes}


def git(world: World, *arguments: str) -> str:
    command = ["git", "-C", str(world.repository.path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - the test's own


async def branch(history: HistoryOperations, world: World, name: str, revision: str = "") -> str:
    request = pb.CreateBranchRequest(workspace=world.workspace, name=name, revision=revision)
    return (await history.create_branch(request)).branch.commit_id


# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_commits_come_newest_first_along_the_first_parents(world: World, history: HistoryOperations) -> None:
    made = await world.put_all(world.nodes(5))
    listed = await log(history, world)
    assert listed[:5] == made[::-1]
    assert listed == git(world, "rev-list", "--first-parent", "main").split()


@pytest.mark.requirement("GIT-5")
async def test_a_commit_tells_who_when_why_and_which_session(world: World, history: HistoryOperations) -> None:
    session = await world.open(agent="gardener")
    await world.stage(session, world.node("Rose"), note="so that it smells")
    commit_id = await world.commit(session, "Plant a rose\n\nIn spring.")
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=commit_id))
    commit = response.commit
    assert (commit.subject, commit.author.name, commit.session_id) == ("Plant a rose", "gardener", session)
    assert commit.message == git(world, "log", "-1", "--format=%B", commit_id).rstrip("\n") + "\n"
    assert list(commit.parent_ids) == git(world, "log", "-1", "--format=%P", commit_id).split()
    assert commit.commit_time.seconds == int(git(world, "log", "-1", "--format=%ct", commit_id))


async def test_a_log_in_pages_is_the_log_without(world: World, history: HistoryOperations) -> None:
    await world.put_all(world.nodes(7))
    whole = await log(history, world)
    assert await log(history, world, page_size=1) == whole
    assert await log(history, world, page_size=3) == whole
    assert await log(history, world, page_size=1_000_000) == whole


async def test_pages_go_on_where_they_began_when_the_branch_moves(world: World, history: HistoryOperations) -> None:
    await world.put_all(world.nodes(3))
    whole = await log(history, world)
    request = pb.ListCommitsRequest(workspace=world.workspace, page_size=2)
    first = await history.list_commits(request)
    await world.put(world.node())
    await world.store.rebuild(world.workspace)
    request.page_token = first.next_page_token
    second = await history.list_commits(request)
    assert [commit.id for commit in [*first.commits, *second.commits]] == whole[:4]


async def test_a_log_is_of_one_node_or_of_a_subtree(world: World, history: HistoryOperations) -> None:
    top, other = world.node("Top"), world.node("Other")
    below = world.node("Below", parent=top)
    first = await world.put(top, other)
    second = await world.put(below)
    third = await world.put(replace(other, title="Else"))
    fourth = await world.put(replace(below, title="Deeper"))
    assert await log(history, world, node_id=top.id) == [first]
    assert await log(history, world, node_id=below.id) == [fourth, second]
    assert await log(history, world, node_id=below.id[:8]) == [fourth, second]
    assert await log(history, world, subtree_id=top.id) == [fourth, second, first]
    assert await log(history, world, subtree_id=top.id, page_size=1) == [fourth, second, first]
    assert await log(history, world, subtree_id=world.archive.id) == (await log(history, world))[:5]
    assert await log(history, world, subtree_id=top.id, node_id=other.id) == [first]
    assert await log(history, world, node_id=world.archive.id) == [(await log(history, world))[-2]]
    assert third not in await log(history, world, subtree_id=top.id)


async def test_a_log_of_a_node_that_never_was_is_refused(world: World, history: HistoryOperations) -> None:
    for fields in ({"node_id": new_id()}, {"subtree_id": new_id()}, {"node_id": "zzzz"}):
        with pytest.raises(NodeNotFoundError):
            await log(history, world, **fields)


async def test_a_log_of_a_deleted_node_is_found_by_its_whole_id(world: World, history: HistoryOperations) -> None:
    node = world.node()
    made = await world.put(node)
    gone = await world.put(delete=[node])
    assert await log(history, world, node_id=node.id) == [gone, made]


async def test_an_author_is_found_by_a_part_of_the_name_in_any_case(world: World, history: HistoryOperations) -> None:
    anna = await world.put(world.node(), author="Anna 100%_sure")
    bert = await world.put(world.node(), author="Bert\\back")
    assert await log(history, world, author="anna") == [anna]
    assert await log(history, world, author="0%_S") == [anna]
    assert await log(history, world, author="_") == [anna]
    assert await log(history, world, author="%") == [anna]
    assert await log(history, world, author="\\") == [bert]
    assert await log(history, world, author="'; drop schema mirror") == []


async def test_a_log_is_limited_in_time(world: World, history: HistoryOperations) -> None:
    commit_id = await world.put(world.node())
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=commit_id))
    when = response.commit.commit_time
    later = timestamp(when.ToDatetime() + timedelta(seconds=1))
    assert commit_id in await log(history, world, since=when)
    assert await log(history, world, since=later) == []
    assert commit_id not in await log(history, world, until=when)
    assert commit_id in await log(history, world, until=later)


@pytest.mark.requirement("GIT-4")
async def test_a_log_takes_a_branch_a_tag_a_commit_a_prefix_and_a_session(
    world: World, history: HistoryOperations
) -> None:
    first = await world.put(world.node(), tag="v1")
    whole = await log(history, world)
    session = await world.open()
    await world.put(world.node())
    for revision in ("v1", "refs/tags/v1", first, first[:10], session):
        assert await log(history, world, revision=revision) == whole
    with pytest.raises(RevisionNotFoundError):
        await log(history, world, revision="nowhere")


async def test_commits_carry_their_tags(world: World, history: HistoryOperations) -> None:
    commit_id = await world.put(world.node(), tag="v2")
    await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name="v1", revision=commit_id))
    response = await history.list_commits(pb.ListCommitsRequest(workspace=world.workspace, page_size=2))
    assert [list(commit.tags) for commit in response.commits] == [["v1", "v2"], []]


async def test_bad_pages_are_refused(world: World, history: HistoryOperations) -> None:
    with pytest.raises(InvalidPageSizeError):
        await log(history, world, page_size=-1)
    with pytest.raises(InvalidPageTokenError):
        await log(history, world, page_token="forged")  # noqa: S106 - no password
    await world.put(world.node())
    token = (await history.list_commits(pb.ListCommitsRequest(workspace=world.workspace, page_size=1))).next_page_token
    with pytest.raises(InvalidPageTokenError):
        await log(history, world, page_token=token, author="another")


# --- one commit ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_a_commit_tells_what_happened_to_each_entry(world: World, history: HistoryOperations) -> None:
    kept, moved, gone = world.node("Kept"), world.node("Moved"), world.node("Gone")
    await world.put(kept, moved, gone)
    new = world.node("New")
    session = await world.open()
    changed = replace(kept, title="Kept well", content="Other words.", tags=("x",))
    await world.stage(session, changed, replace(moved, parent_id=kept.id), new, delete=[gone])
    commit_id = await world.commit(session)
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=commit_id[:12]))
    assert response.change_count == 4
    told = {change.node_id: (change.kind, change.title, change.summary) for change in response.changes}
    assert told == {
        kept.id: (UPDATED, "Kept well", "Changed title, tags and content."),
        moved.id: (UPDATED, "Moved", f"Moved below {kept.id}."),
        gone.id: (DELETED, "Gone", "Deleted."),
        new.id: (CREATED, "New", "Created."),
    }


async def test_the_first_commit_of_all_and_the_head_can_be_read(world: World, history: HistoryOperations) -> None:
    root = (await log(history, world))[-1]
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=root))
    assert (response.change_count, list(response.commit.parent_ids)) == (0, [])
    head = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace))
    assert [change.is_archive for change in head.changes] == [True]


async def test_a_big_commit_lists_a_thousand_changes_and_counts_all(world: World, history: HistoryOperations) -> None:
    commit_id = await world.put(*world.nodes(1003))
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=commit_id))
    assert (len(response.changes), response.change_count) == (1000, 1003)


async def test_a_session_is_no_commit(world: World, history: HistoryOperations) -> None:
    session = await world.open()
    with pytest.raises(SessionIsNoCommitError):
        await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=session))
    with pytest.raises(SessionIsNoCommitError):
        await branch(history, world, "feature", session)


# --- the life of a node ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_a_node_tells_its_whole_life(world: World, history: HistoryOperations) -> None:
    node = world.node("First", summary="A summary.")
    born = await world.put(node)
    await world.put(world.node("Another"))
    grown = await world.put(replace(node, title="Second", content="More."))
    gone = await world.put(delete=[node])
    back = await world.put(replace(node, title="Third"))
    found = await life(history, world, node, level=DETAIL)
    assert [(one.commit.id, one.kind) for one in found] == [
        (back, CREATED),
        (gone, DELETED),
        (grown, UPDATED),
        (born, CREATED),
    ]
    assert [one.node.title for one in found if one.HasField("node")] == ["Third", "Second", "First"]
    assert [one.node.content for one in found if one.HasField("node")] == [node.content, "More.", node.content]
    assert not found[1].HasField("node")
    assert found[0].node.commit_id == back
    assert [(one.commit.id, one.kind) for one in await life(history, world, node, page_size=1)] == [
        (one.commit.id, one.kind) for one in found
    ]
    assert [one.commit.id for one in await life(history, world, node, revision=grown)] == [grown, born]


async def test_a_life_shows_as_much_as_was_asked_for(world: World, history: HistoryOperations) -> None:
    node = world.node("Title", brief="Brief.", summary="Summary.")
    await world.put(node)
    shown = []
    for level in ("TITLE", "BRIEF", "SUMMARY", "DETAIL"):
        (one,) = await life(history, world, node, level=f"LEVEL_OF_DETAIL_{level}")
        shown.append([text for text in (one.node.title, one.node.brief, one.node.summary, one.node.content) if text])
    assert [len(texts) for texts in shown] == [1, 2, 3, 4]


async def test_a_life_stops_at_the_fork_of_another_branch(world: World, history: HistoryOperations) -> None:
    node = world.node("Zero")
    zero = await world.put(node)
    await branch(history, world, "side")
    main = [await world.put(replace(node, title=f"Main {number}")) for number in range(3)]
    side = [await world.put(replace(node, title=f"Side {number}"), branch="side") for number in range(2)]
    await branch(history, world, "deep", side[0])
    deep = await world.put(replace(node, title="Deep"), branch="deep")
    for name, expected in (
        ("main", [*main[::-1], zero]),
        ("side", [*side[::-1], zero]),
        ("deep", [deep, side[0], zero]),
    ):
        for size in (0, 1):
            found = await life(history, world, node, revision=name, page_size=size)
            assert [one.commit.id for one in found] == expected
            assert [one.kind for one in found] == [*[UPDATED] * (len(expected) - 1), CREATED]
            assert await log(history, world, revision=name, node_id=node.id, page_size=size) == expected
        assert await log(history, world, revision=name) == git(world, "rev-list", "--first-parent", name).split()


async def test_a_life_of_large_texts_comes_in_pages_that_fit(world: World, history: HistoryOperations) -> None:
    node = world.node()
    await world.put_all([replace(node, content=f"{number}" + "x" * 800_000) for number in range(5)])
    request = pb.ListNodeRevisionsRequest(workspace=world.workspace, node_id=node.id, level=DETAIL)
    response = await history.list_node_revisions(request)
    assert response.ByteSize() < PAGE_BYTES + 10_000
    assert [one.node.content[0] for one in await life(history, world, node, level=DETAIL)] == list("43210")


async def test_a_node_that_never_was_has_no_life(world: World, history: HistoryOperations) -> None:
    session = await world.open()
    staged = world.node()
    await world.stage(session, staged)
    for node_id, revision in ((new_id(), ""), (world.archive.id, ""), (staged.id, session)):
        with pytest.raises(NodeNotFoundError):
            await life(history, world, node_id, revision=revision)


# --- differences -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_a_diff_tells_each_field(world: World, history: HistoryOperations) -> None:
    other = world.node("Other")
    text = "\n".join(f"Line {number}" for number in range(40))
    node = world.node("Title", content=text, summary="Old.", attributes={"a": "1"}, tags=("one",))
    first = await world.put(node, other)
    changed = replace(
        node,
        title="Headline",
        content=text.replace("Line 20", "Line twenty"),
        summary="New.",
        attributes={"a": "2", "b": "3"},
        tags=("one", "two"),
        relations=(Relation("EXTENDS", other.id, "why"),),
        parent_id=other.id,
    )
    await world.put(changed)
    (change,) = await diff(history, world, old_revision=first, include_fields=True)
    fields = {field.field: field for field in change.fields}
    assert list(fields) == ["title", "summary", "tags", "attributes", "relations", "content", "parent"]
    assert (fields["title"].old_value, fields["title"].new_value, fields["title"].diff) == ("Title", "Headline", "")
    assert fields["content"].diff == (
        "@@ -18,7 +18,7 @@\n Line 17\n Line 18\n Line 19\n-Line 20\n+Line twenty\n Line 21\n Line 22\n Line 23\n"
    )
    assert (fields["content"].old_value, fields["content"].new_value) == ("", "")
    assert (fields["summary"].old_value, fields["summary"].new_value) == ("Old.", "New.")
    assert "-Old." in fields["summary"].diff
    assert (fields["tags"].old_value, fields["tags"].new_value) == ("one", "one, two")
    assert fields["attributes"].new_value == "a: 2\nb: 3"
    assert fields["relations"].new_value == f"EXTENDS {other.id} why"
    assert (fields["parent"].old_value, fields["parent"].new_value) == (
        f"(root of archive {world.archive.id})",
        other.id,
    )
    assert change.summary == (
        f"Changed title, summary, tags, attributes, relations and content. Moved below {other.id}."
    )


async def test_without_fields_a_diff_names_the_entries_only(world: World, history: HistoryOperations) -> None:
    node = world.node()
    await world.put(node)
    await world.put(replace(node, title="Else"))
    (change,) = await diff(history, world)
    assert (change.title, change.summary, len(change.fields)) == ("Else", "Changed title.", 0)


async def test_the_older_side_is_what_the_newer_was_made_from(world: World, history: HistoryOperations) -> None:
    first, second, third = world.nodes(3)
    await world.put(first)
    tagged = await world.put(second, tag="v1")
    session = await world.open()
    await world.stage(session, third, delete=[first])
    assert kinds(await diff(history, world)) == {second.id: CREATED}
    assert kinds(await diff(history, world, new_revision="v1")) == {second.id: CREATED}
    assert kinds(await diff(history, world, new_revision=tagged)) == {second.id: CREATED}
    assert kinds(await diff(history, world, new_revision=session)) == {third.id: CREATED, first.id: DELETED}
    root = (await log(history, world))[-1]
    assert await diff(history, world, new_revision=root) == []


async def test_a_diff_between_sessions_sees_what_both_have_staged(world: World, history: HistoryOperations) -> None:
    node, other = world.nodes(2)
    await world.put(node, other)
    one, two = await world.open(), await world.open()
    await world.stage(one, replace(node, content="One."))
    await world.stage(two, replace(node, content="Two."), delete=[other])
    (change, _) = await diff(history, world, old_revision=one, new_revision=two, include_fields=True, page_size=1)
    changes = {each.node_id: each for each in await diff(history, world, old_revision=one, new_revision=two)}
    assert kinds(list(changes.values())) == {node.id: UPDATED, other.id: DELETED}
    assert change.node_id == min(node.id, other.id)
    (texts,) = await diff(history, world, old_revision=one, new_revision=two, include_fields=True, node_id=node.id[:9])
    assert texts.fields[0].diff.splitlines()[1::2] == ["-One.", "+Two."]
    assert await diff(history, world, old_revision=one, new_revision=one) == []


async def test_equal_states_do_not_differ(world: World, history: HistoryOperations) -> None:
    node = world.node()
    first = await world.put(node)
    await world.put(replace(node, title="Else"))
    await world.put(node)
    assert await diff(history, world, old_revision=first, new_revision="main") == []
    response = await history.diff_revisions(
        pb.DiffRevisionsRequest(workspace=world.workspace, old_revision="main", new_revision="main")
    )
    assert response.summary == "Nothing differs."


async def test_one_sentence_counts_all_differences_on_every_page(world: World, history: HistoryOperations) -> None:
    nodes = world.nodes(4)
    first = await world.put(*nodes)
    await world.put(replace(nodes[0], title="Else"), world.node(), delete=nodes[1:3])
    request = pb.DiffRevisionsRequest(workspace=world.workspace, old_revision=first, page_size=3)
    response = await history.diff_revisions(request)
    assert response.summary == "4 entries differ: 1 created, 1 changed, 2 deleted."
    request.page_token = response.next_page_token
    assert (await history.diff_revisions(request)).summary == response.summary


def patched(old: str, hunks: str) -> str:
    """The text that a unified diff makes from another, as the program ``patch`` would."""
    before = [line + "\n" for line in old.split("\n")[:-1]] + [line for line in old.split("\n")[-1:] if line]
    after: list[str] = []
    position = 0
    lines = hunks.split("\n")[:-1]
    for number, line in enumerate(lines):
        if line.startswith("@@"):
            start, _, count = line.split(" ")[1][1:].partition(",")
            begin = int(start) - (0 if count == "0" else 1)
            after += before[position:begin]
            position = begin
        elif not line.startswith("\\"):
            unended = number + 1 < len(lines) and lines[number + 1].startswith("\\")
            text = line[1:] + ("" if unended else "\n")
            if line[0] != "+":
                assert before[position] == text
                position += 1
            if line[0] != "-":
                after.append(text)
    return "".join(after + before[position:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "-", "+", "@@ ", "\\ No", ""]), max_size=14)


@given(LINES, LINES, LINES)
def test_a_diff_makes_the_new_text_from_the_old(common: list[str], before: list[str], after: list[str]) -> None:
    old, new = ("\n".join([*common, *part, *common]) for part in (before, after))
    assert patched(old, unified(old, new)) == new


async def test_texts_too_long_to_compare_are_told_by_their_size(world: World, history: HistoryOperations) -> None:
    node = world.node(content="same\n" * 40_000)
    first = await world.put(node)
    await world.put(replace(node, content="other\n" * 30_000))
    (change,) = await diff(history, world, old_revision=first, include_fields=True)
    assert "too long to compare" in change.fields[0].diff


async def test_a_node_on_neither_side_is_refused(world: World, history: HistoryOperations) -> None:
    with pytest.raises(NodeNotFoundError):
        await diff(history, world, old_revision="main", node_id="zzzz")


@pytest.mark.requirement("GIT-4", "GIT-5")
@pytest.mark.parametrize("seed", range(3))
async def test_every_diff_is_what_the_two_states_say(world: World, history: HistoryOperations, seed: int) -> None:
    """Random commits on random branches; any two states are compared with the difference of their whole trees."""
    chance = random.Random(seed)
    known = world.nodes(8)
    branches, commits = ["main"], [await world.put(*known[:5])]
    for number in range(14):
        if chance.random() < 0.3:
            name = f"branch-{number}"
            await branch(history, world, name, chance.choice(commits))
            branches.append(name)
        name = chance.choice(branches)
        alive = await world.alive(await world.head(name))
        chosen = chance.sample(known, 3)
        gone = [node for node in chosen if node.id in alive and chance.random() < 0.3]
        written = [replace(node, title=f"{number} {chance.random()}") for node in chosen if node not in gone]
        commits.append(await world.put(*written, delete=gone, branch=name))
    session = await world.open(chance.choice(branches))
    await world.stage(session, replace(known[0], title="Staged"), world.node("Staged, too"))
    states = {commit_id: await world.alive(commit_id) for commit_id in commits}
    async with world.store.database.connection() as conn:
        _, resolved = await registry.resolve(conn, world.workspace, session)
    states[session] = await world.alive(resolved.state.commit_id, session)
    for _ in range(25):
        old, new = chance.choice(list(states)), chance.choice(list(states))
        before, after = states[old], states[new]
        expected = dict.fromkeys(after.keys() - before.keys(), CREATED)
        expected |= dict.fromkeys(before.keys() - after.keys(), DELETED)
        expected |= {entry: UPDATED for entry in before.keys() & after.keys() if before[entry] != after[entry]}
        size = chance.choice([0, 1, 2])
        assert kinds(await diff(history, world, old_revision=old, new_revision=new, page_size=size)) == expected


# --- branches and tags -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-3")
async def test_branches_are_made_listed_and_deleted(world: World, history: HistoryOperations) -> None:
    first = await world.put(world.node())
    head = await world.put(world.node())
    assert await branch(history, world, "side") == head
    assert await branch(history, world, "a/b", first[:10]) == first
    request = pb.ListBranchesRequest(workspace=world.workspace, page_size=2)
    page = await history.list_branches(request)
    request.page_token = page.next_page_token
    rest = await history.list_branches(request)
    found = [(one.name, one.commit_id, one.protected) for one in [*page.branches, *rest.branches]]
    assert found == [("a/b", first, False), ("main", head, True), ("side", head, False)]
    assert git(world, "rev-parse", "refs/heads/a/b").strip() == first
    await history.delete_branch(pb.DeleteBranchRequest(workspace=world.workspace, name="a/b"))
    assert len((await history.list_branches(pb.ListBranchesRequest(workspace=world.workspace))).branches) == 2
    assert "a/b" not in git(world, "branch", "--list")
    with pytest.raises(BranchNotFoundError):
        await history.delete_branch(pb.DeleteBranchRequest(workspace=world.workspace, name="a/b"))


async def test_a_branch_that_exists_is_not_made_again(world: World, history: HistoryOperations) -> None:
    await branch(history, world, "side")
    git(world, "branch", "made-with-git", "main")
    for name in ("main", "side", "made-with-git"):
        with pytest.raises(BranchExistsError):
            await branch(history, world, name)


@pytest.mark.parametrize(
    "name", ["..", "a..b", "/a", "a/", "a b", "-a", "a~1", "a^", "a:b", "HEAD", "a.lock", "a\nb", "a\0b", "x" * 300]
)
async def test_names_that_git_refuses_are_refused(world: World, history: HistoryOperations, name: str) -> None:
    with pytest.raises(InvalidRefNameError) as caught:
        await branch(history, world, name)
    assert caught.value.violations[0].field == "name"
    with pytest.raises(InvalidRefNameError):
        await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name=name))


@pytest.mark.parametrize("name", ["a" * 40, "0123456789abcdef", "refs/heads/main"])
async def test_names_that_read_like_something_else_are_refused(
    world: World, history: HistoryOperations, name: str
) -> None:
    with pytest.raises(ConfusingNameError):
        await branch(history, world, name)
    with pytest.raises(ConfusingNameError):
        await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name=name))


async def test_a_name_is_needed(world: World, history: HistoryOperations) -> None:
    with pytest.raises(InvalidInputError):
        await branch(history, world, "")


@pytest.mark.requirement("GIT-3")
async def test_the_default_branch_stays(world: World, history: HistoryOperations) -> None:
    with pytest.raises(BranchProtectedError):
        await history.delete_branch(pb.DeleteBranchRequest(workspace=world.workspace, name="main"))


@pytest.mark.requirement("GIT-3")
async def test_deleting_a_branch_detaches_its_sessions(world: World, history: HistoryOperations) -> None:
    await branch(history, world, "side")
    on_side, on_main = await world.open("side"), await world.open("main")
    await world.stage(on_side, world.node())
    response = await history.delete_branch(pb.DeleteBranchRequest(workspace=world.workspace, name="side"))
    assert response.detached_sessions == 1
    await branch(history, world, "side")
    for session, state in ((on_side, "DETACHED"), (on_main, "OPEN")):
        request = session_service_pb2.GetSessionRequest(workspace=world.workspace, session_id=session)
        found = (await world.sessions.get_session(request)).session
        assert found.state == session_service_pb2.SessionState.Value(f"SESSION_STATE_{state}")
    changes = session_service_pb2.ListChangesRequest(workspace=world.workspace, session_id=on_side)
    assert len((await world.sessions.list_changes(changes)).changes) == 1


@pytest.mark.requirement("GIT-3")
async def test_tags_are_annotated_listed_and_deleted(world: World, history: HistoryOperations) -> None:
    first = await world.put(world.node(), tag="by-commit")
    head = await world.put(world.node())
    tagger = types_pb2.CommitAuthor(name="Anna", email="anna@example.org", timestamp={"seconds": 1_000_000_000})
    made = await history.create_tag(
        pb.CreateTagRequest(workspace=world.workspace, name="v1", message="The first.\n\nAt last.", tagger=tagger)
    )
    git(world, "tag", "light", first)
    await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name="v0", revision=first))
    listed = (await history.list_tags(pb.ListTagsRequest(workspace=world.workspace))).tags
    assert [(tag.name, tag.commit_id) for tag in listed] == [
        ("by-commit", first),
        ("light", first),
        ("v0", first),
        ("v1", head),
    ]
    assert made.tag == listed[3]
    assert (listed[3].message, listed[3].create_time.seconds) == ("The first.\n\nAt last.", 1_000_000_000)
    assert (listed[1].message, listed[1].HasField("create_time")) == ("", False)
    assert (listed[2].message, listed[2].HasField("create_time")) == ("v0", True)
    assert git(world, "cat-file", "-t", "v1").strip() == "tag"
    assert "Anna <anna@example.org>" in git(world, "cat-file", "-p", "v1")
    await history.delete_tag(pb.DeleteTagRequest(workspace=world.workspace, name="v0"))
    request = pb.ListTagsRequest(workspace=world.workspace, page_size=2)
    page = await history.list_tags(request)
    request.page_token = page.next_page_token
    rest = await history.list_tags(request)
    assert [tag.name for tag in [*page.tags, *rest.tags]] == ["by-commit", "light", "v1"]
    with pytest.raises(TagNotFoundError):
        await history.delete_tag(pb.DeleteTagRequest(workspace=world.workspace, name="v0"))
    assert git(world, "fsck", "--full", "--strict", "--no-dangling") == ""


async def test_a_tag_that_exists_is_not_made_again(world: World, history: HistoryOperations) -> None:
    await world.put(world.node(), tag="v1")
    with pytest.raises(TagExistsError):
        await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name="v1"))
    with pytest.raises(InvalidTextError):
        await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name="v2", message="a\0b"))


async def test_what_is_in_no_workspace_is_not_found(world: World, history: HistoryOperations) -> None:
    with pytest.raises(NotFoundError):
        await history.list_tags(pb.ListTagsRequest(workspace="nowhere"))
    with pytest.raises(NotFoundError):
        await history.create_branch(pb.CreateBranchRequest(workspace="nowhere", name="side"))
    with pytest.raises(InvalidInputError):
        await history.list_branches(pb.ListBranchesRequest())
    assert world.workspace
