"""Finds the day in a time as people and programs write it. Good enough to tell days apart, and used only for that."""

import re
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_YEAR_FIRST: Final = re.compile(r"(?<!\d)(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})(?!\d)")
_COMPACT: Final = re.compile(r"(?<!\d)((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=T|$)")
_DAY_FIRST: Final = re.compile(
    rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th)?[\s-]+(?:of\s+)?{_MONTH}[\s,-]+(\d{{4}})(?!\d)", re.IGNORECASE
)
_MONTH_FIRST: Final = re.compile(rf"\b{_MONTH}\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})(?!\d)", re.IGNORECASE)
_NUMBERS: Final = re.compile(r"(?<!\d)(\d{1,2})[/.](\d{1,2})[/.](\d{4})(?!\d)")
_LONGEST: Final = 200


def day_of(time: str) -> str:
    """Returns the day as ``YYYY-MM-DD``, or as written if the order of day and month is unknown (``8/5/2023``).

    Returns ``""`` if there is no day in the text.
    """
    time = time[:_LONGEST]
    for pattern in (_YEAR_FIRST, _COMPACT):
        if found := pattern.search(time):
            return _day(found[1], int(found[2]), found[3])
    if found := _DAY_FIRST.search(time):
        return _day(found[3], _MONTHS.index(found[2].lower()) + 1, found[1])
    if found := _MONTH_FIRST.search(time):
        return _day(found[3], _MONTHS.index(found[1].lower()) + 1, found[2])
    found = _NUMBERS.search(time)
    return found[0] if found else ""


def _day(year: str, month: int, day: str) -> str:
    return f"{year}-{month:02}-{int(day):02}"
