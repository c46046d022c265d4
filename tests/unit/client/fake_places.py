"""History, workspaces, archives, sessions and maintenance of the fake server."""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

import difflib
from collections.abc import Iterator
from typing import Any

from unit.client.fake_state import (
    FakeCommit,
    FakeSession,
    FakeStates,
    FakeWorkspace,
    State,
    changed,
    fresh_id,
    listed,
    not_found,
    resolve,
    state_of,
    taken,
    unmet,
)

from memotree.v1 import history_service_pb2 as history
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2 as types
from memotree.v1 import workspace_service_pb2 as workspaces
from memotree.v1.history_service_pb2_grpc import HistoryServiceServicer
from memotree.v1.maintenance_service_pb2_grpc import MaintenanceServiceServicer
from memotree.v1.session_service_pb2_grpc import SessionServiceServicer
from memotree.v1.workspace_service_pb2_grpc import WorkspaceServiceServicer


def _fields(was: types.Node | None, now: types.Node | None) -> list[history.FieldChange]:
    found = []
    for name in ("title", "content"):
        before, after = getattr(was, name, ""), getattr(now, name, "")
        if before == after:
            continue
        if name == "content":
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
            found.append(history.FieldChange(field=name, diff="\n".join(lines) + "\n"))
        else:
            found.append(history.FieldChange(field=name, old_value=before, new_value=after))
    return found


class FakeHistory(FakeStates, HistoryServiceServicer):
    """History as a chain of first parents."""

    def _chain(self, space: FakeWorkspace, revision: str) -> list[FakeCommit]:
        chain = []
        commit_id = resolve(space, revision)
        while commit_id:
            commit = space.commits[commit_id]
            chain.append(commit)
            commit_id = commit.message.parent_ids[0] if commit.message.parent_ids else ""
        return chain

    def _told(self, space: FakeWorkspace, commit: FakeCommit) -> history.Commit:
        message = history.Commit()
        message.CopyFrom(commit.message)
        message.tags.extend(tag.name for tag in space.tags.values() if tag.commit_id == message.id)
        return message

    def _changed(self, space: FakeWorkspace, commit: FakeCommit) -> list[Any]:
        return changed(self._before(space, commit), commit.state)

    def _before(self, space: FakeWorkspace, commit: FakeCommit) -> State:
        return space.commits[commit.message.parent_ids[0]].state if commit.message.parent_ids else State()

    def _entries(self, old: State, new: State, *, fields: bool = False) -> list[history.EntryChange]:
        entries = []
        for entry_id, kind, was, now in changed(old, new):
            entry: Any = now or was
            is_archive = isinstance(entry, types.Archive)
            change = history.EntryChange(
                node_id=entry_id,
                kind=kind,
                title=entry.name if is_archive else entry.title,
                is_archive=is_archive,
                summary="The content was changed.",
            )
            if fields and not is_archive:
                change.fields.extend(_fields(was, now))
            entries.append(change)
        return entries

    def ListCommits(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        since = request.since.ToNanoseconds()
        until = request.until.ToNanoseconds() if request.HasField("until") else float("inf")
        found = [
            self._told(space, commit)
            for commit in self._chain(space, request.revision)
            if request.author.lower() in commit.message.author.name.lower()
            and since <= commit.message.commit_time.ToNanoseconds() < until
            and any(each[0].startswith(request.node_id) for each in [("",), *self._changed(space, commit)])
        ]
        return listed(history.ListCommitsResponse, "commits", found, request)

    def GetCommit(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        commit = space.commits[resolve(space, request.revision)]
        changes = self._entries(self._before(space, commit), commit.state)
        return history.GetCommitResponse(commit=self._told(space, commit), changes=changes, change_count=len(changes))

    def ListNodeRevisions(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        found = [
            history.NodeRevision(commit=self._told(space, commit), kind=kind, node=now)
            for commit in self._chain(space, request.revision)
            for entry_id, kind, _, now in self._changed(space, commit)
            if entry_id.startswith(request.node_id)
        ]
        return listed(history.ListNodeRevisionsResponse, "revisions", found, request)

    def DiffRevisions(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        new = state_of(space, request.new_revision)
        if request.old_revision:
            old = state_of(space, request.old_revision)
        elif request.new_revision in space.sessions:
            old = space.commits[resolve(space, request.new_revision)].state
        else:
            old = self._before(space, space.commits[resolve(space, request.new_revision)])
        entries = self._entries(old, new, fields=request.include_fields)
        entries = [each for each in entries if each.node_id.startswith(request.node_id)]
        summary = f"{len(entries)} entries differ."
        return listed(history.DiffRevisionsResponse, "changes", entries, request, summary=summary)

    def CreateBranch(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.name in space.branches:
            raise taken("branch", request.name)
        space.branches[request.name] = resolve(space, request.revision)
        branch = history.Branch(name=request.name, commit_id=space.branches[request.name])
        return history.CreateBranchResponse(branch=branch)

    def ListBranches(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        found = [
            history.Branch(name=name, commit_id=commit_id, protected=name == "main")
            for name, commit_id in sorted(space.branches.items())
        ]
        return listed(history.ListBranchesResponse, "branches", found, request)

    def DeleteBranch(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.name == "main":
            raise unmet("main is protected.", "PROTECTED_BRANCH")
        if space.branches.pop(request.name, None) is None:
            raise not_found("branch", request.name)
        return history.DeleteBranchResponse(detached_sessions=1)

    def _tag(self, space: FakeWorkspace, name: str, commit_id: str, message: str = "") -> history.Tag:
        tag = history.Tag(name=name, commit_id=commit_id, message=message or name)
        tag.create_time.FromSeconds(1_800_000_000)
        space.tags[name] = tag
        return tag

    def CreateTag(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        tag = self._tag(space, request.name, resolve(space, request.revision), request.message)
        return history.CreateTagResponse(tag=tag)

    def ListTags(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        return listed(history.ListTagsResponse, "tags", [space.tags[name] for name in sorted(space.tags)], request)

    def DeleteTag(self, request: Any, context: Any) -> Any:
        del self.space(request.workspace).tags[request.name]
        return history.DeleteTagResponse()


class FakePlaces(FakeHistory, WorkspaceServiceServicer, SessionServiceServicer, MaintenanceServiceServicer):
    """The services for workspaces, archives, sessions and maintenance."""

    def CreateWorkspace(self, request: Any, context: Any) -> Any:
        if request.name in self.spaces:
            raise taken("workspace", request.name)
        message = workspaces.Workspace(id=fresh_id(), name=request.name, description=request.description)
        message.default_branch, message.repository = "main", f"repositories/{request.name}.git"
        message.create_time.FromSeconds(1_800_000_000)
        space = FakeWorkspace(message)
        space.branches["main"] = space.commit([], "Begin", types.CommitAuthor(name="MemoTree"), State(), "")
        self.spaces[request.name] = space
        return workspaces.CreateWorkspaceResponse(workspace=message)

    def GetWorkspace(self, request: Any, context: Any) -> Any:
        return workspaces.GetWorkspaceResponse(workspace=self.space(request.workspace).message)

    def ListWorkspaces(self, request: Any, context: Any) -> Any:
        found = [self.spaces[name].message for name in sorted(self.spaces)]
        return listed(workspaces.ListWorkspacesResponse, "workspaces", found, request)

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
        return workspaces.GetArchiveResponse(archive=self.state(request).archive(request.archive))

    def ListArchives(self, request: Any, context: Any) -> Any:
        found = sorted(self.state(request).archives.values(), key=lambda each: each.name)
        return listed(workspaces.ListArchivesResponse, "archives", found, request)

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
        return sessions.GetSessionResponse(session=self._session_told(space, self.session_of(request)))

    def ListSessions(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        found = [
            self._session_told(space, session)
            for session in space.sessions.values()
            if request.include_closed or session.message.state == sessions.SESSION_STATE_OPEN
        ]
        return listed(sessions.ListSessionsResponse, "sessions", found, request)

    def ListChanges(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        session = self.session_of(request)
        staged = [
            sessions.StagedChange(
                node_id=each.node_id,
                kind=each.kind,
                title=each.title,
                is_archive=each.is_archive,
                fields=["content"] if each.kind == types.CHANGE_KIND_UPDATED else [],
                commit_messages=session.reasons.get(each.node_id, []),
            )
            for each in self._entries(space.commits[session.message.base_commit_id].state, session.state)
        ]
        return listed(sessions.ListChangesResponse, "changes", staged, request)

    def DiscardChanges(self, request: Any, context: Any) -> Any:
        space, session = self.space(request.workspace), self.session_of(request)
        base = space.commits[session.message.base_commit_id].state
        for node_id in [each for each in session.state.nodes if each.startswith(tuple(request.node_ids))]:
            assert node_id not in base.nodes, "the tests discard only what they have created"
            del session.state.nodes[node_id]
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
        author = request.author if request.HasField("author") else types.CommitAuthor(name=session.message.agent)
        commit_id = space.commit([base], request.message, author, session.state.copy(), session.message.id)
        space.branches[session.message.branch] = commit_id
        session.message.base_commit_id = commit_id
        if request.create_tag:
            self._tag(space, request.tag_name, commit_id)
        return sessions.CommitChangesResponse(
            commit_id=commit_id, branch=session.message.branch, tag_name=request.tag_name, change_count=len(found)
        )

    def GetStatus(self, request: Any, context: Any) -> Any:
        stores = [
            maintenance.StoreStatus(name="git", healthy=True, embedded=True, detail="dulwich"),
            maintenance.StoreStatus(name="postgres", healthy=False, embedded=True, detail="does not answer"),
        ]
        return maintenance.GetStatusResponse(version="0.1.0", stores=stores, index_backlog=3)

    def VerifyWorkspace(self, request: Any, context: Any) -> Iterator[Any]:
        space = self.space(request.workspace)
        for done in (1, 2):
            progress = maintenance.Progress(step="reading Git", done=done, total=2)
            yield maintenance.VerifyWorkspaceResponse(progress=progress)
        if "damaged" in space.message.description:
            told = "A row is missing; run rebuild."
            missing = maintenance.Difference(store="postgres", what="row", node_id="abcd", description=told)
            yield maintenance.VerifyWorkspaceResponse(difference=missing)

    def RebuildWorkspace(self, request: Any, context: Any) -> Iterator[Any]:
        self.space(request.workspace)
        for done in range(3):
            progress = maintenance.Progress(step="writing rows", done=done, total=2)
            yield maintenance.RebuildWorkspaceResponse(progress=progress)
