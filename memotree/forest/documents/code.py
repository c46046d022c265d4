"""Finds the outline of code: its classes and functions, by the grammars of tree-sitter.

The text itself stays as it is. Comments just above a definition belong to it, and code between two definitions is a
section of its own, titled by the names that it defines. Functions within functions stay in the outer one, and a
definition of one line is no section, because it needs no finding.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from memotree.forest.documents.canonical import one_line, shorten
from memotree.forest.documents.grammars import GRAMMARS, Grammar
from memotree.forest.documents.missing import library
from memotree.forest.documents.outline import Heading

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

LARGEST: Final = 2_000_000
"""The most characters of code that are parsed; a longer text is cut like other text. Generated code is that long, and
text made to be slow takes about five seconds for each million."""

_MOST_HEADINGS: Final = 20_000
_MOST_NODES: Final = 500_000
_DEEPEST: Final = 30
_TITLE_CHARS: Final = 80
_NAME_CHARS: Final = 200
_NAME: Final = re.compile(rb"[A-Za-z_$][\w$]*")
_COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment"})
_NAMED_BY: Final = ("name", "declarator", "left", "property")
_LOOK_INSIDE: Final = 6
"""How many nodes such as an ``#ifdef`` in each other are looked into for definitions."""


@dataclass(frozen=True, slots=True)
class Code:
    """The outline of a code file, and a warning if it could not be made."""

    headings: list[Heading]
    warning: str = ""


def outline(text: str, language: str, *, name: str = "") -> Code:
    """Returns the classes and functions of a code file.

    Args:
        text: The canonical text.
        language: Its language as in `Document.language`; one without a grammar has no outline.
        name: The name of the document, for messages.

    Raises:
        MissingReaderError: If the library of the grammar is not installed.
    """
    grammars = GRAMMARS.get(language, ())
    if not grammars:
        return Code([])
    if len(text) > LARGEST:
        return Code([], f"Code of over {LARGEST} characters is not divided into classes and functions.")
    source = text.encode()
    for grammar in grammars:
        tree = _parsed(source, grammar, name)
        if not tree.root_node.has_error:
            return Code(_with_characters(text, source, list(_Outline(source, grammar).headings(tree))))
    if grammars[0].strict:
        return Code([])
    # Code with a fault, or for a later version of its language: what the grammar understands of it is enough.
    tree = _parsed(source, grammars[0], name)
    return Code(_with_characters(text, source, list(_Outline(source, grammars[0]).headings(tree))))


def _parsed(source: bytes, grammar: Grammar, name: str) -> "Tree":
    what = "code that is divided by its grammar"
    sitter = library("tree_sitter", name=name, what=what)
    module = library(grammar.module, name=name, what=what)
    tree: Tree = sitter.Parser(sitter.Language(getattr(module, grammar.entry)())).parse(source)
    return tree


def _with_characters(text: str, source: bytes, headings: list[Heading]) -> list[Heading]:
    """Returns the headings with offsets in characters instead of bytes."""
    if len(source) == len(text):
        return headings
    starts = [heading.start for heading in headings]
    parts = (len(source[begin:end].decode()) for begin, end in zip([0, *starts], starts, strict=False))
    return [
        Heading(heading.title, heading.level, place) for heading, place in zip(headings, accumulate(parts), strict=True)
    ]


@dataclass(slots=True)
class _Level:
    """The state of the walk through the members of one class, or of the file."""

    level: int
    owner: str
    waiting: Iterator["Node"]
    last_is_definition: bool = False
    comment: "Node | None" = None  # the first of the comments just above
    previous: "Node | None" = None
    loose: int = -1  # index of the heading of the code between two definitions, -1 if there is none yet


class _Outline:
    def __init__(self, source: bytes, grammar: Grammar) -> None:
        self._source = source
        self._grammar = grammar
        self._found: list[tuple[int, int, list[str]]] = []  # start, level, names
        self._seen = 0

    def headings(self, tree: "Tree") -> Iterator[Heading]:
        levels = [_Level(1, "", iter(_members(tree.root_node)))]
        while levels:
            current = levels[-1]
            node = next(current.waiting, None)
            self._seen += 1
            if node is None or self._seen > _MOST_NODES or len(self._found) >= _MOST_HEADINGS:
                levels.pop()
                continue
            below = self._visit(node, current)
            if below is not None and len(levels) < _DEEPEST:
                levels.append(below)
        last = -1
        for start, level, names in self._found:
            if start > last:  # two definitions on one line make one section
                last = start
                yield Heading(shorten(", ".join(names), _TITLE_CHARS), level, start)

    def _visit(self, node: "Node", current: _Level) -> _Level | None:
        """Notes a member, and returns the level of its own members if it has any."""
        if node.type in _COMMENTS:
            if not self._is_above(current.previous, node) or current.comment is None:
                on_its_line = current.previous is not None and current.previous.end_point[0] == node.start_point[0]
                current.comment = None if on_its_line else node
            current.previous = node
            return None
        first = node
        if current.comment is not None and current.previous is not None and self._is_above(current.previous, node):
            first = current.comment
        current.comment, current.previous = None, node
        definition = self._definition(node)
        if definition is None:
            self._loose(node, first, current)
            return None
        current.loose, current.last_is_definition = -1, True
        kind, inner = definition
        plain = self._name(inner) or self._name(node) or "default"
        full = f"{current.owner}.{plain}" if current.owner and kind == "()" else plain
        title = f"{full}()" if kind == "()" else f"{kind} {plain}"
        self._found.append((self._line_start(first.start_byte), current.level, [title]))
        if kind == "()":
            return None
        body = inner.child_by_field_name("body") or inner
        return _Level(current.level + 1, plain, iter(_members(body)))

    @staticmethod
    def _is_above(upper: "Node | None", lower: "Node") -> bool:
        return upper is not None and lower.start_point[0] - upper.end_point[0] in {0, 1}

    def _loose(self, node: "Node", first: "Node", current: _Level) -> None:
        """Notes code that is no definition; it gets a heading if it would belong to the definition before it."""
        if node.type in self._grammar.through and self._splice(node, current):
            return
        if not current.last_is_definition or not node.is_named:
            return
        if current.loose < 0:
            current.loose = len(self._found)
            self._found.append((self._line_start(first.start_byte), current.level, []))
        names = self._found[current.loose][2]
        if sum(map(len, names)) < _TITLE_CHARS:
            inside = (self._name(child) for child in node.named_children[:3])
            line = one_line(self._text(node).partition("\n")[0], _TITLE_CHARS).rstrip("({[= ")
            label = self._name(node) or next(filter(None, inside), line)
            if label and label not in names:
                names.append(label)

    def _splice(self, node: "Node", current: _Level) -> bool:
        """Visits the members of a node such as an ``#ifdef`` as if it were not there, if definitions are in it."""
        if not self._has_definition(node, _LOOK_INSIDE):
            return False
        members = _members(node)
        rest = current.waiting

        def both() -> Iterator["Node"]:
            yield from members
            yield from rest

        current.waiting = both()
        return True

    def _has_definition(self, node: "Node", depth: int) -> bool:
        return depth > 0 and any(
            self._definition(child) is not None
            or (child.type in self._grammar.through and self._has_definition(child, depth - 1))
            for child in _members(node)
        )

    def _definition(self, node: "Node") -> tuple[str, "Node"] | None:
        """Returns ``()`` or the word for a type, and the node of the definition, if this is one of several lines."""
        if node.start_point[0] == node.end_point[0]:
            return None
        inner = node
        for _ in range(_LOOK_INSIDE):  # export, declaration, declarator, value
            if inner.type in self._grammar.functions or inner.type in self._grammar.values:
                is_type = inner.type in self._grammar.types
                return (self._grammar.types[inner.type] if is_type else "()"), inner
            if inner.type in self._grammar.types and (inner is not node or self._has_body(inner)):
                return self._grammar.types[inner.type], inner
            if inner.type not in self._grammar.through or inner.type in {"block", "declaration_list"}:
                return None
            below = [child for child in inner.named_children[:8] if self._is_part(child)]
            if len(below) != 1:
                return None
            inner = below[0]
        return None

    @staticmethod
    def _has_body(node: "Node") -> bool:
        return node.child_by_field_name("body") is not None or node.child_by_field_name("type") is not None

    def _is_part(self, node: "Node") -> bool:
        grammar = self._grammar
        return (
            node.type in grammar.functions
            or node.type in grammar.types
            or node.type in grammar.values
            or node.type in grammar.through
        )

    def _name(self, node: "Node") -> str:
        """Returns the name that a node gives to something, with the type before the name of a method of Go."""
        receiver = node.child_by_field_name("receiver")
        before = ""
        if receiver is not None:
            names = _NAME.findall(self._source[receiver.start_byte : receiver.end_byte].partition(b"[")[0])
            before = names[-1].decode() + "." if names else ""
        inner: Any = node
        for _ in range(_LOOK_INSIDE):
            named = next((part for field in _NAMED_BY if (part := inner.child_by_field_name(field)) is not None), None)
            if named is None:
                break
            inner = named
            if inner.child_count == 0 or inner.type in {"member_expression", "string"}:
                return one_line(before + self._text(inner).strip("'\""))
        if inner is node and node.type in self._grammar.through:
            parts = [child for child in node.named_children[:8] if self._is_part(child)]
            return self._name(parts[0]) if parts and parts[0] is not node else ""
        if node.type == "expression_statement" and node.named_children:
            return self._name(node.named_children[0])
        return ""

    def _text(self, node: "Node") -> str:
        return self._source[node.start_byte : min(node.end_byte, node.start_byte + _NAME_CHARS)].decode(errors="ignore")

    def _line_start(self, byte: int) -> int:
        """Returns the beginning of the line if only blanks are before the byte."""
        begin = self._source.rfind(b"\n", 0, byte) + 1
        return begin if not self._source[begin:byte].strip() else byte


def _members(node: "Node") -> Iterator["Node"]:
    """Yields the children with a name, one at a time, because a file may have a million of them."""
    cursor = node.walk()
    going = cursor.goto_first_child()
    while going:
        child = cursor.node
        if child is not None and child.is_named:
            yield child
        going = cursor.goto_next_sibling()
