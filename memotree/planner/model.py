"""The nodes of a plan: their types, attributes and links, and how the values of these are written and read.

Whoever may change nodes may write any attribute, so reading takes what is no value as not given.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal, get_args

from memotree_storage.model.times import read_time

GOAL: Final = "goal"
PROJECT: Final = "project"
TASK: Final = "task"
REVIEW: Final = "review"

PART_OF: Final = "PART_OF"
"""The relation from a task to its project, and from a project to a goal that it serves."""

ABOUT: Final = "ABOUT"
"""The relation from a review to a project."""

DEFAULT_ARCHIVE: Final = "planner"
"""The archive of what names none."""

STATUS: Final = "status"
"""Of a project or task: how far it is."""

CREATED_AT: Final = "created_at"
"""When it was made."""

STAGE: Final = "stage"
"""Of a goal: how far it looks ahead."""

DEADLINE: Final = "deadline"
"""Of a goal: the day by which it should be reached."""

DUE_DATE: Final = "due_date"
"""Of a task: the time or day by which it should be completed."""

PRIORITY: Final = "priority"
"""Of a task: how urgent it is."""

COMPLETED_AT: Final = "completed_at"
"""Of a task: when it was completed."""

COMPLETION_NOTE: Final = "completion_note"
"""Of a task: what there is to say about its completion."""

REVIEW_TYPE: Final = "review_type"
"""Of a review: how much time it looks back on."""

MOOD: Final = "mood"
"""Of a review: from 1 to 10."""

ProjectStatus = Literal["active", "paused", "completed"]
GoalStage = Literal["life", "yearly", "quarter"]
Priority = Literal["low", "medium", "high"]
ReviewType = Literal["daily", "weekly", "monthly"]

OPEN: Final = "open"
COMPLETED: Final = "completed"
"""The statuses of a task."""

_PROJECT_STATUSES: Final = frozenset(get_args(ProjectStatus))
_ISO: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?) ?(Z|z|[+-]\d{2}:?\d{2})?)?")
_DAY_CHARS: Final = 10
_LOWEST_MOOD: Final = 1.0
_HIGHEST_MOOD: Final = 10.0


def written_time(moment: datetime) -> str:
    """A time as it is written in attributes: in UTC, to the second."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def checked_due_date(text: str) -> str:
    """A day or time in the form in which it is written in attributes.

    Raises:
        ValueError: It is neither in the form of ISO 8601.
    """
    found = _ISO.fullmatch(text.strip())
    fault = "must be a day or a time of ISO 8601, such as 2026-12-01 or 2026-12-01T17:00:00+01:00"
    if found is None:
        raise ValueError(fault)
    day, clock, zone = found.groups()
    try:
        if clock is None:
            return date.fromisoformat(day).isoformat()
        return written_time(datetime.fromisoformat(f"{day}T{clock}{(zone or 'Z').upper()}"))
    except (ValueError, OverflowError):
        raise ValueError(fault) from None


def end_of(text: str) -> datetime | None:
    """When the time of something that is due is over: of a day, at its end in UTC; ``None`` if it is no time."""
    moment = read_time(text)
    if moment is None or len(text.strip()) > _DAY_CHARS:
        return moment
    try:
        return datetime.combine(moment.date(), time(), UTC) + timedelta(days=1)
    except OverflowError:
        return moment


@dataclass(frozen=True, slots=True)
class TaskState:
    """What the attributes of a task say.

    Attributes:
        is_completed: Whether it is completed.
        created_at: When it was made; ``None`` if that is not known.
        completed_at: When it was completed; ``None`` if it was not, or that is not known.
        due_at: When its time is over; ``None`` if it has none.
    """

    is_completed: bool
    created_at: datetime | None
    completed_at: datetime | None
    due_at: datetime | None

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> "TaskState":
        """Read the attributes."""
        is_completed = attributes.get(STATUS) == COMPLETED
        return cls(
            is_completed,
            read_time(attributes.get(CREATED_AT, "")),
            read_time(attributes.get(COMPLETED_AT, "")) if is_completed else None,
            end_of(attributes.get(DUE_DATE, "")),
        )

    def is_overdue(self, now: datetime) -> bool:
        """Whether it is open and its time is over."""
        return not self.is_completed and self.due_at is not None and self.due_at <= now

    @property
    def is_late(self) -> bool:
        """Whether it was completed after its time was over."""
        return self.completed_at is not None and self.due_at is not None and self.completed_at > self.due_at

    @property
    def hours(self) -> float | None:
        """How long it took from its creation to its completion; ``None`` if that is not known."""
        if self.created_at is None or self.completed_at is None or self.completed_at < self.created_at:
            return None
        return (self.completed_at - self.created_at).total_seconds() / 3600


def project_status(attributes: Mapping[str, str]) -> str:
    """The status of a project; one that has none is active."""
    found = attributes.get(STATUS, "")
    return found if found in _PROJECT_STATUSES else "active"


def mood_of(attributes: Mapping[str, str]) -> float | None:
    """The mood of a review; ``None`` if it has none."""
    try:
        found = float(attributes.get(MOOD, ""))
    except ValueError:
        return None
    return found if _LOWEST_MOOD <= found <= _HIGHEST_MOOD else None


def targets(relations: Iterable[Iterable[str]], kind: str) -> list[str]:
    """The ids that relations of a type point to, each given with its type and target first."""
    return [target for found, target, *_ in relations if found == kind]
