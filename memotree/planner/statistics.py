"""Figures about the tasks and reviews of one project."""

from collections.abc import Sequence
from datetime import datetime
from statistics import fmean, median
from typing import Any, Final

from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.postgres import typed_nodes
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.postgres.typed_nodes import TypedNode

from memotree.planner import model
from memotree.planner.model import TaskState
from memotree.planner.shown import shown

MOST_SHOWN: Final = 20
"""The most tasks or groups in one list of an answer."""

FEW: Final = 1000
"""Figures of more nodes are computed in a thread, so that other calls go on."""


async def project_statistics(snapshot: Snapshot, project_id: str, now: datetime) -> dict[str, Any]:
    """The figures of a project and the open tasks that are due first.

    Args:
        snapshot: The state.
        project_id: The project.
        now: The time by which a task is overdue.
    """
    found = await typed_nodes.pointing_at(snapshot, [project_id], [model.TASK, model.REVIEW])
    return await in_store_thread_if(len(found) > FEW, _figures, found, project_id, now)


def _figures(found: Sequence[TypedNode], project_id: str, now: datetime) -> dict[str, Any]:
    tasks = [each for each in found if each.type == model.TASK and project_id in each.targets(model.PART_OF)]
    reviews = [each for each in found if each.type == model.REVIEW and project_id in each.targets(model.ABOUT)]
    states = {each.node_id: TaskState.of(each.attributes) for each in tasks}
    completed = [state for state in states.values() if state.is_completed]
    moods = [mood for each in reviews if (mood := model.mood_of(each.attributes)) is not None]
    times = [state.completed_at for state in completed if state.completed_at is not None]
    left = sorted((each for each in tasks if not states[each.node_id].is_completed), key=by_due_date)
    return {
        "stats": {
            "tasks": len(tasks),
            "open": len(left),
            "completed": len(completed),
            "overdue": sum(state.is_overdue(now) for state in states.values()),
            "completed_late": sum(state.is_late for state in completed),
            "completion_rate": share(len(completed), len(tasks)),
            "last_completed_at": model.written_time(max(times)) if times else "",
            "reviews": len(reviews),
            "mean_mood": rounded(fmean(moods)) if moods else None,
            **durations(completed),
        },
        "open_tasks": [shown(each.node_id, model.TASK, each) for each in left[:MOST_SHOWN]],
    }


def by_due_date(task: TypedNode) -> tuple[float, str]:
    """Orders tasks by their due date; those without one are the last."""
    due = TaskState.of(task.attributes).due_at
    return (float("inf") if due is None else due.timestamp(), task.node_id)


def durations(completed: Sequence[TaskState]) -> dict[str, float | None]:
    """How many hours tasks took from their creation to their completion; ``None`` if no task tells."""
    hours = [state.hours for state in completed if state.hours is not None]
    return {
        "mean_hours_to_completion": rounded(fmean(hours)) if hours else None,
        "median_hours_to_completion": rounded(median(hours)) if hours else None,
    }


def share(part: int, whole: int) -> float | None:
    """A part of a whole, from 0 to 1; ``None`` of nothing."""
    return rounded(part / whole) if whole else None


def rounded(value: float) -> float:
    """A figure with three digits after the point."""
    return round(value, 3)
