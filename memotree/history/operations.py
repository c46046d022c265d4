"""The operations on history."""

from memotree_storage.store import Store

from memotree.history.answers import AnswerBisecting
from memotree.history.bisecting import Bisecting
from memotree.history.blame import Blame
from memotree.history.branches_and_tags import Refs
from memotree.history.committing import Committing, FollowingSummaries
from memotree.history.diff import Diff
from memotree.history.log import Log
from memotree.history.merging import Merging
from memotree.history.picking import Picking
from memotree.history.restoring import Restoring
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.v1 import history_service_pb2 as pb


class HistoryOperations:
    """Reads commits, revisions and differences; creates, lists, merges and deletes branches and tags."""

    def __init__(
        self,
        store: Store,
        pages: PageTokens,
        limits: ServiceLimits,
        summaries: FollowingSummaries | None = None,
    ) -> None:
        self._log = Log(store, pages)
        self._blame = Blame(store)
        self._bisecting = Bisecting(store, pages)
        self._answers = AnswerBisecting(store)
        self._diff = Diff(store, pages)
        self._refs = Refs(store, pages, limits)
        committing = Committing(store, limits, summaries)
        self._merging = Merging(store, pages, committing)
        self._picking = Picking(store, committing)
        self._restoring = Restoring(store, committing)

    async def list_commits(self, request: pb.ListCommitsRequest) -> pb.ListCommitsResponse:
        """List commits along the lineage of first parents, newest first."""
        return await self._log.commits(request)

    async def get_commit(self, request: pb.GetCommitRequest) -> pb.GetCommitResponse:
        """Read one commit and what it changes against its first parent."""
        return await self._log.commit(request)

    async def list_node_revisions(self, request: pb.ListNodeRevisionsRequest) -> pb.ListNodeRevisionsResponse:
        """List the versions of one node, newest first."""
        return await self._log.revisions(request)

    async def bisect_node(self, request: pb.BisectNodeRequest) -> pb.BisectNodeResponse:
        """List every commit at which a node, or one field of it, changed."""
        return await self._bisecting.changes(request)

    async def bisect_answer(self, request: pb.BisectAnswerRequest) -> pb.BisectAnswerResponse:
        """List every commit at which the answer to a question changed."""
        return await self._answers.changes(request)

    async def blame_node(self, request: pb.BlameNodeRequest) -> pb.BlameNodeResponse:
        """Return each line of a node's content with the commit and agent that wrote it."""
        return await self._blame.lines(request)

    async def diff_revisions(self, request: pb.DiffRevisionsRequest) -> pb.DiffRevisionsResponse:
        """Return what differs between two states."""
        return await self._diff.between(request)

    async def create_branch(self, request: pb.CreateBranchRequest) -> pb.CreateBranchResponse:
        """Create a branch."""
        return await self._refs.create_branch(request)

    async def list_branches(self, request: pb.ListBranchesRequest) -> pb.ListBranchesResponse:
        """List the branches, ordered by name."""
        return await self._refs.list_branches(request)

    async def delete_branch(self, request: pb.DeleteBranchRequest) -> pb.DeleteBranchResponse:
        """Delete a branch and detach its sessions."""
        return await self._refs.delete_branch(request)

    async def preview_merge(self, request: pb.PreviewMergeRequest) -> pb.PreviewMergeResponse:
        """Tell what a merge would do."""
        return await self._merging.preview(request)

    async def merge_branch(self, request: pb.MergeBranchRequest) -> pb.MergeBranchResponse:
        """Merge a revision into a branch."""
        return await self._merging.merge(request)

    async def revert_commit(self, request: pb.RevertCommitRequest) -> pb.RevertCommitResponse:
        """Take the changes of a commit back by a new commit."""
        return await self._picking.revert(request)

    async def cherry_pick(self, request: pb.CherryPickRequest) -> pb.CherryPickResponse:
        """Bring the changes of a commit into a branch by a new commit."""
        return await self._picking.cherry_pick(request)

    async def restore_nodes(self, request: pb.RestoreNodesRequest) -> pb.RestoreNodesResponse:
        """Set nodes and archives to what they were at a revision."""
        return await self._restoring.restore(request)

    async def create_tag(self, request: pb.CreateTagRequest) -> pb.CreateTagResponse:
        """Create an annotated tag."""
        return await self._refs.create_tag(request)

    async def list_tags(self, request: pb.ListTagsRequest) -> pb.ListTagsResponse:
        """List the tags, ordered by name."""
        return await self._refs.list_tags(request)

    async def delete_tag(self, request: pb.DeleteTagRequest) -> pb.DeleteTagResponse:
        """Delete a tag."""
        return await self._refs.delete_tag(request)
