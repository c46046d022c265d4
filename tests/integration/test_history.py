"""The history that people audit: the log, one commit, the versions of a node."""

from dataclasses import replace
from datetime import timedelta

import pytest
from integration.histories import CREATED, DELETED, DETAIL, UPDATED, branch, git, life, log
from integration.worlds import World
from memotree_storage.model.node import new_id
from memotree_storage.postgres.registry import RevisionNotFoundError

from memotree.history import HistoryOperations
from memotree.history import log as commits
from memotree.history.log import SessionIsNoCommitError
from memotree.request.lookup import AmbiguousIdError, NodeNotFoundError
from memotree.request.messages import timestamp
from memotree.request.pages import PAGE_BYTES
from memotree.v1 import history_service_pb2 as pb

# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_a_commit_has_its_author_time_reason_and_session(world: World, history: HistoryOperations) -> None:
    session = await world.open(agent="gardener")
    await world.stage(session, world.node("Rose"), note="so that it smells")
    commit_id = await world.commit(session, "Plant a rose\n\nIn spring.")
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=commit_id))
    commit = response.commit
    assert (commit.subject, commit.author.name, commit.session_id) == ("Plant a rose", "gardener", session)
    assert commit.message == git(world, "log", "-1", "--format=%B", commit_id).rstrip("\n") + "\n"
    assert list(commit.parent_ids) == git(world, "log", "-1", "--format=%P", commit_id).split()
    assert commit.commit_time.seconds == int(git(world, "log", "-1", "--format=%ct", commit_id))


async def test_a_log_in_pages_is_the_whole_log_even_if_it_grows(world: World, history: HistoryOperations) -> None:
    await world.put_all(world.nodes(4))
    whole = await log(history, world)
    for size in (1, 3, 1_000_000):
        assert await log(history, world, page_size=size) == whole
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


@pytest.mark.requirement("CANVAS-13", "GIT-5")
async def test_the_history_of_a_deleted_node_is_found_by_a_prefix(world: World, history: HistoryOperations) -> None:
    node = replace(world.node("Gone"), id="g" * 8 + new_id()[8:])
    made = await world.put(node)
    gone = await world.put(delete=[node])
    assert await log(history, world, node_id="gggg") == await log(history, world, node_id=node.id) == [gone, made]
    assert [one.commit.id for one in await life(history, world, "gggg")] == [gone, made]
    await world.put(replace(world.node("Alive"), id="g" * 8 + new_id()[8:]))
    for ask in (log(history, world, node_id="gggg"), life(history, world, "gggg")):
        with pytest.raises(AmbiguousIdError, match=rf"{node.id} \(Gone, deleted\)") as caught:
            await ask
        assert len(caught.value.nodes) == 2


@pytest.mark.requirement("GIT-5")
async def test_a_deleted_node_names_a_commit_that_still_has_it(world: World, history: HistoryOperations) -> None:
    node = world.node("Gone", content="A line.")
    made = await world.put(node)
    session = await world.open()
    await world.stage(session, delete=[node])
    request = pb.BlameNodeRequest(workspace=world.workspace, node_id=node.id, revision=session)
    with pytest.raises(NodeNotFoundError, match=made):  # the base of the session that deleted it
        await history.blame_node(request)
    gone = await world.put(delete=[node])
    await world.put(world.node("Later"))
    for name in (node.id, node.id[:10]):
        request = pb.BlameNodeRequest(workspace=world.workspace, node_id=name)
        with pytest.raises(NodeNotFoundError, match=f"deleted in commit {gone}.*still has it: {made}"):
            await history.blame_node(request)
        with pytest.raises(NodeNotFoundError, match=f"still has it: {made}"):
            await log(history, world, subtree_id=name)
        request.revision = made
        assert [line.text for line in (await history.blame_node(request)).lines] == ["A line."]
    assert await log(history, world, subtree_id=node.id, revision=made) != []


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
async def test_a_log_takes_each_kind_of_revision_and_has_the_tags(world: World, history: HistoryOperations) -> None:
    first = await world.put(world.node(), tag="v2")
    await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name="v1", revision=first))
    whole = await log(history, world)
    response = await history.list_commits(pb.ListCommitsRequest(workspace=world.workspace, page_size=2))
    assert [list(commit.tags) for commit in response.commits] == [["v1", "v2"], []]
    session = await world.open()
    await world.put(world.node())
    for revision in ("v1", "refs/tags/v1", first, first[:10], session):
        assert await log(history, world, revision=revision) == whole
    with pytest.raises(RevisionNotFoundError):
        await log(history, world, revision="nowhere")


# --- one commit ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_a_commit_lists_the_change_of_each_entry(world: World, history: HistoryOperations) -> None:
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


async def test_the_first_commit_of_all_and_the_head_are_read_as_commits_and_a_session_is_not(
    world: World, history: HistoryOperations
) -> None:
    root = (await log(history, world))[-1]
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=root))
    assert (response.change_count, list(response.commit.parent_ids)) == (0, [])
    head = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace))
    assert [change.is_archive for change in head.changes] == [True]
    session = await world.open()
    with pytest.raises(SessionIsNoCommitError):
        await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=session))
    with pytest.raises(SessionIsNoCommitError):
        await branch(history, world, "feature", session)


async def test_a_big_commit_lists_a_thousand_changes_and_counts_all(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commits.MOST_CHANGES == 1000
    monkeypatch.setattr(commits, "MOST_CHANGES", 5)
    commit_id = await world.put(*world.nodes(8))
    response = await history.get_commit(pb.GetCommitRequest(workspace=world.workspace, revision=commit_id))
    assert (len(response.changes), response.change_count) == (5, 8)


# --- the life of a node ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("GIT-5")
async def test_the_revisions_of_a_node_cover_its_whole_history(world: World, history: HistoryOperations) -> None:
    node = world.node("First", brief="A brief.", summary="A summary.")
    born = await world.put(node)
    shown = []
    for level in ("TITLE", "BRIEF", "SUMMARY", "DETAIL"):
        (one,) = await life(history, world, node, level=f"LEVEL_OF_DETAIL_{level}")
        shown.append([text for text in (one.node.title, one.node.brief, one.node.summary, one.node.content) if text])
    assert [len(texts) for texts in shown] == [1, 2, 3, 4]
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


async def test_revisions_of_another_branch_after_the_fork_are_not_listed(
    world: World, history: HistoryOperations
) -> None:
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


async def test_revisions_with_large_texts_come_in_small_pages(world: World, history: HistoryOperations) -> None:
    node = world.node()
    await world.put_all([replace(node, content=f"{number}" + "x" * 800_000) for number in range(5)])
    request = pb.ListNodeRevisionsRequest(workspace=world.workspace, node_id=node.id, level=DETAIL)
    response = await history.list_node_revisions(request)
    assert response.ByteSize() < PAGE_BYTES + 10_000
    assert [one.node.content[0] for one in await life(history, world, node, level=DETAIL)] == list("43210")


async def test_the_log_and_revisions_of_no_node_are_refused(world: World, history: HistoryOperations) -> None:
    for fields in ({"node_id": new_id()}, {"subtree_id": new_id()}, {"node_id": "zzzz"}):
        with pytest.raises(NodeNotFoundError):
            await log(history, world, **fields)
    session = await world.open()
    staged = world.node()
    await world.stage(session, staged)
    for node_id, revision in ((new_id(), ""), (world.archive.id, ""), (staged.id, session)):
        with pytest.raises(NodeNotFoundError):
            await life(history, world, node_id, revision=revision)
