"""The branches and tags of a workspace, and the commits that bring changes from one branch into another."""

from collections.abc import AsyncIterator, Iterable

from memotree.client.default_agent import default_agent
from memotree.client.enums import MergeStyle, MergeStyleName, to_wire
from memotree.client.errors import AlreadyExistsError
from memotree.client.history_values import (
    Author,
    Branch,
    BranchMerge,
    BranchMergePreview,
    ChangeSelection,
    PickedCommit,
    Tag,
)
from memotree.client.node_values import NodeRef, node_id
from memotree.client.paging import pages
from memotree.client.revision import MOST_PER_PAGE
from memotree.client.transport import Transport
from memotree.v1 import history_service_pb2 as history


class AsyncRefs:
    """Lists, makes, merges and deletes branches and tags of one workspace; reverts and picks commits."""

    _transport: Transport
    _workspace: str

    def branches(self) -> AsyncIterator[Branch]:
        """The branches, ordered by name."""
        request = history.ListBranchesRequest(workspace=self._workspace, page_size=MOST_PER_PAGE)
        return pages(
            self._transport, request, history.ListBranchesResponse, lambda page: map(Branch.from_wire, page.branches)
        )

    async def branch(self, name: str, at: str = "", *, exist_ok: bool = False) -> Branch:
        """Creates a branch; nothing is copied.

        Args:
            name: Its name.
            at: A branch, tag or commit; the default branch if empty.
            exist_ok: Whether a branch of that name may exist already, at any commit; then it is returned as it is.
        """
        request = history.CreateBranchRequest(workspace=self._workspace, name=name, revision=at)
        try:
            return Branch.from_wire((await self._transport.call(request, history.CreateBranchResponse)).branch)
        except AlreadyExistsError:
            if not exist_ok:
                raise
        return await anext(branch async for branch in self.branches() if branch.name == name)

    async def delete_branch(self, name: str) -> int:
        """Deletes a branch; returns how many open sessions were detached from it."""
        request = history.DeleteBranchRequest(workspace=self._workspace, name=name)
        return (await self._transport.call(request, history.DeleteBranchResponse)).detached_sessions

    async def merge(
        self,
        source: str,
        into: str = "",
        *,
        style: MergeStyleName | None = None,
        message: str = "",
        author: Author | None = None,
        only: ChangeSelection | None = None,
        request_id: str = "",
    ) -> BranchMerge:
        """Merges a branch, tag or commit into a branch, three ways, per node and field.

        Args:
            source: What is merged.
            into: The branch that gets it; the default branch if empty.
            style: How it is recorded; by default as a commit with both sides as parents.
            message: The commit message; "Merge <source> into <branch>" if empty.
            author: The author of the commit; your agent if ``None``.
            only: Which changes are brought, in a squashed merge; all if ``None``.
            request_id: An id of your choice for this call; a new one if empty.

        Raises:
            AbortedError: Both sides changed the same thing differently; ``conflicts`` lists it. Nothing was written.
        """
        request = history.MergeBranchRequest(
            workspace=self._workspace,
            source=source,
            branch=into,
            style=to_wire(MergeStyle, style),
            message=message,
            author=(author or Author(default_agent())).to_wire(),
            only=_wire(only),
            request_id=request_id,
        )
        return BranchMerge.from_wire(await self._transport.call(request, history.MergeBranchResponse))

    async def preview_merge(
        self, source: str, into: str = "", *, only: ChangeSelection | None = None, include_fields: bool = True
    ) -> BranchMergePreview:
        """Tells what `merge` would do, without writing anything: the changes, and every conflict.

        Args:
            source: What would be merged.
            into: The branch that would get it; the default branch if empty.
            only: Which changes would be brought; all if ``None``.
            include_fields: Whether to include the fields that would change.
        """
        request = history.PreviewMergeRequest(
            workspace=self._workspace,
            source=source,
            branch=into,
            include_fields=include_fields,
            only=_wire(only),
            page_size=MOST_PER_PAGE,  # the server merges again for each page
        )
        answers = pages(self._transport, request, history.PreviewMergeResponse, lambda page: [page])
        return BranchMergePreview.from_wire([page async for page in answers])

    async def revert(
        self,
        commit: str,
        branch: str = "",
        *,
        parent_number: int = 0,
        message: str = "",
        author: Author | None = None,
        only: ChangeSelection | None = None,
        preview: bool = False,
        request_id: str = "",
    ) -> PickedCommit:
        """Takes back on a branch what a commit changed, by a new commit. A revert can be reverted.

        Args:
            commit: The commit, or what names it: a unique prefix, a tag or a branch.
            branch: The branch that gets the new commit; the default branch if empty.
            parent_number: For a merge: the parent that its changes are counted from; 1 takes back what it brought.
            message: The commit message; 'Revert "<subject>"' if empty.
            author: The author of the new commit; your agent if ``None``.
            only: Which of its changes are meant; all if ``None``.
            preview: Tells only what would change; nothing is written.
            request_id: An id of your choice for this call; a new one if empty.

        Raises:
            AbortedError: The branch has changed the same since; ``conflicts`` lists it. Nothing was written.
        """
        request = history.RevertCommitRequest(
            workspace=self._workspace,
            revision=commit,
            branch=branch,
            parent_number=parent_number,
            message=message,
            author=(author or Author(default_agent())).to_wire(),
            only=_wire(only),
            validate_only=preview,
            request_id=request_id,
        )
        return PickedCommit.from_wire(await self._transport.call(request, history.RevertCommitResponse))

    async def cherry_pick(
        self,
        commit: str,
        branch: str = "",
        *,
        parent_number: int = 0,
        message: str = "",
        author: Author | None = None,
        only: ChangeSelection | None = None,
        preview: bool = False,
        request_id: str = "",
    ) -> PickedCommit:
        """Brings into a branch what a commit changed elsewhere, by a new commit.

        Args:
            commit: The commit, or what names it: a unique prefix, a tag or a branch.
            branch: The branch that gets the new commit; the default branch if empty.
            parent_number: For a merge: the parent that its changes are counted from.
            message: The commit message; the subject of the commit if empty.
            author: The author of the new commit; that of the commit if ``None``.
            only: Which of its changes are meant; all if ``None``.
            preview: Tells only what would change; nothing is written.
            request_id: An id of your choice for this call; a new one if empty.

        Raises:
            AbortedError: The branch has changed the same otherwise; ``conflicts`` lists it. Nothing was written.
        """
        request = history.CherryPickRequest(
            workspace=self._workspace,
            revision=commit,
            branch=branch,
            parent_number=parent_number,
            message=message,
            author=author.to_wire() if author else None,
            only=_wire(only),
            validate_only=preview,
            request_id=request_id,
        )
        return PickedCommit.from_wire(await self._transport.call(request, history.CherryPickResponse))

    async def restore_nodes(
        self,
        nodes: Iterable[NodeRef],
        revision: str,
        branch: str = "",
        *,
        recursive: bool = False,
        delete_others: bool = False,
        message: str = "",
        author: Author | None = None,
        preview: bool = False,
        request_id: str = "",
    ) -> PickedCommit:
        """Sets nodes and archives to what they were at a revision, by a new commit; ids are kept.

        Deleted ones come back, with what is missing above them.

        Args:
            nodes: The nodes or archives.
            revision: The commit (or what names it) at which they are as wanted.
            branch: The branch that gets the new commit; the default branch if empty.
            recursive: Whether all that stood below them there is restored, too.
            delete_others: Whether what stands below them now, but did not there, is deleted.
            message: The commit message; one that names what is restored if empty.
            author: The author of the new commit; your agent if ``None``.
            preview: Tells only what would change; nothing is written.
            request_id: An id of your choice for this call; a new one if empty.

        Raises:
            AbortedError: The result would be no tree; ``conflicts`` says why. Nothing was written.
        """
        request = history.RestoreNodesRequest(
            workspace=self._workspace,
            node_ids=[node_id(node) for node in nodes],
            revision=revision,
            branch=branch,
            recursive=recursive,
            delete_others=delete_others,
            message=message,
            author=(author or Author(default_agent())).to_wire(),
            validate_only=preview,
            request_id=request_id,
        )
        return PickedCommit.from_wire(await self._transport.call(request, history.RestoreNodesResponse))

    def tags(self) -> AsyncIterator[Tag]:
        """The tags, ordered by name."""
        request = history.ListTagsRequest(workspace=self._workspace, page_size=MOST_PER_PAGE)
        return pages(self._transport, request, history.ListTagsResponse, lambda page: map(Tag.from_wire, page.tags))

    async def tag(self, name: str, at: str = "", *, message: str = "", tagger: Author | None = None) -> Tag:
        """Creates an annotated tag at a branch, tag or commit (the default branch if empty)."""
        request = history.CreateTagRequest(
            workspace=self._workspace,
            name=name,
            revision=at,
            message=message,
            tagger=tagger.to_wire() if tagger else None,
        )
        return Tag.from_wire((await self._transport.call(request, history.CreateTagResponse)).tag)

    async def delete_tag(self, name: str) -> None:
        """Deletes a tag."""
        await self._transport.call(
            history.DeleteTagRequest(workspace=self._workspace, name=name), history.DeleteTagResponse
        )


def _wire(only: ChangeSelection | None) -> history.ChangeSelection | None:
    return None if only is None else only.to_wire()
