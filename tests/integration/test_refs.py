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
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.git.refs import InvalidRefNameError
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


async def test_a_branch_that_exists_is_not_made_again(world: World, history: HistoryOperations) -> None:
    await branch(history, world, "side")
    git(world, "branch", "made-with-git", "main")
    for name in ("main", "side", "made-with-git"):
        with pytest.raises(BranchExistsError):
            await branch(history, world, name)


OF_GIT = ["..", "a..b", "/a", "a/", "a b", "-a", "a~1", "a^", "a:b", "HEAD", "a.lock", "a\nb", "a\0b", "x" * 300]
CONFUSING = ["a" * 40, "0123456789abcdef", "refs/heads/main"]


async def test_names_that_git_refuses_or_that_look_like_other_revisions_are_refused(
    world: World, history: HistoryOperations
) -> None:
    with pytest.raises(InvalidInputError):
        await branch(history, world, "")
    for name in (*OF_GIT, *CONFUSING):
        kind = InvalidRefNameError if name in OF_GIT else ConfusingNameError
        with pytest.raises(kind) as caught:
            await branch(history, world, name)
        assert caught.value.violations[0].field == "name"
        with pytest.raises(kind):
            await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name=name))


@pytest.mark.requirement("GIT-3")
async def test_the_default_branch_cannot_be_deleted(world: World, history: HistoryOperations) -> None:
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


async def test_refs_of_a_missing_workspace_are_not_found(world: World, history: HistoryOperations) -> None:
    with pytest.raises(NotFoundError):
        await history.list_tags(pb.ListTagsRequest(workspace="nowhere"))
    with pytest.raises(NotFoundError):
        await history.create_branch(pb.CreateBranchRequest(workspace="nowhere", name="side"))
    with pytest.raises(InvalidInputError):
        await history.list_branches(pb.ListBranchesRequest())
    assert world.workspace


@pytest.mark.requirement("GIT-3")
async def test_a_taken_name_is_named_before_an_unknown_revision(world: World, history: HistoryOperations) -> None:
    await world.put(world.node(), tag="v1")
    with pytest.raises(BranchExistsError):
        await history.create_branch(pb.CreateBranchRequest(workspace=world.workspace, name="main", revision="nowhere"))
    with pytest.raises(TagExistsError):
        await history.create_tag(pb.CreateTagRequest(workspace=world.workspace, name="v1", revision="nowhere"))
