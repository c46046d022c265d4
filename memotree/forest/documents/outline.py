"""Nests headings that are in document order into sections."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from memotree.forest.documents.canonical import title_or
from memotree.forest.documents.document import DEEPEST_LEVEL, NO_SECTION, Section


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading as its format gives it: any text, any level from 1, and the offset where it starts."""

    title: str
    level: int
    start: int


def nest(headings: Iterable[Heading], text: str) -> tuple[Section, ...]:
    """Returns the sections that headings begin.

    The parent of a heading is the nearest one before it with a smaller level; no section is deeper than
    `DEEPEST_LEVEL`. A heading without visible text is titled ``Section N`` by its position.

    Args:
        headings: In order of their starts.
        text: The whole text; white space before the first heading belongs to the first section.
    """
    given = list(headings)
    if given and not text[: given[0].start].strip():
        given[0] = replace(given[0], start=0)
    ends = [len(text)] * len(given)
    depths: list[int] = []
    parents: list[int] = []
    open_sections: list[int] = []
    for index, heading in enumerate(given):
        while open_sections and given[open_sections[-1]].level >= heading.level:
            ends[open_sections.pop()] = heading.start
        while open_sections and depths[open_sections[-1]] >= DEEPEST_LEVEL:
            ends[open_sections.pop()] = heading.start
        parent = open_sections[-1] if open_sections else NO_SECTION
        parents.append(parent)
        depths.append(1 if parent == NO_SECTION else depths[parent] + 1)
        open_sections.append(index)
    return tuple(
        Section(title_or(heading.title, f"Section {index + 1}"), depth, heading.start, end, parent)
        for index, (heading, depth, end, parent) in enumerate(zip(given, depths, ends, parents, strict=True))
    )
