"""Calls to a real server over one connection, and the details of its errors."""

from typing import Any, Final, Self

import grpc
from integration.wires import Refusal
from memotree_storage.model.node import new_id

from memotree.v1 import (
    history_service_pb2_grpc,
    maintenance_service_pb2,
    maintenance_service_pb2_grpc,
    node_service_pb2,
    node_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    workspace_service_pb2,
    workspace_service_pb2_grpc,
)

ROOT_CONTENT: Final = "Below."


class Calls:
    """The services of a server and one workspace in it, with a session and a committed root."""

    def __init__(self, channel: grpc.aio.Channel, workspace: str) -> None:
        # The stubs annotate the blocking form; over an aio channel each call can be awaited.
        self.workspaces: Any = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
        self.sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        self.nodes: Any = node_service_pb2_grpc.NodeServiceStub(channel)
        self.history: Any = history_service_pb2_grpc.HistoryServiceStub(channel)
        self.maintenance: Any = maintenance_service_pb2_grpc.MaintenanceServiceStub(channel)
        self.workspace = workspace
        self.repository = ""
        self.session = ""
        self.root = ""

    async def begin(self) -> Self:
        """Make the workspace, an archive and its root; commit them."""
        made = await self.workspaces.CreateWorkspace(workspace_service_pb2.CreateWorkspaceRequest(name=self.workspace))
        self.repository = made.workspace.repository
        await self.open()
        await self.workspaces.CreateArchive(
            workspace_service_pb2.CreateArchiveRequest(workspace=self.workspace, session_id=self.session, name="notes")
        )
        answer = await self.nodes.CreateNode(
            node_service_pb2.CreateNodeRequest(
                workspace=self.workspace,
                session_id=self.session,
                archive_id="notes",
                title="Root",
                content=ROOT_CONTENT,
            )
        )
        self.root = answer.node.id
        await self.commit("Begin")
        return self

    async def open(self) -> str:
        """Open a session and use it from now on."""
        answer = await self.sessions.OpenSession(
            session_service_pb2.OpenSessionRequest(workspace=self.workspace, agent="a-test")
        )
        self.session = answer.session.id
        return self.session

    def creation(self, content: str, **fields: Any) -> node_service_pb2.CreateNodeRequest:
        """A request for a node below the root."""
        node_id = fields.pop("node_id", "") or new_id()
        return node_service_pb2.CreateNodeRequest(
            workspace=self.workspace,
            session_id=self.session,
            parent_id=self.root,
            node_id=node_id,
            title=fields.pop("title", f"Node {node_id}"),
            content=content,
            **fields,
        )

    async def create(self, content: str, **fields: Any) -> str:
        """Stage a node below the root; return its id."""
        answer = await self.nodes.CreateNode(self.creation(content, **fields))
        return str(answer.node.id)

    def commitment(self, message: str = "Change something", **fields: Any) -> session_service_pb2.CommitChangesRequest:
        """A request for a commit of the session."""
        return session_service_pb2.CommitChangesRequest(
            workspace=self.workspace, session_id=self.session, message=message, **fields
        )

    async def commit(self, message: str = "Change something", **fields: Any) -> str:
        """Commit the session; return the commit's id."""
        answer = await self.sessions.CommitChanges(self.commitment(message, **fields))
        return str(answer.commit_id)

    async def read(self, node_id: str, revision: str = "") -> str | None:
        """The content of a node, or ``None`` if it is not alive there."""
        try:
            answer = await self.nodes.GetNode(
                node_service_pb2.GetNodeRequest(workspace=self.workspace, node_id=node_id, revision=revision)
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return str(answer.node.content)

    async def search(self, query: str, **fields: Any) -> list[str]:
        """The ids that a search finds, best first."""
        answer = await self.nodes.SearchNodes(
            node_service_pb2.SearchNodesRequest(workspace=self.workspace, query=query, **fields)
        )
        return [hit.node.id for hit in answer.hits]

    async def differences(self) -> list[str]:
        """The differences that verification finds."""
        request = maintenance_service_pb2.VerifyWorkspaceRequest(workspace=self.workspace)
        events = self.maintenance.VerifyWorkspace(request)
        return [event.difference.description async for event in events if event.HasField("difference")]

    async def changes(self) -> int:
        """How many changes the session has staged."""
        answer = await self.sessions.GetSession(
            session_service_pb2.GetSessionRequest(workspace=self.workspace, session_id=self.session)
        )
        return int(answer.session.change_count)


def reason(error: grpc.aio.AioRpcError) -> str:
    """The stable error code that an error carries."""
    return Refusal.of(error).reason
