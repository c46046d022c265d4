"""Creating, updating and deleting nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.errors import AlreadyExistsError, FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.model.attribute_names import VALID_FROM, VALID_TO
from memotree_storage.model.node import DEFAULT_TYPE, SUMMARY_TYPE, Node, Relation, new_id
from memotree_storage.model.position import between
from memotree_storage.model.provenance import is_older
from memotree_storage.model.validation import InvalidNodeError
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import PlacedVersion

from memotree.canvas import summaries
from memotree.canvas.depth import check_depth
from memotree.canvas.field_paths import RequestFields
from memotree.canvas.valid_time import check_valid_time
from memotree.request import lookup
from memotree.request.messages import read_relation, read_source
from memotree.sessions import dangling
from memotree.sessions.editing import SessionEditor
from memotree.v1 import node_service_pb2 as pb

MASKED: Final = ("content", "title", "brief", "summary", "tags", "attributes", "type")
"""The fields that the ``update_mask`` may name."""


_GIVEN: Final = {
    "id": "node_id",
    **{name: name for name in (*MASKED, "archive_id", "parent_id", "position", "relations", "source")},
}
"""The request's name for each field of a new node."""


class NodeExistsError(AlreadyExistsError):
    """The id was used before, for this or another node."""

    reason = "NODE_EXISTS"


class HasChildrenError(FailedPreconditionError):
    """The node has children and can only be deleted together with them."""

    reason = "HAS_CHILDREN"


class DerivedContentError(FailedPreconditionError):
    """The content of a summary node is made from its leaves and cannot be set."""

    reason = "DERIVED_CONTENT"

    @classmethod
    def of(cls, node_id: str, advice: str) -> "DerivedContentError":
        """The error for one node."""
        sentence = f"The content of a {SUMMARY_TYPE} is made from its leaves; {advice}."
        return cls(sentence, [FieldViolation(node_id, sentence)])


@dataclass(frozen=True, slots=True)
class EditResult:
    """The result of an edit: the node in its place, its content, and warnings for the caller."""

    placed: PlacedVersion
    content: str
    warnings: tuple[str, ...] = ()

    @property
    def node_id(self) -> str:
        """The id of the node."""
        return self.placed.version.entry_id


async def create(editor: SessionEditor, request: pb.CreateNodeRequest, message: str) -> EditResult:
    """Stage a new node.

    Raises:
        NodeExistsError: The id was used before.
        DerivedContentError: Content was given for a summary node.
        InvalidInputError: Neither a parent nor an archive was given, or an archive that is not the parent's.
        TooDeepError: The parent is at the greatest depth already.
    """
    node_id = request.node_id or new_id()
    home = await _home(editor, request.parent_id, request.archive_id)
    check_depth(editor, len(home.path), "parent_id")
    if request.node_id and await staging.id_was_used(editor.conn, editor.session, [node_id]):
        raise NodeExistsError(
            f"The id {node_id} was used before. Leave node_id empty for a fresh one, or update that node.",
            "node",
            node_id,
        )
    kind = request.type or DEFAULT_TYPE
    summaries.check_attributes(request.attributes, {})
    check_valid_time(request.attributes)
    if kind == SUMMARY_TYPE and request.content:
        raise DerivedContentError.of(node_id, "leave it empty")
    index = request.position if request.HasField("position") else None
    if index is not None and index < 0:
        raise InvalidInputError.at("position", "counts siblings from 0; leave it out for the last place.")
    node = Node(
        id=node_id,
        archive_id=home.archive_id,
        parent_id=home.parent_id or None,
        position=between(home.last, None) if index is None else await editor.position(home.home_id, index),
        type=kind,
        title=request.title,
        brief=request.brief,
        summary=request.summary,
        content=request.content,
        tags=tuple(request.tags),
        relations=await _relations(editor, request, node_id),
        attributes=dict(request.attributes),
        source=read_source(request.source) if request.HasField("source") else None,
    )
    generate = request.auto_generate_summary if request.HasField("auto_generate_summary") else True
    if generate and not request.HasField("summary"):
        given = {"brief"} if request.HasField("brief") else set[str]()
        node = summaries.with_generated(node, await summaries.generate(editor, node), given)
    fields = RequestFields(_GIVEN, tags=node.tags, relations=node.relations)
    version = await editor.put(node, None, request.commit_message or message, fields.translate)
    return EditResult(PlacedVersion(version, home.path, 0), node.content)


async def update(editor: SessionEditor, request: pb.UpdateNodeRequest, message: str) -> EditResult:
    """Stage new field values of a node.

    Raises:
        StaleEtagError: The node is not the version that the caller read.
        DerivedContentError: Content was given for a summary node, or a node with content would become one.
        ReservedAttributeError: The request sets an attribute that only MemoTree sets.
    """
    placed = await editor.placed(request.node_id, request.etag)
    node = await editor.load_node(placed.version)
    given = given_fields(request)
    if not given and not request.regenerate_summary:
        raise InvalidInputError.at(
            "update_mask", "Nothing to change was given. Set a field, or name it in update_mask to empty it."
        )
    if "content" in given and SUMMARY_TYPE in (node.type, request.type if "type" in given else node.type):
        raise DerivedContentError.of(node.id, "edit those")
    summaries.check_attributes(request.attributes, node.attributes)
    changed = _with_given(node, request, given)
    if any(changed.attributes.get(name) != node.attributes.get(name) for name in (VALID_FROM, VALID_TO)):
        check_valid_time(changed.attributes)
    if changed.type == SUMMARY_TYPE != node.type and changed.content:
        raise DerivedContentError.of(node.id, "move the content to a node below first, and empty it here")
    warnings: list[str] = []
    if request.regenerate_summary:
        changed = summaries.with_generated(changed, await summaries.generate(editor, changed), given)
    elif changed.type == SUMMARY_TYPE or (changed.title, changed.content) == (node.title, node.content):
        changed = summaries.with_own_texts(changed, given)
    else:
        changed = await summaries.follow(node, changed, given)
        if placed.version.commit_id is None and is_older(changed.attributes):
            changed = await summaries.as_at_base(editor, changed)
        if is_older(changed.attributes):
            warnings.append(
                "The summary was given by hand and is now older than the content; give a new one, or pass "
                "regenerate_summary to have one made."
            )
    made = {"brief", "summary"} - given
    fields = RequestFields({name: name for name in given | made}, tags=request.tags)
    version = await editor.put(changed, placed.version, request.commit_message or message, fields.translate)
    return EditResult(placed._replace(version=version), changed.content, tuple(warnings))


async def delete(
    editor: SessionEditor, request: pb.DeleteNodeRequest, message: str
) -> tuple[list[str], tuple[str, ...]]:
    """Stage the deletion of a node, with ``recursive`` also of all nodes below it; returns their ids and warnings.

    Raises:
        HasChildrenError: It has children and ``recursive`` was not given.
        StaleEtagError: The node is not the version that the caller read.
    """
    version = await editor.node(request.node_id, request.etag)
    below = await tree.subtree(editor.snapshot, [version.entry_id])
    if len(below) > 1 and not request.recursive:
        sentence = f"{version.entry_id} has {len(below) - 1} node(s) below it. Pass recursive to delete them too."
        raise HasChildrenError(sentence, [FieldViolation(version.entry_id, sentence)])
    ids = [item.entry_id for item in below]
    warnings = await dangling.warnings(editor, ids)
    await editor.remove(list((await tree.versions(editor.snapshot, ids)).values()), request.commit_message or message)
    return ids, warnings


@dataclass(frozen=True, slots=True)
class _Home:
    """The place of a new node: archive, parent ("" for a root), the ids of its ancestors, the last child's position."""

    archive_id: str
    parent_id: str
    path: list[str]
    last: str | None

    @property
    def home_id(self) -> str:
        """The id of the parent, or of the archive for a root."""
        return self.parent_id or self.archive_id


async def _home(editor: SessionEditor, parent: str, archive: str) -> _Home:
    if not parent:
        if not archive:
            raise InvalidInputError.at("archive_id", "is needed for a node without a parent.")
        archive_id = (await lookup.archive(editor.snapshot, archive, "archive_id")).entry_id
        return _Home(archive_id, "", [], await tree.last_position(editor.snapshot, archive_id))
    parent_id = await lookup.full_id(editor.snapshot, parent, "parent_id")
    found = await tree.one_with_last(editor.snapshot, parent_id)
    if found is None or found.version.is_archive:
        raise lookup.NodeNotFoundError(parent_id)
    above = found.version
    await check_archive_of(editor, above, archive)
    return _Home(above.archive_id, above.entry_id, [*found.path, above.entry_id], found.last_position)


async def check_archive_of(editor: SessionEditor, parent: Version, archive: str) -> None:
    """Check that an archive given together with a parent is the parent's.

    Raises:
        InvalidInputError: It is another one.
    """
    if archive and (await lookup.archive(editor.snapshot, archive, "archive_id")).entry_id != parent.archive_id:
        raise InvalidInputError.at("archive_id", f"is not the archive of the parent, which is in {parent.archive_id}.")


async def _relations(editor: SessionEditor, request: pb.CreateNodeRequest, node_id: str) -> tuple[Relation, ...]:
    check_number_of_relations(editor, "relations", len(request.relations))
    relations = [read_relation(relation, f"relations[{i}]") for i, relation in enumerate(request.relations)]
    return tuple([await resolved(editor, relation, node_id, f"relations[{i}]") for i, relation in enumerate(relations)])


def check_number_of_relations(editor: SessionEditor, field: str, count: int) -> None:
    """Refuse more relations than a node may have, before their targets are looked for.

    Raises:
        InvalidNodeError: There are more.
    """
    most = editor.limits.node.relations
    if count > most:
        raise InvalidNodeError.at(field, f"has {count} relations, over the limit of {most}; remove some.")


async def resolved(editor: SessionEditor, relation: Relation, node_id: str, field: str) -> Relation:
    """The relation with the full id of its target, which must be alive and another node."""
    target = (await lookup.node(editor.snapshot, relation.target_id, f"{field}.target_id")).entry_id
    if target == node_id:
        raise InvalidInputError.at(f"{field}.target_id", "is the node itself; a relation goes to another node.")
    return replace(relation, target_id=target)


def given_fields(request: pb.UpdateNodeRequest) -> set[str]:
    """The names of the fields that an update sets: those in the mask, or without a mask those that are present."""
    if request.HasField("update_mask"):
        unknown = [path for path in request.update_mask.paths if path not in MASKED]
        if unknown:
            raise InvalidInputError.at(
                "update_mask", f"{', '.join(unknown)} cannot be updated; name some of {', '.join(MASKED)}."
            )
        return set(request.update_mask.paths)
    given = {name for name in ("content", "title", "brief", "summary", "type") if request.HasField(name)}
    if request.tags:
        given.add("tags")
    if request.attributes:
        given.add("attributes")
    return given


def _with_given(node: Node, request: pb.UpdateNodeRequest, given: set[str]) -> Node:
    """The node with the given fields applied according to the update mode."""
    mode = request.mode or pb.UPDATE_MODE_MERGE
    if mode not in pb.UpdateMode.values():
        raise InvalidInputError.at("mode", f"{mode} is not an update mode.")
    texts = {name: getattr(request, name) for name in given - {"tags", "attributes", "content"}}
    changed = replace(node, **texts)
    if "content" in given:
        changed = replace(changed, content=_joined(node.content, request.content, mode))
    exactly = mode == pb.UPDATE_MODE_REPLACE
    if "tags" in given:
        tags = list(request.tags)
        changed = replace(changed, tags=tuple(tags if exactly or not tags else _united(node.tags, tags)))
    if "attributes" in given:
        attributes: Mapping[str, str] = dict(request.attributes)
        if attributes and not exactly:
            attributes = {**node.attributes, **attributes}
        changed = replace(changed, attributes=summaries.keep_provenance(attributes, node.attributes))
    return changed


def _joined(present: str, given: str, mode: int) -> str:
    if mode not in (pb.UPDATE_MODE_APPEND, pb.UPDATE_MODE_PREPEND) or not present:
        return given
    if not given:
        return present
    return f"{present}\n\n{given}" if mode == pb.UPDATE_MODE_APPEND else f"{given}\n\n{present}"


def _united(present: Iterable[str], given: Iterable[str]) -> list[str]:
    return sorted({*present, *given})
