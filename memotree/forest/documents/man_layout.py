"""Lays out the text of man pages."""

from memotree.forest.documents.outline import Heading


class Layout:
    """Puts words into lines and paragraphs, and notes where headings begin."""

    def __init__(self) -> None:
        self.verbatim = False
        self._parts: list[str] = []
        self._length = 0
        self._breaks = 0
        self._joins = False
        self._mark = ""
        self._headings: list[tuple[str, int, int]] = []

    def words(self, text: str, *, joins: bool = False) -> None:
        """Adds words to the line, or a line of a verbatim text; ``joins`` if the next words follow without a blank."""
        if not self.verbatim:
            joins = joins and not text.endswith(" ")
            text = " ".join(text.split(" ")) if "\t" in text else " ".join(text.split())
            if not text:
                return
        if self._parts:
            if self._breaks:
                self._put("\n" * self._breaks)
            elif not self._joins:
                self._put(" ")
        self._put(self._mark + text)
        self._breaks, self._joins, self._mark = 0, joins, ""
        if self.verbatim and not joins:
            self._breaks = 1

    def line(self) -> None:
        """Ends the line."""
        self._breaks = max(self._breaks, 1)

    def paragraph(self) -> None:
        """Ends the paragraph."""
        self._breaks = 2

    def mark(self, mark: str) -> None:
        """Sets what stands before the next words, such as the dash of a list."""
        self._mark = mark

    def set_verbatim(self, *, on: bool) -> None:
        """Begins or ends a text whose lines are kept."""
        if on != self.verbatim:
            self.verbatim = on
            self.line()

    def heading(self, level: int, title: str) -> None:
        """Adds a heading on a line of its own."""
        if not title:
            return
        self.paragraph()
        if self._parts:
            self._put("\n" * self._breaks)
        self._mark, self._joins = "", False
        self._headings.append((title, level, self._length))
        self._put(title)
        self._breaks = 1

    def finish(self, title: str, manual: str) -> tuple[str, list[Heading]]:
        """Returns the text below the title of the page, and its headings."""
        top = f"{title} {manual}".strip()
        before = f"{top}\n\n" if top else ""
        found = [Heading(title, 1, 0)] if top else []
        found += [Heading(words, level, start + len(before)) for words, level, start in self._headings]
        body = "".join(self._parts)
        return f"{before}{body}\n" if body else before, found

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
