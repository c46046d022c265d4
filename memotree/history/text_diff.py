"""Line diffs of two texts with limits: of texts that are too long to compare, only the sizes are given."""

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Final

MOST_CHARS: Final = 1 << 16
"""The most characters of a value or a diff in an answer; the number of omitted ones is given."""

_MOST_LINES: Final = 20_000
"""The most lines of a text that are compared, not counting those that both texts begin and end with."""

_MOST_PAIRS: Final = 500_000
"""The most pairs of equal lines. difflib's cost grows with them: this many take half a second at most."""

_CONTEXT: Final = 3


def unified(old: str, new: str) -> str:
    """The hunks of a unified diff, without the two lines of file names; "" for equal texts.

    A last line without a line break is marked as git does.
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    first = max(0, head - _CONTEXT)
    before_part = before[first : min(len(before), len(before) - tail + _CONTEXT)]
    after_part = after[first : min(len(after), len(after) - tail + _CONTEXT)]
    if _too_much(before_part, after_part):
        return f"@@ too long to compare line by line: {_size(old)} before, {_size(new)} after @@\n"
    hunks = list(difflib.unified_diff(before_part, after_part, n=_CONTEXT, lineterm=""))[2:]
    return _bounded("".join(_shown(_shifted(line, first)) for line in hunks))


def cut(value: str) -> str:
    """The value, truncated to fit into an answer; a truncated one ends with the number of omitted characters."""
    if len(value) <= MOST_CHARS:
        return value
    return f"{value[:MOST_CHARS]}… ({len(value) - MOST_CHARS} more characters)"


def _lines(text: str) -> list[str]:
    """The lines with their line breaks; only a line feed ends a line, as in git."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """The number of equal lines at the start of both."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        count += 1
    return count


def _too_much(before: Sequence[str], after: Sequence[str]) -> bool:
    if max(len(before), len(after)) > _MOST_LINES:
        return True
    counts = Counter(after)
    return sum(counts[line] for line in before) > _MOST_PAIRS


def _shifted(line: str, first: int) -> str:
    """The line; the numbers in a hunk's heading are counted from the start of the whole text."""
    if not first or not line.startswith("@@ "):
        return line
    old, new = (_moved(part, first) for part in line.split(" ")[1:3])
    return f"@@ {old} {new} @@"


def _moved(part: str, first: int) -> str:
    start, comma, count = part[1:].partition(",")
    return f"{part[0]}{int(start) + first}{comma}{count}"


def _shown(line: str) -> str:
    if line.startswith("@@ "):
        return f"{line}\n"
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _bounded(text: str) -> str:
    if len(text) <= MOST_CHARS:
        return text
    end = text.rfind("\n", 0, MOST_CHARS) + 1
    rest = text.count("\n", end)
    return f"{text[:end]}@@ {rest} more lines @@\n"


def _size(text: str) -> str:
    return f"{len(text)} characters in {text.count(chr(10)) + 1} lines"
