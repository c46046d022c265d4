"""Merging a revision into a branch, and telling before what that would do."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from memotree_storage.commit.branch_merge import MergeOrder, MergeStyle, merge_into_branch
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.concurrency.threads import in_comparison_thread, in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.change_selection import Selection
from memotree_storage.mirror.state_merge import MergedEntry, StateMerge, merge_states
from memotree_storage.ports import CommitReader
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.history.committing import Committing, commit_of, head_of, message_of
from memotree.history.entry_diff import entry_change
from memotree.history.in_session import SessionMerge, stage_in_session
from memotree.history.selecting import read_selection
from memotree.request import lookup
from memotree.request.conflicts import conflict_message
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.sessions.merged_summaries import with_renewed_summary
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import history_service_pb2 as pb

_STYLES: Final = {
    pb.MERGE_STYLE_UNSPECIFIED: MergeStyle.COMMIT,
    pb.MERGE_STYLE_COMMIT: MergeStyle.COMMIT,
    pb.MERGE_STYLE_FAST_FORWARD: MergeStyle.FAST_FORWARD,
    pb.MERGE_STYLE_SQUASH: MergeStyle.SQUASH,
}


def read_style(style: pb.MergeStyle.ValueType) -> MergeStyle:
    """The style of a request; a commit if it gives none.

    Raises:
        InvalidInputError: The number is no style.
    """
    found = _STYLES.get(style)
    if found is None:
        raise InvalidInputError.at("style", "is no MergeStyle.")
    return found


class Merging:
    """Merges branches."""

    def __init__(self, store: Store, pages: PageTokens, committing: Committing) -> None:
        self._store = store
        self._pages = pages
        self._committing = committing

    async def preview(self, request: pb.PreviewMergeRequest) -> pb.PreviewMergeResponse:
        """What the merge would change, and its conflicts; later pages are of the commits of the first one."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"ours": str, "theirs": str, "after": str, "conflict": int})
        lookup.needed("source", request.source)
        selection = read_selection(request)
        workspace = await self._committing.workspace(request.workspace)
        if not cursor:
            await mirror_pushed(self._store, workspace.workspace_id)
        # One snapshot, since a fast-forward meanwhile gives commits other places in the mirror.
        async with self._store.database.repeatable_read() as conn:
            if cursor:
                ours, theirs = State(workspace.workspace_id, cursor["ours"]), cursor["theirs"]
            else:
                ours = await head_of(conn, workspace.workspace_id, request.branch or workspace.default_branch)
                theirs = await commit_of(conn, workspace.workspace_id, request.source, "source")
            repository = await in_store_thread(self._store.repositories.get, workspace.workspace_id)
            merge = await self._merge_states(conn, repository, ours, theirs, selection)
        after, at = (cursor["after"], cursor["conflict"]) if cursor else ("", 0)
        return await self._previewed(request, merge, after, at, size)

    async def _merge_states(
        self, conn: Connection, repository: CommitReader, ours: State, theirs: str, selection: Selection | None
    ) -> StateMerge:
        return await merge_states(
            *(conn, self._store.entries, repository, ours, theirs),
            max_depth=self._store.max_depth,
            renew=with_renewed_summary,
            selection=selection,
        )

    async def _previewed(
        self, request: pb.PreviewMergeRequest, merge: StateMerge, after: str, at: int, size: int
    ) -> pb.PreviewMergeResponse:
        """One page: the changes of the entries above ``after``, and the conflicts from number ``at`` on."""
        changed = merge.changed
        some = [change for change in changed if change.entry_id > after][:size]
        told = in_comparison_thread if request.include_fields else in_store_thread
        changes = await told(told_changes, some, fields=request.include_fields)
        conflicts = fitting(conflict_message(conflict) for conflict in merge.conflicts[at : at + size])
        last = changes[-1].node_id if changes else after
        at += len(conflicts)
        more = at < len(merge.conflicts) or any(change.entry_id > last for change in changed)
        where = {"ours": merge.ours, "theirs": merge.theirs, "after": last, "conflict": at}
        return pb.PreviewMergeResponse(
            source_commit_id=merge.theirs,
            branch_commit_id=merge.ours,
            base_commit_ids=merge.bases,
            already_merged=merge.is_merged,
            fast_forward_possible=merge.is_fast_forward and not merge.is_merged,
            changes=changes,
            change_count=len(changed),
            conflicts=conflicts,
            conflict_count=len(merge.conflicts),
            next_page_token=self._pages.write(request, where if more else None),
        )

    async def merge(self, request: pb.MergeBranchRequest) -> pb.MergeBranchResponse:
        """Merge; once its work has begun, a cancellation waits for the end."""
        source = lookup.needed("source", request.source)
        style = read_style(request.style)
        selection = read_selection(request)
        if selection is not None and request.style == pb.MERGE_STYLE_UNSPECIFIED:
            style = MergeStyle.SQUASH
        if selection is not None and style is not MergeStyle.SQUASH:
            raise InvalidInputError.at(
                "style", "must be SQUASH with only: other styles say that all of the other side is merged."
            )
        if request.session_id:
            return await self._in_session(request, style, selection)
        message, identity = message_of(request.message), self._committing.identity(request)
        workspace = await self._committing.workspace(request.workspace)
        branch = request.branch or workspace.default_branch
        order = MergeOrder(branch, source, style, message, identity, with_renewed_summary, selection)

        async def make(transaction: WorkspaceTransaction) -> pb.MergeBranchResponse:
            find_commit = partial(commit_of, transaction.conn, transaction.workspace_id, source, "source")
            merged = await merge_into_branch(transaction, order, find_commit)
            return pb.MergeBranchResponse(
                commit_id=merged.commit_id,
                branch=branch,
                change_count=merged.change_count,
                already_merged=not merged.is_new,
            )

        return await self._committing.run(workspace, branch, request, pb.MergeBranchResponse, make)

    async def _in_session(
        self, request: pb.MergeBranchRequest, style: MergeStyle, selection: Selection | None
    ) -> pb.MergeBranchResponse:
        if style is MergeStyle.FAST_FORWARD:
            raise InvalidInputError.at("style", "FAST_FORWARD moves a branch, so it cannot be staged in a session.")

        async def merge_onto(conn: Connection, repository: CommitReader, session: Session) -> SessionMerge:
            theirs = await commit_of(conn, session.workspace_id, request.source, "source")
            merge = await self._merge_states(conn, repository, session.tree, theirs, selection)
            merged = None if style is MergeStyle.SQUASH or merge.is_merged else theirs
            return SessionMerge(merge, merged, f"Merge {request.source}")

        def told(session: Session, merge: StateMerge, conflicts: int) -> pb.MergeBranchResponse:
            return pb.MergeBranchResponse(
                branch=session.branch,
                change_count=merge.change_count,
                already_merged=merge.is_merged,
                conflict_count=conflicts,
            )

        return await stage_in_session(self._store, request, pb.MergeBranchResponse, "merge_branch", merge_onto, told)


def told_changes(changes: Sequence[MergedEntry], *, fields: bool) -> list[pb.EntryChange]:
    """The changes, as many as fit into a page."""
    return fitting(entry_change(change.ours, change.entry, fields=fields) for change in changes)
