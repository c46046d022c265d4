"""Positions: strings that order siblings, so that inserting a node rewrites no other node.

A position is a number in base 62, written so that the byte order of the strings (PostgreSQL's C collation) is the
order of the numbers. It has an integer part, whose first letter gives the number of digits that follow (``a`` one,
``b`` two, …; below zero ``Z`` one, ``Y`` two, …), then the digits of a fraction without trailing zeros. The idea of a
fraction per sibling is known as fractional indexing (D. Greenspan, "Implementing Fractional Indexing", 2020); the
arithmetic on integers here is our own. There is always a position between two others. Appending increments the integer
part, so positions stay short (7 characters after 100,000 appends).

Every new position carries random digits, so that two writers who insert at the same place at once rarely choose the
same position (if they do, the ids decide the order).
"""

import random
import re
import string
from itertools import takewhile
from typing import Final, Protocol

from memotree_storage.errors import FailedPreconditionError, InvalidInputError

DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The digits in byte order."""

BASE: Final = len(DIGITS)

FIRST: Final = "a0"
"""The position of a node whose file does not name one."""

MAX_LENGTH: Final = 1000
"""The length of the longest position; about 5,000 insertions at exactly the same place reach it."""

_JITTER_DIGITS: Final = 3  # at an open end: two writers collide with a probability of 1 in 238,328
_ROOM: Final = BASE**2  # between two neighbours: the middle third makes it 1 in 1,281
_VALUE: Final = {digit: value for value, digit in enumerate(DIGITS)}
_FORM: Final = re.compile(r"[A-Za-z][0-9A-Za-z]+")


class Randomness(Protocol):
    """The source of the random digits; ``random.Random`` is one."""

    def randrange(self, start: int, stop: int, /) -> int:
        """Return a number from ``start`` (inclusive) to ``stop`` (exclusive)."""
        ...


_SHARED: Final = random.SystemRandom()


class InvalidPositionError(InvalidInputError):
    """A text is not a position, or the two neighbours are not in order."""

    reason = "INVALID_POSITION"


class PositionExhaustedError(FailedPreconditionError):
    """So many nodes were inserted at one place that its positions became too long."""

    reason = "POSITION_EXHAUSTED"


def position_fault(text: str) -> str:
    """Say why ``text`` is not a position; ``""`` if it is one."""
    if len(text) > MAX_LENGTH:
        return f"has {len(text)} characters, over the limit of {MAX_LENGTH}; leave it out to append the node"
    if not _FORM.fullmatch(text):
        return f"{text[:40]!r} is not a position; leave it out to append the node"
    whole = _whole_length(text[0])
    if len(text) < whole or (len(text) > whole and text[-1] == "0"):
        return f"{text[:40]!r} is not a position in its shortest form; leave it out to append the node"
    return ""


def check_position(text: str, field: str = "position") -> None:
    """Refuse a text that is not a position.

    Raises:
        InvalidPositionError: With the fault.
    """
    fault = position_fault(text)
    if fault:
        raise InvalidPositionError.at(field, fault)


def between(before: str | None, after: str | None, rng: Randomness | None = None) -> str:
    """Return a new position strictly between two others; ``None`` stands for an open end.

    Args:
        before: The position of the sibling in front, or ``None`` to come first.
        after: The position of the sibling behind, or ``None`` to come last. Siblings with equal positions have no room
            between them: pass the next different one.
        rng: The source of the random digits; the system's by default.

    Raises:
        InvalidPositionError: When a neighbour is no position, or ``before`` is not less than ``after``.
        PositionExhaustedError: When the position would be longer than ``MAX_LENGTH``.
    """
    number, digits = _pick(before, after, rng or _SHARED)
    return _write(number, digits)


def many_between(before: str | None, after: str | None, count: int, rng: Randomness | None = None) -> list[str]:
    """Return ``count`` ascending new positions between two others, evenly spread inside one block.

    The block's place is random, so that two batches inserted at the same place at once come one after the other instead
    of interleaving. Arguments and errors are those of `between`.
    """
    if count <= 0:
        return []
    number, digits = _pick(before, after, rng or _SHARED)
    if count == 1:
        return [_write(number, digits)]
    extra = 1
    while BASE**extra <= count:
        extra += 1
    size = BASE**extra
    start = number * size
    return [_write(start + (index + 1) * size // (count + 1), digits + extra) for index in range(count)]


def _pick(before: str | None, after: str | None, rng: Randomness) -> tuple[int, int]:
    """A random number between two positions, in units of ``BASE ** -digits``, and that number of digits."""
    for field, text in (("before", before), ("after", after)):
        if text is not None:
            check_position(text, field)
    if before is None or after is None:
        if before is not None:
            whole = _read(before)[0] + 1
        elif after is not None:
            whole = _read(after)[0] - 1
        else:
            whole = 0
        unit: int = BASE**_JITTER_DIGITS
        return whole * unit + rng.randrange(0, unit), _JITTER_DIGITS
    if before >= after:
        raise InvalidPositionError.at("before", f"{before!r} is not in front of {after!r}; read the siblings again")
    return _pick_inside(_read(before), _read(after), rng)


def _pick_inside(low: tuple[int, str], high: tuple[int, str], rng: Randomness) -> tuple[int, int]:
    digits = 0
    if low[0] == high[0]:  # there is no gap before the first digit that differs
        digits = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(low[1], high[1], strict=False)))
    start, _ = _scaled(low, digits)
    stop, exact = _scaled(high, digits)
    while (room := stop + (not exact) - start - 1) < _ROOM:
        digits += 1
        start, _ = _scaled(low, digits)
        stop, exact = _scaled(high, digits)
    # Any of the numbers start+1 … start+room would be correct. The middle third halves the gap roughly fairly,
    # whichever side the next insertion falls on.
    return start + 1 + rng.randrange(room // 3, room - room // 3), digits


def _scaled(position: tuple[int, str], digits: int) -> tuple[int, bool]:
    """The position in units of ``BASE ** -digits``, rounded down, and whether that is exact."""
    whole, fraction = position
    number = whole
    for digit in fraction[:digits].ljust(digits, "0"):
        number = number * BASE + _VALUE[digit]
    return number, len(fraction) <= digits


def _whole_length(head: str) -> int:
    """The number of characters of the integer part, its first letter included."""
    return 2 + (ord(head) - ord("a") if head >= "a" else ord("Z") - ord(head))


def _read(text: str) -> tuple[int, str]:
    """The integer part as a number, and the fraction's digits."""
    length = _whole_length(text[0])
    value = 0
    for digit in text[1:length]:
        value = value * BASE + _VALUE[digit]
    # Each length continues where the shorter ones end.
    shorter: int = sum(BASE**digits for digits in range(1, length - 1))
    if text[0] >= "a":
        return shorter + value, text[length:]
    return value - BASE ** (length - 1) - shorter, text[length:]


def _write(number: int, digits: int) -> str:
    whole, rest = divmod(number, BASE**digits)
    text = _write_whole(whole) + _write_digits(rest, digits).rstrip("0")
    if len(text) > MAX_LENGTH:
        raise PositionExhaustedError(
            f"There is no short position left at this place (limit {MAX_LENGTH} characters); move the siblings around "
            "it to other places, or append the node."
        )
    return text


def _write_whole(whole: int) -> str:
    index = whole if whole >= 0 else -whole - 1
    length = 1
    while index >= BASE**length:
        index -= BASE**length
        length += 1
    if length > len(string.ascii_lowercase):
        raise PositionExhaustedError("There is no position left at this end; move the siblings or append the node.")
    if whole >= 0:
        return chr(ord("a") + length - 1) + _write_digits(index, length)
    return chr(ord("Z") - length + 1) + _write_digits(BASE**length - 1 - index, length)


def _write_digits(number: int, count: int) -> str:
    digits = []
    for _ in range(count):
        number, value = divmod(number, BASE)
        digits.append(DIGITS[value])
    return "".join(reversed(digits))
