"""Exports a state of a workspace to a folder of Markdown files."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from memotree.client.enums import Level
from memotree.client.errors import FailedPreconditionError
from memotree.client.markdown.folder_writing import FolderWriting
from memotree.client.markdown.layout import Layout, Structure
from memotree.client.markdown.links import relative
from memotree.client.markdown.manifest import Manifest
from memotree.client.markdown.note_file import encode_archive, encode_note
from memotree.client.markdown_values import MarkdownExport
from memotree.v1 import history_service_pb2 as history
from memotree.v1 import workspace_service_pb2 as workspaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memotree.client.node_values import Archive, ArchiveRef, Node
    from memotree.client.revision import AsyncRevision
    from memotree.client.transport import Transport


async def export_to(
    at: AsyncRevision,
    transport: Transport,
    workspace: str,
    folder: Path,
    chosen: Sequence[ArchiveRef],
    *,
    replace: bool = False,
    expected: str = "",
) -> MarkdownExport:
    """Exports the archives of a commit, all if none is chosen, in pages: once for the names, once for the texts.

    An export that is there is replaced if its files have the hash in its manifest, or the one that is ``expected``.
    """
    info = await transport.call(workspaces.GetWorkspaceRequest(workspace=workspace), workspaces.GetWorkspaceResponse)
    writing = await transport.in_thread(FolderWriting, folder, replace=replace, expected=expected)
    try:
        structure = await structure_of(at, [await at.archive(each) for each in chosen])
        layout = await transport.in_thread(Layout.of, structure)
        for archive in structure.archives.values():
            data = encode_archive(archive, layout.name(archive.id))
            await transport.in_thread(writing.write, layout.file(archive.id), data)
            waiting: list[Node] = []
            async with aclosing(at.walk(archive=archive, level=Level.DETAIL)) as found:  # type: ignore[type-var]
                async for each in found:
                    waiting.append(each.node)
                    if len(waiting) == _AT_ONCE:
                        await transport.in_thread(_write, writing, structure, layout, waiting)
                        waiting = []
            await transport.in_thread(_write, writing, structure, layout, waiting)
        manifest = Manifest(info.workspace.id, at.revision, tuple(sorted(structure.archives)))
        await transport.in_thread(writing.finish, manifest)
    finally:
        await transport.in_thread(writing.clear)
    return MarkdownExport(str(folder), at.revision, len(structure.archives), len(structure.nodes))


_AT_ONCE = 200
"""How many files are written in one go."""


def _write(writing: FolderWriting, structure: Structure, layout: Layout, nodes: Iterable[Node]) -> None:
    for node in nodes:
        file = layout.file(node.id)
        paths = {
            target: (structure.nodes[target].title, relative(layout.file(target), file))
            for target in (relation.target_id for relation in node.relations)
            if target in structure.nodes
        }
        writing.write(file, encode_note(node, layout.name(node.id), paths))


async def structure_of(at: AsyncRevision, archives: Sequence[Archive] = ()) -> Structure:
    """The structure of some archives of a state, or of all."""
    chosen = list(archives) or [each async for each in at.archives()]
    structure = Structure()
    for archive in sorted(chosen, key=lambda each: each.id):
        structure.add_archive(archive)
        async for each in at.walk(archive=archive):
            structure.add(archive.id, each)
    return structure


async def commit_of(transport: Transport, workspace: str, revision: str) -> str:
    """The id of the commit that a revision means; of a session, that of its base.

    Raises:
        FailedPreconditionError: The revision has no commit.
    """
    request = history.ListCommitsRequest(workspace=workspace, revision=revision, page_size=1)
    answer = await transport.call(request, history.ListCommitsResponse)
    if not answer.commits:
        raise FailedPreconditionError("There is no commit at this revision; name a branch.", reason="NO_COMMIT")
    return str(answer.commits[0].id)
