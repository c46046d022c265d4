"""The documents of a workspace: how many, which, about one of them, and to delete one.

A document is an archive that was made by ingesting it; its attributes say where it came from. One that was joined with
others is a node of theirs, and is not found here. Everything goes through
the operations of the contract, so it is limited, versioned and logged as these are. To search what documents say, there
are ``recall`` and ``search_nodes``.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

from google.protobuf.descriptor import MethodDescriptor
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.attribute_names import DOCUMENT_ID, MEDIA_TYPE
from pydantic import Field

from memotree.client.errors import MemoTreeClientError
from memotree.client.errors import NotFoundError as NotFoundOnServer
from memotree.tools.declaration import Permission
from memotree.tools.function_tool import CallContext, tool
from memotree.v1 import node_service_pb2, session_service_pb2, types_pb2, workspace_service_pb2

_PAGE: Final = 1000
"""Archives that are read at once."""

_MOST_SHOWN: Final = 100
_MOST_TYPES: Final = 100
_MOST_CONTENTS: Final = 50
_LONGEST: Final = 1000

_UNKNOWN: Final = "unknown"

Workspace = Annotated[str, Field(max_length=_LONGEST, description="The default workspace when not given.")]
Revision = Annotated[str, Field(max_length=_LONGEST, description="A branch, tag or commit; the default branch else.")]
Where = Annotated[
    dict[str, str] | None,
    Field(description="Attributes that it must have, such as media_type, document_id or model_id.", max_length=20),
]
Document = Annotated[str, Field(min_length=1, max_length=_LONGEST)]
PageSize = Annotated[int, Field(ge=1, le=_MOST_SHOWN)]
Cursor = Annotated[str, Field(max_length=4096, description="next_page_token of the previous answer.")]

_READS: Final = (Permission("read", "workspace"),)


class NoSuchDocumentError(NotFoundError):
    """The workspace has no such document."""

    reason = "DOCUMENT_NOT_FOUND"

    def __init__(self, document: str) -> None:
        shown = document[:200]
        super().__init__(f"There is no document {shown!r}; list_documents shows them.", "document", shown)


@dataclass(frozen=True, slots=True)
class _Place:
    """A workspace at a revision, as whoever calls may read it."""

    context: CallContext
    workspace: str
    revision: str = ""

    async def page(self, token: str) -> workspace_service_pb2.ListArchivesResponse:
        request = workspace_service_pb2.ListArchivesRequest(
            workspace=self.workspace, revision=self.revision, page_size=_PAGE, page_token=token
        )
        found: Any = await self.context.operations.call(_method("WorkspaceService", "ListArchives"), request)
        return found  # type: ignore[no-any-return]

    async def documents(self, cursor: str = "") -> AsyncIterator[tuple[types_pb2.Archive, str]]:
        """The documents by name, each with the cursor that goes on after it."""
        skipped, token = _read_cursor(cursor)
        while True:
            page = await self.page(token)
            for number, archive in enumerate(page.archives[skipped:], skipped + 1):
                if DOCUMENT_ID in archive.attributes:
                    is_last = number == len(page.archives)
                    after = f"0:{page.next_page_token}" if is_last else f"{number}:{token}"
                    yield archive, "" if is_last and not page.next_page_token else after
            skipped, token = 0, page.next_page_token
            if not token:
                return

    async def document(self, named: str) -> types_pb2.Archive:
        """A document by the name or id of its archive, or by its document_id.

        Raises:
            NoSuchDocumentError: There is none.
        """
        request = workspace_service_pb2.GetArchiveRequest(
            workspace=self.workspace, archive=named, revision=self.revision
        )
        with suppress(NotFoundOnServer):
            found: Any = await self.context.operations.call(_method("WorkspaceService", "GetArchive"), request)
            if DOCUMENT_ID in found.archive.attributes:
                return found.archive  # type: ignore[no-any-return]
        async for archive, _ in self.documents():
            if archive.attributes[DOCUMENT_ID] == named:
                return archive
        raise NoSuchDocumentError(named)


class Documents:
    """Tells about the documents of a workspace."""

    @tool(
        category="documents",
        title="Count documents",
        read_only=True,
        permissions=_READS,
        examples=({}, {"where": {"media_type": "application/pdf"}}),
    )
    async def document_count(
        self, context: CallContext, where: Where = None, workspace: Workspace = "", revision: Revision = ""
    ) -> dict[str, Any]:
        """Count the documents that were taken in, in all and by their type."""
        kinds: Counter[str] = Counter()
        async for archive, _ in _place(context, workspace, revision).documents():
            if _fits(archive, where or {}):
                kinds[archive.attributes.get(MEDIA_TYPE, "") or _UNKNOWN] += 1
        return {"count": kinds.total(), "by_media_type": dict(kinds.most_common(_MOST_TYPES))}

    @tool(
        category="documents",
        title="List documents",
        read_only=True,
        permissions=_READS,
        examples=({"page_size": 20},),
    )
    async def list_documents(
        self,
        context: CallContext,
        page_size: Annotated[PageSize, Field(description="The most documents of one answer.")] = 20,
        page_token: Cursor = "",
        workspace: Workspace = "",
        revision: Revision = "",
    ) -> dict[str, Any]:
        """List the documents that were taken in, by name. To search what they say, use recall."""
        return await _listed(_place(context, workspace, revision), {}, page_size, page_token)

    @tool(
        category="documents",
        title="Find documents by their attributes",
        read_only=True,
        permissions=_READS,
        examples=({"where": {"media_type": "text/markdown"}},),
    )
    async def query_metadata(
        self,
        context: CallContext,
        where: Annotated[
            dict[str, str],
            Field(
                description="Attributes with their values, name and model_id among them.", min_length=1, max_length=20
            ),
        ],
        page_size: Annotated[PageSize, Field(description="The most documents of one answer.")] = 20,
        page_token: Cursor = "",
        workspace: Workspace = "",
        revision: Revision = "",
    ) -> dict[str, Any]:
        """Find the documents whose attributes have these values. To search what documents say, use recall."""
        return await _listed(_place(context, workspace, revision), where, page_size, page_token)

    @tool(
        category="documents",
        title="About a document",
        read_only=True,
        permissions=_READS,
        examples=({"document": "runbook.md"},),
    )
    async def document_info(
        self,
        context: CallContext,
        document: Annotated[Document, Field(description="Its name, its document_id, or the id of its archive.")],
        workspace: Workspace = "",
        revision: Revision = "",
    ) -> dict[str, Any]:
        """Tell about a document: its attributes, and the titles and summaries of its first parts."""
        place = _place(context, workspace, revision)
        archive = await place.document(document)
        request = node_service_pb2.ListChildrenRequest(
            workspace=place.workspace,
            revision=revision,
            archive=archive.id,
            level=types_pb2.LEVEL_OF_DETAIL_BRIEF,
            page_size=_MOST_CONTENTS,
        )
        found: Any = await context.operations.call(_method("NodeService", "ListChildren"), request)
        parts = [{"node_id": each.id, "title": each.title, "brief": each.brief} for each in found.nodes]
        more = {"more_parts": True} if found.next_page_token else {}
        return {**_described(archive), "attributes": dict(archive.attributes), "parts": parts, **more}

    @tool(
        category="documents",
        title="Delete a document",
        destructive=True,
        permissions=(Permission("delete", "workspace"),),
        examples=({"document": "runbook.md"},),
    )
    async def delete_document(
        self,
        context: CallContext,
        document: Annotated[Document, Field(description="Its name, its document_id, or the id of its archive.")],
        message: Annotated[str, Field(max_length=_LONGEST, description="Why, for the commit.")] = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Delete a document with all its nodes, in a commit. It stays in the history, from where it can be restored."""
        place = _place(context, workspace)
        archive = await place.document(document)
        call = context.operations.call
        opened: Any = await call(
            _method("SessionService", "OpenSession"),
            session_service_pb2.OpenSessionRequest(workspace=place.workspace, agent=context.agent),
        )
        session = opened.session.id
        try:
            deleted: Any = await call(
                _method("WorkspaceService", "DeleteArchive"),
                workspace_service_pb2.DeleteArchiveRequest(
                    workspace=place.workspace, session_id=session, archive=archive.id, etag=archive.etag
                ),
            )
            made: Any = await call(
                _method("SessionService", "CommitChanges"),
                session_service_pb2.CommitChangesRequest(
                    workspace=place.workspace,
                    session_id=session,
                    message=message or f"Delete the document {archive.name}",
                ),
            )
        finally:
            with suppress(MemoTreeClientError):  # what was not committed is nobody's
                discarded = session_service_pb2.DiscardSessionRequest(workspace=place.workspace, session_id=session)
                await call(_method("SessionService", "DiscardSession"), discarded)
        return {
            **_described(archive),
            "deleted_nodes": deleted.deleted_nodes,
            "commit_id": made.commit_id,
            "notes": [*deleted.warnings, *made.warnings],
        }


async def _listed(place: _Place, where: Mapping[str, str], page_size: int, cursor: str) -> dict[str, Any]:
    """A page of the documents with these attributes."""
    found: list[dict[str, Any]] = []
    after = ""
    async for archive, behind in place.documents(cursor):
        if not _fits(archive, where):
            continue
        if len(found) == page_size:
            return {"documents": found, "next_page_token": after}
        found.append(_described(archive))
        after = behind
    return {"documents": found}


def _described(archive: types_pb2.Archive) -> dict[str, Any]:
    return {
        "name": archive.name,
        "archive_id": archive.id,
        "document_id": archive.attributes.get(DOCUMENT_ID, ""),
        "media_type": archive.attributes.get(MEDIA_TYPE, "") or _UNKNOWN,
        "description": archive.description,
    }


def _fits(archive: types_pb2.Archive, where: Mapping[str, str]) -> bool:
    own = {"name": archive.name, "model_id": archive.model_id}
    return all((own[key] if key in own else archive.attributes.get(key)) == value for key, value in where.items())


def _place(context: CallContext, workspace: str, revision: str = "") -> _Place:
    return _Place(context, workspace or context.workspace, revision)


def _read_cursor(cursor: str) -> tuple[int, str]:
    """How many archives of a page were told, and the token of that page."""
    if not cursor:
        return 0, ""
    told, colon, token = cursor.partition(":")
    if not colon or not told.isascii() or not told.isdecimal() or len(told) > len(str(_PAGE)):
        fault = "is no token of a page; give the next_page_token of the previous answer."
        raise InvalidInputError.at("page_token", fault)
    return int(told), token


def _method(service: str, rpc: str) -> MethodDescriptor:
    files = (workspace_service_pb2, session_service_pb2, node_service_pb2)
    services = {name: found for file in files for name, found in file.DESCRIPTOR.services_by_name.items()}
    found: MethodDescriptor = services[service].methods_by_name[rpc]
    return found
