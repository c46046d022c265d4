"""Parts of a long answer.

A model cannot take an answer of any length, and hosts refuse one of more than some 25,000 tokens. So the long texts of
an answer are cut, and the argument ``part`` of a tool that reads returns what follows. An answer that cannot be read in
parts is cut for the model alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memotree_storage.errors import FieldViolation

PART: Final = "part"
"""The argument: the number of a part, from 1."""

NEXT_PART: Final = "next_part"
"""The field of an answer that has the number of the next part."""

MOST_BYTES: Final = 40_000
"""The most bytes of UTF-8 of the long texts of one part: 10,000 tokens of English, 13,000 of Chinese. The end of a line
counts as `_LINE_BYTES`, since each line is quoted."""

LONGER: Final = "The answer is longer; only its beginning is shown."

_MOST_OF_TEXT: Final = 2 * MOST_BYTES
"""The most bytes of all that a model reads of one part: of short texts there may be as many as of long ones."""

_SHORT: Final = 256
"""Texts of at most this many bytes are in each part: ids, titles, states."""

_LINE_BYTES: Final = 8
_NEAR: Final = 256
"""A part ends at the end of a line that is at most this many bytes before, or else at that of a word."""

_WHOLE: Final = frozenset({"id", "title", "path", "name", "next_page_token"})
"""The fields that are in each part however long they are."""

_LINE_ENDS: Final = bytes.maketrans(b"\r\x0b\x0c\x1c\x1d\x1e", b"\n" * 6)
_CONTINUED: Final = 0b11000000, 0b10000000
"""The mask and the value of a byte of UTF-8 that does not begin a character."""


@dataclass(slots=True)
class PartAsked:
    """The part of an answer that a caller wants.

    Attributes:
        number: From 1.
        count: How many parts the answer has; known once it was cut.
        may_go_on: Whether the caller can ask for another part, which makes the same call again.
    """

    number: int = 1
    count: int = field(default=1, init=False)
    may_go_on: bool = True

    def of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The part of an answer, with the number of the next one.

        Part after part, each long text is whole. The first part has all items of lists; a later one, those that it has
        text of.
        """
        texts = _Texts((self.number - 1) * MOST_BYTES)
        found: dict[str, Any] = texts.within(data)
        self.count = max(1, -(-texts.bytes // MOST_BYTES))
        if self.count == 1:
            return dict(data)
        return {**found, NEXT_PART: self.number + 1} if self.may_go_on and self.number < self.count else found

    @property
    def fault(self) -> FieldViolation | None:
        """What is wrong with its number, once the answer was cut."""
        if self.number <= self.count:
            return None
        parts = "one part" if self.count == 1 else f"{self.count} parts"
        return FieldViolation(PART, f"is {self.number}, and the answer has {parts}.")

    @property
    def remark(self) -> str:
        """A line for a model if this is not the whole answer."""
        if self.count == 1:
            return ""
        if not self.may_go_on:
            return LONGER
        here = f"Part {self.number} of {self.count}."
        return here if self.number == self.count else f"{here} The same call with {PART}={self.number + 1} goes on."


def shortened(text: str) -> str:
    """The beginning of a text for a model that is long without long texts in it, as that of a list of short ones."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MOST_OF_TEXT:
        return text
    beginning = encoded[: _boundary(encoded, _MOST_OF_TEXT)].decode()
    whole_lines = beginning.rpartition("\n")[0]
    return f"{whole_lines or beginning}\n{LONGER} Ask for less at once."


def part_asked(value: Any) -> PartAsked:
    """The part that the value of the argument means.

    Raises:
        ValueError: It is no whole number from 1.
    """
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < _SHORT:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or value < 1:
        raise ValueError
    return PartAsked(int(value))


@dataclass(slots=True)
class _Texts:
    """Walks through an answer, and counts the bytes of its long texts."""

    start: int
    bytes: int = 0

    def within(self, value: Any) -> Any:
        """The value with that of its long texts which is in this part."""
        if isinstance(value, str):
            return self._cut(value)
        if isinstance(value, Mapping):
            return {name: each if name in _WHOLE else self.within(each) for name, each in value.items()}
        if isinstance(value, list):
            found = []
            for each in value:
                before = self.bytes
                part = self.within(each)
                has_text = before < self.bytes
                is_here = self.start < self.bytes and before < self.start + MOST_BYTES
                if not self.start or (is_here if has_text else not isinstance(each, Mapping)):
                    found.append(part)
            return found
        return value

    def _cut(self, text: str) -> str:
        if len(text) <= _SHORT and len(text.encode(errors="replace")) <= _SHORT:
            return text
        encoded = text.encode(errors="replace")
        lines = encoded.translate(_LINE_ENDS)
        first, self.bytes = self.bytes, self.bytes + len(encoded) + (_LINE_BYTES - 1) * lines.count(b"\n")
        start, end = (_end_before(lines, place - first) for place in (self.start, self.start + MOST_BYTES))
        return encoded[start:end].decode()


def _end_before(lines: bytes, size: int) -> int:
    """The place in a text before which there is at most this much of it: the end of a line or word if one is near."""
    place = used = 0
    for line in lines.split(b"\n"):
        if used + len(line) + _LINE_BYTES > size:
            place += min(max(size - used, 0), len(line))
            break
        used += len(line) + _LINE_BYTES
        place += len(line) + 1
    if place >= len(lines):
        return len(lines)
    near = max(0, place - _NEAR)
    ends = (lines.rfind(mark, near, place) for mark in (b"\n", b" "))
    gap = next((end for end in ends if end >= 0), -1)
    return _boundary(lines, gap + 1 if gap >= 0 else place)


def _boundary(encoded: bytes, place: int) -> int:
    """The first place from there on at which a character begins."""
    mask, continued = _CONTINUED
    while place < len(encoded) and encoded[place] & mask == continued:
        place += 1
    return place
