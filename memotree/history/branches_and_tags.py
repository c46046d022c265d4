"""Branches and tags: creating, listing and deleting them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from memotree_storage.commit import refs
from memotree_storage.commit.transaction import WorkspaceTransaction, repository_of, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.git.protections import read_protections
from memotree_storage.model.protection import Protection, protection_of
from memotree_storage.model.validation import check_text
from memotree_storage.ports import CommitReader, Signature, TagDraft
from memotree_storage.postgres import registry
from memotree_storage.postgres.refs import BRANCHES, TAGS, RefRow, list_refs
from memotree_storage.postgres.registry import Workspace
from memotree_storage.store import Store

from memotree.history.log import committed
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import author_of, timestamp
from memotree.request.naming import check_branch_name, check_tag_name
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.v1 import history_service_pb2 as pb

_MESSAGE_BYTES: Final = 64 << 10

Response = TypeVar("Response")


class Refs:
    """Makes, lists and deletes branches and tags."""

    def __init__(self, store: Store, pages: PageTokens, limits: ServiceLimits) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits

    async def create_branch(self, request: pb.CreateBranchRequest) -> pb.CreateBranchResponse:
        """A new name for a commit; nothing is copied."""
        check_branch_name(request.name)

        async def change(transaction: WorkspaceTransaction, workspace: Workspace) -> pb.CreateBranchResponse:
            find_commit = partial(_commit_of, transaction, request.revision)
            row = await refs.create_branch(transaction, request.name, find_commit)
            protections = await in_store_thread(read_protections, transaction.repository)
            return pb.CreateBranchResponse(branch=_branch_message(row, workspace, protections))

        return await self._change_refs(request.workspace, change)

    async def list_branches(self, request: pb.ListBranchesRequest) -> pb.ListBranchesResponse:
        """Branches by name."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str})
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            after = cursor["after"] if cursor else ""
            rows = await list_refs(conn, workspace.workspace_id, BRANCHES, after=after, limit=size + 1)
        repository = await repository_of(self._store, workspace.workspace_id)
        protections = await in_store_thread(read_protections, repository)
        return pb.ListBranchesResponse(
            branches=[_branch_message(row, workspace, protections) for row in rows[:size]],
            next_page_token=self._pages.write(request, {"after": rows[size - 1].name} if len(rows) > size else None),
        )

    async def delete_branch(self, request: pb.DeleteBranchRequest) -> pb.DeleteBranchResponse:
        """Take a branch away and detach its open sessions."""

        async def change(transaction: WorkspaceTransaction, workspace: Workspace) -> pb.DeleteBranchResponse:
            name = lookup.needed("name", request.name)
            detached = await refs.delete_branch(transaction, name, default_branch=workspace.default_branch)
            return pb.DeleteBranchResponse(detached_sessions=detached)

        return await self._change_refs(request.workspace, change)

    async def create_tag(self, request: pb.CreateTagRequest) -> pb.CreateTagResponse:
        """An annotated tag of a commit."""
        check_tag_name(request.name)
        check_text("message", request.message, multiline=True, max_bytes=_MESSAGE_BYTES)
        now = datetime.now(UTC).replace(microsecond=0)
        service = Signature(self._limits.committer_name, self._limits.committer_email, now)
        tagger = author_of(request, service, "tagger")
        draft = TagDraft(request.name, (request.message.strip() or request.name) + "\n", tagger)

        async def change(transaction: WorkspaceTransaction, _: Workspace) -> pb.CreateTagResponse:
            row = await refs.create_tag(transaction, draft, partial(_commit_of, transaction, request.revision))
            return pb.CreateTagResponse(tag=_tag_message(row, draft))

        return await self._change_refs(request.workspace, change)

    async def list_tags(self, request: pb.ListTagsRequest) -> pb.ListTagsResponse:
        """Tags by name."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str})
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            after = cursor["after"] if cursor else ""
            rows = await list_refs(conn, workspace.workspace_id, TAGS, after=after, limit=size + 1)
        repository = await in_store_thread(self._store.repositories.get, workspace.workspace_id)
        found = await in_store_thread(_tag_messages, repository, rows[:size])
        more = len(found) < len(rows)
        return pb.ListTagsResponse(
            tags=found, next_page_token=self._pages.write(request, {"after": found[-1].name} if more else None)
        )

    async def delete_tag(self, request: pb.DeleteTagRequest) -> pb.DeleteTagResponse:
        """Take a tag away."""

        async def change(transaction: WorkspaceTransaction, _: Workspace) -> pb.DeleteTagResponse:
            name = lookup.needed("name", request.name)
            await refs.delete_tag(transaction, name)
            return pb.DeleteTagResponse()

        return await self._change_refs(request.workspace, change)

    async def _change_refs(
        self, workspace: str, change: Callable[[WorkspaceTransaction, Workspace], Awaitable[Response]]
    ) -> Response:
        async def run(commit_point: CommitPoint) -> Response:
            async with self._store.database.connection() as conn:
                found = await registry.find_workspace(conn, lookup.needed("workspace", workspace))
            async with workspace_transaction(self._store, found.workspace_id, commit_point) as transaction:
                response = await change(transaction, found)
            self._store.notice_commit(found.workspace_id)
            return response

        return await finish_past_commit_point(run)


async def _commit_of(transaction: WorkspaceTransaction, revision: str) -> str:
    """The commit that a branch, tag or commit names."""
    _, resolved = await registry.resolve(transaction.conn, transaction.workspace_id, revision)
    return committed(resolved).state.commit_id


def _branch_message(row: RefRow, workspace: Workspace, protections: Sequence[Protection]) -> pb.Branch:
    is_protected = row.name == workspace.default_branch or protection_of(protections, row.name) is not None
    return pb.Branch(name=row.name, commit_id=row.commit_id, protected=is_protected)


def _tag_message(row: RefRow, draft: TagDraft | None) -> pb.Tag:
    return pb.Tag(
        name=row.name,
        commit_id=row.commit_id,
        message=draft.message.rstrip("\n") if draft else "",
        create_time=timestamp(draft.tagger.when) if draft else None,
    )


def _tag_messages(repository: CommitReader, rows: Sequence[RefRow]) -> list[pb.Tag]:
    """The messages of the first tags, as many as fit into a page."""
    return fitting(_tag_message(row, _read_tag(repository, row)) for row in rows)


def _read_tag(repository: CommitReader, row: RefRow) -> TagDraft | None:
    """The tag's own object, which says when and why; a lightweight tag has none."""
    if row.object_id == row.commit_id:
        return None
    try:
        return repository.read_tag(row.object_id)
    except ObjectMissingError:
        return None  # moved with git since it was mirrored, and pruned
