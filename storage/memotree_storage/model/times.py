"""Parses the times in the attributes `time`, `valid_from` and `valid_to`, as people and programs write them.

The formats are RFC 3339 and ISO 8601 (`2023-05-08T13:56:00Z`, `2023-05-08 13:56`, `2023-05-08`, `2023-05`, `2023`), and
English dates with the month as a word and an optional time of day before or after it (`1:56 pm on 8 May, 2023`,
`May 8th 2023`). A time without a zone is UTC; a date without a time is its first moment. A date of numbers with slashes
or dots is rejected, because `05/08` is May in one country and August in another.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>\d{4})"
_DATES: Final = (
    re.compile(rf"\b{_DAY}(?: of)? {_MONTH},? {_YEAR}\b"),
    re.compile(rf"\b{_MONTH} {_DAY},? {_YEAR}\b"),
    re.compile(rf"\b{_MONTH},? {_YEAR}\b"),
)
_CLOCK: Final = re.compile(
    r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?::(?P<second>\d{2}))? ?(?P<half>[ap]\.?m\b\.?)?"
)
_WEEKDAY: Final = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_LEFT_OVER: Final = re.compile(rf"(?:\b(?:at|on|utc|gmt|{_WEEKDAY})\b|[\s,;.()-])*")
_ONLY_YEAR: Final = re.compile(r"\d{4}")
_YEAR_MONTH: Final = re.compile(r"\d{4}-\d{2}")
_MOST_CHARS: Final = 100
_NOON: Final = 12


@lru_cache(maxsize=1 << 14)
def read_time(text: str) -> datetime | None:
    """Returns the time that a text names, or ``None`` if it cannot be parsed."""
    text = text.strip()
    if not text or len(text) > _MOST_CHARS:
        return None
    try:
        return _iso(text) or _written(" ".join(text.lower().split()))
    except ValueError:  # such as the 31st of February, or 25 o'clock
        return None


def _iso(text: str) -> datetime | None:
    if _ONLY_YEAR.fullmatch(text):
        text += "-01-01"
    elif _YEAR_MONTH.fullmatch(text):
        text += "-01"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _in_utc(found)


def _written(text: str) -> datetime | None:
    """Parses an English date with or without a time of day; ``None`` if there is any other text."""
    found = next((match for pattern in _DATES if (match := pattern.search(text))), None)
    if found is None:
        return None
    rest = text[: found.start()] + " " + text[found.end() :]
    clock = _CLOCK.search(rest)
    if clock is not None:
        rest = rest[: clock.start()] + " " + rest[clock.end() :]
    if not _LEFT_OVER.fullmatch(rest):
        return None
    parts = found.groupdict()
    hour, minute, second = _clock(clock)
    month = _MONTHS.index(parts["month"][:3]) + 1
    return datetime(int(parts["year"]), month, int(parts.get("day") or 1), hour, minute, second, tzinfo=UTC)


def _clock(found: re.Match[str] | None) -> tuple[int, int, int]:
    if found is None:
        return 0, 0, 0
    hour, half = int(found["hour"]), found["half"]
    if half is None and found["minute"] is None:
        raise ValueError("a number alone is not a time of day")
    if half is not None:
        if not 1 <= hour <= _NOON:
            raise ValueError("an hour with am or pm must be 1 to 12")
        hour = hour % _NOON + (_NOON if half.startswith("p") else 0)
    return hour, int(found["minute"] or 0), int(found["second"] or 0)


def _in_utc(found: datetime) -> datetime:
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError as error:  # in the first or last hours of the calendar
        raise ValueError("the time is outside the calendar") from error
