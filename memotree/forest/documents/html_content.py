"""Finds the main content of an HTML page, and what stands around it: navigation, banners, sidebars, footers.

The elements and roles that HTML has for these decide, and after them the usual names of classes, which count only for a
part that consists mostly of links. If hardly any text would remain, the whole page is the content.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

HIDDEN: Final = frozenset(
    {"script", "style", "template", "noscript", "iframe", "object", "svg", "canvas", "audio", "video", "head", "title"}
)
"""Elements whose text is not shown."""

_MAIN: Final = ("main, [role=main]", "article, [role=article]")
_AROUND: Final = (
    "nav, menu, dialog, button, select, [role=navigation], [role=search], [role=banner], [role=contentinfo],"
    " [role=menu], [role=menubar], [role=toolbar], [role=dialog]"
)
_AROUND_BODY: Final = "header, footer, aside, [role=complementary]"
_NAMED: Final = frozenset(
    {
        *("nav", "navbar", "navigation", "menu", "sidebar", "breadcrumb", "breadcrumbs", "toc", "pagination", "pager"),
        *("footer", "site-footer", "site-header", "header", "masthead", "related", "share", "social", "skip-link"),
        *("skip-to-content", "table-of-contents", "contents", "sphinxsidebar", "topbar", "localtoc", "prev-next-area"),
    }
)
_PARTS: Final = frozenset({"article", "section", "main", "blockquote", "figure", "td"})
_MOST_MAIN: Final = 20
_ANCHORS: Final = frozenset({"¶", "#", "§", "🔗"})
_MOST_NAMED: Final = 50
"""How many parts with a usual name are looked at; each costs as much as its text is long."""
_MOST_LINKS: Final = 0.5
_LITTLE: Final = 200
_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Content:
    """The part of a page to read.

    Attributes:
        root: Its outermost element.
        left_out: The elements in it that are left out, by ``mem_id``.
        is_partial: Whether any text of the page is left out.
    """

    root: LexborNode | None
    left_out: frozenset[int] = field(default_factory=frozenset)
    is_partial: bool = False


def whole_page(tree: LexborHTMLParser) -> Content:
    """Returns the whole page as the content."""
    return Content(tree.root)


def main_content(tree: LexborHTMLParser) -> Content:
    """Returns the main content of a page."""
    body = tree.body
    if body is None:
        return whole_page(tree)
    everything = _length_of(body)
    root = _main(tree, everything) or body
    left_out = frozenset(node.mem_id for node in _around(root, is_body=root.mem_id == body.mem_id))
    remaining = _length_of(root, left_out)
    if remaining < min(_LITTLE, everything) and remaining < _SHARE * everything:
        return whole_page(tree)
    return Content(root, left_out, remaining < everything)


def _main(tree: LexborHTMLParser, everything: int) -> LexborNode | None:
    """Returns the one element that is marked as the main one, if it has a fair share of the text."""
    for selector in _MAIN:
        found = list(_outermost(tree.css(selector)[:_MOST_MAIN]))
        if len(found) == 1:
            length = _length_of(found[0])
            if length >= _LITTLE or length >= _SHARE * everything:
                return found[0]
    return None


def _outermost(nodes: Iterable[LexborNode]) -> Iterator[LexborNode]:
    seen: set[int] = set()
    for node in nodes:
        if not seen or seen.isdisjoint(above.mem_id for above in _above(node)):
            seen.add(node.mem_id)
            yield node


def _above(node: LexborNode) -> Iterator[LexborNode]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _around(root: LexborNode, *, is_body: bool) -> Iterator[LexborNode]:
    yield from (node for node in root.css(_AROUND) if node.mem_id != root.mem_id)
    if is_body:
        for node in root.css(_AROUND_BODY):
            # The header of an article is part of it; the one of the page is not.
            if not any(above.tag in _PARTS for above in islice(_above(node), 20)):
                yield node
    for link in root.css("a"):
        child = link.first_child
        if child is not None and child.next is None and child.is_text_node and child.text_content in _ANCHORS:
            yield link
    named = (node for node in root.css("div, ul, ol, p, a, span, section, table") if _is_named(node))
    yield from (node for node in islice(named, _MOST_NAMED) if _is_mostly_links(node))


def _is_named(node: LexborNode) -> bool:
    names = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}".lower().split()
    return any(name in _NAMED for name in names)


def _is_mostly_links(node: LexborNode) -> bool:
    text = _length(node.text(deep=True))
    links = [node] if node.tag == "a" else node.css("a")
    return sum(_length(link.text(deep=True)) for link in links) > _MOST_LINKS * text


def _texts(root: LexborNode, left_out: frozenset[int]) -> Iterator[str]:
    node: LexborNode | None = root
    while node is not None:
        if node.is_text_node:
            yield node.text_content or ""
        below = None if node.is_text_node or node.tag in HIDDEN or node.mem_id in left_out else node.first_child
        if below is not None:
            node = below
            continue
        while node is not None:
            if node.mem_id == root.mem_id:
                return
            if node.next is not None:
                node = node.next
                break
            node = node.parent


def _length_of(root: LexborNode, left_out: frozenset[int] = frozenset()) -> int:
    return _length("".join(_texts(root, left_out)))


def _length(text: str) -> int:
    """Returns the number of characters without white space."""
    return len("".join(text.split()))
