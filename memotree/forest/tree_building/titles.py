"""Makes titles for nodes without a heading, from the first words of their text that name something.

A line of markup, a lone number or a row of figures names nothing, so the words after it are taken. A title made here
stands in the text of its node, so that a search or a reader is not shown the same words twice; see `own_title`.
"""

import re
from collections.abc import Iterator
from typing import Final

from memotree.forest.documents.canonical import one_line, shorten, title_or
from memotree.forest.documents.dates import day_of

LEAF_CHARS: Final = 80
END_CHARS: Final = 40
HEADER_CHARS: Final = 300
"""The longest title made of the header of a table, which is shown above each part of it."""

_MARKUP: Final = re.compile(r"^\s*(?:#{1,6}\s+|>+\s*|[-*+•]\s+|\d{1,3}[.)]\s+)*")
_LINE: Final = re.compile(r"(?<![^\r\n])[^\r\n]*[^\s\-=~`*_#>+][^\r\n]*")
"""A line that is more than markup: not the fence of front matter or code, nor a horizontal rule.

It is looked for where lines begin alone: in a long line of markup, each further place would cost as much as the first.
"""
_UNDERLINE: Final = re.compile(r"\r?\n[ \t]*[=\-~^*+#]{2,}[ \t]*(?=\r?\n|\Z)")
_TAG: Final = re.compile(
    r"(?:<!--(?>(?:(?!-->).)*)(?:-->|$)|</?(?:a|article|b|blockquote|br|center|code|dd|details|div|dl|dt|em|font|h[1-6]|hr|i|img|kbd|"
    r"li|ol|p|picture|pre|section|source|span|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|u|ul|video)"
    r"(?:\s[^<>]*+|/)?>)",
    re.IGNORECASE,
)
"""A comment or an element of HTML, which Markdown files contain."""
_TAG_BEFORE: Final = re.compile(rf"\s*{_TAG.pattern}", re.IGNORECASE)
_IMAGE: Final = re.compile(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?")
_EMPTY_LINK: Final = re.compile(r"\[\s*\](?:\([^)]*\)|\[[^\]]*\])?")
_FENCE: Final = re.compile(r"^\s*(?:`{3,}|~{3,})\s*[\w+#.-]*\s*$")
_DECORATION: Final = re.compile(
    r"^\s*(?:@[\w.]+(?:\(.*)?|#\[.*\]|#!.*|[rbfuRBFU]{0,2}(?:\"{3}|'{3})|/\*+|\*/|[{}()\[\];,]+)\s*$"
)
"""A line of code that names nothing: a decorator, the line for the shell, a lone bracket, quote or comment sign."""
_COMMENT: Final = re.compile(r"^\s*(?:[rbfuRBFU]{0,2}(?:\"{3}|'{3})|/{2,}!?|/\*+|\*+(?=\s)|#+(?=\s)|--+(?=\s))\s*")
_COMMENT_END: Final = re.compile(r"(?<=\S)\s*(?:(?<!\*)\*+/|-->)\s*$")
_PREAMBLE: Final = re.compile(
    r"^\s*(?:#\s*(?:include|pragma|define|ifndef|ifdef|endif)\b|(?:package|import|from|using|use|require|export \*)\s"
    r"|['\"]use strict['\"]|(?:const|let|var)\b.*=\s*require\()"
)
"""A line at the top of a file of code, that says what the file needs and not what it is about."""
_NUMBER: Final = re.compile(r"(?:§\s*)?\d+(?:\.\d+)+[.:)]?")
_LETTER: Final = re.compile(r"[^\W\d_]")
_DIGIT: Final = re.compile(r"\d")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_FEW_LETTERS: Final = 2
_LONG_WORD: Final = 5
_LOOK: Final = 4000
"""How far to look for a first word, in characters."""


def leaf_title(text: str, fallback: str, heading: str = "", *, is_code: bool = False, is_turn: bool = False) -> str:
    """Returns the first words of a leaf that name something, without the markup of headings, quotes and lists.

    Args:
        text: The text of the leaf.
        fallback: The title if the text has no such words.
        heading: The heading of the leaf's section. If the leaf begins with it, the words after it make the title,
            because the section's node has the heading as its title already.
        is_code: Whether the text is code, so that decorators and signs of comments are passed over.
        is_turn: Whether the text is a turn; its title is its beginning, whatever was said.
    """
    if is_turn:
        return shorten(title_or(_beginning(text, LEAF_CHARS), fallback), LEAF_CHARS)
    own = _signature(text, heading) if is_code and text.lstrip().startswith("@") else ""
    own = own or _first_words(text, LEAF_CHARS, is_code=is_code)
    if heading and (not own or own == shorten(one_line(heading), LEAF_CHARS)):
        own = _first_words(_after_heading(text), LEAF_CHARS, is_code=is_code) or own
    return shorten(title_or(own, _below(heading, fallback)), LEAF_CHARS)


def header_title(header: str, text: str) -> str:
    """Returns the title of a leaf that goes on with a table: the columns and its first row, ``Part | Price: bolt``.

    The names of the columns are not in the text of the leaf, so a search finds it by them and a reader sees them above
    its rows.

    Args:
        header: The header of the table.
        text: The text of the leaf.
    """
    lines = [line for line in header.splitlines() if _LETTER.search(line) or _DIGIT.search(line)]
    separator = _separator(lines[0]) if lines else "|"
    columns = " | ".join(filter(None, (cell for line in lines for cell in _cells(line, separator))))
    row = next((line for line in text.splitlines() if line.strip()), "")
    first = next(filter(names_something, _cells(row, separator)), "")
    return shorten(one_line(columns), HEADER_CHARS) + (f": {shorten(one_line(first), END_CHARS)}" if first else "")


def _separator(line: str) -> str:
    marks = ("|",) if line.lstrip().startswith("|") else ("\t", "|", ";", ",")
    return next((mark for mark in marks if mark in line), "\t")


def _cells(line: str, separator: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line[:_LOOK].strip().strip("|").split(separator)]


def section_title(heading: str, text: str) -> str:
    """Returns the title of a section: its heading, with the words that follow it if it is a number alone.

    Args:
        heading: The heading, such as ``2.1``.
        text: The text of the section from its heading on.
    """
    if _LETTER.search(heading) or day_of(heading):
        return heading
    words = _first_words(_after_heading(text), LEAF_CHARS - len(heading[:LEAF_CHARS]) - 1)
    return f"{heading} {words}" if words else heading


def merged_title(
    first: str, last: str, fallback: str, heading: str = "", *, is_code: bool = False, is_turn: bool = False
) -> str:
    """Returns the first words of a node's first leaf and of its last one, joined by ``…``.

    Args:
        first: The text of the first leaf.
        last: The text of the last leaf.
        fallback: The title if neither has words that name something.
        heading: The heading of the section, which then stands before it.
        is_code: Whether the texts are code.
        is_turn: Whether the texts are turns.
    """
    if is_turn:
        begins, ends = _beginning(first, END_CHARS), _beginning(last, END_CHARS)
    else:
        begins, ends = (_first_words(text, END_CHARS, is_code=is_code) for text in (first, last))
    fallback = _below(heading, fallback)
    if not begins or not ends or begins == ends:
        return shorten(title_or(begins or ends, fallback), LEAF_CHARS)
    return title_or(f"{begins.removesuffix('…')} … {ends}", fallback)


def _below(heading: str, fallback: str) -> str:
    """Returns the number of a part after the heading of its section: ``Prices, part 3``."""
    if not names_something(heading):
        return fallback
    end = f", {fallback[:1].lower()}{fallback[1:]}"
    return shorten(one_line(heading), LEAF_CHARS - len(end)) + end


def names_something(line: str) -> bool:
    """Whether a line can be a title: it has words, and is not a number or a row of figures with hardly a word."""
    letters = len(_LETTER.findall(line))
    if letters < _FEW_LETTERS:
        return bool(letters) and max(line) > "\u3000"  # one character of Chinese is a word
    if letters >= len(_DIGIT.findall(line)):
        return True
    words = _WORD.findall(line)
    return len(words) > 1 or any(len(word) >= _LONG_WORD for word in words)


def _first_words(text: str, limit: int, *, is_code: bool = False) -> str:
    """Returns the first line that names something, after the number of a chapter that stands alone before it."""
    number, preamble = "", ""
    for line in _lines(text, is_code=is_code):
        if is_code and _PREAMBLE.match(line):
            preamble = preamble or line
        elif names_something(line):
            return shorten(f"{number} {line}" if number else line, limit)
        number = line if _NUMBER.fullmatch(line) else ""
    return shorten(preamble, limit)


def _signature(text: str, heading: str) -> str:
    """Returns the line that defines what a section of code is named after; it follows the decorators."""
    name = re.escape(heading.removesuffix("()").rpartition(".")[2].rpartition(" ")[2])
    found = re.search(rf"^(?![ \t]*@)[^\r\n]*\b(?:def|class|func|function)[ \t]+{name}\b[^\r\n]*", text, re.MULTILINE)
    return shorten(_unmarked(found[0]), LEAF_CHARS) if name and found else ""


def _beginning(text: str, limit: int) -> str:
    found = _LINE.search(text[:_LOOK])
    return shorten(_unmarked(found[0]), limit) if found else ""


def _lines(text: str, *, is_code: bool) -> Iterator[str]:
    for found in _LINE.finditer(text[:_LOOK]):
        line = found[0]
        if _FENCE.match(line) or (is_code and _DECORATION.match(line)):
            continue
        shown = _COMMENT_END.sub("", _COMMENT.sub("", line)) if is_code else line
        if is_code and _DECORATION.match(shown):  # a tag of a documentation comment
            continue
        if shown.lstrip().startswith("<") and not is_code:
            shown = _without_tags_around(shown)
        if "![" in shown:
            shown = shown if _EMPTY_LINK.sub("", _IMAGE.sub("", shown)).strip() else ""
        if shown.strip():
            yield _unmarked(shown)


def _without_tags_around(line: str) -> str:
    begin = 0
    while found := _TAG_BEFORE.match(line, begin):
        begin = found.end()
    end = len(line)
    for found in reversed(list(_TAG.finditer(line, begin))):
        if line[found.end() : end].strip():
            break
        end = found.start()
    return line[begin:end]


def _unmarked(line: str) -> str:
    line = one_line(line)
    if line.startswith("|") and line.endswith("|"):  # a row of a table
        return line.strip("| ") or line
    return _MARKUP.sub("", line) or line


def _after_heading(text: str) -> str:
    """Returns the text after the first line and the line of signs that underlines it."""
    first = _LINE.search(text[:_LOOK])
    rest = text[first.end() :] if first else ""
    under = _UNDERLINE.match(rest)
    return rest[under.end() :] if under else rest
