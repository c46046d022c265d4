"""The changes of plans, staged in a session: new goals, projects, tasks and reviews, and their new values and links."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from memotree_storage.errors import FailedPreconditionError, FieldViolation
from memotree_storage.model.node import Relation, derived_id
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot

from memotree.canvas import edits
from memotree.memory.changes import archive_for
from memotree.planner import links, model
from memotree.planner.links import Faults
from memotree.planner.shown import shown
from memotree.request import lookup
from memotree.request.messages import relation_message
from memotree.sessions.editing import SessionEditor
from memotree.v1 import node_service_pb2

Show = Callable[[Snapshot], Awaitable[dict[str, Any]]]
"""Returns what a call did, from the state with its changes."""


class TaskCompletedError(FailedPreconditionError):
    """The task is completed already."""

    reason = "TASK_COMPLETED"

    @classmethod
    def of(cls, task: Version) -> "TaskCompletedError":
        """The error for a task."""
        when = task.attributes.get(model.COMPLETED_AT, "")
        sentence = f"{task.entry_id} ({task.title}) is completed already{f', since {when}' if when else ''}."
        return cls(sentence, [FieldViolation(task.entry_id, sentence)])


@dataclass(frozen=True, slots=True)
class Staged:
    """What a call has staged.

    Attributes:
        verb: What was done, for the subject of the commit.
        title: The title of the node.
        show: Returns what was done.
        notes: Warnings for a person.
    """

    verb: str
    title: str
    show: Show
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class New:
    """A new node of a plan.

    Attributes:
        kind: Its type.
        title: Its title.
        content: Its text.
        archive: The name or id of its archive; that of its project, or the default one, if empty.
        attributes: Its attributes; empty ones are left out.
        tags: Its tags.
        links: The nodes that it points to: for each argument with their names, their type and that of the relation.
        names: The argument for each field of a node that has another name.
    """

    kind: str
    title: str
    content: str = ""
    archive: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[str] = ()
    links: Sequence["Link"] = ()
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """The nodes to which a new node points by one argument.

    Attributes:
        argument: The argument.
        given: The names in it.
        kind: The type of the nodes.
        relation: The type of the relation.
        is_list: Whether the argument is a list.
        gives_archive: Whether the new node belongs into their archive.
    """

    argument: str
    given: Sequence[str]
    kind: str
    relation: str
    is_list: bool = True
    gives_archive: bool = False


async def create(editor: SessionEditor, new: New, node_id: str) -> Staged:
    """Stage a new node.

    Args:
        editor: The session.
        new: The node.
        node_id: Its id.

    Raises:
        InvalidInputError: A field breaks a rule, or a link leads to a node of another type.
        NodeNotFoundError: A link leads to no node.
    """
    faults, relations, archive_id = Faults(), [], ""
    for link in new.links:
        found = [await links.named(editor.snapshot, given, link.kind, path, faults) for path, given in _paths(link)]
        for target in {version.entry_id: version for version in found if version is not None}.values():
            relations.append(relation_message(link.relation, target.entry_id, ""))
            archive_id = archive_id or (target.archive_id if link.gives_archive else "")
    if new.archive or not archive_id:
        with faults.of_node({}):
            archive_id = await _archive(editor, new.archive or model.DEFAULT_ARCHIVE)
    request = node_service_pb2.CreateNodeRequest(
        archive_id=archive_id,
        node_id=node_id,
        type=new.kind,
        title=new.title,
        content=new.content,
        tags=new.tags,
        attributes={name: value for name, value in new.attributes.items() if value},
        relations=relations,
    )
    if archive_id:
        with faults.of_node(new.names):
            await edits.create(editor, request, "")
    faults.check()
    return Staged("Add", new.title, show_node(node_id, new.kind))


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """New values of a project; those that are ``None`` stay as they are."""

    name: str | None = None
    description: str | None = None
    status: str | None = None
    goal_ids: Sequence[str] | None = None


_UPDATES: Final = {"title": "updates.name", "content": "updates.description", model.STATUS: "updates.status"}


async def update_project(editor: SessionEditor, project_id: str, change: ProjectChange) -> Staged:
    """Stage new values of a project.

    Raises:
        InvalidInputError: A field breaks a rule, or a goal is none.
        NodeNotFoundError: The project or a goal is not alive.
    """
    project = await links.needed(editor.snapshot, project_id, model.PROJECT, "project_id")
    faults = Faults()
    if change.goal_ids is not None:
        goals = await links.several(editor.snapshot, change.goal_ids, model.GOAL, "updates.goal_ids", faults)
        with faults.of_node({"relations": "updates.goal_ids"}):
            await _put_goals(editor, project, goals)
    request = node_service_pb2.UpdateNodeRequest(node_id=project.entry_id, content=change.description)
    if change.name is not None:
        request.title = change.name
    if change.status is not None:
        request.attributes[model.STATUS] = change.status
    if edits.given_fields(request):
        with faults.of_node(_UPDATES):
            await edits.update(editor, request, "")
    faults.check()
    title = project.title if change.name is None else change.name
    return Staged("Change", title, show_node(project.entry_id, model.PROJECT))


async def link_goal(editor: SessionEditor, goal_id: str, project_id: str) -> Staged:
    """Stage the relation by which a project is part of a goal.

    Raises:
        InvalidInputError: One of the nodes has another type.
        NodeNotFoundError: One of them is not alive.
    """
    faults = Faults()
    goal = await links.named(editor.snapshot, goal_id, model.GOAL, "goal_id", faults)
    project = await links.named(editor.snapshot, project_id, model.PROJECT, "project_id", faults)
    faults.check()
    assert goal is not None and project is not None  # noqa: S101, PT018 - for the type checker
    node = await editor.load_node(project)
    known = {(one.type, one.target_id) for one in node.relations}
    if (model.PART_OF, goal.entry_id) not in known:
        relations = tuple(sorted([*node.relations, Relation(model.PART_OF, goal.entry_id, "")]))
        with faults.of_node({"relations": "goal_id"}):
            await editor.put(replace(node, relations=relations), project, "")
        faults.check()
    return Staged("Link", project.title, show_node(project.entry_id, model.PROJECT))


async def complete_task(editor: SessionEditor, task_id: str, note: str, now: datetime) -> Staged:
    """Stage the completion of a task.

    Raises:
        TaskCompletedError: It is completed already.
        InvalidInputError: The node is no task, or the note breaks a rule.
        NodeNotFoundError: It is not alive.
    """
    task = await links.needed(editor.snapshot, task_id, model.TASK, "task_id")
    if task.attributes.get(model.STATUS) == model.COMPLETED:
        raise TaskCompletedError.of(task)
    given = {model.STATUS: model.COMPLETED, model.COMPLETED_AT: model.written_time(now), model.COMPLETION_NOTE: note}
    attributes = {name: value for name, value in given.items() if value}
    faults = Faults()
    with faults.of_node({model.COMPLETION_NOTE: model.COMPLETION_NOTE}):
        request = node_service_pb2.UpdateNodeRequest(node_id=task.entry_id, attributes=attributes)
        await edits.update(editor, request, "")
    faults.check()
    return Staged("Complete", task.title, show_node(task.entry_id, model.TASK))


def show_node(node_id: str, kind: str) -> Show:
    """What returns a node under the name of its type."""

    async def show(snapshot: Snapshot) -> dict[str, Any]:
        version = await lookup.node(snapshot, node_id)
        goals = await links.goals_of(snapshot, version) if kind == model.PROJECT else None
        return {kind: shown(node_id, kind, version, goals)}

    return show


def _paths(link: Link) -> list[tuple[str, str]]:
    return [
        (f"{link.argument}[{number}]" if link.is_list else link.argument, given)
        for number, given in enumerate(link.given)
    ]


async def _archive(editor: SessionEditor, name: str) -> str:
    """The archive with this name or id, made if it does not exist.

    Two sessions that make the same archive give it the same id, so that their commits have one archive of the name.
    """
    new = derived_id(editor.session.workspace_id, "archive of a plan", name)
    if await staging.id_was_used(editor.conn, editor.session, [new]):
        new = ""
    return await archive_for(editor, name, new)


async def _put_goals(editor: SessionEditor, project: Version, goals: Sequence[str]) -> None:
    """Stage that a project is part of these goals and no others; what else it is part of stays."""
    node = await editor.load_node(project)
    ends = await tree.versions(editor.snapshot, model.targets(project.relations, model.PART_OF))
    others = {entry_id for entry_id, end in ends.items() if end.type != model.GOAL}
    kept = [
        one for one in node.relations if one.type != model.PART_OF or one.target_id in others or one.target_id in goals
    ]
    present = {one.target_id for one in kept if one.type == model.PART_OF}
    added = [Relation(model.PART_OF, goal, "") for goal in goals if goal not in present]
    relations = tuple(sorted([*kept, *added]))
    if relations != node.relations:
        await editor.put(replace(node, relations=relations), project, "")
