"""Tells tables of data from tables that only place things on a page, and finds their headers."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from selectolax.lexbor import LexborNode

from memotree.forest.documents.tables import is_header

_GROUPS: Final = frozenset({"thead", "tbody", "tfoot"})
_CELLS: Final = frozenset({"td", "th"})
_LARGE: Final = frozenset({"table", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "form", "section", "article"})
"""What a cell of data does not contain."""
_MOST_LOOKED_AT: Final = 200
_MOST_NODES: Final = 2000
_LONGEST_CELL: Final = 1000
_FEWEST_ROWS: Final = 3
"""The fewest rows of a table whose first row is taken for its header without being marked as such."""


def header_rows(table: LexborNode) -> int | None:
    """Returns how many of the first rows of a table are its header; ``None`` if it is not a table of data.

    Only the first rows are looked at, so that a giant table costs no more than a small one.
    """
    if any(node.tag in _LARGE for node in islice(_below(table), _MOST_NODES)):
        return None
    rows: list[tuple[bool, list[LexborNode]]] = []
    for is_head, row in _rows(table):
        rows.append((is_head, [cell for cell in _children(row) if cell.tag in _CELLS]))
        if len(rows) >= _MOST_LOOKED_AT:
            break
    if len(rows) < 2 or max(len(cells) for _, cells in rows) < 2:  # noqa: PLR2004 - rows and columns
        return None
    if any(len(cell.text(deep=True)) > _LONGEST_CELL for _, cells in rows[:10] for cell in cells):
        return None
    marked = 0
    for is_head, cells in rows:
        if not (is_head or (cells and all(cell.tag == "th" for cell in cells))):
            break
        marked += 1
    if marked:
        return min(marked, len(rows) - 1)
    looks_so = len(rows) >= _FEWEST_ROWS and is_header([cell.text(deep=True) for cell in rows[0][1]])
    return 1 if looks_so else 0


def _rows(table: LexborNode) -> Iterator[tuple[bool, LexborNode]]:
    for part in _children(table):
        if part.tag == "tr":
            yield False, part
        elif part.tag in _GROUPS:
            for row in _children(part):
                if row.tag == "tr":
                    yield part.tag == "thead", row


def _below(table: LexborNode) -> Iterator[LexborNode]:
    node = table.first_child
    while node is not None:
        yield node
        if node.first_child is not None:
            node = node.first_child
            continue
        while node.next is None:
            parent = node.parent
            if parent is None or parent.mem_id == table.mem_id:
                return
            node = parent
        node = node.next


def _children(node: LexborNode) -> Iterator[LexborNode]:
    child = node.first_child
    while child is not None:
        yield child
        child = child.next
