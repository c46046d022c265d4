"""Reads HTML into text and headings: what a reader of the page sees, block by block, without scripts and styles."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.document import Table, TooDeepDocumentError
from memotree.forest.documents.html_content import HIDDEN, main_content, whole_page
from memotree.forest.documents.html_layout import HtmlLayout
from memotree.forest.documents.html_tables import header_rows
from memotree.forest.documents.outline import Heading

DEEPEST: Final = 20_000
"""The greatest depth of nested elements; the parser's time grows with the square of the depth."""

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


@dataclass(frozen=True, slots=True)
class Page:
    """The canonical text of a page, its headings, its title and its tables."""

    text: str
    headings: list[Heading]
    title: str
    tables: tuple[Table, ...] = ()
    is_partial: bool = False


def read(source: str, *, name: str = "", is_whole: bool = False) -> Page:
    """Returns the text of an HTML page: its main content, without the navigation around it.

    Each block starts a line, each paragraph follows an empty line, list items begin with ``- `` or a number, and table
    cells are separated by tabs. Runs of white space in a block become one blank, except in ``pre``.

    Args:
        source: The page.
        name: The name of the document, for messages.
        is_whole: Whether all of the page is content, as in a chapter of a book.

    Raises:
        TooDeepDocumentError: If elements are nested more than `DEEPEST` deep.
    """
    if _depth(source) > DEEPEST:
        raise TooDeepDocumentError(name, f"HTML nested over {DEEPEST} elements deep", "a page with less nesting")
    # The parser takes UTF-8, so lone surrogates must be replaced first; it would also stop at a NUL.
    tree = LexborHTMLParser(canonical_text(source), options=LexborDocumentOptions.WO_EVENTS)
    content = whole_page(tree) if is_whole else main_content(tree)
    layout = HtmlLayout()
    if content.root is not None:
        for node, opens in _walk(content.root, content.left_out):
            if node.is_text_node:
                layout.text(node.text_content or "")
            elif opens:
                layout.opens(node.tag or "", header_rows(node) if node.tag == "table" else None)
            else:
                layout.closes(node.tag or "")
    head = tree.css_first("head > title", default=None)
    title = one_line(head.text()) if head is not None else ""
    text = layout.finish()
    title = title or (layout.headings[0].title if layout.headings else "")
    return Page(text, layout.headings, title, tuple(layout.tables), content.is_partial)


def _depth(source: str) -> int:
    deepest = depth = 0
    for found in _TAG.finditer(source):
        if found[2].lower() in _OPEN_ENDED:
            continue
        depth = max(0, depth - 1) if found[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest


def _walk(root: LexborNode, left_out: AbstractSet[int]) -> Iterator[tuple[LexborNode, bool]]:
    """Yields text nodes in order, and elements with True where they open and False where they close; not recursive."""
    node: LexborNode | None = root
    end = root.mem_id
    while node is not None:
        hidden = node.tag in HIDDEN or node.mem_id in left_out
        if not hidden:
            yield node, True
        below = None if hidden or node.is_text_node else node.first_child
        if below is not None:
            node = below
            continue
        while node is not None:
            if not (node.is_text_node or node.tag in HIDDEN or node.mem_id in left_out):
                yield node, False
            if node.mem_id == end:
                return
            if node.next is not None:
                node = node.next
                break
            node = node.parent
