"""Differences of two texts by words: what both have, what is gone and what is new, as parts in the order of the text.

Lines are compared first; words only where lines differ, so a long text costs little more than its diff by lines. In
scripts without spaces each character counts as a word. White space or a sign that is equal between two changed words is
told as changed with them, and lines that share little as replaced whole: what is left reads as a person would mark it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from memotree_storage.model.line_matching import Match, matches
from memotree_storage.model.tokens import UNSPACED, continues

from memotree.history.text_diff import CONTEXT, MOST_CHARS, Differing, differing, grouped, lines_of, size_of

_WORD: Final = re.compile(rf"\s+|[{UNSPACED}]|[^\W{UNSPACED}]+(?:[.,'\u2019-][^\W{UNSPACED}]+)*|.", re.DOTALL)
_LETTER: Final = re.compile(rf"[^\W{UNSPACED}]")
_HAS_WORD: Final = re.compile(r"\w")
_SHARED: Final = 3
"""Lines whose common words are less than this part of the shorter side are replaced whole."""


class Kind(Enum):
    """What a part of two compared texts is."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"
    OMITTED = "omitted"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of two compared texts; the text of an omitted one says how much is left out."""

    kind: Kind
    text: str


def by_words(old: str, new: str) -> list[Part]:
    """The parts of two texts; none for equal texts. Lines far from all changes are omitted.

    Words are compared in as many characters as an answer may have; lines beyond are told as replaced.

    Joined without the removed ones, they are the new text, without the added ones the old one, but for what is omitted.
    """
    if old == new:
        return []
    before, after = lines_of(old), lines_of(new)
    found = matches(before, after)
    if found is None:
        return [Part(Kind.OMITTED, f"too long to compare: {size_of(old)} before, {size_of(new)} after")]
    return _bounded(_joined(_parts(before, after, list(differing(before, after, found)))))


def _parts(before: Sequence[str], after: Sequence[str], changes: Iterable[Differing]) -> Iterator[Part]:
    room = MOST_CHARS
    at = 0
    for hunk in grouped(changes):
        start = max(at, hunk[0].low - CONTEXT)
        yield from _left_out(start - at)
        at = start
        for change in hunk:
            yield Part(Kind.KEPT, "".join(before[at : change.low]))
            sides = "".join(before[change.low : change.high]), "".join(after[change.begin : change.end])
            room -= sum(map(len, sides))
            yield from _changed(*sides) if room >= 0 else _replaced(*sides)
            at = change.high
        end = min(len(before), at + CONTEXT)
        yield Part(Kind.KEPT, "".join(before[at:end]))
        at = end
    yield from _left_out(len(before) - at)


def _left_out(lines: int) -> Iterator[Part]:
    if lines:
        yield Part(Kind.OMITTED, f"{lines} equal lines" if lines > 1 else "1 equal line")


def _replaced(old: str, new: str) -> list[Part]:
    return [Part(Kind.REMOVED, old), Part(Kind.ADDED, new)]


def _changed(old: str, new: str) -> list[Part]:
    """Lines in whose place others are, by words; whole if they share little or are too long to compare."""
    before, after = _words(old), _words(new)
    kept = [match for match in matches(before, after) or () if _is_told(before, after, match)]
    shared = sum(len("".join(before[match.before : match.before + match.count])) for match in kept)
    if shared * _SHARED < min(len(old), len(new)):
        return _replaced(old, new)
    parts: list[Part] = []
    low = begin = 0
    for match in [*kept, Match(len(before), len(after), 0)]:
        parts.append(Part(Kind.REMOVED, "".join(before[low : match.before])))
        parts.append(Part(Kind.ADDED, "".join(after[begin : match.after])))
        low, begin = match.before + match.count, match.after + match.count
        parts.append(Part(Kind.KEPT, "".join(before[match.before : low])))
    return parts


def _is_told(before: Sequence[str], after: Sequence[str], match: Match) -> bool:
    """Whether equal words are told as such: those with letters or digits, and what begins or ends both sides."""
    if (match.before, match.after) == (0, 0):
        return True
    if (match.before + match.count, match.after + match.count) == (len(before), len(after)):
        return True
    return any(_HAS_WORD.search(word) for word in before[match.before : match.before + match.count])


def _joined(parts: Iterable[Part]) -> list[Part]:
    """The parts without empty ones; neighbours of one kind are one."""
    found: list[Part] = []
    for part in parts:
        if found and found[-1].kind is part.kind:
            found[-1] = Part(part.kind, found[-1].text + part.text)
        elif part.text:
            found.append(part)
    return found


def _words(text: str) -> list[str]:
    """The words of a text with all that is between them; a mark stays with its letter."""
    found = _WORD.findall(text)
    if text.isascii():
        return found
    words: list[str] = []
    is_open = False  # whether the last one ends with a mark, so that letters go on in it
    for word in found:
        is_mark = continues(word[0])
        if words and (is_mark or (is_open and _LETTER.match(word))):
            words[-1] += word
        else:
            words.append(word)
        is_open = is_mark or (is_open and bool(_LETTER.match(word)))
    return words


def _bounded(parts: Sequence[Part]) -> list[Part]:
    """As many parts as fit into an answer; of what is replaced, both sides have room."""
    found: list[Part] = []
    room, left_out = MOST_CHARS, 0
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        if part.kind is Kind.OMITTED:
            found += [] if left_out else [part]
            continue
        most = room
        if part.kind is Kind.REMOVED and following is not None and following.kind is Kind.ADDED:
            most = max(room // 2, room - len(following.text))
        shown = part.text[:most]
        found += [Part(part.kind, shown)] if shown else []
        room -= len(shown)
        left_out += len(part.text) - len(shown)
    return [*found, Part(Kind.OMITTED, f"{left_out} more characters")] if left_out else found
