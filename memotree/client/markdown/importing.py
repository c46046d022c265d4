"""Imports a folder of Markdown as one commit: an export that was edited, or notes of another program."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memotree.client.errors import AbortedError, FailedPreconditionError, MemoTreeClientError, NotFoundError
from memotree.client.history_values import Author
from memotree.client.markdown.agent_file import read_agent_file
from memotree.client.markdown.edited_export import read_export
from memotree.client.markdown.exporting import commit_of, export_to
from memotree.client.markdown.folder_reading import find_markdown
from memotree.client.markdown.folder_writing import ExportFolderError
from memotree.client.markdown.foreign_notes import ForeignFolder
from memotree.client.markdown.layout import Layout
from memotree.client.markdown.manifest import Manifest, digest_of, read_manifest
from memotree.client.markdown.matching import match
from memotree.client.markdown.planning import ImportPlan, plan_import
from memotree.client.markdown.staging import stage
from memotree.client.markdown.stored import StoredState, stored_state
from memotree.client.markdown.vault import read_vault
from memotree.client.markdown.wanted import WantedArchive, WantedTree, derived_id
from memotree.client.markdown_values import MarkdownImport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memotree.client.node_values import Archive
    from memotree.client.transport import Transport
    from memotree.client.workspace import AsyncWorkspace

_NOT_MERGED: Final = "MERGE_CONFLICT"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a folder is imported; `AsyncWorkspace.import_markdown` describes each."""

    branch: str = ""
    archive: str = ""
    file_format: str = ""
    delete: bool = False
    overwrite: bool = False
    preview: bool = False
    keep_conflicts: bool = False
    message: str = ""
    agent: str = ""
    author: Author | None = None
    refresh: bool = True


@dataclass(frozen=True, slots=True)
class _Read:
    """What a folder wants, and what it was compared with."""

    file_format: str
    tree: WantedTree
    state: StoredState
    digest: str = ""
    """Of an export of this workspace: the hash of its files, which are written again afterwards."""


async def import_from(
    workspace: AsyncWorkspace, transport: Transport, folder: Path, options: ImportOptions
) -> MarkdownImport:
    """Imports a folder, or an agent file."""
    info = await workspace.info()
    branch = options.branch or info.default_branch
    head = await commit_of(transport, info.id, f"refs/heads/{branch}")
    manifest = await transport.in_thread(read_manifest, folder)
    if options.file_format == "export" and manifest is None:
        raise FailedPreconditionError(
            f"{folder.name} is no export of MemoTree: it has no manifest.", reason="NO_EXPORT"
        )
    if manifest is not None and options.file_format in {"", "export"}:
        read = await _read_export(workspace, transport, folder, manifest, info.id, head)
    else:
        read = await _read_notes(workspace, transport, folder, options, head)
    plan = await transport.in_thread(plan_import, read.tree, read.state, delete=options.delete)
    done = MarkdownImport(
        read.file_format,
        tuple(plan.edits),
        base_commit_id=read.state.commit_id,
        is_behind=read.state.commit_id != head,
        missing=tuple(plan.missing),
        warnings=tuple(read.tree.warnings),
    )
    if options.preview or not plan.edits:
        return done
    message = options.message or _message(folder, plan)
    imported = await _commit(workspace, plan, done, branch, message, options)
    if read.digest and options.refresh and imported.commit_id:
        at = workspace.at(imported.commit_id)
        archives = [each.id async for each in at.archives() if each.id in read.tree.archives]
        try:
            await export_to(at, transport, workspace.name, folder, archives, expected=read.digest)
        except ExportFolderError as error:
            told = f"the edits are committed, but the folder was not written again: {error.message}"
            return replace(imported, warnings=(*imported.warnings, told))
    return imported


async def _read_export(
    workspace: AsyncWorkspace, transport: Transport, folder: Path, manifest: Manifest, workspace_id: str, head: str
) -> _Read:
    """Reads an export: compared with the commit that it shows, or in another workspace with the head."""
    found = await transport.in_thread(find_markdown, folder)
    digest = await transport.in_thread(digest_of, folder)
    is_own = manifest.workspace_id == workspace_id
    layout = None
    try:
        at = workspace.at(await commit_of(transport, workspace.name, manifest.commit_id) if is_own else head)
        archives = [each async for each in at.archives()]
    except NotFoundError:
        raise FailedPreconditionError(
            f"The workspace has no commit {manifest.commit_id[:12]}, which {folder.name} was exported at. "
            "Export again, and edit that folder.",
            reason="EXPORT_COMMIT_UNKNOWN",
        ) from None
    if is_own:
        archives = [each for each in archives if each.id in manifest.archive_ids]
    state = await stored_state(at, archives)
    if is_own:
        layout = await transport.in_thread(Layout.of, state.structure)
    tree = await transport.in_thread(read_export, found, state, layout, f"{workspace_id} {manifest.commit_id}")
    if not is_own:
        _leave_out_relations(tree, state)
        _only_in(state, set(tree.archives), archives)
    return _Read("export", tree, state, digest if is_own else "")


async def _read_notes(
    workspace: AsyncWorkspace, transport: Transport, path: Path, options: ImportOptions, head: str
) -> _Read:
    """Reads notes of another program, compared with the archive that they were imported into before."""
    found, named = await transport.in_thread(_foreign_folder, path, options.file_format)
    name = options.archive or named
    at = workspace.at(head)
    archives = [each async for each in at.archives() if each.name == name]
    state = await stored_state(at, archives, keep_contents=True)
    archive_id = archives[0].id if archives else derived_id(secrets.token_hex(20))
    archive = WantedArchive(archive_id, path.name, name)
    tree = await transport.in_thread(match, found, state, archive, overwrite=options.overwrite)
    return _Read(found.file_format, tree, state)


def _foreign_folder(path: Path, file_format: str) -> tuple[ForeignFolder, str]:
    """The notes of a folder or an agent file, and its name."""
    if path.is_file():
        return read_agent_file(path), path.stem
    return read_vault(find_markdown(path), file_format), path.resolve().name


def _leave_out_relations(tree: WantedTree, state: StoredState) -> None:
    """Leaves out relations to nodes that neither the export nor the workspace has."""
    count = 0
    for node_id, node in tree.nodes.items():
        relations = node.relations or ()
        kept = tuple(each for each in relations if each.target_id in tree.nodes or each.target_id in state.nodes)
        count += len(relations) - len(kept)
        if node.relations is not None:
            tree.nodes[node_id] = replace(node, relations=kept)
    if count:
        tree.warnings.append(f"left out, since the workspace does not have their targets: {count:,} relations")


def _only_in(state: StoredState, wanted: set[str], archives: Sequence[Archive]) -> None:
    """Forgets the archives of another workspace that the folder is not about; nothing of them is missing."""
    for archive in archives:
        if archive.id not in wanted:
            del state.structure.archives[archive.id]
    for node_id, place in list(state.structure.nodes.items()):
        if place.archive_id not in wanted:
            del state.structure.nodes[node_id]
            del state.nodes[node_id]
            state.children.pop(node_id, None)
    for archive in archives:
        if archive.id not in wanted:
            state.children.pop(archive.id, None)


def _message(folder: Path, plan: ImportPlan) -> str:
    return f"Import {len(plan.edits)} {'edit' if len(plan.edits) == 1 else 'edits'} from {folder.name}"


async def _commit(
    workspace: AsyncWorkspace,
    plan: ImportPlan,
    done: MarkdownImport,
    branch: str,
    message: str,
    options: ImportOptions,
) -> MarkdownImport:
    """Commits a plan on a branch: as one commit if the branch is where the folder comes from, else by a merge.

    A session begins at the head of a branch. So for an older commit there is a branch of its own, for as long as it
    takes; what was committed meanwhile is merged as always.
    """
    author = options.author or (Author(options.agent) if options.agent else None)
    if not done.is_behind:
        session = await workspace.session(agent=options.agent, branch=branch)
        try:
            if (await session.info()).base_commit_id == done.base_commit_id:
                await stage(session, plan)
                commit = await session.commit(message, author=author)
                return replace(done, commit_id=commit.commit_id)
        finally:
            with suppress(MemoTreeClientError):
                await session.discard()
    aside = f"import-{secrets.token_hex(6)}"
    await workspace.branch(aside, done.base_commit_id)
    try:
        session = await workspace.session(agent=options.agent, branch=aside)
        await stage(session, plan)
        commit = await session.commit(message, author=author)
        await session.discard()
        try:
            merged = await workspace.merge(commit.commit_id, branch, message=message, author=author)
        except AbortedError as error:
            if error.reason != _NOT_MERGED or not options.keep_conflicts:
                raise
            kept = await workspace.session(agent=options.agent, branch=branch)
            staged = await kept.merge_branch(commit.commit_id)
            return replace(done, is_behind=True, session_id=kept.id, conflict_count=staged.conflict_count)
        return replace(done, is_behind=True, commit_id=merged.commit_id)
    finally:
        with suppress(MemoTreeClientError):
            await workspace.delete_branch(aside)
