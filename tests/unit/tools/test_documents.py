"""Tools about documents, over operations that are counted."""

from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from memotree_storage.errors import InvalidInputError

from memotree.client.errors import AbortedError, NotFoundError
from memotree.tools.builtin import documents as module
from memotree.tools.builtin.documents import Documents, NoSuchDocumentError
from memotree.tools.function_tool import CallContext, tools_of
from memotree.v1 import node_service_pb2, session_service_pb2, types_pb2, workspace_service_pb2

pytestmark = pytest.mark.requirement("TOOL-6")


class Shelf:
    """Operations over a list of archives; every third is no document."""

    def __init__(self, count: int) -> None:
        self.archives = [
            types_pb2.Archive(
                id=f"{number:016}",
                name=f"{number:05}.md",
                etag=f"etag{number}",
                attributes={"document_id": f"doc{number}", "media_type": "text/markdown" if number % 2 else ""}
                if number % 3
                else {},
            )
            for number in range(count)
        ]
        self.called: list[str] = []
        self.protected = False

    async def call(self, method: MethodDescriptor, request: Any) -> Any:
        self.called.append(method.name)
        assert request.workspace == "main"
        return getattr(self, f"_{method.name}")(request)

    def _ListArchives(self, request: Any) -> Any:  # noqa: N802
        begin = int(request.page_token or 0)
        page = self.archives[begin : begin + request.page_size]
        more = str(begin + request.page_size) if begin + request.page_size < len(self.archives) else ""
        return workspace_service_pb2.ListArchivesResponse(archives=page, next_page_token=more)

    def _GetArchive(self, request: Any) -> Any:  # noqa: N802
        for archive in self.archives:
            if request.archive in {archive.id, archive.name}:
                return workspace_service_pb2.GetArchiveResponse(archive=archive)
        raise NotFoundError("There is none.")

    def _ListChildren(self, request: Any) -> Any:  # noqa: N802
        node = types_pb2.Node(id="1", title=f"Part of {request.archive}", brief="In short.")
        return node_service_pb2.ListChildrenResponse(nodes=[node], next_page_token="more")  # noqa: S106

    def _OpenSession(self, _request: Any) -> Any:  # noqa: N802
        return session_service_pb2.OpenSessionResponse(session=session_service_pb2.Session(id="s"))

    def _DeleteArchive(self, request: Any) -> Any:  # noqa: N802
        (found,) = [
            archive for archive in self.archives if (archive.id, archive.etag) == (request.archive, request.etag)
        ]
        self.archives.remove(found)
        return workspace_service_pb2.DeleteArchiveResponse(deleted_nodes=4)

    def _CommitChanges(self, request: Any) -> Any:  # noqa: N802
        if self.protected:
            raise AbortedError("The branch is protected.")
        return session_service_pb2.CommitChangesResponse(commit_id=f"commit of {request.message}")

    def _DiscardSession(self, _request: Any) -> Any:  # noqa: N802
        return session_service_pb2.DiscardSessionResponse()


def context(shelf: Shelf) -> CallContext:
    return CallContext(shelf, "main")


@pytest.mark.parametrize("count", [0, 1, 2, 30, 31])
@pytest.mark.parametrize("page", [7, 1000])
async def test_documents_are_listed_page_by_page_each_once(
    count: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", page)
    shelf = Shelf(count)
    expected = [archive.name for archive in shelf.archives if archive.attributes]
    for size in (1, 4, 100):
        names, token = [], ""
        while True:
            found = await Documents().list_documents(context(shelf), size, token)
            assert len(found["documents"]) <= size
            names += [each["name"] for each in found["documents"]]
            token = found.get("next_page_token", "")
            if not token:
                break
        assert names == expected
    for wrong in ("x", ":", "-1:", "1.5:", "99999999999:", "\u0661:", "a:b"):
        with pytest.raises(InvalidInputError, match="page_token"):
            await Documents().list_documents(context(shelf), 1, wrong)


async def test_documents_are_counted_and_found_by_their_attributes() -> None:
    shelf = Shelf(2500)
    found = await Documents().document_count(context(shelf))
    expected = [archive for archive in shelf.archives if archive.attributes]
    assert found["count"] == len(expected)
    assert found["by_media_type"].keys() == {"text/markdown", "unknown"}
    assert shelf.called == ["ListArchives"] * 3, "a call for a thousand documents"
    where = {"media_type": "text/markdown"}
    assert (await Documents().document_count(context(shelf), where))["count"] < len(expected)
    some = await Documents().query_metadata(context(shelf), {"document_id": "doc2000"})
    assert [each["name"] for each in some["documents"]] == ["02000.md"]
    assert (await Documents().query_metadata(context(shelf), {"name": "00001.md", "no": "x"}))["documents"] == []


async def test_a_document_is_named_by_its_name_its_id_or_that_of_its_archive() -> None:
    shelf = Shelf(10)
    for name in ("00001.md", "doc1", f"{1:016}"):
        found = await Documents().document_info(context(shelf), name)
        assert (found["document_id"], found["attributes"]["document_id"]) == ("doc1", "doc1")
        assert found["parts"] == [{"node_id": "1", "title": f"Part of {1:016}", "brief": "In short."}]
        assert found["more_parts"]
    for name in ("00003.md", "nothing"):
        with pytest.raises(NoSuchDocumentError):
            await Documents().document_info(context(shelf), name)


async def test_a_document_is_deleted_in_a_commit_and_the_session_ends_in_any_case() -> None:
    shelf = Shelf(10)
    found = await Documents().delete_document(context(shelf), "doc1")
    assert (found["deleted_nodes"], found["commit_id"]) == (4, "commit of Delete the document 00001.md")
    assert shelf.called[-4:] == ["OpenSession", "DeleteArchive", "CommitChanges", "DiscardSession"]
    shelf.protected = True
    with pytest.raises(AbortedError):
        await Documents().delete_document(context(shelf), "doc2")
    assert shelf.called[-1] == "DiscardSession"


def test_only_the_deletion_changes_something() -> None:
    kinds = {tool.name: tool.declaration for tool in tools_of(Documents())}
    assert [name for name, each in kinds.items() if not each.read_only] == ["delete_document"]
    assert kinds["delete_document"].destructive
    assert all("context" not in each.parameters["properties"] for each in kinds.values())
