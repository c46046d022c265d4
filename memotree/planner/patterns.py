"""What the tasks and reviews of a plan show over the last weeks: figures, for a person or a model to put into words.

A task counts for a week if it was made before its end and not completed before its beginning; one that does not tell
when it was made is taken to have been there before. The completion rate of a week is the share of these that were
completed in it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any, Final, Literal

from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.model.times import read_time
from memotree_storage.postgres import tree, typed_nodes
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.postgres.typed_nodes import TypedNode

from memotree.planner import model
from memotree.planner.model import TaskState
from memotree.planner.statistics import FEW, MOST_SHOWN, by_due_date, durations, rounded, share

TimeRange = Literal["week", "month", "quarter"]
Category = Literal["completion", "overdue", "duration", "projects", "goals", "reviews"]

_WEEKS: Final[Mapping[str, int]] = {"week": 1, "month": 4, "quarter": 13}
_WEEK: Final = timedelta(weeks=1)
_RECENT: Final = {model.TASK: model.COMPLETED_AT, model.REVIEW: model.CREATED_AT}
"""The attribute by which a node is left out that is older than the window; an open task never is."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is looked at.

    Attributes:
        since: Its beginning.
        until: Its end, which is not part of it.
    """

    since: datetime
    until: datetime

    @classmethod
    def before(cls, until: datetime, time_range: TimeRange) -> "Window":
        """The weeks before a time."""
        return cls(until - _WEEKS[time_range] * _WEEK, until)

    @property
    def weeks(self) -> list["Window"]:
        """Its weeks in order."""
        count = (self.until - self.since) // _WEEK
        return [Window(self.since + number * _WEEK, self.since + (number + 1) * _WEEK) for number in range(count)]

    def has(self, moment: datetime | None) -> bool:
        """Whether a time is in it."""
        return moment is not None and self.since <= moment < self.until

    def to_json(self) -> dict[str, str]:
        """Its ends."""
        return {"since": model.written_time(self.since), "until": model.written_time(self.until)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What an analysis is made of.

    Attributes:
        tasks: The tasks that were not completed before the window.
        reviews: The reviews that were not written before it.
        projects: The projects of the tasks, by id.
        goals: The goals of these, by id.
    """

    tasks: Sequence[tuple[TypedNode, TaskState]]
    reviews: Sequence[TypedNode]
    projects: Mapping[str, Version]
    goals: Mapping[str, Version]

    def projects_of(self, task: TypedNode) -> set[str]:
        """The ids of the projects of a task."""
        return self.projects.keys() & task.targets(model.PART_OF)

    def goals_of(self, task: TypedNode) -> set[str]:
        """The ids of the goals of the projects of a task."""
        found = (model.targets(self.projects[each].relations, model.PART_OF) for each in self.projects_of(task))
        return self.goals.keys() & {goal for goals in found for goal in goals}


async def read_plan(snapshot: Snapshot, archive_id: str, window: Window) -> Plan:
    """Read the tasks and reviews of an archive that matter for a window, with their projects and goals."""
    # Any zone of a text in an attribute is less than a day away from UTC, in which the window is.
    since = (window.since - timedelta(days=1)).date().isoformat()
    found = await typed_nodes.recent(snapshot, archive_id, _RECENT, since)
    tasks = await in_store_thread_if(len(found) > FEW, _tasks, found, window)
    parts = {end for task, _ in tasks for end in task.targets(model.PART_OF)}
    projects = _of_type(await tree.versions(snapshot, parts), model.PROJECT)
    ends = {end for project in projects.values() for end in model.targets(project.relations, model.PART_OF)}
    goals = _of_type(await tree.versions(snapshot, ends), model.GOAL)
    reviews = [each for each in found if each.type == model.REVIEW and window.has(read_time(_made(each)))]
    return Plan(tasks, reviews, projects, goals)


async def analyzed(plan: Plan, window: Window, categories: Collection[Category]) -> dict[str, Any]:
    """The figures of a plan.

    Args:
        plan: The plan.
        window: The window.
        categories: What is computed; all if empty.
    """
    chosen = {name: make for name, make in _PARTS.items() if not categories or name in categories}
    count = len(plan.tasks) + len(plan.reviews)
    return await in_store_thread_if(count > FEW, lambda: {name: make(plan, window) for name, make in chosen.items()})


@dataclass
class _Figures:
    """Counts of the tasks of a group in a window."""

    states: list[TaskState] = field(default_factory=list)

    def to_json(self, window: Window) -> dict[str, Any]:
        completed = [state for state in self.states if window.has(state.completed_at)]
        there = sum(_was_open(state, window) for state in self.states)
        return {
            "created": sum(window.has(state.created_at) for state in self.states),
            "completed": len(completed),
            "open": sum(_is_open(state, window.until) for state in self.states),
            "overdue": sum(_is_overdue(state, window.until) for state in self.states),
            "completion_rate": share(len(completed), there),
            **durations(completed),
        }


def _completion(plan: Plan, window: Window) -> dict[str, Any]:
    """How many tasks were made and completed, in the whole window and week by week."""

    def counts(some: Window) -> dict[str, Any]:
        completed = sum(some.has(state.completed_at) for _, state in plan.tasks)
        there = sum(_was_open(state, some) for _, state in plan.tasks)
        created = sum(some.has(state.created_at) for _, state in plan.tasks)
        return {
            "created": created,
            "completed": completed,
            "open_at_end": sum(_is_open(state, some.until) for _, state in plan.tasks),
            "completion_rate": share(completed, there),
        }

    return {**counts(window), "weeks": [{**week.to_json(), **counts(week)} for week in window.weeks]}


def _overdue(plan: Plan, window: Window) -> dict[str, Any]:
    """The open tasks whose time is over, those that are overdue the longest first, and what was completed late."""
    late = sorted((task for task, state in plan.tasks if _is_overdue(state, window.until)), key=by_due_date)
    shown = [
        {
            "id": task.node_id,
            "title": task.title,
            "due_date": task.attributes.get(model.DUE_DATE, ""),
            "days_overdue": _days(window.until, TaskState.of(task.attributes).due_at),
        }
        for task in late[:MOST_SHOWN]
    ]
    completed_late = sum(window.has(state.completed_at) and state.is_late for _, state in plan.tasks)
    return {"count": len(late), "completed_late": completed_late, "tasks": shown}


def _duration(plan: Plan, window: Window) -> dict[str, Any]:
    """How long the tasks took that were completed in the window."""
    completed = [state for _, state in plan.tasks if window.has(state.completed_at)]
    return {"completed": len(completed), **durations(completed)}


def _projects(plan: Plan, window: Window) -> dict[str, Any]:
    return _groups(plan, window, plan.projects, plan.projects_of)


def _goals(plan: Plan, window: Window) -> dict[str, Any]:
    return _groups(plan, window, plan.goals, plan.goals_of)


def _groups(
    plan: Plan, window: Window, known: Mapping[str, Version], groups_of: Callable[[TypedNode], Collection[str]]
) -> dict[str, Any]:
    """The figures of each project or goal, those with the most tasks first; and of the tasks that have none."""
    figures: dict[str, _Figures] = {}
    without = _Figures()
    for task, state in plan.tasks:
        groups = groups_of(task)
        for each in groups:
            figures.setdefault(each, _Figures()).states.append(state)
        if not groups:
            without.states.append(state)
    order = sorted(figures, key=lambda each: (-len(figures[each].states), each))
    shown = [{"id": each, "name": known[each].title, **figures[each].to_json(window)} for each in order[:MOST_SHOWN]]
    return {"count": len(order), "groups": shown, "without": without.to_json(window)}


def _reviews(plan: Plan, window: Window) -> dict[str, Any]:
    """How many reviews were written, the moods in them week by week, and their most frequent tags."""
    told = [(read_time(_made(each)), model.mood_of(each.attributes)) for each in plan.reviews]
    kinds = Counter(each.attributes.get(model.REVIEW_TYPE, "") or "unknown" for each in plan.reviews)
    tags = Counter(tag for each in plan.reviews for tag in each.tags)
    common = sorted(tags.items(), key=lambda each: (-each[1], each[0]))[:MOST_SHOWN]
    weeks = [
        {**week.to_json(), "reviews": sum(week.has(when) for when, _ in told), "mean_mood": _mean_mood(told, week)}
        for week in window.weeks
    ]
    return {
        "count": len(plan.reviews),
        "by_type": dict(sorted(kinds.items())[:MOST_SHOWN]),
        "mean_mood": _mean_mood(told, window),
        "tags": [{"tag": tag, "count": count} for tag, count in common],
        "weeks": weeks,
    }


_PARTS: Final[Mapping[Category, Callable[[Plan, Window], dict[str, Any]]]] = {
    "completion": _completion,
    "overdue": _overdue,
    "duration": _duration,
    "projects": _projects,
    "goals": _goals,
    "reviews": _reviews,
}


def _tasks(found: Sequence[TypedNode], window: Window) -> list[tuple[TypedNode, TaskState]]:
    """The tasks that were there before the end of the window and not completed before its beginning.

    One that is completed and does not tell when is left out: it belongs to no week.
    """
    read = [(each, TaskState.of(each.attributes)) for each in found if each.type == model.TASK]
    return [
        (task, state)
        for task, state in read
        if not _is_after(state.created_at, window)
        and (not state.is_completed or (state.completed_at is not None and state.completed_at >= window.since))
    ]


def _is_after(moment: datetime | None, window: Window) -> bool:
    return moment is not None and moment >= window.until


def _was_open(state: TaskState, window: Window) -> bool:
    """Whether a task was open at some time of a window."""
    if _is_after(state.created_at, window):
        return False
    return not state.is_completed or (state.completed_at is not None and state.completed_at >= window.since)


def _is_open(state: TaskState, moment: datetime) -> bool:
    """Whether a task was there and open at a time."""
    if state.created_at is not None and state.created_at >= moment:
        return False
    return not state.is_completed or (state.completed_at is not None and state.completed_at >= moment)


def _is_overdue(state: TaskState, moment: datetime) -> bool:
    """Whether a task was open at a time at which its time was over."""
    return _is_open(state, moment) and state.due_at is not None and state.due_at <= moment


def _days(until: datetime, due: datetime | None) -> float:
    return 0.0 if due is None else rounded((until - due) / timedelta(days=1))


def _mean_mood(told: Sequence[tuple[datetime | None, float | None]], window: Window) -> float | None:
    moods = [mood for when, mood in told if window.has(when) and mood is not None]
    return rounded(fmean(moods)) if moods else None


def _made(review: TypedNode) -> str:
    return review.attributes.get(model.CREATED_AT, "")


def _of_type(versions: Mapping[str, Version], kind: str) -> dict[str, Version]:
    return {entry_id: version for entry_id, version in versions.items() if version.type == kind}
