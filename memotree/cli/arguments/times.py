"""Times as people say them: ``yesterday``, ``3 days ago``, ``last monday``, ``09:30``, ``2026-11-03``, ISO 8601.

A time of day without a zone is in the zone of this machine. A day is its begin: where commits are listed,
in that zone too; where the server reads the time of a node, in UTC, as in the node's file. The few forms are read here,
since libraries for dates in all languages are large and guess where an error is better.
"""

import re
from calendar import day_name
from datetime import datetime, time, timedelta
from typing import Final

from memotree.cli.errors import CliError

SAID: Final = ': 2026-11-03, 2026-11-03T09:30Z, 09:30, yesterday, "3 days ago"; in local time unless it has a zone.'
"""The end of the help of an option that takes a time."""

SENT: Final = ': 2026-11-03, 09:30, yesterday, "3 days ago", RFC 3339; a date begins at 0:00 UTC, a time is local.'
"""The same for an option whose time the server reads."""

# Texts, which `re` compiles at their first use: few commands take a time.
_AGO: Final = r"(\d{1,6}|an?) (minute|hour|day|week|month|year)s?(?: ago)?"
_LAST: Final = r"last (week|month|year|\w+day)"
_CLOCK: Final = r"(?:(today|yesterday) (?:at )?)?(\d{1,2}):(\d{2})"
_DAY: Final = r"today|yesterday|last \w+day"
_ZONED_OR_DATE: Final = r"[^:]*|.*([zZ]|[+-]\d\d(:?\d\d)?)"
_MONTHS: Final = {"month": 1, "year": 12}
_DAYS: Final = tuple(name.lower() for name in day_name)


class BadTimeError(CliError):
    """A text that is no time."""

    reason = "BAD_TIME"

    def __init__(self, option: str, text: str) -> None:
        super().__init__(
            f"{option}: {text!r} is no time. Write 2026-11-03, 2026-11-03T09:30+01:00, 09:30, today, yesterday, "
            "'3 days ago', 'last week' or 'last monday'."
        )


def said_time(option: str, text: str, now: datetime | None = None) -> datetime | None:
    """The time that ``text`` says, with its zone; ``None`` for an empty text.

    Raises:
        BadTimeError: It says none; the error names the ``option``.
    """
    said = " ".join(text.split())
    if not said:
        return None
    try:
        return _absolute(said) or _relative(said.lower(), now or datetime.now().astimezone())
    except (ValueError, OverflowError):
        raise BadTimeError(option, text) from None


def sent_time(text: str, now: datetime | None = None) -> str:
    """``text`` as the server reads it: what is relative to now or to this machine's zone is replaced.

    A word for a day becomes its date. Other texts are sent as they are, since the server reads more forms of dates, and
    says what is wrong with a text that is none.
    """
    said = " ".join(text.split())
    if written := _absolute(said):
        return text if re.fullmatch(_ZONED_OR_DATE, said) else written.isoformat(timespec="seconds")
    try:
        found = _relative(said.lower(), now or datetime.now().astimezone())
    except (ValueError, OverflowError):
        return text
    return found.date().isoformat() if re.fullmatch(_DAY, said.lower()) else found.isoformat(timespec="seconds")


def _absolute(said: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(said)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):  # no time, or one in the first or last hours of the calendar
        return None


def _relative(said: str, now: datetime) -> datetime:
    if said == "now":
        return now
    if said in {"today", "yesterday"}:
        return _begin(now, days=said == "yesterday")
    if clock := re.fullmatch(_CLOCK, said):
        begin = _begin(now, days=clock[1] == "yesterday")
        return datetime.combine(begin.date(), time(int(clock[2]), int(clock[3]))).astimezone()
    if ago := re.fullmatch(_AGO, said):
        return _back(now, 1 if ago[1].startswith("a") else int(ago[1]), ago[2])
    if last := re.fullmatch(_LAST, said):
        if last[1] in _DAYS:
            return _begin(now, days=(now.weekday() - _DAYS.index(last[1]) - 1) % 7 + 1)
        return _back(now, 1, last[1])
    raise ValueError(said)


def _begin(now: datetime, *, days: int) -> datetime:
    """The begin of a day in local time, which may have another offset than now."""
    return datetime.combine(now.date() - timedelta(days=days), time()).astimezone()


def _back(now: datetime, number: int, unit: str) -> datetime:
    if unit not in _MONTHS:
        return now - timedelta(**{f"{unit}s": number})
    months = now.year * 12 + now.month - 1 - number * _MONTHS[unit]
    year, month = months // 12, months % 12 + 1
    for day in (now.day, 30, 29, 28):  # the last day of a shorter month
        try:
            found = now.replace(year=year, month=month, day=min(day, now.day), tzinfo=None)
        except ValueError:
            continue
        return found.astimezone()
    raise ValueError(unit)
