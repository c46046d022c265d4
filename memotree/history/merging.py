"""Merging a revision into a branch, and telling before what that would do."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from memotree_storage.commit.branch_merge import MergeOrder, MergeStyle, merge_into_branch
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.transaction import WorkspaceTransaction, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_comparison_thread, in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.state_merge import MergedEntry, StateMerge, merge_states
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.history.entry_diff import entry_change
from memotree.history.log import committed
from memotree.request import lookup
from memotree.request.conflicts import conflict_message
from memotree.request.idempotency import request_mark, run_once
from memotree.request.limits import ServiceLimits
from memotree.request.messages import check_message, read_author
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import history_service_pb2 as pb

_AUTHOR: Final = "agent"
_STYLES: Final = {
    pb.MERGE_STYLE_UNSPECIFIED: MergeStyle.COMMIT,
    pb.MERGE_STYLE_COMMIT: MergeStyle.COMMIT,
    pb.MERGE_STYLE_FAST_FORWARD: MergeStyle.FAST_FORWARD,
    pb.MERGE_STYLE_SQUASH: MergeStyle.SQUASH,
}


class FollowingSummaries(Protocol):
    """Renews the summaries above what commits change."""

    def notice(self, workspace_id: str, branch: str, commit_id: str) -> None:
        """Note that a branch has a new commit."""
        ...


class Merging:
    """Merges branches."""

    def __init__(
        self, store: Store, pages: PageTokens, limits: ServiceLimits, summaries: FollowingSummaries | None
    ) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits
        self._summaries = summaries

    async def preview(self, request: pb.PreviewMergeRequest) -> pb.PreviewMergeResponse:
        """What the merge would change, and its conflicts; later pages are of the commits of the first one."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"ours": str, "theirs": str, "after": str, "conflict": int})
        lookup.needed("source", request.source)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
        if not cursor:
            await mirror_pushed(self._store, workspace.workspace_id)
        async with self._store.database.connection() as conn:
            if cursor:
                ours, theirs = State(workspace.workspace_id, cursor["ours"]), cursor["theirs"]
            else:
                ours = await _head(conn, workspace, request.branch)
                theirs = await _commit_of(conn, workspace.workspace_id, request.source)
            repository = await in_store_thread(self._store.repositories.get, workspace.workspace_id)
            merge = await merge_states(
                conn, self._store.entries, repository, ours, theirs, max_depth=self._store.max_depth
            )
        after, at = (cursor["after"], cursor["conflict"]) if cursor else ("", 0)
        return await self._previewed(request, merge, after, at, size)

    async def _previewed(
        self, request: pb.PreviewMergeRequest, merge: StateMerge, after: str, at: int, size: int
    ) -> pb.PreviewMergeResponse:
        """One page: the changes of the entries above ``after``, and the conflicts from number ``at`` on."""
        changed = [change for change in merge.changes if change.entry != change.ours]
        some = [change for change in changed if change.entry_id > after][:size]
        told = in_comparison_thread if request.include_fields else in_store_thread
        changes = await told(_told, some, fields=request.include_fields)
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
        style = _STYLES.get(request.style)
        if style is None:
            raise InvalidInputError.at("style", "is no MergeStyle.")
        message = check_message(request.message) if request.message.strip() else ""
        now = datetime.now(UTC).replace(microsecond=0)
        author = Signature(_AUTHOR, self._limits.author_email, now)
        if request.HasField("author"):
            author = read_author(request.author, "author", author)
        committer = Signature(self._limits.committer_name, self._limits.committer_email, now)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
        branch = request.branch or workspace.default_branch
        mark = request_mark(request)
        order = MergeOrder(branch, source, style, message, author, committer, mark)

        async def run(commit_point: CommitPoint) -> pb.MergeBranchResponse:
            async with workspace_transaction(self._store, workspace.workspace_id, commit_point) as transaction:
                return await run_once(
                    transaction.conn,
                    workspace.workspace_id,
                    request,
                    pb.MergeBranchResponse,
                    partial(self._merge, transaction, order),
                )

        response = await finish_past_commit_point(run)
        self._store.notice_commit(workspace.workspace_id)
        if self._summaries is not None and not response.already_merged:
            self._summaries.notice(workspace.workspace_id, branch, response.commit_id)
        return response

    @staticmethod
    async def _merge(transaction: WorkspaceTransaction, order: MergeOrder) -> pb.MergeBranchResponse:
        conn, workspace_id = transaction.conn, transaction.workspace_id
        find_commit = partial(_commit_of, conn, workspace_id, order.source)
        merged = await merge_into_branch(transaction, order, find_commit)
        return pb.MergeBranchResponse(
            commit_id=merged.commit_id,
            branch=order.branch,
            change_count=sum(change.entry != change.ours for change in merged.merge.changes),
            already_merged=not merged.is_new,
        )


async def _head(conn: Connection, workspace: Workspace, branch: str) -> State:
    name = branch or workspace.default_branch
    head = await refs.branch_head(conn, workspace.workspace_id, name)
    if head is None:
        raise BranchNotFoundError(name)
    return head


async def _commit_of(conn: Connection, workspace_id: str, revision: str) -> str:
    """The commit that a branch, tag or commit names."""
    _, resolved = await registry.resolve(conn, workspace_id, revision, "source")
    return committed(resolved).state.commit_id


def _told(changes: Sequence[MergedEntry], *, fields: bool) -> list[pb.EntryChange]:
    """The changes, as many as fit into a page."""
    return fitting(entry_change(change.ours, change.entry, fields=fields) for change in changes)
