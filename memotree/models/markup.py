"""Removes the markup of Markdown and reStructuredText from a text without changing its words.

Emphasis is recognised by the flanking rules and the delimiter stack of CommonMark 0.31 (section 6.2), with stricter
rules where a mark may be part of a name or formula: when in doubt, a mark stays. So ``__init__``, ``2*3*4``, ``*.py``,
URLs and inline code are unchanged. Inline code keeps its backticks, because without them a second pass could take the
code for emphasis. We tried a Markdown parser (markdown-it-py 4.3): it took 2.5 ms for 2 KB of dense markup, ten times
as long as this module, and does not support reStructuredText. The time is linear in the length of the text.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """The kind of a block."""

    PARAGRAPH = "paragraph"
    HEADING = "heading"
    ITEM = "item"


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, heading or list item as one line of plain text."""

    text: str
    kind: Kind


# --- Blocks ---
_FENCED: Final = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n.*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"(?<!`)<!--.*?-->", re.DOTALL)
_COMMENT_END: Final = "-->"
_DEFINITION: Final = re.compile(
    r"^ {0,3}\[(?!\^)([^\[\]\n]{1,100})\]:[ \t]*\S{1,2000}(?:[ \t]+[\"'(][^\n]*)?[ \t]*$", re.MULTILINE
)
_LINE_END: Final = re.compile(r"\r\n?")
_RULE: Final = re.compile(r"[=\-~^\"'`#*+_.:|<>]{3,}|[-=+|: \t]{3,}|(?:[*_][ \t]+){2,}[*_]")
_DIRECTIVE: Final = re.compile(r"\.\.(?:\s|\Z)|:[\w -]+:(?:\s|\Z)")
_LINE_START: Final = re.compile(r"(?:(#{1,6})|([-*+•])|([0-9]{1,3})[.)])(?:[ \t]+|\Z)|>[ \t]?")
_CHECK_BOX: Final = re.compile(r"\[[ xX]\](?:[ \t]+|\Z)")
_CLOSING_HASHES: Final = re.compile(r"[ \t]+#+\Z")
UNPRINTED: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff]")
"""Characters that are not allowed in titles, briefs and summaries."""

# --- Inline ---
_SPECIAL: Final = re.compile(r"_+|\*+|`+|\[|!\[|<|://|:(?=\w)|\\[\\`*_\[<!:]")
_NAME: Final = re.compile(r"_\w*")
_URL_REST: Final = re.compile(r"[^\s<>\"`]*")
_URL_TAIL: Final = re.compile(r"[*_~.,:;!?')\]]+\Z")
_TICKS: Final = re.compile(r"`+")
_LINK: Final = re.compile(r"!?\[([^\[\]]{0,300})\](?:\(([^()]{0,500})\)|\[([^\[\]]{0,100})\])?")
_ROLE: Final = re.compile(r":[\w:.-]{1,40}:`([^`]{1,300})`")
_ROLE_TARGET: Final = re.compile(r"\s+<[^<>]*>\Z")
_AUTOLINK: Final = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]{1,2000})>")
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]{0,15})(?:\s[^<>]{0,300})?/?>")
_TAG_NAMES: Final = (
    "a abbr address article aside b blockquote body br center cite code dd del details dfn div dl dt em figcaption "
    "figure font footer h1 h2 h3 h4 h5 h6 head header hr html i img ins kbd li main mark nav ol p picture pre q s samp "
    "section small span strike strong sub summary sup table tbody td tfoot th thead tr tt u ul var wbr"
)
_TAGS: Final = frozenset(_TAG_NAMES.split())
_VOID_TAGS: Final = frozenset(("br", "hr", "img", "wbr"))
_BREAKING_NAMES: Final = (
    "article aside blockquote br center dd details div dl dt figure footer h1 h2 h3 h4 h5 h6 header hr li main nav ol "
    "p pre section summary table tbody td tfoot th thead tr ul"
)
_BREAKING_TAGS: Final = frozenset(_BREAKING_NAMES.split())
_MOST_NESTED: Final = 8  # nested quotes and lists at the start of one line
_LONGEST_RUN: Final = 3  # of emphasis marks; longer runs are rules or drawings
_UNSPACED_FROM: Final = "\u0e00"  # scripts before this put spaces between words
_NO_BEGINNING: Final = frozenset(
    ".,;:/|\\)]}=<>%&+"
)  # emphasised text does not begin with these; patterns and formulas do
_BRACKETS: Final = ")]}"


def blocks(text: str) -> Iterator[Block]:
    """Yields the parts of a text in order, without code blocks, rules, directives, comments and link definitions."""
    text = _LINE_END.sub("\n", UNPRINTED.sub("", text)).replace("\u2029", "\n\n")
    text = _without_comments(_FENCED.sub("\n", text))
    labels: frozenset[str] = frozenset()
    if "]:" in text:
        labels = frozenset(_label(found[1]) for found in _DEFINITION.finditer(text))
        text = _DEFINITION.sub("", text)
    for line, kind in _raw_blocks(text):
        plain = " ".join(_inline(line, labels).split())
        if plain:
            yield Block(plain, kind)


def _without_comments(text: str) -> str:
    # Only the text up to the last comment end can have comments. After it, the regular expression would search in vain
    # for the end of each comment start.
    end = text.rfind(_COMMENT_END) + len(_COMMENT_END)
    return _COMMENT.sub("", text[:end]) + text[end:] if end >= len(_COMMENT_END) else text


def _label(text: str) -> str:
    return " ".join(text.casefold().split())


def _raw_blocks(text: str) -> Iterator[tuple[str, Kind]]:
    """Yields the parts with their inline markup."""
    lines: list[str] = []
    kind = Kind.PARAGRAPH
    for whole in text.split("\n"):
        line, begins = _unprefixed(whole.strip(), goes_on=bool(lines) and kind is Kind.PARAGRAPH)
        rule = begins is None and bool(line) and _RULE.fullmatch(line) is not None
        if begins is not None or rule or not line or _DIRECTIVE.match(line):
            if lines:
                underlined = rule and len(lines) == 1 and kind is Kind.PARAGRAPH
                yield " ".join(lines), Kind.HEADING if underlined else kind
            lines, kind = [], begins or Kind.PARAGRAPH
            if begins is None:
                continue
        if line:
            lines.append(line)
        if kind is Kind.HEADING:
            yield _CLOSING_HASHES.sub("", line), kind
            lines, kind = [], Kind.PARAGRAPH
    if lines:
        yield " ".join(lines), kind


def _unprefixed(line: str, *, goes_on: bool) -> tuple[str, Kind | None]:
    """Returns a line without the markup at its start, and the kind of block that begins with it, if any.

    Within a paragraph only the number 1 begins a list; another number there ends the sentence of the line before.
    """
    begins: Kind | None = None
    offset = 0
    for _ in range(_MOST_NESTED):
        found = _LINE_START.match(line, offset)
        if found is None:
            break
        if found[2] and _RULE.fullmatch(line, offset):
            break
        if found[3] and goes_on and found[3] != "1":
            break
        offset = found.end()
        if found[1]:
            begins = Kind.HEADING
            break
        if found[2] or found[3]:
            begins, goes_on = Kind.ITEM, False
    if begins is Kind.ITEM and (box := _CHECK_BOX.match(line, offset)):
        offset = box.end()
    return line[offset:], begins


# --- Inline ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """A run of marks that may open emphasis: its index in the output, the mark, and how many of them are left."""

    place: int
    mark: str
    left: int


class _Line:
    """One pass over a line: the output so far, and the open runs that wait for their closing marks."""

    def __init__(self, text: str, labels: frozenset[str]) -> None:
        self._text = text
        self._labels = labels
        self._out: list[str] = []
        self._open: list[_Run] = []
        self._waiting = {"*": 0, "_": 0}
        self._ticks: dict[int, int] | None = None

    def plain(self) -> str:
        """Returns the line without its markup."""
        text = self._text
        offset = 0
        while found := _SPECIAL.search(text, offset):
            start = found.start()
            self._out.append(text[offset:start])
            offset = self._take(found[0], start)
        self._out.append(text[offset:])
        return "".join(self._out)

    def _take(self, token: str, start: int) -> int:
        """Keeps or drops the markup that begins with a token; returns the offset after it."""
        first = token[0]
        if first in "*_":
            return self._emphasis(token, start)
        if first in "![":
            return self._link(start)
        if first == "<":
            return self._angle(start)
        if first == ":" and (role := _ROLE.match(self._text, start)):
            self._out.append(_ROLE_TARGET.sub("", role[1]))
            return role.end()
        if first == "`":
            return self._keep(start, self._code_end(token, start))
        return self._keep(start, self._url_end(start) if token[1:] == "//" else start + len(token))

    def _keep(self, start: int, end: int) -> int:
        self._out.append(self._text[start:end])
        return end

    def _code_end(self, ticks: str, start: int) -> int:
        """Returns the offset after the inline code that begins here, or after the backticks if they are not closed."""
        end = start + len(ticks)
        if self._ticks is None:
            # The last offset of each run length, so that runs without a partner need no search.
            self._ticks = {len(found[0]): found.start() for found in _TICKS.finditer(self._text)}
        if self._ticks.get(len(ticks), -1) > start:
            for found in _TICKS.finditer(self._text, end):
                if len(found[0]) == len(ticks):
                    return found.end()
        return end

    def _url_end(self, start: int) -> int:
        found = _URL_REST.match(self._text, start)
        end = found.end() if found else start
        tail = _URL_TAIL.search(self._text, max(start, end - _LONGEST_RUN - 2), end)
        # Marks after a URL close emphasis around it, unless the URL contains such marks itself.
        if tail and not set("*_") & set(tail[0]) & set(self._text[start : tail.start()]):
            return tail.start()
        return end

    def _link(self, start: int) -> int:
        """Keeps the text of a link; brackets that are not a link are unchanged, such as those of ``a[i][j]``."""
        found = _LINK.match(self._text, start)
        before = self._text[start - 1] if start else ""
        end = start + (2 if self._text[start] == "!" else 1)
        if found is None or _is_spaced_word(before) or (before and before in _BRACKETS):
            return self._keep(start, end)
        is_direct = found[2] is not None
        if not is_direct and (not self._labels or _label(found[3] or found[1]) not in self._labels):
            return self._keep(start, end)
        self._out.append(_inline(found[1], frozenset()) if found[1] or not is_direct else found[2])
        return found.end()

    def _angle(self, start: int) -> int:
        """Handles an angle bracket: an address in brackets, an HTML tag, or just a sign."""
        if found := _AUTOLINK.match(self._text, start):
            self._out.append(found[1])
            return found.end()
        found = _TAG.match(self._text, start)
        name = found[2].lower() if found else ""
        if found is None or name not in _TAGS or not self._is_tag(name, start, closes=bool(found[1])):
            return self._keep(start, start + 1)
        if name == "sup" and not found[1]:
            self._out.append("^")  # without it 10 to the power of 6 would be 106
        elif name in _BREAKING_TAGS:
            self._out.append(" ")
        return found.end()

    def _is_tag(self, name: str, start: int, *, closes: bool) -> bool:
        """Whether this is a tag; directly after a word it could be a type parameter, unless a closing tag follows."""
        before = self._text[start - 1] if start else ""
        if closes or name in _VOID_TAGS or not _is_spaced_word(before):
            return True
        return f"</{name}" in self._text[start : start + 2000].lower()

    def _emphasis(self, token: str, start: int) -> int:
        mark = token[0]
        before = self._text[start - 1] if start else " "
        if mark == "_" and not before.isalnum():  # inside a word, the rest of it would be read once for each mark
            word = _NAME.match(self._text, start)
            if word and _is_name(word[0]):
                return self._keep(start, word.end())
        count = len(token)
        end = start + count
        after = self._text[end] if end < len(self._text) else " "
        if count > _LONGEST_RUN:
            return self._keep(start, end)
        if _can_close(mark, before, after) and self._waiting[mark]:
            count = self._close(mark, count)
        if count and _can_open(mark, before, after):
            self._open.append(_Run(len(self._out), mark, count))
            self._waiting[mark] += 1
        self._out.append(mark * count)
        return end

    def _close(self, mark: str, count: int) -> int:
        """Removes as many marks as the opening runs have; returns how many closing marks are left."""
        while count and self._waiting[mark]:
            run = self._open.pop()
            self._waiting[run.mark] -= 1
            if run.mark != mark:
                continue  # it is inside the emphasis that closes here, so it cannot open any more
            used = min(count, run.left)
            count -= used
            run.left -= used
            self._out[run.place] = mark * run.left
            if run.left:
                self._open.append(run)
                self._waiting[mark] += 1
        return count


def _is_name(word: str) -> bool:
    """Whether a word that begins with an underscore is a name, like __init__ or _of_this_kind."""
    core = word.strip("_")
    return bool(core) and ("_" in core or word[:2] == word[-2:] == "__")


def _inline(text: str, labels: frozenset[str]) -> str:
    return _Line(text, labels).plain()


def _is_spaced_word(character: str) -> bool:
    return character.isalnum() and character < _UNSPACED_FROM


def _is_unspaced_word(character: str) -> bool:
    """Whether CommonMark's rules fail beside this character: they need a blank, which unspaced scripts never have."""
    return character.isalnum() and character >= _UNSPACED_FROM


def _can_open(mark: str, before: str, after: str) -> bool:
    """Whether marks between two characters may begin emphasis."""
    if after.isspace() or after in _NO_BEGINNING or _is_spaced_word(before) or before in _BRACKETS:
        return False
    if mark == "_" and before.isalnum():
        return False
    return _is_wordlike(after) or not _is_wordlike(before) or _is_unspaced_word(before)


def _can_close(mark: str, before: str, after: str) -> bool:
    """Whether marks between two characters may end emphasis."""
    if before.isspace() or _is_spaced_word(after) or (mark == "_" and after.isalnum()):
        return False
    return _is_wordlike(before) or not _is_wordlike(after) or _is_unspaced_word(after)


def _is_wordlike(character: str) -> bool:
    """Whether a character is neither white space nor punctuation nor a symbol."""
    return character.isalnum() or not (character.isspace() or unicodedata.category(character)[0] in "PSZ")
