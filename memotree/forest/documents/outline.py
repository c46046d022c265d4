"""Headings in document order become nested sections."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from memotree.forest.documents.canonical import title_or
from memotree.forest.documents.document import DEEPEST_LEVEL, NO_SECTION, Section


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading as a format gives it: any level from 1, any text, where it starts."""

    title: str
    level: int
    start: int


def nest(headings: Iterable[Heading], text: str) -> tuple[Section, ...]:
    """The sections of headings that are in document order.

    A heading belongs to the nearest one before it of a smaller level, at `DEEPEST_LEVEL` at the deepest; one that shows
    nothing is called ``Section N`` by its place.

    Args:
        headings: In order of their starts.
        text: The whole text; white space before the first heading belongs to that section.
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
