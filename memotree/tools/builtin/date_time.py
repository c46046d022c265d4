"""Dates and times: now in a zone, read, in another zone, between two, and so much later."""

import calendar
import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final, Literal

from memotree_storage.errors import FieldViolation, InvalidInputError
from pydantic import Field

from memotree.tools.function_tool import tool

_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_OFFSET: Final = re.compile(r"([+-])([01]\d|2[0-3]):?([0-5]\d)")
_LONGEST: Final = 64
_MONTHS: Final = 12
_GREATEST: Final = 10_000_000_000
_DAY_SECONDS: Final = 86_400

Text = Annotated[str, Field(max_length=_LONGEST)]
Amount = Annotated[int, Field(ge=-_GREATEST, le=_GREATEST)]
Action = Literal["now", "read", "difference", "add"]


class DateTimeError(InvalidInputError):
    """A date, a time or a zone is not one, or is out of range."""

    reason = "DATE_TIME"

    def __init__(self, field: str, told: str) -> None:
        super().__init__(f"{field} {told}", [FieldViolation(field, told)])


class Clock:
    """Tells dates and times.

    Args:
        now: The time, with a zone.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    @tool(
        category="time",
        title="Date and time",
        read_only=True,
        examples=(
            {"action": "now", "zone": "Asia/Shanghai"},
            {"action": "difference", "time": "2026-03-01", "until": "2026-12-24T18:00"},
            {"action": "add", "time": "2026-01-31", "months": 1},
        ),
    )
    async def date_time(
        self,
        action: Action = "now",
        time: Text = "",
        until: Text = "",
        zone: Text = "UTC",
        years: Amount = 0,
        months: Amount = 0,
        weeks: Amount = 0,
        days: Amount = 0,
        hours: Amount = 0,
        minutes: Amount = 0,
        seconds: Amount = 0,
    ) -> dict[str, Any]:
        """Tell the date and time in a zone, read a time, or compute with times. The answer has the weekday and week.

        Args:
            action: now; read shows time in the zone; difference is that from time to until; add is so much after time.
            time: As in ISO 8601 (2026-01-31, 2026-01-31T12:00+01:00) or a mail; now when not given.
            until: The later time of a difference; now when not given.
            zone: A name such as Europe/Berlin, or an offset such as +02:00; also of times that have no zone.
            years: To add; a day that the month lacks becomes its last.
            months: To add.
            weeks: To add.
            days: To add, at the same time of day.
            hours: To add.
            minutes: To add.
            seconds: To add.
        """
        place = zone_of(zone)
        at = self._now() if action == "now" else self._read("time", time, place)
        other = self._read("until", until, place)
        try:
            if action == "difference":
                return difference(at, other)
            at = at.astimezone(place)
            if action == "add":
                at = later(at, years * _MONTHS + months, timedelta(weeks=weeks, days=days))
                at = (at.astimezone(UTC) + timedelta(hours=hours, minutes=minutes, seconds=seconds)).astimezone(place)
            return described(at, zone)
        except (OverflowError, ValueError):
            raise DateTimeError("time", "is outside of the years 1 to 9999.") from None

    def _read(self, field: str, text: str, place: tzinfo) -> datetime:
        if not text.strip():
            return self._now()
        try:
            found = _parsed(text.strip())
            return found if found.tzinfo is not None else found.replace(tzinfo=place)
        except (ValueError, TypeError, IndexError, OverflowError):
            raise DateTimeError(field, "must be a time as in ISO 8601, such as 2026-01-31T12:00:00+01:00.") from None


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return parsedate_to_datetime(text)


def zone_of(name: str) -> tzinfo:
    """The zone with this name or offset.

    Raises:
        DateTimeError: There is none.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        distance = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-distance if offset[1] == "-" else distance)
    if name in {"", "UTC", "Z"}:
        return UTC
    try:
        if _ZONE.fullmatch(name):
            return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # such as a folder, or a file of another kind
        pass
    raise DateTimeError("zone", f"{name!r} is no time zone; give a name such as Europe/Berlin, or an offset.")


def later(at: datetime, months: int, distance: timedelta) -> datetime:
    """The time of day so much later in the calendar; a day that the month lacks becomes its last."""
    year, month = divmod(at.year * _MONTHS + at.month - 1 + months, _MONTHS)
    if not 1 <= year <= 9999:  # noqa: PLR2004 - the years of Python's calendar
        raise OverflowError
    day = min(at.day, calendar.monthrange(year, month + 1)[1])
    return at.replace(year=year, month=month + 1, day=day) + distance


def difference(begin: datetime, end: datetime) -> dict[str, Any]:
    """How long it is from one time to another; negative if the other is earlier."""
    distance = end.astimezone(UTC) - begin.astimezone(UTC)  # two times of one zone are compared by their clocks
    total = abs(distance)
    minutes, seconds = divmod(total.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if distance < timedelta() else ""
    return {
        "total_seconds": distance.total_seconds(),
        "total_days": distance.total_seconds() / _DAY_SECONDS,
        "text": f"{sign}{total.days} days {hours:02}:{minutes:02}:{seconds:02}",
    }


def described(at: datetime, zone: str) -> dict[str, Any]:
    """A time in the words and numbers that one may ask for."""
    year, week, _ = at.isocalendar()
    return {
        "time": at.isoformat(timespec="seconds" if not at.microsecond else "microseconds"),
        "date": at.date().isoformat(),
        "weekday": calendar.day_name[at.weekday()],
        "week": f"{year}-W{week:02}",
        "day_of_year": at.timetuple().tm_yday,
        "zone": zone or "UTC",
        "unix_seconds": int(at.timestamp()),
    }
