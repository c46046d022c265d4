"""Reads history in tests: whole lists over all pages, and the output of the git program."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from integration.worlds import World
from memotree_storage.model.node import Node

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

CREATED = types_pb2.CHANGE_KIND_CREATED
UPDATED = types_pb2.CHANGE_KIND_UPDATED
DELETED = types_pb2.CHANGE_KIND_DELETED
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL


async def paged(call: Callable[[Any], Awaitable[Any]], request: Any, items: str) -> list[Any]:
    """What a call lists under a name, over all its pages."""
    found: list[Any] = []
    while True:
        response = await call(request)
        found += getattr(response, items)
        if not response.next_page_token:
            return found
        request.page_token = response.next_page_token


async def log(history: HistoryOperations, world: World, **fields: Any) -> list[str]:
    """The ids of all commits that a call lists."""
    request = pb.ListCommitsRequest(workspace=world.workspace, **fields)
    return [commit.id for commit in await paged(history.list_commits, request, "commits")]


async def life(history: HistoryOperations, world: World, node: Node | str, **fields: Any) -> list[pb.NodeRevision]:
    """All revisions of a node."""
    node_id = node if isinstance(node, str) else node.id
    request = pb.ListNodeRevisionsRequest(workspace=world.workspace, node_id=node_id, **fields)
    return await paged(history.list_node_revisions, request, "revisions")


async def diff(history: HistoryOperations, world: World, **fields: Any) -> list[pb.EntryChange]:
    """All differences."""
    request = pb.DiffRevisionsRequest(workspace=world.workspace, **fields)
    return await paged(history.diff_revisions, request, "changes")


def kinds(changes: Sequence[pb.EntryChange]) -> dict[str, int]:
    return {change.node_id: change.kind for change in changes}


def git(world: World, *arguments: str) -> str:
    command = ["git", "-C", str(world.repository.path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - the test's own


async def branch(history: HistoryOperations, world: World, name: str, revision: str = "") -> str:
    request = pb.CreateBranchRequest(workspace=world.workspace, name=name, revision=revision)
    return (await history.create_branch(request)).branch.commit_id


async def delete_branch(history: HistoryOperations, world: World, name: str) -> pb.DeleteBranchResponse:
    return await history.delete_branch(pb.DeleteBranchRequest(workspace=world.workspace, name=name))
