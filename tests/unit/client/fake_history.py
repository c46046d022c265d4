"""Commits, differences, branches and tags of the fake server."""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

import difflib
from typing import Any

import grpc
from unit.client.fake_places import paged
from unit.client.fake_state import FakeCommit, FakeWorkspace, RefusedError, State, changed, not_found, resolve, state_of

from memotree.v1 import history_service_pb2 as history
from memotree.v1 import types_pb2 as types
from memotree.v1.history_service_pb2_grpc import HistoryServiceServicer


class FakeHistory(HistoryServiceServicer):
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
        found = [
            self._told(space, commit)
            for commit in self._chain(space, request.revision)
            if request.author.lower() in commit.message.author.name.lower()
            and (
                not request.HasField("since")
                or commit.message.commit_time.ToNanoseconds() >= request.since.ToNanoseconds()
            )
            and (
                not request.HasField("until")
                or commit.message.commit_time.ToNanoseconds() < request.until.ToNanoseconds()
            )
            and (
                not request.node_id
                or any(
                    each[0].startswith(request.node_id) for each in changed(self._before(space, commit), commit.state)
                )
            )
        ]
        page, token = paged(found, request)
        return history.ListCommitsResponse(commits=page, next_page_token=token)

    def GetCommit(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        commit = space.commits[resolve(space, request.revision)]
        changes = self._entries(self._before(space, commit), commit.state)
        return history.GetCommitResponse(commit=self._told(space, commit), changes=changes, change_count=len(changes))

    def ListNodeRevisions(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        found = []
        for commit in self._chain(space, request.revision):
            for entry_id, kind, _, now in changed(self._before(space, commit), commit.state):
                if entry_id.startswith(request.node_id):
                    found.append(history.NodeRevision(commit=self._told(space, commit), kind=kind, node=now))
        page, token = paged(found, request)
        return history.ListNodeRevisionsResponse(revisions=page, next_page_token=token)

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
        if request.node_id:
            entries = [each for each in entries if each.node_id.startswith(request.node_id)]
        page, token = paged(entries, request)
        return history.DiffRevisionsResponse(
            changes=page, next_page_token=token, summary=f"{len(entries)} entries differ."
        )

    def CreateBranch(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.name in space.branches:
            raise RefusedError(grpc.StatusCode.ALREADY_EXISTS, f"There is a branch {request.name}.", "BRANCH_EXISTS")
        space.branches[request.name] = resolve(space, request.revision)
        branch = history.Branch(name=request.name, commit_id=space.branches[request.name])
        return history.CreateBranchResponse(branch=branch)

    def ListBranches(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        found = [
            history.Branch(name=name, commit_id=commit_id, protected=name == "main")
            for name, commit_id in sorted(space.branches.items())
        ]
        page, token = paged(found, request)
        return history.ListBranchesResponse(branches=page, next_page_token=token)

    def DeleteBranch(self, request: Any, context: Any) -> Any:
        space = self.space(request.workspace)
        if request.name == "main":
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "main is protected.", "PROTECTED_BRANCH")
        if space.branches.pop(request.name, None) is None:
            raise not_found("branch", request.name)
        return history.DeleteBranchResponse(detached_sessions=1)

    def _tag(self, space: FakeWorkspace, name: str, commit_id: str, message: str = "") -> history.Tag:
        if name in space.tags:
            raise RefusedError(grpc.StatusCode.ALREADY_EXISTS, f"There is a tag {name}; choose another.", "TAG_EXISTS")
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
        page, token = paged([space.tags[name] for name in sorted(space.tags)], request)
        return history.ListTagsResponse(tags=page, next_page_token=token)

    def DeleteTag(self, request: Any, context: Any) -> Any:
        if self.space(request.workspace).tags.pop(request.name, None) is None:
            raise not_found("tag", request.name)
        return history.DeleteTagResponse()


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
