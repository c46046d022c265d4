"""Functions that describe changes of nodes; a session stages one change at a time, or several as a batch.

``session.create(...)`` has the same arguments as ``create(...)`` here. ``session.apply([create(...), move(...)])``
stages all of the changes or none, in the given order; a later one may use a node that an earlier one creates, by an id
of your choice.
"""

from collections.abc import Iterable, Mapping

from google.protobuf.field_mask_pb2 import FieldMask

from memotree.client.enums import Level, LevelName, RelationName, RelationType, UpdateMode, UpdateModeName, to_wire
from memotree.client.lists import several
from memotree.client.node_values import ArchiveRef, NodeRef, Relation, Source, archive_id
from memotree.client.node_values import node_id as id_of
from memotree.v1.node_service_pb2 import (
    AddRelationRequest,
    CreateNodeRequest,
    DeleteNodeRequest,
    MoveNodeRequest,
    NodeChange,
    RemoveRelationRequest,
    UpdateNodeRequest,
)

Change = (
    CreateNodeRequest
    | UpdateNodeRequest
    | MoveNodeRequest
    | DeleteNodeRequest
    | AddRelationRequest
    | RemoveRelationRequest
)
"""One described change; create it with the functions of this module."""


def create(
    title: str,
    content: str = "",
    *,
    parent: NodeRef | None = None,
    archive: ArchiveRef | None = None,
    node_type: str = "",
    brief: str | None = None,
    summary: str | None = None,
    tags: Iterable[str] = (),
    attributes: Mapping[str, str] | None = None,
    relations: Iterable[Relation] = (),
    source: Source | None = None,
    position: int | None = None,
    node_id: str = "",
    auto_generate_summary: bool = True,
    initial_level: LevelName | None = None,
    view: str | None = None,
    message: str = "",
) -> CreateNodeRequest:
    """Stages a new node below ``parent``, or as a root of ``archive``.

    Args:
        title: One line.
        content: The text.
        parent: The node above it; ``None`` for a root.
        archive: The archive of a root; with a parent, the parent's archive is used.
        node_type: A registered type; ``"note"`` if empty.
        brief: One line; generated from the content if ``None``.
        summary: A paragraph; generated from the content if ``None``. If you give it, nothing is generated.
        tags: Words to find it by.
        attributes: Free attributes by name.
        relations: The relations from this node to others.
        source: Where the content came from.
        position: The index among its siblings, from 0; last if ``None``.
        node_id: An id of your choice, or empty for a new one.
        auto_generate_summary: Whether brief and summary are generated from the content.
        initial_level: Its level in ``view``; SUMMARY if ``None``.
        view: The view to add it to; no view if ``None``.
        message: The reason for the change; kept in the body of the commit.
    """
    return CreateNodeRequest(
        archive_id=archive_id(archive),
        parent_id=id_of(parent),
        type=node_type,
        title=title,
        content=content,
        brief=brief,
        summary=summary,
        tags=several("tags", tags),
        attributes=dict(attributes or {}),
        position=position,
        commit_message=message,
        initial_level=to_wire(Level, initial_level),
        view_name=view,
        auto_generate_summary=None if auto_generate_summary else False,
        node_id=node_id,
        relations=[relation.to_wire() for relation in relations],
        source=source.to_wire() if source else None,
    )


def update(
    node: NodeRef,
    *,
    title: str | None = None,
    content: str | None = None,
    brief: str | None = None,
    summary: str | None = None,
    tags: Iterable[str] | None = None,
    attributes: Mapping[str, str] | None = None,
    node_type: str | None = None,
    mode: UpdateModeName = UpdateMode.MERGE,
    regenerate_summary: bool = False,
    level: LevelName | None = None,
    view: str | None = None,
    etag: str = "",
    message: str = "",
) -> UpdateNodeRequest:
    """Stages new field values of ``node``; ``None`` leaves a field unchanged, an empty value clears it.

    Args:
        node: The node.
        title: One line.
        content: The text; ``mode`` says how it is combined with the present one.
        brief: One line.
        summary: A paragraph.
        tags: Tags; added to the present ones, or replacing them in mode REPLACE.
        attributes: Attributes; merged by name, or replacing all in mode REPLACE.
        node_type: A registered type.
        mode: How the given values are combined with the present ones.
        regenerate_summary: Whether brief and summary are generated again from the content.
        level: Its level in ``view``; unchanged if ``None``.
        view: The view of ``level``; ``"default"`` if ``None``.
        etag: The version that you read, such as ``node.etag``; the change is refused if the node has another one.
        message: The reason for the change; kept in the body of the commit.
    """
    given: dict[str, object] = {
        "title": title,
        "content": content,
        "brief": brief,
        "summary": summary,
        "tags": tags,
        "attributes": attributes,
        "type": node_type,
    }
    return UpdateNodeRequest(
        node_id=id_of(node),
        level=to_wire(Level, level),
        view_name=view,
        content=content,
        title=title,
        brief=brief,
        summary=summary,
        tags=several("tags", tags or ()),
        attributes=dict(attributes or {}),
        type=node_type,
        update_mask=FieldMask(paths=[name for name, value in given.items() if value is not None]),
        commit_message=message,
        regenerate_summary=regenerate_summary,
        mode=to_wire(UpdateMode, mode),
        etag=etag,
    )


def move(
    node: NodeRef,
    *,
    parent: NodeRef | None = None,
    to_root: bool = False,
    archive: ArchiveRef | None = None,
    position: int | None = None,
    etag: str = "",
    message: str = "",
) -> MoveNodeRequest:
    """Stages a new parent or position of ``node``.

    Args:
        node: The node.
        parent: The new parent; the present one if ``None``.
        to_root: Whether it becomes a root, of ``archive`` if given.
        archive: The archive of a new root; the present one if ``None``.
        position: The index among its siblings, from 0; last if ``None``.
        etag: The version that you read; the change is refused if the node has another one.
        message: The reason for the change; kept in the body of the commit.
    """
    return MoveNodeRequest(
        node_id=id_of(node),
        parent_id="" if to_root else (id_of(parent) or None),
        archive_id=archive_id(archive),
        position=position,
        commit_message=message,
        etag=etag,
    )


def delete(node: NodeRef, *, recursive: bool = False, etag: str = "", message: str = "") -> DeleteNodeRequest:
    """Stages the deletion of ``node``, with ``recursive`` also of all nodes below it; returns the deleted ids."""
    return DeleteNodeRequest(node_id=id_of(node), recursive=recursive, commit_message=message, etag=etag)


def relate(
    node: NodeRef, relation_type: RelationName, target: NodeRef, *, description: str = "", message: str = ""
) -> AddRelationRequest:
    """Stages a relation from ``node`` to ``target``; if one of that type exists, its description is replaced."""
    relation = Relation(relation_type, id_of(target), description)
    return AddRelationRequest(node_id=id_of(node), relation=relation.to_wire(), commit_message=message)


def unrelate(
    node: NodeRef, relation_type: RelationName, target: NodeRef, *, message: str = ""
) -> RemoveRelationRequest:
    """Stages the removal of the relation of that type from ``node`` to ``target``."""
    return RemoveRelationRequest(
        node_id=id_of(node),
        type=to_wire(RelationType, relation_type),
        target_id=id_of(target),
        commit_message=message,
    )


def in_batch(change: Change) -> NodeChange:
    """The change as an item of a batch."""
    match change:
        case CreateNodeRequest():
            return NodeChange(create=change)
        case UpdateNodeRequest():
            return NodeChange(update=change)
        case MoveNodeRequest():
            return NodeChange(move=change)
        case DeleteNodeRequest():
            return NodeChange(delete=change)
        case AddRelationRequest():
            return NodeChange(add_relation=change)
        case RemoveRelationRequest():
            return NodeChange(remove_relation=change)
    raise TypeError(f"{change!r} is no change of a node; make one with a function of memotree.client.changes.")
