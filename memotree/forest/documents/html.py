"""Reads HTML into text and headings: what a reader of the page sees, block by block, without scripts and styles."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.document import TooDeepDocumentError
from memotree.forest.documents.outline import Heading

DEEPEST: Final = 20_000
"""The greatest depth of nested elements; the parser's time grows with the square of the depth."""

_HIDDEN: Final = frozenset(
    {"script", "style", "template", "noscript", "iframe", "object", "svg", "canvas", "audio", "video", "head", "title"}
)
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_PARAGRAPHS: Final = frozenset({"p", "ul", "ol", "dl", "table", "blockquote", "pre", "figure", *_HEADINGS})
_LINES: Final = frozenset(
    {
        *("div", "section", "article", "header", "footer", "main", "nav", "aside", "address", "details", "summary"),
        *(
            "li",
            "dt",
            "dd",
            "tr",
            "caption",
            "figcaption",
            "form",
            "fieldset",
            "legend",
            "option",
            "hr",
            "body",
            "html",
        ),
    }
)
_CELLS: Final = frozenset({"td", "th"})
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})(?![^<>]{0,2000}/>)")
# Elements whose end tag may be left out. They don't count as depth, otherwise a long list would look deeply nested.
_OPEN_ENDED: Final = frozenset(
    {
        *(
            "area",
            "base",
            "br",
            "col",
            "embed",
            "hr",
            "img",
            "input",
            "link",
            "meta",
            "param",
            "source",
            "track",
            "wbr",
        ),
        *("p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "option", "optgroup", "colgroup"),
        *("rb", "rt", "rp", "html", "head", "body"),
    }
)
_SPACE: Final = re.compile(r"[ \t\n\r\f]+")
_TITLE_LOOK: Final = 2000


@dataclass(frozen=True, slots=True)
class Page:
    """The canonical text of a page, its headings and its title."""

    text: str
    headings: list[Heading]
    title: str


def read(source: str, *, name: str = "") -> Page:
    """Returns the text of an HTML page.

    Each block starts a line, each paragraph follows an empty line, list items begin with ``- `` or a number, and table
    cells are separated by tabs. Runs of white space in a block become one blank, except in ``pre``.

    Raises:
        TooDeepDocumentError: If elements are nested more than `DEEPEST` deep.
    """
    if _depth(source) > DEEPEST:
        raise TooDeepDocumentError(name, f"HTML nested over {DEEPEST} elements deep", "a page with less nesting")
    # The parser takes UTF-8, so lone surrogates must be replaced first; it would also stop at a NUL.
    tree = LexborHTMLParser(canonical_text(source), options=LexborDocumentOptions.WO_EVENTS)
    writer = _Writer()
    if tree.root is not None:
        for node, opens in _walk(tree.root):
            if node.is_text_node:
                writer.text(node.text_content or "")
            elif opens:
                writer.opens(node.tag or "")
            else:
                writer.closes(node.tag or "")
    head = tree.css_first("head > title", default=None)
    title = one_line(head.text()) if head is not None else ""
    return Page(writer.finish(), writer.headings, title or (writer.headings[0].title if writer.headings else ""))


def _depth(source: str) -> int:
    deepest = depth = 0
    for found in _TAG.finditer(source):
        if found[2].lower() in _OPEN_ENDED:
            continue
        depth = max(0, depth - 1) if found[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Yields text nodes in order, and elements with True where they open and False where they close; not recursive."""
    node: LexborNode | None = root
    end = root.mem_id
    while node is not None:
        hidden = node.tag in _HIDDEN
        if not hidden:
            yield node, True
        below = None if hidden or node.is_text_node else node.first_child
        if below is not None:
            node = below
            continue
        while node is not None:
            if not node.is_text_node and node.tag not in _HIDDEN:
                yield node, False
            if node.mem_id == end:
                return
            if node.next is not None:
                node = node.next
                break
            node = node.parent


class _Writer:
    """Lays out the text. Breaks and blanks are held back until visible text follows them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._breaks = 0
        self._blank = False
        self._lists: list[int] = []
        self._verbatim = 0
        self._prefix = ""
        self._heading: tuple[int, int, list[str]] | None = None  # level, start (or -1), text
        self.headings: list[Heading] = []

    def opens(self, tag: str) -> None:
        if tag in _CELLS:
            self._prefix = "\t" if self._breaks == 0 and self._parts else ""
            return
        self._break(tag)
        if tag == "li":
            count = self._lists[-1] if self._lists else -1
            if count >= 0:
                self._lists[-1] = count + 1
            mark = f"{count + 1}. " if count >= 0 else "- "
            self._prefix = "  " * (min(len(self._lists), 8) - 1) + mark
        elif tag in {"ul", "ol"}:
            self._lists.append(0 if tag == "ol" else -1)
        elif tag == "pre":
            self._verbatim += 1
        elif tag in _HEADINGS:
            self._end_heading()
            self._heading = (_HEADINGS[tag], -1, [])

    def closes(self, tag: str) -> None:
        if tag == "br":
            self._break_line()
            return
        if tag in _HEADINGS:
            self._end_heading()
        elif tag in {"ul", "ol"} and self._lists:
            self._lists.pop()
        elif tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)
        self._break(tag)

    def text(self, text: str) -> None:
        if self._verbatim:
            if text:
                self._write(text)
            return
        words = _SPACE.sub(" ", text)
        if not words.strip(" "):
            self._blank = self._blank or bool(words)
            return
        self._blank = self._blank or words[0] == " "
        self._write(words.strip(" "))
        self._blank = words[-1] == " "

    def finish(self) -> str:
        self._end_heading()
        if self._parts:
            self._parts.append("\n")
        return canonical_text("".join(self._parts))

    def _write(self, text: str) -> None:
        if self._parts:
            if self._breaks:
                self._put("\n" * self._breaks)
            elif self._blank and not self._prefix:
                self._put(" ")
                self._in_heading(" ")
        self._breaks, self._blank = 0, False
        if self._heading is not None and self._heading[1] < 0:
            self._heading = (self._heading[0], self._length, self._heading[2])
        if self._prefix:
            self._put(self._prefix)
            self._prefix = ""
        self._put(text)
        self._in_heading(text)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _in_heading(self, text: str) -> None:
        if self._heading is not None and sum(map(len, self._heading[2][-20:])) < _TITLE_LOOK:
            self._heading[2].append(text)

    def _break(self, tag: str) -> None:
        wanted = 1 if tag in _LINES else 0
        if tag in _PARAGRAPHS:
            nested = tag in {"ul", "ol"} and len(self._lists) > 0
            wanted = 1 if nested else 2
        self._breaks = max(self._breaks, wanted)

    def _break_line(self) -> None:
        self._breaks = min(2, self._breaks + 1)

    def _end_heading(self) -> None:
        if self._heading is not None:
            level, start, texts = self._heading
            if start >= 0:
                self.headings.append(Heading(one_line("".join(texts)), level, start))
            self._heading = None
