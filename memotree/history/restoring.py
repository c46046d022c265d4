"""Restoring nodes, subtrees and archives from another revision, by a new commit or in a session."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from memotree_storage.commit.commit_restore import RestoreOrder, check_restored, restore_on_branch
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.state_merge import MergedEntry, StateMerge
from memotree_storage.mirror.state_restore import Restored, restore_entries
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history.committing import Committing, commit_of, head_of, message_of
from memotree.history.in_session import SessionMerge, stage_in_session
from memotree.history.merging import told_changes
from memotree.request import lookup
from memotree.request.pages import MAX_PAGE_SIZE
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import history_service_pb2 as pb

MOST_IDS: Final = 1000


class Restoring:
    """Restores nodes, subtrees and archives."""

    def __init__(self, store: Store, committing: Committing) -> None:
        self._store = store
        self._committing = committing

    async def restore(self, request: pb.RestoreNodesRequest) -> pb.RestoreNodesResponse:
        """Set nodes and archives to what they were at a revision."""
        _check(request)
        if request.session_id:
            return await self._in_session(request)
        message, identity = message_of(request.message), self._committing.identity(request)
        workspace = await self._committing.workspace(request.workspace)
        branch = request.branch or workspace.default_branch
        if request.validate_only:
            return await self._previewed(request, workspace, branch)

        async def make(transaction: WorkspaceTransaction) -> pb.RestoreNodesResponse:
            find = partial(_found, transaction.conn, transaction.workspace_id, request)
            merged = await restore_on_branch(transaction, RestoreOrder(branch, message, identity), find)
            return await _response(merged.commit_id, branch, merged.changes, merged.change_count)

        return await self._committing.run(workspace, branch, request, pb.RestoreNodesResponse, make)

    async def _in_session(self, request: pb.RestoreNodesRequest) -> pb.RestoreNodesResponse:
        if request.validate_only:
            raise InvalidInputError.at("validate_only", "tells of a branch; a session can be looked at and discarded.")

        async def restore(conn: Connection, _: CommitReader, session: Session) -> SessionMerge:
            source, restored = await _found(conn, session.workspace_id, request)
            merge = await self._restored(conn, session.tree, source, restored)
            if merge.is_empty:
                check_restored(merge, source)
            return SessionMerge(merge, None, f"As it was at commit {source.commit_id}.")

        def told(session: Session, merge: StateMerge, conflicts: int) -> pb.RestoreNodesResponse:
            return pb.RestoreNodesResponse(
                branch=session.branch,
                changes=told_changes(merge.changed[:MAX_PAGE_SIZE], fields=False),
                change_count=merge.change_count,
                conflict_count=conflicts,
            )

        return await stage_in_session(self._store, request, pb.RestoreNodesResponse, "restore_nodes", restore, told)

    async def _restored(self, conn: Connection, ours: State, source: State, restored: Restored) -> StateMerge:
        entries, max_depth = self._store.entries, self._store.max_depth
        return await restore_entries(conn, entries, ours, source, restored, max_depth=max_depth)

    async def _previewed(
        self, request: pb.RestoreNodesRequest, workspace: Workspace, branch: str
    ) -> pb.RestoreNodesResponse:
        workspace_id = workspace.workspace_id
        await mirror_pushed(self._store, workspace_id)
        async with self._store.database.repeatable_read() as conn:
            head = await head_of(conn, workspace_id, branch)
            source, restored = await _found(conn, workspace_id, request)
            merge = await self._restored(conn, head, source, restored)
        check_restored(merge, source)
        return await _response(head.commit_id, branch, merge.changed, merge.change_count)


def _check(request: pb.RestoreNodesRequest) -> None:
    lookup.needed("revision", request.revision)
    if not request.node_ids:
        raise InvalidInputError.at("node_ids", "is needed: name the nodes or archives to restore.")
    if len(request.node_ids) > MOST_IDS:
        raise InvalidInputError.at("node_ids", f"has more than {MOST_IDS}; restore what stands above them recursively.")
    if request.delete_others and not request.recursive:
        raise InvalidInputError.at("delete_others", "goes with recursive only.")


async def _found(conn: Connection, workspace_id: str, request: pb.RestoreNodesRequest) -> tuple[State, Restored]:
    """The commit that the request names, and the entries that were alive there.

    Raises:
        NodeNotFoundError: One of them was not.
    """
    source = State(workspace_id, await commit_of(conn, workspace_id, request.revision, "revision"))
    snapshot = Snapshot(conn, source)
    ids = [
        await lookup.full_id(snapshot, text, f"node_ids[{number}]", archives=True)
        for number, text in enumerate(request.node_ids)
    ]
    found = await tree.versions(snapshot, ids)
    for text, entry_id in zip(request.node_ids, ids, strict=True):
        if entry_id not in found:
            raise lookup.NodeNotFoundError(
                text, f"{entry_id} was not alive at {request.revision}. Give a revision at which it was."
            )
    return source, Restored(ids, below=request.recursive, removes_others=request.delete_others)


async def _response(commit_id: str, branch: str, changed: Sequence[MergedEntry], count: int) -> pb.RestoreNodesResponse:
    changes = await in_store_thread(told_changes, changed[:MAX_PAGE_SIZE], fields=False)
    return pb.RestoreNodesResponse(commit_id=commit_id, branch=branch, changes=changes, change_count=count)
