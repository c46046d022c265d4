"""The branches and tags of a workspace, and merges of branches."""

from collections.abc import AsyncIterator

from memotree.client.enums import MergeStyle, MergeStyleName, to_wire
from memotree.client.errors import AlreadyExistsError
from memotree.client.history_values import Author, Branch, BranchMerge, BranchMergePreview, Tag
from memotree.client.paging import pages
from memotree.client.revision import MOST_PER_PAGE
from memotree.client.transport import Transport
from memotree.v1 import history_service_pb2 as history


class AsyncRefs:
    """Lists, makes, merges and deletes branches and tags of one workspace."""

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
        request_id: str = "",
    ) -> BranchMerge:
        """Merges a branch, tag or commit into a branch, three ways, per node and field.

        Args:
            source: What is merged.
            into: The branch that gets it; the default branch if empty.
            style: How it is recorded; by default as a commit with both sides as parents.
            message: The commit message; "Merge <source> into <branch>" if empty.
            author: The author of the commit.
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
            author=author.to_wire() if author else None,
            request_id=request_id,
        )
        return BranchMerge.from_wire(await self._transport.call(request, history.MergeBranchResponse))

    async def preview_merge(self, source: str, into: str = "", *, include_fields: bool = True) -> BranchMergePreview:
        """Tells what `merge` would do, without writing anything: the changes, and every conflict.

        Args:
            source: What would be merged.
            into: The branch that would get it; the default branch if empty.
            include_fields: Whether to include the fields that would change.
        """
        request = history.PreviewMergeRequest(
            workspace=self._workspace,
            source=source,
            branch=into,
            include_fields=include_fields,
            page_size=MOST_PER_PAGE if not include_fields else 0,
        )
        answers = pages(self._transport, request, history.PreviewMergeResponse, lambda page: [page])
        return BranchMergePreview.from_wire([page async for page in answers])

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
