"""Reads the source of man pages, written with the macros ``man`` or ``mdoc``, into text and headings.

This is one pass over the lines that knows the macros and nothing else: it defines no macros, reads no other files,
and has no loops, so its time follows the length of the page. What a page defines for itself is left out.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from memotree.forest.documents import mdoc
from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.man_layout import Layout
from memotree.forest.documents.outline import Heading
from memotree.forest.documents.roff_escapes import Escapes, arguments

_CONTROL: Final = re.compile(r"[.'][ \t]*(\\\"|[^\s\\]{1,20})?[ \t]*(.*)")
_CONDITION: Final = re.compile(r"(![ntoe]|[ntoe]|!?\\n\(\.g|\S+)[ \t]*(.*)")
_HOLDS: Final = frozenset({"n", "!t", "o", "\\n(.g"})
_FONTS: Final = frozenset({"B", "I", "SM", "SB", "R", "CW"})
_MIXED_FONTS: Final = frozenset({"BI", "BR", "IB", "IR", "RB", "RI"})
_BREAKS: Final = frozenset({"PP", "P", "LP", "HP", "RS", "RE", "sp", "Sp", "bp", "ne"})
_VERBATIM: Final = {"nf": 1, "EX": 1, "Vb": 1, "fi": -1, "EE": -1, "Ve": -1}
_BULLETS: Final = frozenset({"•", "-", "*", "o", "·", "—", "–"})  # noqa: RUF001 - the dashes of typesetting
_DEEPEST: Final = 50


@dataclass(frozen=True, slots=True)
class ManPage:
    """The canonical text of a man page, its headings and its title, such as ``ls(1)``."""

    text: str
    headings: list[Heading]
    title: str


def read(source: str) -> ManPage:
    """Returns the text of a man page: its title on the first line, then its sections, paragraphs and lists."""
    reader = _Reader()
    for line in source.split("\n"):
        reader.line(line.removesuffix("\r"))
    return reader.page()


@dataclass(slots=True)
class _Reader:
    escapes: Escapes = field(default_factory=Escapes)
    layout: Layout = field(default_factory=Layout)
    title: str = ""
    manual: str = ""
    skipped_until: str = ""  # the line that ends a definition
    depth: int = 0  # of open conditional blocks that are shown
    dropped: int = 0  # of open conditional blocks that are not shown
    otherwise: list[bool] = field(default_factory=list)  # whether the ``.el`` that may follow is shown
    heading_next: int = 0  # the level of a heading whose words are on the next line
    tag_next: bool = False
    table: str = ""  # the separator of its cells; within a table
    in_format: bool = False
    in_mdoc: "mdoc.Pages | None" = None

    def page(self) -> ManPage:
        title = self.title
        text, headings = self.layout.finish(title, self.manual)
        text = canonical_text(text)
        name = re.search(r"\n\nNAME\n(\S{1,100})", text[:2000])
        if name and title.lower().startswith(name[1].rstrip(",").lower() + "("):
            proper = name[1].rstrip(",") + title[title.rindex("(") :]  # the title line is often in capitals
            headings[0] = Heading(proper, 1, 0)
            title = proper
        return ManPage(text, headings, title)

    def line(self, line: str) -> None:
        if self.skipped_until:
            if line.split(maxsplit=1)[:1] == [self.skipped_until]:
                self.skipped_until = ""
            return
        if self.dropped:
            self.dropped = max(0, self.dropped + line.count("\\{") - line.count("\\}"))
            return
        if line.startswith((".\\}", "'\\}")):
            self.depth = max(0, self.depth - 1)
            return
        found = _CONTROL.fullmatch(line) if line[:1] in {".", "'"} else None
        if found is None:
            self._words(line)
        elif found[1] and found[1] != '\\"':
            self._request(found[1], found[2])

    # --- Text ---

    def _words(self, line: str) -> None:
        if line.startswith("\\}"):
            self.depth = max(0, self.depth - 1)
            line = line[2:]
        if self.table:
            self._row(line)
            return
        text = self.escapes.resolve(line)
        if self.heading_next:
            self._heading(self.heading_next, text)
        elif self.tag_next:
            self._tag(text)
        elif not text.strip() and not self.layout.verbatim:
            if not line.strip():
                self.layout.paragraph()
        else:
            self.layout.words(text, joins=line.endswith("\\c"))

    def _tag(self, text: str) -> None:
        self.tag_next = False
        self.layout.paragraph()
        if text.strip() in _BULLETS:
            self.layout.mark("- ")
        elif text.strip():
            self.layout.words(text)
            self.layout.line()

    def _heading(self, level: int, text: str) -> None:
        self.heading_next, self.tag_next = 0, False
        self.layout.heading(level + 1, one_line(text))

    # --- Tables of ``tbl`` ---

    def _row(self, line: str) -> None:
        if self.in_format:
            option = re.search(r"tab\s*\((.)\)", line)
            self.table = option[1] if option else self.table
            self.in_format = not line.rstrip().endswith(".")
            return
        if line.strip() in {"_", "="}:
            return
        text = line.replace("T{", "").replace("T}", "") if "T{" in line or "T}" in line else line
        cells = [self.escapes.resolve(cell).strip() for cell in text.split(self.table)]
        if any(cells):
            self.layout.words("\t".join(cells).strip("\n"))
            if "T{" not in line:
                self.layout.line()

    # --- Requests ---

    def _request(self, name: str, rest: str) -> None:
        if name in {"if", "ie", "el", "while"}:
            self._conditional(name, rest)
        elif name in {"de", "de1", "am", "ig"}:
            words = rest.split()
            self.skipped_until = f".{words[1] if name != 'ig' and len(words) > 1 else '.'}"
        elif name in {"ds", "as"}:
            key, _, value = rest.partition(" ")
            self.escapes.define(key, value.lstrip().removeprefix('"'))
        elif name == "TE":
            self.table = ""
            self.layout.paragraph()
        elif name == "TS":
            self.table, self.in_format = "\t", True
            self.layout.paragraph()
        elif not self.table:
            self._macro(name, rest)

    def _conditional(self, name: str, rest: str) -> None:
        """Follows a condition that is about the output (we are ``nroff``) and drops what depends on any other."""
        body = rest
        if name == "el":
            shown = self.otherwise.pop() if self.otherwise else False
        else:
            found = _CONDITION.fullmatch(rest)
            if found is None:
                return
            shown, body = found[1] in _HOLDS and name != "while", found[2]
            if name == "ie" and len(self.otherwise) < _DEEPEST:
                self.otherwise.append(not shown)
        opens = body.lstrip().startswith("\\{")
        if opens:
            body = body.lstrip()[2:].removeprefix("\\").lstrip()
        if not shown:
            self.dropped = max(0, opens + body.count("\\{") - body.count("\\}"))
            return
        self.depth += opens
        if body.strip() and self.depth < _DEEPEST:
            self.depth += 1  # a condition within a condition of one line, and so on, is not followed forever
            self.line(body)
            self.depth -= 1

    def _macro(self, name: str, rest: str) -> None:
        if name == "Dd":
            self.in_mdoc = mdoc.Pages(self.layout)
        if self.in_mdoc is not None:
            self.in_mdoc.macro(name, [self.escapes.resolve(word) for word in arguments(rest)])
            self.title = self.in_mdoc.title
            return
        given = arguments(rest)
        words = [self.escapes.resolve(word) for word in given]
        handler = _MACROS.get(name)
        if handler is not None:
            handler(self, words)
        elif name in _FONTS:
            self._words_of(" ".join(words), given)
        elif name in _MIXED_FONTS:
            self._words_of("".join(words), given)
        elif name in _BREAKS:
            self.tag_next = False
            self.layout.paragraph()
        elif name in _VERBATIM:
            self.layout.set_verbatim(on=_VERBATIM[name] > 0)

    def _words_of(self, text: str, given: list[str]) -> None:
        if self.heading_next:
            self._heading(self.heading_next, text)
        elif self.tag_next:
            self._tag(text)
        elif text.strip():
            self.layout.words(text, joins=bool(given) and given[-1].endswith("\\c"))

    def titled(self, words: list[str]) -> None:
        self.title = f"{words[0]}({words[1]})" if len(words) > 1 else "".join(words)
        self.manual = words[4] if len(words) > 4 else ""  # noqa: PLR2004 - the fifth argument of .TH

    def section(self, words: list[str], level: int) -> None:
        self.layout.set_verbatim(on=False)
        if words:
            self._heading(level, " ".join(words))
        else:
            self.heading_next = level

    def item(self, words: list[str]) -> None:
        self._tag(words[0] if words else "")

    def tagged(self, _: list[str]) -> None:
        self.layout.paragraph()
        self.tag_next = True

    def link(self, words: list[str]) -> None:
        self.layout.words(f"See {' '.join(words).rpartition('/')[2]}.")

    def address(self, words: list[str]) -> None:
        if words:
            self.layout.words(words[0])


_MACROS: Final[dict[str, Callable[[_Reader, list[str]], None]]] = {
    "TH": _Reader.titled,
    "SH": lambda reader, words: reader.section(words, 1),
    "SS": lambda reader, words: reader.section(words, 2),
    "TP": _Reader.tagged,
    "TQ": lambda reader, _: setattr(reader, "tag_next", True),
    "IP": _Reader.item,
    "br": lambda reader, _: reader.layout.line(),
    "so": _Reader.link,
    "UR": _Reader.address,
    "MT": _Reader.address,
}
