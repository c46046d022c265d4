"""Restore: bring back a forgotten note with what was forgotten below it, or set a note back to an earlier state."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.model.node import Archive, Node, is_id, is_id_prefix
from memotree_storage.model.validity import SUPERSEDES
from memotree_storage.postgres import archive_versions, history, titles, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas.depth import check_depth
from memotree.canvas.valid_time import check_no_cycle
from memotree.memory.changes import Change
from memotree.memory.naming import MOST_TOLD
from memotree.request import lookup
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError
from memotree.sessions.editing import SessionEditor
from memotree.v1 import memory_service_pb2 as pb

MOST: Final = 10_000
"""The most nodes that one call restores."""

_WARNINGS: Final = 100


class NothingToRestoreError(FailedPreconditionError):
    """The note is as wanted already."""

    reason = "NOTHING_TO_RESTORE"


class HomeGoneError(FailedPreconditionError):
    """The parent or archive of a forgotten note is gone too."""

    reason = "HOME_GONE"


class TooMuchToRestoreError(FailedPreconditionError):
    """More nodes were forgotten at once than one call restores."""

    reason = "TOO_MUCH_TO_RESTORE"


async def restore(editor: SessionEditor, request: pb.RestoreRequest) -> Change:
    """Stage a note, and what was forgotten with it below, as it was.

    Raises:
        NodeNotFoundError: There never was such a note on this branch, or it did not exist at the revision.
        NoNodeNamedError: The name is no id, and no note of this branch had it as its title when it was forgotten.
        AmbiguousNodeNameError: Several notes have the title.
        NothingToRestoreError: It is as wanted already.
        HomeGoneError: The node above it is gone.
        TooMuchToRestoreError: Too many nodes were forgotten with it.
        TooDeepError: The node above it has moved down, and it would be too deep there.
        RevisionNotFoundError: There is no such revision.
    """
    now = await _known(editor, request.node_id, alive=bool(request.revision))
    if request.revision:
        at = (await lookup.find_revision(editor.conn, request.workspace, request.revision)).state
        if at.session_id is not None:
            raise InvalidInputError.at("revision", "is a session; give a branch, tag or commit.")
    elif now.dead:
        at = await _before_deletion(editor, now)
    else:
        sentence = (
            f"{now.entry_id} ({now.title}) is not forgotten. To set it back to an earlier text, give the revision "
            "(a tag or commit) at which it was right."
        )
        raise NothingToRestoreError(sentence, [FieldViolation("revision", sentence)])
    wanted = Snapshot(editor.conn, at)
    was = (await tree.versions(wanted, [now.entry_id])).get(now.entry_id)
    if was is None or was.is_archive:
        raise lookup.NodeNotFoundError(
            request.node_id,
            f"{now.entry_id} did not exist at {request.revision or at.commit_id}; give another revision.",
        )
    warnings: list[str] = []
    if now.dead:
        versions = await _forgotten_below(editor, wanted, was)
        await _restore_home(editor, wanted, versions, warnings)
    else:
        versions = [was]
    entries = await editor.store.entries.load(editor.session.workspace_id, versions)
    present = await tree.versions(editor.snapshot, [version.entry_id for version in versions], dead=True)
    archives = await _archives_of_parents(editor, versions)
    for version in versions:
        node = entries[version.blob]
        assert isinstance(node, Node)  # noqa: S101 - no archive is among them
        before = present[version.entry_id]
        if not before.dead:
            node = await _in_place(editor, node, before)
        elif node.parent_id is not None:
            archives[node.id] = archives[node.parent_id]
            node = replace(node, archive_id=archives[node.id])
        else:
            archives[node.id] = node.archive_id
        # What a commit has deleted comes back as a new entry; what this call has deleted is that staged deletion.
        reason = f"As it was at commit {at.commit_id}." if node.id == now.entry_id else ""
        await editor.put(node, None if before.dead and before.commit_id is not None else before, reason)
    if not await _has_changed(editor, now):
        sentence = f"{now.entry_id} ({now.title}) is as it was at {request.revision} already; nothing was changed."
        raise NothingToRestoreError(sentence, [FieldViolation("revision", sentence)])
    ids = [version.entry_id for version in versions]
    warnings += await _check_relations(editor, versions)
    return Change("Restore", was.title, ids, warnings=tuple(warnings))


async def _known(editor: SessionEditor, text: str, *, alive: bool) -> Version:
    """The newest version of the node that an id, a unique prefix or a title names.

    A title means the forgotten notes that had it last. If none had it, or with ``alive``, it means those that have it.
    """
    lookup.needed("node_id", text)
    ids: list[str] = []
    if is_id_prefix(text):
        ids = [text] if is_id(text) else await tree.with_prefix(editor.snapshot, text)
    found = [one for one in (await tree.versions(editor.snapshot, ids, dead=True)).values() if not one.is_archive]
    if len(found) > 1:
        raise lookup.AmbiguousIdError.among("node_id", text, sorted(found, key=lambda one: one.entry_id))
    if not found:
        found = await titles.titled(editor.snapshot, text, dead=True, limit=MOST_TOLD)
        if alive or not found:
            found += await titles.titled(editor.snapshot, text, limit=MOST_TOLD)
    if len(found) > 1:
        told = [f"{one.entry_id} ({'forgotten' if one.dead else 'not forgotten'})" for one in found[:MOST_TOLD]]
        raise AmbiguousNodeNameError.among("node_id", text, found[:MOST_TOLD], told)
    if not found and is_id(text):
        raise lookup.NodeNotFoundError(text, f"There never was a node {text!r} on this branch. Look in its history.")
    if not found:
        raise NoNodeNamedError("node_id", text, "Look in the history for what was forgotten.")
    return found[0]


async def _before_deletion(editor: SessionEditor, now: Version) -> State:
    """The state before the commit that deleted a node."""
    workspace_id = editor.session.workspace_id
    if now.commit_id is None:  # forgotten by an earlier change of the same batch
        return editor.session.base
    parents = (await history.read_commit(editor.conn, workspace_id, now.commit_id)).parents
    return State(workspace_id, parents[0] if parents else history.NOTHING)


async def _forgotten_below(editor: SessionEditor, wanted: Snapshot, was: Version) -> list[Version]:
    """The node as it was, and the nodes below it that went with it, parents before children."""
    order = [item.entry_id for item in await tree.subtree(wanted, [was.entry_id])]
    alive = await tree.versions(editor.snapshot, order)
    ids = [entry_id for entry_id in order if entry_id not in alive]
    if len(ids) > MOST:
        sentence = (
            f"{len(ids)} nodes were forgotten with {was.entry_id}; one call restores at most {MOST}. Bring back the "
            "nodes below it one by one, or make a branch at the commit before."
        )
        raise TooMuchToRestoreError(sentence, [FieldViolation("node_id", sentence)])
    found = await tree.versions(wanted, ids)
    return [found[entry_id] for entry_id in ids]


async def _archives_of_parents(editor: SessionEditor, versions: Sequence[Version]) -> dict[str, str]:
    """The archive of each alive node that is a parent of these: it may have moved to another one meanwhile."""
    parents = {version.parent_id for version in versions if version.parent_id}
    return {one.entry_id: one.archive_id for one in (await tree.versions(editor.snapshot, parents)).values()}


async def _check_relations(editor: SessionEditor, versions: Sequence[Version]) -> list[str]:
    """Warnings about relations of restored nodes to deleted ones, at most `_WARNINGS` and one that counts the rest.

    Raises:
        SupersedingCycleError: A restored node would supersede one that supersedes it by now.
    """
    ends = {end for version in versions for _, end, _ in version.relations}
    alive = await tree.versions(editor.snapshot, ends)
    gone = []
    for version in versions:
        for kind, end, _ in version.relations:
            if end not in alive:
                gone.append(f"{version.entry_id} ({version.title}) has a relation {kind} to {end}, which is deleted.")
            elif kind == SUPERSEDES:
                await check_no_cycle(editor.snapshot, version.entry_id, end, field="node_id")
    rest = len(gone) - _WARNINGS
    return [*gone[:_WARNINGS], *([f"{rest} more relations have a target that is deleted."] if rest > 0 else [])]


async def _restore_home(
    editor: SessionEditor, wanted: Snapshot, versions: Sequence[Version], warnings: list[str]
) -> None:
    """Check that the place of the first node is there; an archive that was deleted comes back."""
    was = versions[0]
    homes = [was.archive_id, *([was.parent_id] if was.parent_id else [])]
    alive = await tree.versions(editor.snapshot, homes)
    if was.parent_id and was.parent_id not in alive:
        sentence = f"The node above it, {was.parent_id}, is forgotten too. Bring that one back first."
        raise HomeGoneError(sentence, [FieldViolation("node_id", sentence)])
    if was.archive_id not in alive:
        archive = (await tree.versions(wanted, [was.archive_id]))[was.archive_id].to_archive()
        await _check_free(editor, archive)
        await editor.put_archive(archive, None, "")
        warnings.append(f"The archive {archive.name} was deleted with its nodes; it is back, with this note only.")
    if was.parent_id:
        await _check_depth(editor, wanted, was.parent_id, versions)


async def _check_depth(editor: SessionEditor, wanted: Snapshot, parent_id: str, versions: Sequence[Version]) -> None:
    """Check the depth of what comes back below a parent, if that is deeper now than it was.

    Raises:
        TooDeepError: A node would exceed the limit.
    """
    before = len((await tree.ancestors(wanted, [parent_id]))[parent_id])
    now = len((await tree.ancestors(editor.snapshot, [parent_id]))[parent_id])
    if now <= before:
        return
    depths = {parent_id: now}
    for version in versions:  # parents come before children; one whose parent stayed is not below it any more
        depths[version.entry_id] = depths.get(version.parent_id, now) + 1
    check_depth(editor, max(depths.values()), "node_id")


async def _check_free(editor: SessionEditor, archive: Archive) -> None:
    other = await archive_versions.archive_named(editor.snapshot, archive.name)
    if other is not None:
        sentence = (
            f"The archive of this note was deleted, and another one ({other.entry_id}) has its name {archive.name} "
            "now. Rename that one, restore, and rename it back."
        )
        raise HomeGoneError(sentence, [FieldViolation("node_id", sentence)])


async def _in_place(editor: SessionEditor, node: Node, now: Version) -> Node:
    """The node as it was, at its present place in the tree."""
    present = await editor.load_node(now)
    return replace(node, archive_id=present.archive_id, parent_id=present.parent_id, position=present.position)


async def _has_changed(editor: SessionEditor, now: Version) -> bool:
    versions = await tree.versions(editor.snapshot, [now.entry_id], dead=True)
    return versions[now.entry_id].blob != now.blob
