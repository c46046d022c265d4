"""Positions: strings that order siblings, so that an insertion rewrites nobody else.

A position is a number in base 62, written so that the byte order of the strings (PostgreSQL's C collation) is the
order of the numbers: a whole part whose first letter tells how many digits follow (``a`` one, ``b`` two, …; ``Z`` one,
``Y`` two, … below zero), then the digits of a fraction without a zero at its end. The idea of a fraction per sibling
is known as fractional indexing (D. Greenspan, "Implementing Fractional Indexing", 2020); the arithmetic on whole
numbers here is our own. Between any two positions there is another; appending counts the whole part up, so that a
position stays short (7 characters after 100,000 appends).

Every new position carries random digits: two writers who insert at one place at once rarely choose the same one (and
if they do, the ids decide the order).
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
"""The position of a node whose file names none."""

MAX_LENGTH: Final = 1000
"""The longest position; about 5,000 insertions at one and the same place reach it."""

_JITTER_DIGITS: Final = 3  # at an open end: 1 in 238,328 that two writers meet
_ROOM: Final = BASE**2  # between two neighbours: the middle third leaves 1 in 1,281
_VALUE: Final = {digit: value for value, digit in enumerate(DIGITS)}
_FORM: Final = re.compile(r"[A-Za-z][0-9A-Za-z]+")


class Randomness(Protocol):
    """Where the random digits come from; ``random.Random`` is one."""

    def randrange(self, start: int, stop: int, /) -> int:
        """A number from ``start`` up to before ``stop``."""
        ...


_SHARED: Final = random.SystemRandom()


class InvalidPositionError(InvalidInputError):
    """A text is no position, or the neighbours are not in order."""

    reason = "INVALID_POSITION"


class PositionExhaustedError(FailedPreconditionError):
    """So many insertions hit one place that its positions became too long."""

    reason = "POSITION_EXHAUSTED"


def position_fault(text: str) -> str:
    """What keeps ``text`` from being a position, or ``""``."""
    if len(text) > MAX_LENGTH:
        return f"has {len(text)} characters, over the limit of {MAX_LENGTH}; leave it out to append the node"
    if not _FORM.fullmatch(text):
        return f"{text[:40]!r} is no position; leave it out to append the node"
    whole = _whole_length(text[0])
    if len(text) < whole or (len(text) > whole and text[-1] == "0"):
        return f"{text[:40]!r} is no position in its shortest form; leave it out to append the node"
    return ""


def check_position(text: str, field: str = "position") -> None:
    """Refuse a text that is no position.

    Raises:
        InvalidPositionError: With the fault.
    """
    fault = position_fault(text)
    if fault:
        raise InvalidPositionError.at(field, fault)


def between(before: str | None, after: str | None, rng: Randomness | None = None) -> str:
    """A new position strictly between two; ``None`` stands for the open end.

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
    """``count`` ascending new positions between two, evenly spread inside a block of their own.

    The block's place is random, so that two batches inserted at one place at once follow each other instead of
    interleaving. Arguments and errors are those of `between`.
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
    """A random number between two positions, in units of ``BASE ** -digits``, and those digits."""
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
    if low[0] == high[0]:  # there is no room before the first digit that differs
        digits = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(low[1], high[1], strict=False)))
    start, _ = _scaled(low, digits)
    stop, exact = _scaled(high, digits)
    while (room := stop + (not exact) - start - 1) < _ROOM:
        digits += 1
        start, _ = _scaled(low, digits)
        stop, exact = _scaled(high, digits)
    # Any of the numbers start+1 … start+room is right; the middle third halves the gap about fairly, whichever side
    # the next insertion falls on.
    return start + 1 + rng.randrange(room // 3, room - room // 3), digits


def _scaled(position: tuple[int, str], digits: int) -> tuple[int, bool]:
    """The position in units of ``BASE ** -digits``, rounded down, and whether that lost nothing."""
    whole, fraction = position
    number = whole
    for digit in fraction[:digits].ljust(digits, "0"):
        number = number * BASE + _VALUE[digit]
    return number, len(fraction) <= digits


def _whole_length(head: str) -> int:
    """How many characters the whole part has, its head included."""
    return 2 + (ord(head) - ord("a") if head >= "a" else ord("Z") - ord(head))


def _read(text: str) -> tuple[int, str]:
    """The whole part as a number, and the fraction's digits."""
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
