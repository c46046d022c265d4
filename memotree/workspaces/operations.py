"""Creates, reads, changes and deletes workspaces and archives."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from memotree_storage import faults
from memotree_storage.commit.transaction import transaction, workspace_transaction
from memotree_storage.commit.workspaces import (
    create_workspace_in_transaction,
    delete_workspace,
    describe_workspace,
    repair_creation,
)
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point, retry_until_done
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import AlreadyExistsError, FailedPreconditionError, UnavailableError
from memotree_storage.model.node import Archive, is_id, new_id
from memotree_storage.model.validation import check_text
from memotree_storage.model.workspace import WorkspaceInfo
from memotree_storage.postgres import archive_versions, projector, registry, staging, tree
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.requests import NO_WORKSPACE
from memotree_storage.postgres.rows import ArchiveVersion
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.idempotency import request_mark, run_once
from memotree.request.limits import ServiceLimits
from memotree.request.messages import archive_message, timestamp
from memotree.request.naming import check_workspace_name
from memotree.request.pages import PageTokens, page_size
from memotree.request.principal import principal
from memotree.sessions import dangling
from memotree.sessions.editing import SessionEditor, check_etag, edit_session
from memotree.v1 import workspace_service_pb2 as pb

_DESCRIPTION_CHARS = 2000
_MOST_TOLD = 10


class ArchiveExistsError(AlreadyExistsError):
    """An archive with that name or id exists."""

    reason = "ARCHIVE_EXISTS"


class NotConfirmedError(FailedPreconditionError):
    """The deletion of a workspace was not confirmed by its name."""

    reason = "NOT_CONFIRMED"


class WorkspaceOperations:
    """Creates, reads, changes and deletes workspaces and archives.

    Args:
        store: The store.
        pages: Makes and reads page tokens.
        limits: What the service allows.
        on_deleted: Called with the id of a deleted workspace, to stop work on it.
    """

    def __init__(
        self,
        store: Store,
        pages: PageTokens,
        limits: ServiceLimits,
        on_deleted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits
        self._on_deleted = on_deleted

    async def create_workspace(self, request: pb.CreateWorkspaceRequest) -> pb.CreateWorkspaceResponse:
        """Create a workspace with an empty first commit."""
        check_workspace_name(request.name)
        check_text("description", request.description, multiline=True, max_chars=_DESCRIPTION_CHARS)
        info = WorkspaceInfo(new_id(), request.name, request.description, datetime.now(UTC).replace(microsecond=0))
        return await finish_past_commit_point(partial(self._create, request, info))

    async def _create(
        self, request: pb.CreateWorkspaceRequest, info: WorkspaceInfo, commit_point: CommitPoint
    ) -> pb.CreateWorkspaceResponse:
        what = f"workspace {info.name} is half made"
        async with transaction(
            self._store, commit_point, what, partial(repair_creation, self._store, info.workspace_id)
        ) as held:

            async def make() -> pb.CreateWorkspaceResponse:
                workspace = await create_workspace_in_transaction(held, info, request_mark(request))
                return pb.CreateWorkspaceResponse(workspace=self._message(workspace))

            response = await run_once(held.conn, NO_WORKSPACE, request, pb.CreateWorkspaceResponse, make)
        workspace_id = response.workspace.id
        try:
            await self._store.catch_up(workspace_id)
        except BaseException:
            if workspace_id == info.workspace_id:  # else an earlier call made it, and it stays whatever happens here
                self._later(what, partial(repair_creation, self._store, workspace_id))
            raise
        return response

    def _later(self, what: str, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._store.background.start(retry_until_done(what, work))

    async def get_workspace(self, request: pb.GetWorkspaceRequest) -> pb.GetWorkspaceResponse:
        """Read one workspace."""
        return pb.GetWorkspaceResponse(workspace=self._message(await self._find(request.workspace)))

    async def list_workspaces(self, request: pb.ListWorkspacesRequest) -> pb.ListWorkspacesResponse:
        """List the workspaces that the caller may read, by name."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"name": str})
        async with self._store.database.connection() as conn:
            found = await registry.list_workspaces(
                conn, after=cursor["name"] if cursor else "", limit=size + 1, ids=principal().readable
            )
        return pb.ListWorkspacesResponse(
            workspaces=[self._message(workspace) for workspace in found[:size]],
            next_page_token=self._pages.write(request, {"name": found[size - 1].name} if len(found) > size else None),
        )

    async def update_workspace(self, request: pb.UpdateWorkspaceRequest) -> pb.UpdateWorkspaceResponse:
        """Give a workspace another name or description."""
        return await finish_past_commit_point(partial(self._update, request))

    async def _update(
        self, request: pb.UpdateWorkspaceRequest, commit_point: CommitPoint
    ) -> pb.UpdateWorkspaceResponse:
        workspace = await self._find(request.workspace)
        repair = partial(self._register, workspace.workspace_id)
        async with workspace_transaction(
            self._store, workspace.workspace_id, commit_point, follow=False, admit=False, repair=repair
        ) as held:
            info = await in_store_thread(self._store.repositories.describe, workspace.workspace_id)
            message = "Describe the workspace"
            if request.HasField("name"):
                check_workspace_name(request.name)
                message = f"Rename the workspace from {info.name} to {request.name}"
                info = replace(info, name=request.name)
            if request.HasField("description"):
                check_text("description", request.description, multiline=True, max_chars=_DESCRIPTION_CHARS)
                info = replace(info, description=request.description)
            workspace = await describe_workspace(held, info, message)
        return pb.UpdateWorkspaceResponse(workspace=self._message(workspace))

    async def _register(self, workspace_id: str) -> None:
        """Copy the name and description from Git to the row."""
        info = await in_store_thread(self._store.repositories.describe, workspace_id)
        async with self._store.locks.workspaces.of(workspace_id), self._store.database.transaction() as conn:
            await registry.put_workspace(conn, info)

    async def delete_workspace(self, request: pb.DeleteWorkspaceRequest) -> pb.DeleteWorkspaceResponse:
        """Move a workspace's repository to the trash and delete its rows and points."""
        return await finish_past_commit_point(partial(self._delete, request))

    async def _delete(
        self, request: pb.DeleteWorkspaceRequest, commit_point: CommitPoint
    ) -> pb.DeleteWorkspaceResponse:
        workspace_id = (await self._find(request.workspace)).workspace_id
        repair = partial(self._forget, workspace_id)
        async with workspace_transaction(
            self._store, workspace_id, commit_point, follow=False, admit=False, repair=repair
        ) as held:
            workspace = await registry.find_workspace(held.conn, workspace_id)
            if request.confirm_name != workspace.name:
                raise NotConfirmedError(
                    f"confirm_name must be {workspace.name!r} to delete this workspace with all its history."
                )
            trash = await delete_workspace(held)
        self._store.forget_failures(workspace_id)
        self._store.forget_cached(workspace_id)
        self._on_deleted(workspace_id)
        try:
            faults.point("workspace.removed")
            await self._store.indexes.delete_points(workspace_id)
        except UnavailableError:  # the workspace is deleted, so no search asks for its points
            self._later(f"points of workspace {workspace_id} are left", partial(self._forget, workspace_id))
        return pb.DeleteWorkspaceResponse(trash=self._relative(trash))

    async def _forget(self, workspace_id: str) -> None:
        """Delete the rows and points of a workspace whose repository is in the trash."""
        if self._store.repositories.path(workspace_id).is_dir():
            return
        async with self._store.locks.workspaces.of(workspace_id), self._store.database.transaction() as conn:
            await projector.forget(conn, workspace_id)
            await registry.remove_workspace(conn, workspace_id)
        await self._store.indexes.delete_points(workspace_id)

    async def _find(self, workspace: str) -> Workspace:
        async with self._store.database.connection() as conn:
            return await registry.find_workspace(conn, lookup.needed("workspace", workspace))

    async def create_archive(self, request: pb.CreateArchiveRequest) -> pb.CreateArchiveResponse:
        """Stage a new archive."""

        async def make(editor: SessionEditor) -> pb.CreateArchiveResponse:
            archive = Archive(request.archive_id or new_id(), request.name, request.model_id, request.description)
            await _check_new(editor, archive)
            await editor.put_archive(archive, None, "")
            return pb.CreateArchiveResponse(archive=archive_message(await _reread(editor, archive.id)))

        return await edit_session(self._store, self._limits, request, pb.CreateArchiveResponse, "CreateArchive", make)

    async def get_archive(self, request: pb.GetArchiveRequest) -> pb.GetArchiveResponse:
        """Read one archive."""
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            return pb.GetArchiveResponse(
                archive=archive_message(await lookup.archive(Snapshot(conn, place.state), request.archive))
            )

    async def list_archives(self, request: pb.ListArchivesRequest) -> pb.ListArchivesResponse:
        """List archives by name."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"name": str, "id": str, **lookup.PINNED})
        async with self._store.database.connection() as conn:
            place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
            found = await archive_versions.archives(
                Snapshot(conn, place.state),
                after=(cursor["name"], cursor["id"]) if cursor else ("", ""),
                limit=size + 1,
            )
        last = found[size - 1] if len(found) > size else None
        return pb.ListArchivesResponse(
            archives=[archive_message(archive) for archive in found[:size]],
            next_page_token=self._pages.write(
                request, {"name": last.name, "id": last.entry_id, **lookup.pinned(place)} if last else None
            ),
        )

    async def update_archive(self, request: pb.UpdateArchiveRequest) -> pb.UpdateArchiveResponse:
        """Stage another name, model or description of an archive."""

        async def make(editor: SessionEditor) -> pb.UpdateArchiveResponse:
            found = await lookup.archive(editor.snapshot, request.archive)
            check_etag(found.version, request.etag)
            archive = found.archive
            if request.HasField("name"):
                archive = replace(archive, name=request.name)
                await _check_name_free(editor, archive)
            if request.HasField("model_id"):
                archive = replace(archive, model_id=request.model_id)
            if request.HasField("description"):
                archive = replace(archive, description=request.description)
            await editor.put_archive(archive, found.version, "")
            return pb.UpdateArchiveResponse(archive=archive_message(await _reread(editor, archive.id)))

        return await edit_session(self._store, self._limits, request, pb.UpdateArchiveResponse, "UpdateArchive", make)

    async def delete_archive(self, request: pb.DeleteArchiveRequest) -> pb.DeleteArchiveResponse:
        """Stage the removal of an archive and its nodes."""

        async def make(editor: SessionEditor) -> pb.DeleteArchiveResponse:
            archive = await lookup.archive(editor.snapshot, request.archive)
            check_etag(archive.version, request.etag)
            below = await tree.archive_tree(editor.snapshot, archive.entry_id)
            nodes = await tree.versions(editor.snapshot, [item.entry_id for item in below])
            # Roots of an archive that is gone are shown here, with what is below them. They are of no concern to it.
            guests = [key for key, version in nodes.items() if version.archive_id != archive.entry_id]
            own = {key: version for key, version in nodes.items() if version.archive_id == archive.entry_id}
            warnings = await dangling.warnings(editor, own)
            await editor.remove([*own.values(), archive.version], "")
            return pb.DeleteArchiveResponse(deleted_nodes=len(own), warnings=[*warnings, *_told_of_guests(guests)])

        return await edit_session(self._store, self._limits, request, pb.DeleteArchiveResponse, "DeleteArchive", make)

    def _message(self, workspace: Workspace) -> pb.Workspace:
        return pb.Workspace(
            id=workspace.workspace_id,
            name=workspace.name,
            description=workspace.description,
            create_time=timestamp(workspace.created_at),
            default_branch=workspace.default_branch,
            repository=self._relative(self._store.repositories.path(workspace.workspace_id)),
        )

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._store.data_folder).as_posix()


def _told_of_guests(ids: Sequence[str]) -> list[str]:
    """The warning about nodes that were shown in a deleted archive and belong to one that was gone before."""
    if not ids:
        return []
    told = f"{', '.join(ids[:_MOST_TOLD])}{' and others' if len(ids) > _MOST_TOLD else ''}"
    return [f"{len(ids)} nodes of an archive that is gone were shown in it and stay: {told}. ListFaults lists them."]


async def _check_new(editor: SessionEditor, archive: Archive) -> None:
    await _check_name_free(editor, archive)
    if is_id(archive.id) and await staging.id_was_used(editor.conn, editor.session, [archive.id]):
        raise ArchiveExistsError(f"The id {archive.id} was used before. Leave it empty for a fresh one.", "archive")


async def _check_name_free(editor: SessionEditor, archive: Archive) -> None:
    for other in await archive_versions.archives_named(editor.snapshot, [archive.name]):
        if other.entry_id != archive.id:
            raise ArchiveExistsError(
                f"Archive {other.entry_id} is named {archive.name!r} already. Choose another name.",
                "archive",
                archive.name,
            )


async def _reread(editor: SessionEditor, entry_id: str) -> ArchiveVersion:
    return ArchiveVersion.of((await tree.versions(editor.snapshot, [entry_id]))[entry_id])
