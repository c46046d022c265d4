"""Where a text is prose, and the sentences of prose."""

import re
from collections.abc import Sequence
from typing import Final

_SENTENCE_END: Final = re.compile(
    r"(?<![.!?])[.!?]++[\"'\u201d\u2019)\]]*+\s+"  # a full stop, what closes after it, and white space
    r"|[\u3002\uff01\uff1f]++[\u201d\u2019\u300d\u300f\uff09]*+\s*"  # the same in Chinese, which needs none
    r"|\n\s*"
)
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_AS_IT_IS: Final = re.compile(r"^\t|^ {4}|\|")
"""Is in a line of code, or of a table."""

_ITEM: Final = re.compile(r"(?:[-*+>]\s+)*\d{1,9}[.)]")
"""The number of an item of a list, which is no sentence."""


class Prose:
    """Which lines of a text are prose, where sentences can be told apart.

    A fence ends with a bare line of its own mark that is at least as long, as in CommonMark.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._is_prose: list[bool] = []
        fence = ""
        for line in lines:
            mark = _FENCE.match(line)
            self._is_prose.append(not fence and mark is None and not _AS_IT_IS.search(line))
            if mark is None:
                continue
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not mark[2].strip():
                fence = ""

    def holds(self, low: int, high: int) -> bool:
        """Whether all lines from ``low`` to ``high`` are prose."""
        return all(self._is_prose[low:high])


def sentences_of(text: str) -> list[str]:
    """The sentences of a text with all that is between them; joined, they are the text."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    starts = [0, *ends]
    return [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True) if start < end]


class LineSentences:
    """Divides lines of versions of a text into sentences; those that the last version had are not divided again."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def of(self, text: str) -> list[list[str]]:
        """For each line its sentences without white space around them.

        A line of code or of a table, and an empty one, is left as it is.
        """
        lines = text.split("\n")
        prose = Prose(lines)
        known = self._known
        self._known = {
            line: known.get(line) or _divided(line) for at, line in enumerate(lines) if line and prose.holds(at, at + 1)
        }
        return [self._known[line] if line and prose.holds(at, at + 1) else [line] for at, line in enumerate(lines)]


def _divided(line: str) -> list[str]:
    """The sentences of a line; the number of a list item stays with its first one."""
    found = [sentence.strip() for sentence in sentences_of(line)]
    if len(found) > 1 and _ITEM.fullmatch(found[0]):
        found[:2] = [f"{found[0]} {found[1]}"]
    return found
