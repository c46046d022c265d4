"""Branches and tags."""

import pytest
from integration.histories import branch, delete_branch, git
from integration.worlds import World
from memotree_storage.commit.refs import (
    BranchExistsError,
    BranchNotFoundError,
    ConfusingNameError,
    TagExistsError,
    TagNotFoundError,
)
from memotree_storage.model.protection import BranchProtectedError
from memotree_storage.model.validation import InvalidTextError

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2


@pytest.mark.requirement("GIT-3")
async def test_branches_are_created_listed_and_deleted(world: World, history: HistoryOperations) -> None:
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
    await delete_branch(history, world, "a/b")
    assert len((await history.list_branches(pb.ListBranchesRequest(workspace=world.workspace))).branches) == 2
    assert "a/b" not in git(world, "branch", "--list")
    with pytest.raises(BranchNotFoundError):
        await delete_branch(history, world, "a/b")
    with pytest.raises(BranchProtectedError):
        await delete_branch(history, world, "main")


@pytest.mark.requirement("GIT-3")
async def test_deleting_a_branch_detaches_its_sessions(world: World, history: HistoryOperations) -> None:
    await branch(history, world, "side")
    on_side, on_main = await world.open("side"), await world.open("main")
    await world.stage(on_side, world.node())
    response = await delete_branch(history, world, "side")
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
    with pytest.raises(TagNotFoundError):
        await history.delete_tag(pb.DeleteTagRequest(workspace=world.workspace, name="v0"))
    request = pb.ListTagsRequest(workspace=world.workspace, page_size=2)
    page = await history.list_tags(request)
    request.page_token = page.next_page_token
    rest = await history.list_tags(request)
    assert [tag.name for tag in [*page.tags, *rest.tags]] == ["by-commit", "light", "v1"]
    assert git(world, "fsck", "--full", "--strict", "--no-dangling") == ""


@pytest.mark.requirement("GIT-3")
async def test_a_name_that_is_taken_or_no_name_makes_no_branch_or_tag(world: World, history: HistoryOperations) -> None:
    await world.put(world.node(), tag="v1")
    git(world, "branch", "made-with-git", "main")
    for name in ("main", "made-with-git"):
        for revision in ("", "nowhere"):  # the name is looked at before the revision
            with pytest.raises(BranchExistsError):
                await branch(history, world, name, revision)
    for name in ("0123456789abcdef", "refs/heads/main"):
        with pytest.raises(ConfusingNameError):
            await branch(history, world, name)
    for fields, error in (
        ({"name": "v1"}, TagExistsError),
        ({"name": "v1", "revision": "nowhere"}, TagExistsError),
        ({"name": "refs/heads/main"}, ConfusingNameError),
        ({"name": "v2", "message": "a\0b"}, InvalidTextError),
    ):
        with pytest.raises(error):
            await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, **fields))
