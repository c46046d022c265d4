"""MemoTree over gRPC, the way any client calls it: the server is a process of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc

from bench.peers.program import TOP, Note, packages, serve
from memotree.v1 import (
    history_service_pb2,
    history_service_pb2_grpc,
    node_service_pb2,
    node_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    workspace_service_pb2,
    workspace_service_pb2_grpc,
)

_WORKSPACE: Final = "bench"
_TITLE: Final = 60


class MemoTree:
    """An archive of notes; the server makes the vectors itself, of the texts that it gets."""

    durability = "on disk (Git objects, ref and log with fsync); mirrors can be rebuilt"
    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, _: Path, address: str) -> None:
        self.versions = packages("memotree", "grpcio")
        channel = grpc.insecure_channel(address)
        self._nodes: Any = node_service_pb2_grpc.NodeServiceStub(channel)
        self._history: Any = history_service_pb2_grpc.HistoryServiceStub(channel)
        workspaces: Any = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
        sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        workspaces.CreateWorkspace(workspace_service_pb2.CreateWorkspaceRequest(name=_WORKSPACE))
        opened = sessions.OpenSession(session_service_pb2.OpenSessionRequest(workspace=_WORKSPACE))
        of_session = {"workspace": _WORKSPACE, "session_id": opened.session.id}
        made = workspaces.CreateArchive(workspace_service_pb2.CreateArchiveRequest(**of_session, name="notes"))
        sessions.CommitChanges(session_service_pb2.CommitChangesRequest(**of_session, message="Begin"))
        self._archive = made.archive.id
        self._ids: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._head = self._marked = ""

    def load(self, notes: Sequence[Note]) -> None:
        changes = [
            node_service_pb2.NodeChange(
                create=node_service_pb2.CreateNodeRequest(
                    archive_id=self._archive, title=note.text[:_TITLE], content=note.text
                )
            )
            for note in notes
        ]
        for note, result in zip(notes, self._commit(changes).results, strict=True):
            self._ids[note.key] = result.node.id
            self._keys[result.node.id] = note.key

    def settle(self) -> None:
        self._search("settled", node_service_pb2.SEARCH_TYPE_HYBRID)  # a search waits for what was committed before it

    def mark(self) -> None:
        self._marked = self._head

    def update(self, notes: Sequence[Note]) -> None:
        self._commit(
            [
                node_service_pb2.NodeChange(
                    update=node_service_pb2.UpdateNodeRequest(node_id=self._ids[note.key], content=note.text)
                )
                for note in notes
            ]
        )

    def search_words(self, text: str) -> list[str]:
        return self._search(text, node_service_pb2.SEARCH_TYPE_FULL_TEXT)

    def search_vector(self, text: str, vector: Sequence[float]) -> list[str]:
        return self._search(text, node_service_pb2.SEARCH_TYPE_SEMANTIC)

    def search_hybrid(self, text: str, vector: Sequence[float]) -> list[str]:
        return self._search(text, node_service_pb2.SEARCH_TYPE_HYBRID)

    def history_of_one(self, key: str) -> int:
        answer = self._history.ListNodeRevisions(
            history_service_pb2.ListNodeRevisionsRequest(workspace=_WORKSPACE, node_id=self._ids[key])
        )
        return len(answer.revisions)

    def read_as_of(self, key: str) -> str:
        answer = self._nodes.GetNode(
            node_service_pb2.GetNodeRequest(workspace=_WORKSPACE, node_id=self._ids[key], revision=self._marked)
        )
        return str(answer.node.content)

    def _commit(self, changes: Sequence[node_service_pb2.NodeChange]) -> Any:
        answer = self._nodes.BatchChangeNodes(
            node_service_pb2.BatchChangeNodesRequest(
                workspace=_WORKSPACE,
                changes=changes,
                commit=node_service_pb2.CommitAtOnce(message="Change some notes"),
            )
        )
        self._head = answer.commit_id
        return answer

    def _search(self, text: str, kind: node_service_pb2.SearchType.ValueType) -> list[str]:
        answer = self._nodes.SearchNodes(
            node_service_pb2.SearchNodesRequest(workspace=_WORKSPACE, query=text, search_type=kind, max_results=TOP)
        )
        return [self._keys[hit.node.id] for hit in answer.hits]


if __name__ == "__main__":
    serve(MemoTree)
