"""Reverting a commit, and bringing one from elsewhere into a branch."""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from memotree_storage.commit.commit_pick import Pick, PickOrder, conflict_error, pick_commit, preview_pick
from memotree_storage.commit.transaction import WorkspaceTransaction, repository_of
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.change_selection import Selection
from memotree_storage.mirror.state_merge import MergedEntry, StateMerge
from memotree_storage.ports import CommitReader
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.history.committing import Committing, commit_of, head_of, message_of
from memotree.history.in_session import SessionMerge, stage_in_session
from memotree.history.merging import told_changes
from memotree.history.selecting import read_selection
from memotree.request import lookup
from memotree.request.pages import MAX_PAGE_SIZE
from memotree.sessions.merged_summaries import with_renewed_summary
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import history_service_pb2 as pb

Request = pb.RevertCommitRequest | pb.CherryPickRequest
Response = TypeVar("Response", pb.RevertCommitResponse, pb.CherryPickResponse)


class Picking:
    """Reverts and cherry-picks commits."""

    def __init__(self, store: Store, committing: Committing) -> None:
        self._store = store
        self._committing = committing

    async def revert(self, request: pb.RevertCommitRequest) -> pb.RevertCommitResponse:
        """Take the changes of a commit back."""
        return await self._run(request, pb.RevertCommitResponse, reverts=True)

    async def cherry_pick(self, request: pb.CherryPickRequest) -> pb.CherryPickResponse:
        """Bring the changes of a commit in; it keeps its author unless another is given."""
        return await self._run(request, pb.CherryPickResponse, reverts=False)

    async def _run(self, request: Request, response_type: type[Response], *, reverts: bool) -> Response:
        lookup.needed("revision", request.revision)
        selection = read_selection(request)
        if request.session_id and request.validate_only:
            raise InvalidInputError.at("validate_only", "tells of a branch; a session can be looked at and discarded.")
        if request.session_id:
            return await self._in_session(request, response_type, reverts=reverts)
        message, identity = message_of(request.message), self._committing.identity(request)
        workspace = await self._committing.workspace(request.workspace)
        branch = request.branch or workspace.default_branch
        if request.validate_only:
            return await self._previewed(request, response_type, workspace, branch, reverts=reverts)

        async def make(transaction: WorkspaceTransaction) -> Response:
            conn, workspace_id = transaction.conn, transaction.workspace_id
            keeps_author = not reverts and not request.HasField("author")
            pick = Pick("", request.parent_number, reverts)
            order = PickOrder(branch, pick, message, identity, keeps_author, with_renewed_summary, selection)
            merged = await pick_commit(
                transaction, order, partial(commit_of, conn, workspace_id, request.revision, "revision")
            )
            return await _response(response_type, merged.commit_id, branch, merged.changes, merged.change_count)

        return await self._committing.run(workspace, branch, request, response_type, make)

    async def _in_session(self, request: Request, response_type: type[Response], *, reverts: bool) -> Response:
        async def merge_onto(conn: Connection, repository: CommitReader, session: Session) -> SessionMerge:
            commit_id = await commit_of(conn, session.workspace_id, request.revision, "revision")
            pick = Pick(commit_id, request.parent_number, reverts)
            merge = await self._picked(conn, repository, session.tree, pick, read_selection(request))
            return SessionMerge(merge, None, f"{'Revert' if reverts else 'Cherry-pick'} {commit_id}")

        def told(session: Session, merge: StateMerge, conflicts: int) -> Response:
            changes = told_changes(merge.changed[:MAX_PAGE_SIZE], fields=False)
            count = merge.change_count
            return response_type(branch=session.branch, changes=changes, change_count=count, conflict_count=conflicts)

        tool = "revert_commit" if reverts else "cherry_pick"
        return await stage_in_session(self._store, request, response_type, tool, merge_onto, told)

    async def _picked(
        self, conn: Connection, repository: CommitReader, ours: State, pick: Pick, selection: Selection | None
    ) -> StateMerge:
        return await preview_pick(
            *(conn, self._store.entries, repository, ours, pick),
            max_depth=self._store.max_depth,
            renew=with_renewed_summary,
            selection=selection,
        )

    async def _previewed(
        self, request: Request, response_type: type[Response], workspace: Workspace, branch: str, *, reverts: bool
    ) -> Response:
        workspace_id = workspace.workspace_id
        await mirror_pushed(self._store, workspace_id)
        repository = await repository_of(self._store, workspace_id)
        async with self._store.database.repeatable_read() as conn:
            head = await head_of(conn, workspace_id, branch)
            pick = Pick(
                await commit_of(conn, workspace_id, request.revision, "revision"), request.parent_number, reverts
            )
            merge = await self._picked(conn, repository, head, pick, read_selection(request))
        if merge.conflicts:
            raise conflict_error(merge)
        return await _response(response_type, head.commit_id, branch, merge.changed, merge.change_count)


async def _response(
    response_type: type[Response], commit_id: str, branch: str, changed: Sequence[MergedEntry], count: int
) -> Response:
    changes = await in_store_thread(told_changes, changed[:MAX_PAGE_SIZE], fields=False)
    return response_type(commit_id=commit_id, branch=branch, changes=changes, change_count=count)
