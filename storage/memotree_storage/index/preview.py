"""Previews: the part of a text that shows why a search found it."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from memotree_storage.index.terms import QueryTerm, count_terms, pieces_of, stretches, term_id, tokens

MARK: Final = "**"
"""Put before and after a matched part."""

ELLIPSIS: Final = "…"

MAX_LENGTH: Final = 10_000
"""The longest preview, in characters."""

_PART: Final = 4_000  # a long text is read in parts of about this size
_SHORT: Final = 2 * _PART
_ENOUGH: Final = 300  # this many matches are enough to choose a window
_SNAP: Final = 24  # how far the edge of a window may move to avoid cutting a word
_EDGES: Final = 2 * len(ELLIPSIS)
_FEW_TERMS: Final = 16
_LONG_TERM: Final = 60  # longer words may have been cut

_COMPOUND: Final = re.compile("_|[0-9A-Za-z][.][0-9A-Za-z]|[0-9A-Za-z][A-Z]")
"""In an ASCII text: a name of several words or parts, or a word in capitals. All other words have a single term."""

_BLANKS: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Preview:
    """A one-line window of a text with matches marked, and the query's terms found in the text, in query order."""

    text: str
    matched: tuple[str, ...]


class _Match(NamedTuple):
    """A term in a text. A tuple, since a text has many."""

    term: str
    start: int
    end: int


_start: Final = attrgetter("start")


class PreviewMaker:
    """Makes the previews of the hits of one query; what it learns of a word of one text serves the next ones.

    Args:
        query_terms: The terms of the query.
    """

    def __init__(self, query_terms: Iterable[QueryTerm]) -> None:
        self._terms = list(dict.fromkeys(term.term for term in query_terms))
        self._matcher = _TermMatcher(self._terms)

    def make(self, text: str, length: int = 200, without: Collection[str] = ()) -> Preview:
        """Return the window of a text in which the matches are densest; without a match, the beginning of the text.

        Args:
            text: Any text; runs of white space become one space.
            length: The maximum number of characters, ellipses included, marks not counted; 0 gives an empty text.
            without: Terms of the query that do not count.
        """
        terms = [term for term in self._terms if term not in without] if without else self._terms
        return _preview(text, terms, self._matcher, min(max(length, 0), MAX_LENGTH))


def make_preview(text: str, query_terms: Iterable[QueryTerm], length: int = 200) -> Preview:
    """Return the preview of one text; see `PreviewMaker.make`."""
    return PreviewMaker(query_terms).make(text, length)


def _preview(text: str, terms: Sequence[str], matcher: "_TermMatcher", length: int) -> Preview:
    matches = list(_matches(text, terms, matcher)) if terms else []
    matched = {match.term for match in matches}
    return Preview(_render(text, matches, length), tuple(term for term in terms if term in matched))


# --- Finding ---------------------------------------------------------------------------------------------------------


def _matches(text: str, terms: Sequence[str], matcher: "_TermMatcher") -> Iterator[_Match]:
    """Yield the matches of a text: all of a short one, of a long one the first ones.

    Parts of a long text that have none of the terms are passed over: in unspaced scripts, to count the terms of a part
    costs a quarter of finding where each of them is. The cost is that of the length, however many terms there are, and
    other threads run between two parts.
    """
    chosen = frozenset(terms)
    if len(text) <= _SHORT:
        yield from (match for match in matcher.in_text(text, 0) if match[0] in chosen)
        return
    wanted = set(map(term_id, terms))
    count = 0
    for start, end in stretches(text, _PART):
        part = text[start:end]
        if wanted.isdisjoint(count_terms(part).frequencies):
            continue
        for match in matcher.in_text(part, start):
            if match[0] in chosen:
                count += 1
                yield match
        if count > _ENOUGH:
            return


class _TermMatcher(dict[str, tuple[_Match, ...]]):
    """The matching terms inside a token, cached by token, so that a repeated token costs one lookup."""

    def __init__(self, terms: Iterable[str]) -> None:
        super().__init__()
        self._terms = frozenset(terms)
        self._words = _plain_words(self._terms)

    def __missing__(self, token: str) -> tuple[_Match, ...]:
        found: tuple[_Match, ...] = ()
        for piece in pieces_of(token):
            if piece[0] in self._terms:
                found = (*found, _Match(*piece))  # most tokens have none
        self[token] = found
        return found

    def in_text(self, text: str, offset: int) -> Iterator[_Match]:
        """Yield the matches of a text that begins at ``offset`` of the whole text."""
        if self._words is not None and text.isascii() and _COMPOUND.search(text) is None:
            yield from _of_plain_words(text.lower(), self._words, offset)
            return
        for token in tokens(text):
            if found := self[token[0]]:
                begin = offset + token.start()
                for term, start, end in found:
                    yield _Match(term, begin + start, begin + end)


def _plain_words(terms: Collection[str]) -> dict[str, str] | None:
    """The lower-case ASCII words that stand for the terms, each with its term; ``None`` if they are too many to try.

    A text of plain words is then searched for each, several times as fast as it is split into words.
    """
    if len(terms) > _FEW_TERMS or any(len(term) >= _LONG_TERM for term in terms):
        return None
    words: dict[str, str] = {}
    for term in terms:
        for word in (term, f"{term}s", f"{term[:-1]}ies"):  # what the stemmer takes for the plural of the term
            if word.isascii() and word.isalnum() and [piece[0] for piece in pieces_of(word)] == [term]:
                words[word] = term
    return words


def _of_plain_words(text: str, words: Mapping[str, str], offset: int) -> list[_Match]:
    """The matches in a lower-case ASCII text without compounds, in order."""
    found: list[_Match] = []
    for word, term in words.items():
        start = text.find(word)
        while start >= 0:
            end = start + len(word)
            if not text[end : end + 1].isalnum() and not (start and text[start - 1].isalnum()):
                found.append(_Match(term, offset + start, offset + end))
            start = text.find(word, end)
    found.sort(key=_start)
    return found


# --- Rendering -------------------------------------------------------------------------------------------------------


def _render(text: str, matches: list[_Match], length: int) -> str:
    if length == 0:
        return ""
    if _fits(text, 0, length):
        return _marked(text, _fill(text, 0, 0, length), _merged(matches))
    first, last = _densest(matches, length - _EDGES)
    start = _beginning(text, first, last, length - _EDGES)
    lead = ELLIPSIS if length > _EDGES and text[:start].strip() else ""
    room = length - len(lead)
    tail = "" if _fits(text, start, room) else ELLIPSIS
    return lead + _marked(text, _fill(text, start, last, room - len(tail)), _merged(matches)) + tail


def _fits(text: str, start: int, room: int) -> bool:
    """Whether a text from ``start`` on has no more characters than ``room``, with white space made single spaces."""
    end = start
    begun = ""
    while len(begun) <= room:
        if end >= len(text):
            return True
        end = min(len(text), start + max(2 * (end - start), 2 * room, _SNAP))
        begun = " ".join(text[start:end].split())
    return False


def _densest(matches: list[_Match], length: int) -> tuple[int, int]:
    """The offsets of the first span that holds the most different terms, then the most matches."""
    inside: dict[str, int] = {}
    best = (0, 0)
    first = last = right = 0
    for left, (term, start, _) in enumerate(matches):
        while right < len(matches) and (right == left or matches[right][2] - start <= length):
            inside[matches[right][0]] = inside.get(matches[right][0], 0) + 1
            right += 1
        score = (len(inside), right - left)
        if score > best:
            best = score
            first, last = start, max(other[2] for other in matches[left:right])
        inside[term] -= 1
        if not inside[term]:
            del inside[term]
    return first, min(last, first + max(length, 0))


def _beginning(text: str, first: int, last: int, length: int) -> int:
    """Where the window starts: with some context before the matches, at the start of a word if one is near."""
    spare = max(length - (last - first), 0)
    start = max(0, min(first - spare // 3, len(text) - length))
    if start == 0:
        return 0
    blank = _BLANKS.search(text, start - 1, min(start + _SNAP, first))
    return start if blank is None else blank.end()


def _fill(text: str, start: int, needed: int, room: int) -> list[tuple[int, int]]:
    """Return the words from ``start`` on that fit, as offsets.

    A word that does not fit is cut if it is long or comes before ``needed``; otherwise it is left out.
    """
    shown: list[tuple[int, int]] = []
    for found in _WORD.finditer(text, start):
        room -= 1 if shown else 0
        if len(found[0]) <= room:
            shown.append(found.span())
            room -= len(found[0])
            continue
        if room > 0 and (not shown or found.start() < needed or len(found[0]) > _SNAP):
            cut = found.start() + room
            while cut > found.start() and unicodedata.category(text[cut])[0] == "M":
                cut -= 1  # a combining mark stays with its letter
            shown.append((found.start(), cut))
        break
    return shown


def _merged(matches: list[_Match]) -> list[tuple[int, int]]:
    """The matches as spans that neither overlap nor touch."""
    spans: list[tuple[int, int]] = []
    for match in sorted(matches, key=lambda match: (match.start, match.end)):
        if spans and match.start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], match.end))
        else:
            spans.append((match.start, match.end))
    return spans


def _marked(text: str, shown: list[tuple[int, int]], spans: list[tuple[int, int]]) -> str:
    words = []
    index = 0
    for start, end in shown:
        while index < len(spans) and spans[index][1] <= start:
            index += 1
        pieces: list[str] = []
        at = start
        within = index
        while within < len(spans) and spans[within][0] < end:
            left, right = max(spans[within][0], start), min(spans[within][1], end)
            pieces += text[at:left], MARK, text[left:right], MARK
            at = right
            within += 1
        words.append("".join(pieces) + text[at:end])
    return " ".join(words)
