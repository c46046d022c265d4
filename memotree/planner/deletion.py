"""The deletion of a project, with its tasks or without them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memotree_storage.errors import FieldViolation
from memotree_storage.model.node import Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot

from memotree.canvas.edits import HasChildrenError
from memotree.planner import links, model
from memotree.planner.staging import Staged
from memotree.sessions import dangling
from memotree.sessions.editing import SessionEditor

_AT_ONCE: Final = 200
"""Tasks whose texts are read and written together: what is unlinked is written anew."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """What goes with a project.

    Attributes:
        project: The project.
        gone: The ids of all nodes that are deleted, the project first.
        deleted_tasks: How many of them are tasks of the project.
        unlinked: The tasks that stay.
    """

    project: Version
    gone: Sequence[str]
    deleted_tasks: int
    unlinked: Sequence[Version]


async def delete_project(editor: SessionEditor, project_id: str, *, cascade: bool) -> Staged:
    """Stage the deletion of a project.

    Args:
        editor: The session.
        project_id: The project.
        cascade: Whether its tasks are deleted, too, with all nodes below them and below the project. A task that is
            also part of another project stays, as all tasks do otherwise; what stays is not part of it any more.

    Raises:
        InvalidInputError: The node is no project.
        NodeNotFoundError: It is not alive.
        HasChildrenError: There are nodes below it, and ``cascade`` was not given.
    """
    project = await links.needed(editor.snapshot, project_id, model.PROJECT, "project_id")
    found = await _deletion(editor.snapshot, project, cascade=cascade)
    await _unlink(editor, project.entry_id, found.unlinked)
    warnings = await dangling.warnings(editor, found.gone)
    versions = await tree.versions(editor.snapshot, found.gone)
    await editor.remove(list(versions.values()), "")

    async def show(_: Snapshot) -> dict[str, Any]:
        return told(project.entry_id, project.title, found.deleted_tasks, len(found.unlinked), len(versions))

    return Staged("Delete", project.title, show, warnings)


def told(project_id: str, name: str, deleted_tasks: int, unlinked_tasks: int, deleted_nodes: int) -> dict[str, Any]:
    """What a deletion did, as a tool returns it."""
    return {
        "deleted": {"id": project_id, "name": name},
        "deleted_tasks": deleted_tasks,
        "unlinked_tasks": unlinked_tasks,
        "deleted_nodes": deleted_nodes,
    }


async def _deletion(snapshot: Snapshot, project: Version, *, cascade: bool) -> Deletion:
    holders = await tree.pointing_at(snapshot, [project.entry_id])
    tasks = [
        version
        for version in holders
        if version.type == model.TASK and project.entry_id in model.targets(version.relations, model.PART_OF)
    ]
    shared = await _of_other_projects(snapshot, project.entry_id, tasks) if cascade else {*_ids(tasks)}
    deleted = [version.entry_id for version in tasks if version.entry_id not in shared]
    below = [item.entry_id for item in await tree.subtree(snapshot, [project.entry_id, *deleted])]
    if len(below) > 1 and not cascade:
        sentence = (
            f"{project.entry_id} has {len(below) - 1} node(s) below it. Move them elsewhere, or pass cascade to delete "
            "them and its tasks, too."
        )
        raise HasChildrenError(sentence, [FieldViolation(project.entry_id, sentence)])
    gone = set(below)
    counted = sum(version.entry_id in gone for version in tasks)
    return Deletion(project, below, counted, [version for version in tasks if version.entry_id not in gone])


async def _of_other_projects(snapshot: Snapshot, project_id: str, tasks: Sequence[Version]) -> set[str]:
    """The ids of those tasks that are also part of another alive project."""
    others = {
        version.entry_id: [end for end in model.targets(version.relations, model.PART_OF) if end != project_id]
        for version in tasks
    }
    ends = await tree.versions(snapshot, {end for found in others.values() for end in found})
    projects = {entry_id for entry_id, end in ends.items() if end.type == model.PROJECT}
    return {task_id for task_id, found in others.items() if projects.intersection(found)}


async def _unlink(editor: SessionEditor, project_id: str, tasks: Sequence[Version]) -> None:
    for start in range(0, len(tasks), _AT_ONCE):
        some = tasks[start : start + _AT_ONCE]
        nodes = await editor.load_all(some)
        changes = [
            (_without(node, project_id), version)
            for version in some
            if isinstance(node := nodes[version.entry_id], Node)
        ]
        await editor.put_all(changes, "", dict.fromkeys(_ids(some), "project_id"))


def _without(node: Node, project_id: str) -> Node:
    left = tuple(one for one in node.relations if (one.type, one.target_id) != (model.PART_OF, project_id))
    return replace(node, relations=left)


def _ids(versions: Sequence[Version]) -> list[str]:
    return [version.entry_id for version in versions]
