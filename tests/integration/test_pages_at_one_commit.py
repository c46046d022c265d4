"""All pages of a list read the commit of the first page: no commit between two pages hides what is alive."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from integration.pushes import push
from integration.worlds import World
from memotree_storage.model.node import Archive, new_id

from memotree.canvas import NodeOperations
from memotree.history import HistoryOperations
from memotree.maintenance.faults import list_faults
from memotree.request.lookup import PageOutdatedError
from memotree.v1 import (
    history_service_pb2,
    maintenance_service_pb2,
    node_service_pb2,
    session_service_pb2,
    workspace_service_pb2,
)
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("CANVAS-15", "GIT-4")

Pages = Callable[[World, str, str], Any]


async def _children(world: World, revision: str, token: str) -> tuple[list[str], str]:
    request = node_service_pb2.ListChildrenRequest(
        workspace=world.workspace, archive=world.archive.id, revision=revision, page_size=2, page_token=token
    )
    found = await NodeOperations(world.store, world.pages, world.limits).list_children(request)
    return [node.title for node in found.nodes], found.next_page_token


async def _tree(world: World, revision: str, token: str) -> tuple[list[str], str]:
    request = node_service_pb2.GetTreeRequest(
        workspace=world.workspace, archive=world.archive.id, revision=revision, page_size=2, page_token=token
    )
    found = await NodeOperations(world.store, world.pages, world.limits).get_tree(request)
    return [node.node.title for node in found.nodes], found.next_page_token


async def _archives(world: World, revision: str, token: str) -> tuple[list[str], str]:
    request = workspace_service_pb2.ListArchivesRequest(
        workspace=world.workspace, revision=revision, page_size=2, page_token=token
    )
    found = await WorkspaceOperations(world.store, world.pages, world.limits).list_archives(request)
    return [archive.name for archive in found.archives], found.next_page_token


@pytest.mark.parametrize("listed", [_children, _tree], ids=["ListChildren", "GetTree"])
async def test_a_node_that_moves_to_the_front_is_on_a_later_page_all_the_same(world: World, listed: Pages) -> None:
    nodes = world.nodes(5)
    await world.put(*nodes)
    seen, token = await listed(world, "", "")
    await world.put(replace(nodes[4], position="Zz"), delete=[nodes[3]])
    while token:
        more, token = await listed(world, "", token)
        seen += more
    assert seen == [node.title for node in nodes]
    assert (await listed(world, "", ""))[0] == ["Node 4", "Node 0"]


async def test_an_archive_that_gets_a_name_before_the_others_is_on_a_later_page_all_the_same(world: World) -> None:
    archives = [Archive(new_id(), f"archive {number}") for number in range(4)]
    await world.put(*archives)
    seen, token = await _archives(world, "", "")
    await world.put(replace(archives[3], name="a first one"))
    while token:
        more, token = await _archives(world, "", token)
        seen += more
    assert seen == [*(archive.name for archive in archives), "notes"]


@pytest.mark.parametrize("gone", [False, True], ids=["a node moved out", "the top was deleted"])
async def test_the_history_of_a_subtree_is_that_of_its_nodes_at_the_first_page(
    world: World, history: HistoryOperations, gone: bool
) -> None:
    top = world.node("Top")
    child = world.node("Child", parent=top)
    await world.put(top, child)
    made = [await world.put(replace(child, content=f"Text {number}.")) for number in range(4)]
    request = history_service_pb2.ListCommitsRequest(workspace=world.workspace, subtree_id=top.id, page_size=2)
    page = await history.list_commits(request)
    seen = [commit.id for commit in page.commits]
    outside = replace(child, parent_id=None, content="Text 3.")
    await world.put(outside, delete=[top] if gone else [])
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = await history.list_commits(request)
        seen += [commit.id for commit in page.commits]
    assert seen[:-1] == made[::-1]


async def test_the_next_pages_of_commits_are_of_the_branch_as_it_was(world: World, history: HistoryOperations) -> None:
    made = await world.put_all(world.nodes(4))
    request = history_service_pb2.ListCommitsRequest(workspace=world.workspace, page_size=2)
    page = await history.list_commits(request)
    await world.put(world.node("Later"))
    request.page_token = page.next_page_token
    following = await history.list_commits(request)
    assert [commit.id for commit in [*page.commits, *following.commits]] == made[::-1]


async def test_the_next_pages_of_a_diff_begin_after_what_was_told(world: World, history: HistoryOperations) -> None:
    nodes = sorted(world.nodes(5), key=lambda node: node.id)
    first = await world.head()
    await world.put(*nodes)
    request = history_service_pb2.DiffRevisionsRequest(workspace=world.workspace, old_revision=first, page_size=2)
    seen = []
    for _ in range(3):
        page = await history.diff_revisions(request)
        seen.append([change.node_id for change in page.changes])
        await world.put(replace(nodes[4], title="Else"), delete=[nodes[3]])
        await world.put(*nodes[3:])
        request.page_token = page.next_page_token
    assert seen == [[node.id for node in part] for part in (nodes[:2], nodes[2:4], nodes[4:])]
    assert not request.page_token


async def test_faults_are_listed_at_the_commit_of_the_first_page(world: World) -> None:
    orphans = sorted((world.node(f"Orphan {number}", parent=new_id()) for number in range(3)), key=lambda node: node.id)
    push(world, "main", *orphans)
    request = maintenance_service_pb2.ListFaultsRequest(workspace=world.workspace, page_size=1)
    page = await list_faults(world.store, world.pages, request)
    assert not page.faults, "what was pushed is not mirrored yet"
    await world.store.catch_up(world.workspace)
    page = await list_faults(world.store, world.pages, request)
    seen = [fault.node_id for fault in page.faults]
    await world.put(*(replace(node, parent_id=None) for node in orphans))
    while page.next_page_token:
        request.page_token = page.next_page_token
        page = await list_faults(world.store, world.pages, request)
        seen += [fault.node_id for fault in page.faults]
    assert seen == [node.id for node in orphans]


async def _session_children(world: World, session_id: str, token: str) -> str:
    return (await _children(world, session_id, token))[1]


async def _session_tree(world: World, session_id: str, token: str) -> str:
    return (await _tree(world, session_id, token))[1]


async def _session_diff(world: World, session_id: str, token: str) -> str:
    request = history_service_pb2.DiffRevisionsRequest(
        workspace=world.workspace, new_revision=session_id, page_size=2, page_token=token
    )
    return (await HistoryOperations(world.store, world.pages, world.limits).diff_revisions(request)).next_page_token


@pytest.mark.parametrize("how", ["commit", "rebase"])
async def test_pages_of_a_session_that_got_another_base_are_refused(world: World, how: str) -> None:
    """Its changes are in the base now, and the changes of others, too: a node may be on none of the pages."""
    nodes = world.nodes(5)
    await world.put(*nodes)
    session_id = await world.open()
    await world.stage(session_id, *(replace(node, title="Else") for node in nodes))
    lists: list[Callable[..., Awaitable[str]]] = [_session_children, _session_tree, _session_diff]
    tokens = [await listed(world, session_id, "") for listed in lists]
    await world.put(world.node("Of somebody else"))
    if how == "commit":
        await world.commit(session_id)
    else:
        request = session_service_pb2.RebaseSessionRequest(workspace=world.workspace, session_id=session_id)
        await world.sessions.rebase_session(request)
    for listed, token in zip(lists, tokens, strict=True):
        with pytest.raises(PageOutdatedError):
            await listed(world, session_id, token)


async def test_pages_of_a_session_show_what_it_changes(world: World) -> None:
    nodes = world.nodes(5)
    await world.put(*nodes)
    session_id = await world.open()
    seen, token = await _children(world, session_id, "")
    await world.stage(session_id, replace(nodes[3], title="Renamed"))
    while token:
        more, token = await _children(world, session_id, token)
        seen += more
    assert seen == ["Node 0", "Node 1", "Node 2", "Renamed", "Node 4"]
