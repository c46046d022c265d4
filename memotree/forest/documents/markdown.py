"""Finds the headings of Markdown as CommonMark defines them; none in code, HTML, lists or quotes."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final

from markdown_it import MarkdownIt

from memotree.forest.documents.canonical import one_line
from memotree.forest.documents.outline import Heading

_LINE_END: Final = re.compile(r"\r\n?|\n")
_FRONT_MATTER: Final = re.compile(
    r"---[ \t]*(?:\r\n?|\n)(?=[\w\"'#-])(?:[^\r\n]*(?:\r\n?|\n)){0,400}?(?:---|\.\.\.)[ \t]*(?:\r\n?|\n|\Z)"
)
_FRONT_TITLE: Final = re.compile(r"^title[ \t]*:[ \t]*(\S[^\r\n]*)", re.MULTILINE | re.IGNORECASE)
_MAYBE_HEADING: Final = re.compile(r"^ {0,3}(?:#{1,6}(?:[ \t]|$)|=+[ \t]*\r?$|-+[ \t]*\r?$)", re.MULTILINE)
_SURELY_HEADING: Final = re.compile(
    r"(?:\A|(?:\r\n|\n)[ \t]*(?:\r\n|\n))(?:#{1,6} [^\r\n]{1,300}|[^\s#>-][^\r\n]{0,300}(?:\r\n|\n)={3,}[ \t]*)"
    r"(?:(?:\r\n|\n)[ \t]*(?:\r\n|\n)|\Z)"
)
_TITLE_LOOK: Final = 2000
_MARKS: Final = re.compile(r"[*_`\[\]<>&\\!]")


def headings(text: str) -> list[Heading]:
    """Returns the ATX and setext headings of a text with their offsets; front matter is skipped."""
    begin = _front_matter_end(text)
    body = text[begin:]
    if not _MAYBE_HEADING.search(body):
        return []  # saves parsing megabytes that have no heading
    starts = [0, *(found.end() for found in _LINE_END.finditer(body))]
    tokens = blocks().parse(body)
    found = []
    for token, following in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            place = begin + starts[token.map[0]]
            found.append(Heading(_plain(following.content), int(token.tag[1:]), place))
    return found


def title(text: str, found: list[Heading]) -> str:
    """Returns the title of a Markdown text: that of its front matter, else its first level 1 heading, else ``""``."""
    front = text[: _front_matter_end(text)]
    named = _FRONT_TITLE.search(front)
    if named is not None:
        return one_line(named[1].strip().strip("\"'"))
    return next((one_line(heading.title) for heading in found if heading.level == 1), "")


def looks_like_markdown(text: str) -> bool:
    """Whether a text of unknown kind has a Markdown heading with empty lines around it."""
    return _SURELY_HEADING.search(text[: 1 << 18]) is not None


def _front_matter_end(text: str) -> int:
    found = _FRONT_MATTER.match(text)
    return found.end() if found else 0


@cache
def blocks() -> MarkdownIt:
    """Returns a parser of blocks only; the content of paragraphs is not needed here."""
    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@cache
def _inline() -> MarkdownIt:
    return MarkdownIt("commonmark")


def _plain(source: str) -> str:
    """Returns the text of a heading without its markup."""
    if not _MARKS.search(source):
        return one_line(source)
    tokens = _inline().parseInline(source[:_TITLE_LOOK])
    return one_line("".join(_texts(tokens[0].children or [])) if tokens else source)


def _texts(tokens: list) -> Iterator[str]:  # type: ignore[type-arg]
    for token in tokens:
        if token.type in {"text", "code_inline", "image"}:
            yield token.content
        elif token.type in {"softbreak", "hardbreak"}:
            yield " "
