"""Moving, splitting and merging nodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import SUMMARY_TYPE, Node, Relation, new_id
from memotree_storage.model.position import many_between
from memotree_storage.model.validity import SUPERSEDES
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.superseding import superseding

from memotree.canvas.depth import check_depth, check_moved_depth
from memotree.canvas.edits import (
    DerivedContentError,
    EditResult,
    NodeExistsError,
    check_archive_of,
)
from memotree.canvas.field_paths import RequestFields
from memotree.canvas.summaries import extracted, keep_provenance, with_generated
from memotree.canvas.valid_time import check_same_time
from memotree.request import lookup
from memotree.sessions.editing import SessionEditor, moved_to
from memotree.v1 import node_service_pb2 as pb

_LEAST: Final = 2
_MOST_PARTS: Final = 1000
_AFTER_EVERY_ID: Final = "~"
_MOVED: Final = RequestFields({name: name for name in ("archive_id", "parent_id", "position")})
_MERGED: Final = RequestFields({"title": "title"}, owner="node_ids")


class CycleError(InvalidInputError):
    """A node cannot be moved below itself."""

    reason = "CYCLE"


async def move(editor: SessionEditor, request: pb.MoveNodeRequest, message: str) -> EditResult:
    """Stage a new parent or position of a node; a move to another archive takes all nodes below it along.

    Raises:
        CycleError: The parent is the node itself or below it.
        StaleEtagError: The node is not the version that the caller read.
        TooDeepError: It or a node below it would be too deep in the tree.
    """
    version = await editor.node(request.node_id, request.etag)
    parent_id, archive_id, depth = await _destination(editor, version, request)
    if request.HasField("position") and request.position < 0:
        raise InvalidInputError.at("position", "counts siblings from 0; leave it out for the last place.")
    index = request.position if request.HasField("position") else None
    position = await editor.position(parent_id or archive_id, index, moving=version.entry_id)
    if parent_id != version.parent_id:
        await check_moved_depth(editor, version.entry_id, depth, "parent_id")
    node = await editor.load_node(version)
    note = request.commit_message or message
    await editor.put(moved_to(node, parent_id or None, archive_id, position), version, note, _MOVED.translate)
    if archive_id != version.archive_id:
        await take_along(editor, version.entry_id, archive_id, note, _MOVED)
    return EditResult(await editor.placed(version.entry_id), node.content)


async def _destination(editor: SessionEditor, version: Version, request: pb.MoveNodeRequest) -> tuple[str, str, int]:
    """The ids of the new parent ("" for a root) and archive, and the new depth if the parent is another one."""
    if request.HasField("parent_id") and request.parent_id:
        above = await lookup.node(editor.snapshot, request.parent_id, "parent_id")
        ways = await tree.ancestors(editor.snapshot, [above.entry_id])
        if version.entry_id in (above.entry_id, *ways[above.entry_id]):
            raise CycleError.at(
                "parent_id",
                f"{above.entry_id} is {version.entry_id} itself or below it; choose a parent outside of that subtree.",
            )
        await check_archive_of(editor, above, request.archive_id)
        return above.entry_id, above.archive_id, len(ways[above.entry_id]) + 1
    archive_id = version.archive_id
    if request.archive_id:
        archive_id = (await lookup.archive(editor.snapshot, request.archive_id, "archive_id")).entry_id
    if request.HasField("parent_id") or archive_id != version.archive_id:
        return "", await _living_archive(editor, version, archive_id), 0
    alive = await tree.versions(editor.snapshot, [version.parent_id or archive_id])
    if not alive:  # it stands nowhere; its new place is where it is shown
        shown = await tree.root_archives(editor.snapshot, [version.entry_id])
        wanted = (request.archive_id and archive_id) or shown[version.entry_id]
        return "", await _living_archive(editor, version, wanted), 0
    return version.parent_id, archive_id, 0


async def _living_archive(editor: SessionEditor, version: Version, archive_id: str) -> str:
    """The archive that a node becomes a root of; if that one is gone, the archive that the node is shown in.

    Raises:
        ArchiveNotFoundError: There is no archive that it could be shown in.
    """
    shown = await tree.root_archives(editor.snapshot, [version.entry_id])
    for wanted in (archive_id, shown.get(version.entry_id, "")):
        if wanted in await tree.versions(editor.snapshot, [wanted]):
            return wanted
    raise lookup.ArchiveNotFoundError(archive_id)


async def take_along(
    editor: SessionEditor, top: str, archive_id: str, note: str, fields: RequestFields = _MOVED
) -> None:
    """Stage the archive of all nodes below one that has moved to it."""
    below = [item.entry_id for item in await tree.subtree(editor.snapshot, [top]) if item.depth > 0]
    for version in (await tree.versions(editor.snapshot, below)).values():
        node = await editor.load_node(version)
        await editor.put(replace(node, archive_id=archive_id), version, note, fields.translate)


async def split(editor: SessionEditor, request: pb.SplitNodeRequest) -> list[str]:
    """Stage the split of a node into parts; returns the ids of the parts, that of the node itself first.

    Raises:
        DerivedContentError: It is a summary node.
        NodeExistsError: An id given for a part was used before.
        TooDeepError: The parts would be too deep in the tree.
    """
    if not _LEAST <= len(request.parts) <= _MOST_PARTS:
        raise InvalidInputError.at("parts", f"needs {_LEAST} to {_MOST_PARTS} parts.")
    version = await editor.node(request.node_id, request.etag)
    if version.type == SUMMARY_TYPE:
        raise DerivedContentError(f"The content of a {SUMMARY_TYPE} is made from its leaves; split those.")
    if request.parts[0].node_id and request.parts[0].node_id != version.entry_id:
        raise InvalidInputError.at("parts[0].node_id", "The first part keeps the node's own id; leave it empty.")
    node = await editor.load_node(version)
    ids = [version.entry_id, *(part.node_id or new_id() for part in request.parts[1:])]
    used = await staging.id_was_used(editor.conn, editor.session, ids[1:])
    if used or len(set(ids)) < len(ids):
        raise NodeExistsError("A part has an id that was used before. Leave it empty for a fresh one.", "node")
    if request.as_children:
        above = (await tree.ancestors(editor.snapshot, [version.entry_id]))[version.entry_id]
        check_depth(editor, len(above) + 1, "as_children")
    places = await _places(editor, version, len(ids) - 1, as_children=request.as_children)
    first = request.parts[0]
    note = request.commit_message
    await editor.put(
        await _part(node, first.title or node.title, first.content), version, note, _part_fields(0).translate
    )
    parent_id = version.entry_id if request.as_children else node.parent_id
    for number, (part_id, part, place) in enumerate(zip(ids[1:], request.parts[1:], places, strict=True), 1):
        fresh = replace(node, id=part_id, parent_id=parent_id, position=place, relations=())
        await editor.put(await _part(fresh, part.title, part.content), None, note, _part_fields(number).translate)
    await _supersede_parts(editor, node.id, ids[1:], note)
    return ids


async def _supersede_parts(editor: SessionEditor, node_id: str, parts: Sequence[str], note: str) -> None:
    """Let the nodes that supersede a split node supersede its parts, too."""
    found = await superseding(editor.snapshot, targets=[node_id])
    for version in (await tree.versions(editor.snapshot, [one.entry_id for one in found])).values():
        node = await editor.load_node(version)
        same = [each for each in node.relations if (each.type, each.target_id) == (SUPERSEDES, node_id)]
        more = [replace(each, target_id=part) for each in same for part in parts]
        await editor.put(replace(node, relations=tuple(sorted([*node.relations, *more]))), version, note)


def _part_fields(number: int) -> RequestFields:
    """The request's paths of a part's fields; faults of the generated brief and summary point to its content."""
    here = f"parts[{number}]"
    made = dict.fromkeys(("content", "brief", "summary"), f"{here}.content")
    return RequestFields({"id": f"{here}.node_id", "title": f"{here}.title", **made})


async def _part(node: Node, title: str, content: str) -> Node:
    part = replace(node, title=title, content=content)
    return with_generated(part, await extracted(part))


async def _places(editor: SessionEditor, version: Version, count: int, *, as_children: bool) -> list[str]:
    if as_children:
        last = await tree.last_position(editor.snapshot, version.entry_id)
        return many_between(last, None, count)
    behind = await tree.children(
        editor.snapshot,
        version.parent_id or version.archive_id,
        after=(version.position, _AFTER_EVERY_ID),
        limit=1,
    )
    return many_between(version.position, behind[0].position if behind else None, count)


async def merge(editor: SessionEditor, request: pb.MergeNodesRequest) -> tuple[str, list[str], tuple[str, ...]]:
    """Stage the merge of nodes into the first; returns its id, the deleted ids and warnings.

    Raises:
        CycleError: One of the other nodes is an ancestor of the first.
        DerivedContentError: One of them is a summary node.
        TooDeepError: The children of the others would be too deep in the tree.
    """
    versions = await lookup.nodes(editor.snapshot, request.node_ids)
    ids = [version.entry_id for version in versions]
    if len(ids) < _LEAST or len(set(ids)) < len(ids):
        raise InvalidInputError.at("node_ids", "needs two or more different nodes.")
    if any(version.type == SUMMARY_TYPE for version in versions):
        raise DerivedContentError(f"The content of a {SUMMARY_TYPE} is made from its leaves; merge those.")
    first, others = versions[0], versions[1:]
    above = (await tree.ancestors(editor.snapshot, [first.entry_id]))[first.entry_id]
    if set(above) & set(ids):
        raise CycleError.at("node_ids", "A node cannot be merged into its own descendant; put the ancestor first.")
    nodes = [await editor.load_node(version) for version in versions]
    await check_same_time(editor.snapshot, nodes)
    union = await _union(nodes, request.title if request.HasField("title") else nodes[0].title)
    await editor.put(union, first, request.commit_message, _MERGED.translate)
    for version in others:
        await _adopt(editor, version, first, len(above), request.commit_message)
    bent = await _bend(editor, first.entry_id, set(ids[1:]), request.commit_message)
    gone = await tree.versions(editor.snapshot, ids[1:])
    await editor.remove(list(gone.values()), request.commit_message)
    warnings = (f"{bent} relation(s) of other nodes now point to {first.entry_id}.",) if bent else ()
    return first.entry_id, ids[1:], warnings


async def _union(nodes: Sequence[Node], title: str) -> Node:
    first, ids = nodes[0], {node.id for node in nodes}
    content = "\n\n".join(node.content for node in nodes if node.content)
    attributes: dict[str, str] = {}
    for node in reversed(nodes):
        attributes.update(node.attributes)
    relations = {
        (relation.type, relation.target_id): relation
        for node in reversed(nodes)
        for relation in node.relations
        if relation.target_id not in ids
    }
    return replace(
        await _part(replace(first, attributes=keep_provenance(attributes, first.attributes)), title, content),
        tags=tuple(sorted({tag for node in nodes for tag in node.tags})),
        relations=tuple(sorted(relations.values())),
    )


async def _adopt(editor: SessionEditor, old: Version, new: Version, depth: int, note: str) -> None:
    """Move the children of a merged node below the remaining one of that depth, after its own children."""
    children = await tree.children(editor.snapshot, old.entry_id)
    last = await tree.last_position(editor.snapshot, new.entry_id)
    places = many_between(last, None, len(children))
    found = await tree.versions(editor.snapshot, [child.entry_id for child in children])
    for child, place in zip(children, places, strict=True):
        version = found[child.entry_id]
        await check_moved_depth(editor, version.entry_id, depth + 1, "node_ids")
        node = await editor.load_node(version)
        await editor.put(moved_to(node, new.entry_id, new.archive_id, place), version, note, _MERGED.translate)
        if version.archive_id != new.archive_id:
            await take_along(editor, version.entry_id, new.archive_id, note, _MERGED)


async def _bend(editor: SessionEditor, target: str, gone: set[str], note: str) -> int:
    """Redirect relations from the merged nodes to the remaining one; returns the number of relations changed."""
    bent = 0
    for version in await tree.pointing_at(editor.snapshot, gone):
        if version.entry_id in gone:
            continue
        node = await editor.load_node(version)
        relations: dict[tuple[str, str], Relation] = {}
        for relation in node.relations:
            is_bent = relation.target_id in gone
            bent += is_bent
            new = replace(relation, target_id=target) if is_bent else relation
            if new.target_id != node.id:
                relations.setdefault((new.type, new.target_id), new)
        bent_node = replace(node, relations=tuple(sorted(relations.values())))
        await editor.put(bent_node, version, note, _MERGED.translate)
    return bent
