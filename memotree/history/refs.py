"""Branches and tags: made, listed and deleted in Git first, then told to the mirror, in the workspace's turn.

Dying between the two leaves a mirror that is behind; it is brought up to date before the next change and at the start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from memotree_storage.commit.transaction import workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.errors import AbortedError, FailedPreconditionError
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.validation import check_text
from memotree_storage.ports import Signature, TagDraft
from memotree_storage.postgres import history, projector, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import RefRow
from memotree_storage.postgres.registry import Workspace
from memotree_storage.store import Store

from memotree.history.log import committed
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import read_author, timestamp
from memotree.request.naming import (
    BRANCHES,
    TAGS,
    BranchExistsError,
    BranchNotFoundError,
    ConfusingNameError,
    TagExistsError,
    TagNotFoundError,
    check_branch_name,
    check_tag_name,
)
from memotree.request.pages import PageTokens, page_size
from memotree.v1 import history_service_pb2 as pb

_MESSAGE_BYTES: Final = 64 << 10

Response = TypeVar("Response")


class BranchProtectedError(FailedPreconditionError):
    """The branch refuses to be deleted."""

    reason = "BRANCH_PROTECTED"


class RefMovedError(AbortedError):
    """Another program moved the branch or tag at the same moment."""

    reason = "REF_MOVED"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} was moved at the same moment; nothing was deleted. Look at it and send this again.")


@dataclass(frozen=True, slots=True)
class _RefChange:
    """The right to change the refs of a workspace, with a mirror that is up to date."""

    conn: Connection
    workspace: Workspace
    repository: GitRepository
    commit_point: CommitPoint

    async def commit_of(self, revision: str) -> str:
        """The commit that a branch, tag or commit names."""
        _, resolved = await registry.resolve(self.conn, self.workspace.workspace_id, revision)
        return committed(resolved).state.commit_id

    async def find(self, prefix: str, name: str) -> RefRow | None:
        """The ref of that name."""
        return await history.find_ref(self.conn, self.workspace.workspace_id, prefix, name)

    async def put(self, ref: str, object_id: str, commit_id: str) -> bool:
        """Make a ref; ``False`` when somebody else has."""
        self.commit_point.reached = True
        if not await asyncio.to_thread(self.repository.move_ref, ref, None, object_id):
            return False
        await projector.put_ref(self.conn, self.workspace.workspace_id, ref, object_id, commit_id)
        return True

    async def remove(self, prefix: str, found: RefRow) -> None:
        """Delete a ref that is where it was found.

        Raises:
            RefMovedError: It is not any more.
        """
        self.commit_point.reached = True
        if not await asyncio.to_thread(self.repository.move_ref, prefix + found.name, found.object_id, None):
            raise RefMovedError(found.name)
        await self.conn.execute(
            "delete from mirror.ref where workspace_id = %s and name = %s",
            (self.workspace.workspace_id, prefix + found.name),
        )


class Refs:
    """Makes, lists and deletes branches and tags."""

    def __init__(self, store: Store, pages: PageTokens, limits: ServiceLimits) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits

    async def create_branch(self, request: pb.CreateBranchRequest) -> pb.CreateBranchResponse:
        """A new name for a commit; nothing is copied."""
        check_branch_name(request.name)

        async def change(transaction: _RefChange) -> pb.CreateBranchResponse:
            if await transaction.find(BRANCHES, request.name):
                raise BranchExistsError(request.name)
            if await transaction.find(TAGS, request.name):
                raise ConfusingNameError.taken(request.name, TAGS + request.name)
            commit_id = await transaction.commit_of(request.revision)
            if not await transaction.put(BRANCHES + request.name, commit_id, commit_id):
                raise BranchExistsError(request.name)
            row = RefRow(request.name, commit_id, commit_id)
            return pb.CreateBranchResponse(branch=_branch_message(row, transaction.workspace))

        return await self._change_refs(request.workspace, change)

    async def list_branches(self, request: pb.ListBranchesRequest) -> pb.ListBranchesResponse:
        """Branches by name."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str})
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            after = cursor["after"] if cursor else ""
            rows = await history.list_refs(conn, workspace.workspace_id, BRANCHES, after=after, limit=size + 1)
        return pb.ListBranchesResponse(
            branches=[_branch_message(row, workspace) for row in rows[:size]],
            next_page_token=self._pages.write(request, {"after": rows[size - 1].name} if len(rows) > size else None),
        )

    async def delete_branch(self, request: pb.DeleteBranchRequest) -> pb.DeleteBranchResponse:
        """Take a branch away and detach its open sessions."""

        async def change(transaction: _RefChange) -> pb.DeleteBranchResponse:
            found = await transaction.find(BRANCHES, lookup.needed("name", request.name))
            if found is None:
                raise BranchNotFoundError(request.name)
            if found.name == transaction.workspace.default_branch:
                raise BranchProtectedError(f"{found.name!r} is the default branch of its workspace and stays.")
            await transaction.remove(BRANCHES, found)
            cursor = await transaction.conn.execute(
                "update work.session set state = 'detached' where workspace_id = %s and branch = %s and state = 'open'"
                " returning used_at + ttl >= now()",
                (transaction.workspace.workspace_id, found.name),
            )
            open_ones = sum(row[0] for row in await cursor.fetchall())
            return pb.DeleteBranchResponse(detached_sessions=open_ones)

        return await self._change_refs(request.workspace, change)

    async def create_tag(self, request: pb.CreateTagRequest) -> pb.CreateTagResponse:
        """An annotated tag of a commit."""
        check_tag_name(request.name)
        check_text("message", request.message, multiline=True, max_bytes=_MESSAGE_BYTES)
        now = datetime.now(UTC).replace(microsecond=0)
        service = Signature(self._limits.committer_name, self._limits.committer_email, now)
        tagger = read_author(request.tagger, "tagger", service) if request.HasField("tagger") else service
        draft = TagDraft(request.name, (request.message.strip() or request.name) + "\n", tagger)

        async def change(transaction: _RefChange) -> pb.CreateTagResponse:
            if await transaction.find(TAGS, request.name):
                raise TagExistsError(request.name)
            if await transaction.find(BRANCHES, request.name):
                raise ConfusingNameError.taken(request.name, BRANCHES + request.name)
            commit_id = await transaction.commit_of(request.revision)
            tag_id = await asyncio.to_thread(transaction.repository.write_tag, draft, commit_id)
            if not await transaction.put(TAGS + request.name, tag_id, commit_id):
                raise TagExistsError(request.name)
            return pb.CreateTagResponse(tag=_tag_message(RefRow(request.name, tag_id, commit_id), draft))

        return await self._change_refs(request.workspace, change)

    async def list_tags(self, request: pb.ListTagsRequest) -> pb.ListTagsResponse:
        """Tags by name."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str})
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            after = cursor["after"] if cursor else ""
            rows = await history.list_refs(conn, workspace.workspace_id, TAGS, after=after, limit=size + 1)
        repository = await asyncio.to_thread(self._store.repositories.get, workspace.workspace_id)
        shown = rows[:size]
        drafts = await asyncio.to_thread(lambda: [_read_tag(repository, row) for row in shown])
        return pb.ListTagsResponse(
            tags=[_tag_message(row, draft) for row, draft in zip(shown, drafts, strict=True)],
            next_page_token=self._pages.write(request, {"after": rows[size - 1].name} if len(rows) > size else None),
        )

    async def delete_tag(self, request: pb.DeleteTagRequest) -> pb.DeleteTagResponse:
        """Take a tag away."""

        async def change(transaction: _RefChange) -> pb.DeleteTagResponse:
            found = await transaction.find(TAGS, lookup.needed("name", request.name))
            if found is None:
                raise TagNotFoundError(request.name)
            await transaction.remove(TAGS, found)
            return pb.DeleteTagResponse()

        return await self._change_refs(request.workspace, change)

    async def _change_refs(self, workspace: str, change: Callable[[_RefChange], Awaitable[Response]]) -> Response:
        async def run(commit_point: CommitPoint) -> Response:
            async with self._store.database.connection() as conn:
                found = await registry.find_workspace(conn, lookup.needed("workspace", workspace))
            async with workspace_transaction(self._store, found.workspace_id, commit_point) as transaction:
                return await change(_RefChange(transaction.conn, found, transaction.repository, commit_point))

        return await finish_past_commit_point(run)


def _branch_message(row: RefRow, workspace: Workspace) -> pb.Branch:
    return pb.Branch(name=row.name, commit_id=row.commit_id, protected=row.name == workspace.default_branch)


def _tag_message(row: RefRow, draft: TagDraft | None) -> pb.Tag:
    return pb.Tag(
        name=row.name,
        commit_id=row.commit_id,
        message=draft.message.rstrip("\n") if draft else "",
        create_time=timestamp(draft.tagger.when) if draft else None,
    )


def _read_tag(repository: GitRepository, row: RefRow) -> TagDraft | None:
    """The tag's own object, which says when and why; a lightweight tag has none."""
    if row.object_id == row.commit_id:
        return None
    try:
        return repository.read_tag(row.object_id)
    except ObjectMissingError:
        return None  # moved with git since it was mirrored, and pruned
