"""Two branches of one world, and the calls that bring changes from one into the other."""

from collections.abc import Mapping
from typing import Any

import pytest
from integration.histories import branch, git
from integration.worlds import World
from memotree_storage.commit.merge_commit import MergeConflictError
from memotree_storage.conflicts import Conflict
from memotree_storage.git.entry_files import EntryDecoder, entry_files
from memotree_storage.model.node import Entry
from memotree_storage.ports import CommitDraft, FileContent, Signature

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import session_service_pb2 as sessions_pb
from memotree.v1 import types_pb2


async def conflicts(world: World, session_id: str) -> list[types_pb2.Conflict]:
    """The conflicts that a session keeps."""
    request = sessions_pb.ListConflictsRequest(workspace=world.workspace, session_id=session_id)
    return list((await world.sessions.list_conflicts(request)).conflicts)


async def resolve(
    world: World, session_id: str, *resolutions: Mapping[str, Any], others: int = 0
) -> sessions_pb.Session:
    """Resolve conflicts of a session by name, and the others by a side."""
    request = sessions_pb.ResolveConflictsRequest(
        workspace=world.workspace,
        session_id=session_id,
        resolutions=resolutions,  # type: ignore[arg-type]  # as mappings
        others=others,  # type: ignore[arg-type]  # any number
    )
    return (await world.sessions.resolve_conflicts(request)).session


async def rebase(world: World, session_id: str) -> sessions_pb.Session:
    """Carry a session over to the head of its branch; conflicts are kept."""
    request = sessions_pb.RebaseSessionRequest(workspace=world.workspace, session_id=session_id, keep_conflicts=True)
    return (await world.sessions.rebase_session(request)).session


async def changes(world: World, session_id: str) -> list[sessions_pb.StagedChange]:
    """What a session has staged."""
    request = sessions_pb.ListChangesRequest(workspace=world.workspace, session_id=session_id)
    return list((await world.sessions.list_changes(request)).changes)


class Sides:
    """A world whose branch ``side`` forks from ``main`` after the first commit."""

    def __init__(self, world: World, history: HistoryOperations) -> None:
        self.world = world
        self.history = history

    async def fork(self, *entries: Entry) -> str:
        base = await self.world.put(*entries)
        await branch(self.history, self.world, "side")
        return base

    async def preview(self, source: str = "side", into: str = "", **fields: Any) -> pb.PreviewMergeResponse:
        request = pb.PreviewMergeRequest(workspace=self.world.workspace, source=source, branch=into, **fields)
        return await self.history.preview_merge(request)

    async def merge(self, source: str = "side", into: str = "", **fields: Any) -> pb.MergeBranchResponse:
        request = pb.MergeBranchRequest(workspace=self.world.workspace, source=source, branch=into, **fields)
        return await self.history.merge_branch(request)

    async def revert(self, revision: str = "main", **fields: Any) -> pb.RevertCommitResponse:
        request = pb.RevertCommitRequest(workspace=self.world.workspace, revision=revision, **fields)
        return await self.history.revert_commit(request)

    async def pick(self, revision: str, **fields: Any) -> pb.CherryPickResponse:
        request = pb.CherryPickRequest(workspace=self.world.workspace, revision=revision, **fields)
        return await self.history.cherry_pick(request)

    async def conflicts(self, source: str = "side", into: str = "") -> dict[tuple[str, str], Conflict]:
        """The conflicts of a merge that is refused, by node and field. The preview has them, and nothing is written."""
        before = git(self.world, "for-each-ref")
        with pytest.raises(MergeConflictError) as caught:
            await self.merge(source, into)
        previewed = await self.preview(source, into)
        found = {(one.node_id, one.field): one for one in caught.value.conflicts}
        assert {(one.node_id, one.field) for one in previewed.conflicts} == set(found)
        assert previewed.conflict_count == len(previewed.conflicts) == len(caught.value.conflicts)
        assert git(self.world, "for-each-ref") == before
        return found

    def commit(self, revision: str) -> str:
        return git(self.world, "rev-parse", revision).strip()

    def at(self, entry_id: str, revision: str = "main") -> Entry | None:
        """The entry in Git, if there is one."""
        files = entry_files(self.world.repository, self.commit(revision), [entry_id])[entry_id]
        return EntryDecoder(self.world.repository).decode(files[0]) if files else None

    async def write(self, files: dict[str, FileContent | None], onto: str = "main") -> str:
        """A commit that somebody makes with git."""
        head = self.commit(onto)
        by = Signature("A person", "person@example.org", self.world.repository.commit_info(head).author.when)
        draft = CommitDraft(head, files, "By hand\n", by, by)
        commit_id = self.world.repository.write_commit(draft).commit_id
        git(self.world, "update-ref", f"refs/heads/{onto}", commit_id)
        return commit_id
