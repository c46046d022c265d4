"""All pages of a list read the commit of the first page: no commit between two pages hides what is alive."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.model.node import Archive, new_id

from memotree.canvas import NodeOperations
from memotree.v1 import node_service_pb2, workspace_service_pb2
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
