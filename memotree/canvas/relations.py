"""Adds and removes relations, and follows them in both directions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.node import is_id, is_id_prefix
from memotree_storage.model.validity import SUPERSEDES
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot

from memotree.canvas.edits import EditResult, resolved
from memotree.canvas.field_paths import RequestFields
from memotree.canvas.valid_time import check_no_cycle
from memotree.request import lookup
from memotree.request.messages import TITLE, node_message, read_relation, relation_message, relation_name
from memotree.sessions.editing import SessionEditor
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2


class RelationNotFoundError(NotFoundError):
    """The node has no such relation."""

    reason = "RELATION_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class RelationStep:
    """One relation, followed from a node to the node at its other end."""

    holder: str
    type: str
    target: str
    description: str
    outgoing: bool

    @property
    def end(self) -> str:
        """The node that the step leads to."""
        return self.target if self.outgoing else self.holder


async def add(editor: SessionEditor, request: pb.AddRelationRequest, message: str) -> EditResult:
    """Stage a relation; if the node has it already, its description is replaced."""
    if not request.HasField("relation"):
        raise InvalidInputError.at("relation", "is needed.")
    placed = await editor.placed(request.node_id)
    node = await editor.load_node(placed.version)
    relation = await resolved(editor, read_relation(request.relation, "relation"), node.id, "relation")
    others = [other for other in node.relations if (other.type, other.target_id) != (relation.type, relation.target_id)]
    changed = replace(node, relations=tuple(sorted([*others, relation])))
    if relation.type == SUPERSEDES:
        await check_no_cycle(editor.snapshot, node.id, relation.target_id)
    fields = RequestFields({"relations": "relation"}, relations=[relation])
    version = await editor.put(changed, placed.version, request.commit_message or message, fields.translate)
    return EditResult(placed._replace(version=version), node.content)


async def remove(editor: SessionEditor, request: pb.RemoveRelationRequest, message: str) -> EditResult:
    """Stage the removal of a relation; its target may be deleted already.

    Raises:
        RelationNotFoundError: The node has no such relation.
        InvalidIdError: The target is neither an id nor a prefix of one.
        AmbiguousIdError: Several relations of that type have target ids that begin with it.
    """
    placed = await editor.placed(request.node_id)
    node = await editor.load_node(placed.version)
    kind = relation_name(request.type, "type")
    wanted = lookup.needed("target_id", request.target_id)
    gone = [r for r in node.relations if r.type == kind and r.target_id.startswith(wanted)]
    if not is_id(wanted) and not is_id_prefix(wanted):
        raise lookup.InvalidIdError.of("target_id", wanted)
    if len(gone) > 1:
        ends = await tree.versions(editor.snapshot, {r.target_id for r in gone}, dead=True)
        known = sorted(ends.values(), key=lambda end: end.entry_id)
        raise lookup.AmbiguousIdError.among("target_id", wanted, known)
    if not gone:
        held = ", ".join(f"{r.type} {r.target_id}" for r in node.relations) or "none"
        raise RelationNotFoundError(
            f"{node.id} has no {kind} relation to {wanted!r}. Its relations: {held}.",
            "relation",
            wanted,
        )
    left = tuple(relation for relation in node.relations if relation != gone[0])
    changed = replace(node, relations=left)
    version = await editor.put(changed, placed.version, request.commit_message or message, RequestFields().translate)
    return EditResult(placed._replace(version=version), node.content)


async def steps_from(
    snapshot: Snapshot, ids: Sequence[str], types: Collection[str] = ()
) -> dict[str, list[RelationStep]]:
    """The relations of alive nodes in both directions, by node; restricted to ``types`` if any are given."""
    wanted = set(ids)
    found: dict[str, list[RelationStep]] = {entry_id: [] for entry_id in ids}
    for version in (await tree.versions(snapshot, ids)).values():
        for kind, target, description in version.relations:
            if not types or kind in types:
                found[version.entry_id].append(RelationStep(version.entry_id, kind, target, description, outgoing=True))
    for holder in await tree.pointing_at(snapshot, ids):
        for kind, target, description in holder.relations:
            if target in wanted and (not types or kind in types):
                found[target].append(RelationStep(holder.entry_id, kind, target, description, outgoing=False))
    return found


async def walk(
    snapshot: Snapshot, starts: Sequence[str], types: Collection[str], depth: int
) -> dict[str, list[RelationStep]]:
    """The alive nodes that relations reach from the starts, each with a shortest path; a start's path is empty.

    Relations stay when their target is deleted; no path leads through a deleted node.
    """
    ways: dict[str, list[RelationStep]] = {entry_id: [] for entry_id in starts}
    front = list(starts)
    for _ in range(depth):
        reached: dict[str, list[RelationStep]] = {}
        steps = await steps_from(snapshot, front, types)
        for entry_id in front:
            for step in sorted(steps[entry_id], key=lambda step: (step.end, step.type, step.outgoing)):
                if step.end not in ways and step.end not in reached:
                    reached[step.end] = [*ways[entry_id], step]
        alive = await tree.versions(snapshot, reached)
        front = [entry_id for entry_id in reached if entry_id in alive]
        ways |= {entry_id: reached[entry_id] for entry_id in front}
        if not front:
            break
    return ways


def related_message(step: RelationStep, ends: Mapping[str, Version]) -> types_pb2.RelatedNode:
    """The message of a relation, with the node at its other end if that is alive."""
    end = ends.get(step.end)
    return types_pb2.RelatedNode(
        source_id=step.holder,
        relation=relation_message(step.type, step.target, step.description),
        node=node_message(end, TITLE) if end is not None else None,
        outgoing=step.outgoing,
    )
