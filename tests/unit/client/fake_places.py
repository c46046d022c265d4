"""Workspaces, archives, sessions and maintenance of the fake server."""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

from collections.abc import Iterator
from typing import Any

import grpc
from unit.client.fake_state import (
    FakeSession,
    FakeWorkspace,
    RefusedError,
    State,
    changed,
    fresh_id,
    not_found,
    resolve,
    state_of,
)

from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2 as types
from memotree.v1 import workspace_service_pb2 as workspaces
from memotree.v1.maintenance_service_pb2_grpc import MaintenanceServiceServicer
from memotree.v1.session_service_pb2_grpc import SessionServiceServicer
from memotree.v1.workspace_service_pb2_grpc import WorkspaceServiceServicer


def paged(items: list[Any], request: Any) -> tuple[list[Any], str]:
    """One page of ``items``: the token is the offset of the next."""
    start = int(request.page_token or 0)
    size = request.page_size or 50
    return items[start : start + size], str(start + size) if start + size < len(items) else ""


class FakePlaces(WorkspaceServiceServicer, SessionServiceServicer, MaintenanceServiceServicer):
    """The services for workspaces, archives, sessions and maintenance."""

    spaces: dict[str, FakeWorkspace]

    def space(self, name: str) -> FakeWorkspace:
        for space in self.spaces.values():
            if name and name in {space.message.name, space.message.id}:
                return space
        raise not_found("workspace", name)

    def session_of(self, request: Any) -> FakeSession:
        session = self.space(request.workspace).sessions.get(request.session_id)
        if session is None:
            raise not_found("session", request.session_id)
        if session.message.state != sessions.SESSION_STATE_OPEN:
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, "The session is closed; open another one.", "SESSION_CLOSED"
            )
        return session

    def CreateWorkspace(self, request: Any, context: Any) -> Any:
        if request.name in self.spaces:
            raise RefusedError(
                grpc.StatusCode.ALREADY_EXISTS, f"There is a workspace {request.name} already.", "WORKSPACE_EXISTS"
            )
        message = workspaces.Workspace(
            id=fresh_id(),
            name=request.name,
            description=request.description,
            default_branch="main",
            repository=f"repositories/{request.name}.git",
        )
        message.create_time.FromSeconds(1_800_000_000)
        space = FakeWorkspace(message)
        space.branches["main"] = space.commit([], "Begin", types.CommitAuthor(name="MemoTree"), State(), "")
        self.spaces[request.name] = space
        return workspaces.CreateWorkspaceResponse(workspace=message)

    def GetWorkspace(self, request: Any, context: Any) -> Any:
        return workspaces.GetWorkspaceResponse(workspace=self.space(request.workspace).message)

    def ListWorkspaces(self, request: Any, context: Any) -> Any:
        page, token = paged([self.spaces[name].message for name in sorted(self.spaces)], request)
        return workspaces.ListWorkspacesResponse(workspaces=page, next_page_token=token)

    def UpdateWorkspace(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.HasField("name"):
            del self.spaces[space.message.name]
            space.message.name = request.name
            self.spaces[request.name] = space
        if request.HasField("description"):
            space.message.description = request.description
        return workspaces.UpdateWorkspaceResponse(workspace=space.message)

    def DeleteWorkspace(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.confirm_name != space.message.name:
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, "confirm_name must be the workspace's name.", "NAME_NOT_CONFIRMED"
            )
        del self.spaces[space.message.name]
        return workspaces.DeleteWorkspaceResponse(trash=f"trash/{space.message.name}.git")

    def CreateArchive(self, request: Any, context: Any) -> Any:
        state = self.session_of(request).state
        archive = types.Archive(
            id=request.archive_id or fresh_id(),
            name=request.name,
            model_id=request.model_id,
            description=request.description,
            etag=fresh_id(),
        )
        state.archives[archive.id] = archive
        return workspaces.CreateArchiveResponse(archive=archive)

    def GetArchive(self, request: Any, context: Any) -> Any:
        state = state_of(self.space(request.workspace), request.revision)
        return workspaces.GetArchiveResponse(archive=state.archive(request.archive))

    def ListArchives(self, request: Any, context: Any) -> Any:
        state = state_of(self.space(request.workspace), request.revision)
        page, token = paged(sorted(state.archives.values(), key=lambda each: each.name), request)
        return workspaces.ListArchivesResponse(archives=page, next_page_token=token)

    def UpdateArchive(self, request: Any, context: Any) -> Any:
        state = self.session_of(request).state
        archive = types.Archive()
        archive.CopyFrom(state.archive(request.archive))
        for name in ("name", "model_id", "description"):
            if request.HasField(name):
                setattr(archive, name, getattr(request, name))
        state.archives[archive.id] = archive
        return workspaces.UpdateArchiveResponse(archive=archive)

    def DeleteArchive(self, request: Any, context: Any) -> Any:
        state = self.session_of(request).state
        archive = state.archive(request.archive)
        gone = [node.id for node in state.nodes.values() if node.archive_id == archive.id]
        for node_id in gone:
            del state.nodes[node_id]
        del state.archives[archive.id]
        return workspaces.DeleteArchiveResponse(deleted_nodes=len(gone))

    def _session_told(self, space: FakeWorkspace, session: FakeSession) -> sessions.Session:
        base = space.commits[session.message.base_commit_id].state
        session.message.change_count = len(changed(base, session.state))
        return session.message

    def OpenSession(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        branch = request.branch or "main"
        base = resolve(space, branch)
        message = sessions.Session(
            id=fresh_id(),
            workspace_id=space.message.id,
            branch=branch,
            base_commit_id=base,
            agent=request.agent or "agent",
            state=sessions.SESSION_STATE_OPEN,
        )
        for name in ("create_time", "update_time", "expire_time"):
            getattr(message, name).FromSeconds(1_800_000_000)
        session = FakeSession(message, space.commits[base].state.copy())
        space.sessions[message.id] = session
        return sessions.OpenSessionResponse(session=message)

    def GetSession(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.session_id not in space.sessions:
            raise not_found("session", request.session_id)
        return sessions.GetSessionResponse(session=self._session_told(space, space.sessions[request.session_id]))

    def ListSessions(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        found = [
            self._session_told(space, session)
            for session in space.sessions.values()
            if request.include_closed or session.message.state == sessions.SESSION_STATE_OPEN
        ]
        page, token = paged(found, request)
        return sessions.ListSessionsResponse(sessions=page, next_page_token=token)

    def ListChanges(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        session = self.session_of(request)
        staged = []
        for entry_id, kind, was, now in changed(space.commits[session.message.base_commit_id].state, session.state):
            entry: Any = now or was
            is_archive = isinstance(entry, types.Archive)
            staged.append(
                sessions.StagedChange(
                    node_id=entry_id,
                    kind=kind,
                    title=entry.name if is_archive else entry.title,
                    is_archive=is_archive,
                    fields=["content"] if kind == types.CHANGE_KIND_UPDATED else [],
                    commit_messages=session.reasons.get(entry_id, []),
                )
            )
        page, token = paged(staged, request)
        return sessions.ListChangesResponse(changes=page, next_page_token=token)

    def DiscardChanges(self, request: Any, context: Any) -> Any:
        space, session = self.space(request.workspace), self.session_of(request)
        base = space.commits[session.message.base_commit_id].state
        for prefix in request.node_ids:
            for node_id in [each for each in {*session.state.nodes, *base.nodes} if each.startswith(prefix)]:
                session.state.nodes.pop(node_id, None)
                if node_id in base.nodes:
                    session.state.nodes[node_id] = base.nodes[node_id]
        return sessions.DiscardChangesResponse(session=self._session_told(space, session))

    def DiscardSession(self, request: Any, context: Any) -> Any:
        session = self.session_of(request)
        session.message.state = sessions.SESSION_STATE_DISCARDED
        return sessions.DiscardSessionResponse(session=session.message)

    def RebaseSession(self, request: Any, context: Any) -> Any:
        space, session = self.space(request.workspace), self.session_of(request)
        session.message.base_commit_id = space.branches[session.message.branch]
        return sessions.RebaseSessionResponse(session=session.message)

    def CommitChanges(self, request: Any, context: Any) -> Any:
        space, session = self.space(request.workspace), self.session_of(request)
        base = session.message.base_commit_id
        found = changed(space.commits[base].state, session.state)
        if not found:
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, "Nothing is staged; change a node first.", "EMPTY_SESSION"
            )
        author = request.author if request.HasField("author") else types.CommitAuthor(name=session.message.agent)
        commit_id = space.commit([base], request.message, author, session.state.copy(), session.message.id)
        space.branches[session.message.branch] = commit_id
        session.message.base_commit_id = commit_id
        if request.create_tag:
            self._tag(space, request.tag_name, commit_id)
        return sessions.CommitChangesResponse(
            commit_id=commit_id,
            branch=session.message.branch,
            tag_name=request.tag_name,
            change_count=len(found),
            warnings=["A relation points nowhere."] if "warn" in request.message else [],
        )

    def GetStatus(self, request: Any, context: Any) -> Any:
        return maintenance.GetStatusResponse(
            version="0.1.0",
            stores=[
                maintenance.StoreStatus(name="git", healthy=True, embedded=True, detail="dulwich"),
                maintenance.StoreStatus(name="postgres", healthy=False, embedded=True, detail="does not answer"),
            ],
            workspace_count=len(self.spaces),
            embedding_model="wordllama",
            token_counter="heuristic",  # noqa: S106 - tokens of text
            max_content_bytes=2**20,
            max_message_bytes=2**24,
            index_backlog=3,
        )

    def VerifyWorkspace(self, request: Any, context: Any) -> Iterator[Any]:
        space = self.space(request.workspace)
        yield maintenance.VerifyWorkspaceResponse(progress=maintenance.Progress(step="reading Git", done=1, total=2))
        if "damaged" in space.message.description:
            yield maintenance.VerifyWorkspaceResponse(
                difference=maintenance.Difference(
                    store="postgres", what="row", node_id="abcd", description="A row is missing; run rebuild."
                )
            )
        yield maintenance.VerifyWorkspaceResponse(progress=maintenance.Progress(step="reading Git", done=2, total=2))

    def RebuildWorkspace(self, request: Any, context: Any) -> Iterator[Any]:
        self.space(request.workspace)
        for done in range(3):
            yield maintenance.RebuildWorkspaceResponse(
                progress=maintenance.Progress(step="writing rows", done=done, total=2)
            )
