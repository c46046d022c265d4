"""A page token reads no session that its request does not name: the check of who calls has looked at the request alone.

These tokens have the server's own code, so that only the operations can refuse them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.recall.talks import Models
from integration.worlds import World
from memotree_storage.model.node import Node

import memotree
from memotree.canvas import NodeOperations
from memotree.canvas.tree_pages import CURSOR
from memotree.forest.recall.recall import Recall
from memotree.history import HistoryOperations
from memotree.maintenance import MaintenanceOperations
from memotree.request.pages import InvalidPageTokenError
from memotree.review import ReviewOperations
from memotree.v1 import (
    history_service_pb2,
    maintenance_service_pb2,
    node_service_pb2,
    review_service_pb2,
    workspace_service_pb2,
)
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("SERVE-1", "SERVE-3")


@dataclass(frozen=True)
class Call:
    """A call that lists something of a revision (of what), and the names in its cursor beside the revision."""

    make: Callable[[World], Callable[[Any], Awaitable[Any]]]
    request: Callable[..., Any]
    names: tuple[str, ...]
    of: str = ""

    def asked(self, world: World, node: Node) -> Any:
        fields = {self.of: {"archive": world.archive.id, "node_id": node.id}[self.of]} if self.of else {}
        return self.request(workspace=world.workspace, page_size=1, **fields)


def _nodes(world: World) -> NodeOperations:
    return NodeOperations(world.store, world.pages, world.limits)


def _history(world: World) -> HistoryOperations:
    return HistoryOperations(world.store, world.pages, world.limits)


def _review(world: World) -> ReviewOperations:
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    return ReviewOperations(world.store, world.pages, world.limits, world.sessions, recalling)


CALLS: Mapping[str, Call] = {
    "ListChildren": Call(
        lambda world: _nodes(world).list_children,
        node_service_pb2.ListChildrenRequest,
        ("position", "id"),
        "archive",
    ),
    "GetTree": Call(lambda world: _nodes(world).get_tree, node_service_pb2.GetTreeRequest, tuple(CURSOR), "archive"),
    "ListArchives": Call(
        lambda world: WorkspaceOperations(world.store, world.pages, world.limits).list_archives,
        workspace_service_pb2.ListArchivesRequest,
        ("name", "id"),
    ),
    "ListCommits": Call(lambda world: _history(world).list_commits, history_service_pb2.ListCommitsRequest, ("after",)),
    "ListNodeRevisions": Call(
        lambda world: _history(world).list_node_revisions,
        history_service_pb2.ListNodeRevisionsRequest,
        ("after",),
        "node_id",
    ),
    "BisectNode": Call(
        lambda world: _history(world).bisect_node, history_service_pb2.BisectNodeRequest, ("after",), "node_id"
    ),
    "CheckMemory": Call(
        lambda world: _review(world).check_memory, review_service_pb2.CheckMemoryRequest, ("after", "tests")
    ),
    "ListFaults": Call(
        lambda world: MaintenanceOperations(world.store, world.pages, world.limits).list_faults,
        maintenance_service_pb2.ListFaultsRequest,
        ("node", "path"),
    ),
}
"""The calls whose pages `lookup.page_revision` finds."""


def test_every_call_whose_token_may_name_a_session_is_among_these() -> None:
    modules = Path(memotree.__file__).parent.rglob("*.py")
    assert sum(path.read_text(encoding="utf-8").count("lookup.page_revision(") for path in modules) == len(CALLS)


def cursor(call: Call, head: str) -> dict[str, str]:
    """What a token of the call has beside the revision, as far as any text will do."""
    return dict.fromkeys(call.names, "") | ({"tests": head} if "tests" in call.names else {})


async def test_a_token_with_a_session_of_another_request_is_refused(world: World, subtests: pytest.Subtests) -> None:
    node = world.node("Public")
    head = await world.put(node)
    session_id, other = await world.open(), await world.open()
    await world.stage(session_id, world.node("Secret"))
    for name, call in CALLS.items():
        request, operation = call.asked(world, node), call.make(world)
        for revision in ("", "main", head, other):
            request.revision = revision
            for pinned in ({"session": session_id, "commit": head}, {"session": "", "commit": session_id}):
                request.page_token = world.pages.write(request, {**cursor(call, head), **pinned})
                with subtests.test(name, revision=revision, pinned=pinned), pytest.raises(InvalidPageTokenError):
                    await operation(request)


async def test_a_token_with_the_session_of_its_request_is_read(world: World, subtests: pytest.Subtests) -> None:
    node = world.node("Public")
    head = await world.put(node)
    session_id = await world.open()
    for name, call in CALLS.items():
        request = call.asked(world, node)
        request.revision = session_id
        places = cursor(call, head)
        if name == "GetTree":
            places = {"after": node.id, "home": world.archive.id, "position": node.position}
        elif name in {"ListCommits", "ListNodeRevisions", "BisectNode"}:
            places["after"] = head
        request.page_token = world.pages.write(request, {**places, "session": session_id, "commit": head})
        with subtests.test(name):
            await call.make(world)(request)
