"""Nodes of a plan as tools return them: objects of JSON."""

from collections.abc import Mapping
from typing import Any, Protocol

from memotree.planner import model


class Shown(Protocol):
    """What is told of a node, wherever it was read."""

    @property
    def title(self) -> str: ...  # noqa: D102 - a column

    @property
    def tags(self) -> list[str]: ...  # noqa: D102

    @property
    def attributes(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def relations(self) -> list[list[str]]: ...  # noqa: D102


def shown(node_id: str, kind: str, node: Shown, goal_ids: list[str] | None = None) -> dict[str, Any]:
    """A node of a plan without its text.

    Args:
        node_id: Its id.
        kind: Its type.
        node: The node.
        goal_ids: Of a project, the goals that it serves; all that it is part of if ``None``.
    """
    attributes = node.attributes
    made = {"created_at": attributes.get(model.CREATED_AT, "")}
    if kind == model.PROJECT:
        goals = model.targets(node.relations, model.PART_OF) if goal_ids is None else goal_ids
        return {
            "id": node_id,
            "name": node.title,
            "status": model.project_status(attributes),
            "goal_ids": goals,
            **made,
        }
    if kind == model.GOAL:
        stage, deadline = attributes.get(model.STAGE, ""), attributes.get(model.DEADLINE, "")
        return {"id": node_id, "title": node.title, "stage": stage, "deadline": deadline, **made}
    if kind == model.REVIEW:
        return {
            "id": node_id,
            "title": node.title,
            "type": attributes.get(model.REVIEW_TYPE, ""),
            "tags": list(node.tags),
            "linked_project_ids": model.targets(node.relations, model.ABOUT),
            "mood": model.mood_of(attributes),
            **made,
        }
    is_completed = attributes.get(model.STATUS) == model.COMPLETED
    return {
        "id": node_id,
        "title": node.title,
        "status": model.COMPLETED if is_completed else model.OPEN,
        "project_id": next(iter(model.targets(node.relations, model.PART_OF)), ""),
        "due_date": attributes.get(model.DUE_DATE, ""),
        "priority": attributes.get(model.PRIORITY, ""),
        **made,
        "completed_at": attributes.get(model.COMPLETED_AT, "") if is_completed else "",
        "completion_note": attributes.get(model.COMPLETION_NOTE, "") if is_completed else "",
    }
