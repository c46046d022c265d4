"""Whether a question is about the past: about what was so before, or on a day of the past."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from memotree_storage.index.terms import fold
from memotree_storage.model.times import read_time

from memotree.forest.recall.former import FormerText
from memotree.models.languages import LANGUAGES, MONTHS

_MOST_CHARS: Final = 1000
"""How much of a question is looked at."""

_DATE: Final = re.compile(rf"\b(?:(\d{{4}}-\d\d-\d\d)|(?:({'|'.join(MONTHS)}) )?((?:19|20)\d\d))\b")
_HAPPENED: Final = re.compile(r"\b(?:did|was|were|had|used)\b")
_BEFORE: Final = re.compile("|".join(f"(?:{words['past']})" for words in LANGUAGES.values() if "past" in words))


@dataclass(frozen=True, slots=True)
class Past:
    """The past that a question is about: a moment, in seconds since 1970, or whatever was before if it is ``None``."""

    moment: float | None

    def of(self, texts: Sequence[FormerText]) -> Sequence[FormerText]:
        """Return those of some former texts that were said then."""
        return texts if self.moment is None else [text for text in texts if text.was_said_at(self.moment)]


def past_asked(question: str, now: float) -> Past | None:
    """Return the past that a question is about; ``None`` if it is about what holds now.

    Words such as "before" and "used to" are known in eight languages. A date counts in English questions in the past
    tense; the moment is the end of the day, month or year.

    Args:
        question: The question.
        now: The time of the question, in seconds since 1970.
    """
    folded = fold(question[:_MOST_CHARS])
    if _BEFORE.search(folded):
        return Past(None)
    found = _DATE.search(folded) if _HAPPENED.search(folded) else None
    moment = None if found is None else _end(*found.groups())
    return Past(moment) if moment is not None and moment < now else None


def _end(day: str | None, month: str | None, year: str | None) -> float | None:
    """Return the beginning of the next day, month or year, in seconds since 1970; ``None`` if there is no such day."""
    if day is not None:
        begin = read_time(day)
        return None if begin is None else begin.timestamp() + 86_400
    months = 12 * int(year or 0) + (12 if month is None else MONTHS.index(month) + 1)
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC).timestamp()
