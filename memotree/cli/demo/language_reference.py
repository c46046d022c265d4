"""The demo's input: the texts of the language reference that come with every Python, cut into sections."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_UNDERLINES: Final = '*=-~"+`'
"""The characters that underline headings in these texts, outermost first."""

_HEADING: Final = re.compile(
    rf"^(?P<title>\S.*)\n(?P<line>(?P<mark>[{re.escape(_UNDERLINES)}])(?P=mark)+)$", re.MULTILINE
)


@dataclass(slots=True)
class Section:
    """A heading with its text up to the next heading (including the heading), and the sections below it."""

    title: str
    text: str
    depth: int = -1
    below: list["Section"] = field(default_factory=list)

    def walk(self) -> Iterator["Section"]:
        """Yields this section and all sections below it, in the order of the text."""
        yield self
        for section in self.below:
            yield from section.walk()


def cut(name: str, text: str) -> Section:
    """Cuts the text of the topic ``name`` into a tree; the texts of all sections, in order, give the text again.

    If the text does not begin with a single top section, the root gets ``name`` as its title.
    """
    found = [match for match in _HEADING.finditer(text) if len(match["title"]) == len(match["line"])]
    starts = [match.start() for match in found]
    sections = [
        Section(match["title"], text[start:end], _UNDERLINES.index(match["mark"]))
        for match, start, end in zip(found, starts, [*starts[1:], len(text)], strict=False)
    ]
    before = text[: starts[0]] if starts else text
    if not before and sections and all(each.depth > sections[0].depth for each in sections[1:]):
        root, rest = sections[0], sections[1:]
    else:
        root, rest = Section(name, before), sections
    above = [root]
    for section in rest:
        while above[-1].depth >= section.depth:
            above.pop()
        above[-1].below.append(section)
        above.append(section)
    return root


Signature = tuple[str, str, tuple["Signature", ...]]


def _signature(section: Section) -> Signature:
    """The headings, texts and subsections of a section, independent of the level of its heading."""
    body = _HEADING.sub("", section.text, count=1) if section.text.startswith(section.title) else section.text
    return section.title, body.strip(), tuple(_signature(below) for below in section.below)


def once_each(texts: Mapping[str, str]) -> tuple[dict[str, Section], dict[str, Section]]:
    """The texts as trees without duplicates: a topic that is a chapter of another topic appears only there.

    Returns:
        The trees by the name of their topic, and for each topic that is part of another one, its section there.
    """
    trees: dict[str, Section] = {}
    parts: dict[str, Section] = {}
    known: dict[Signature, Section] = {}
    for name in sorted(texts, key=lambda name: (-len(texts[name]), name)):
        root = cut(name, texts[name])
        if found := known.get(_signature(root)):
            parts[name] = found
            continue
        trees[name] = root
        for section in root.walk():
            known.setdefault(_signature(section), section)
    return dict(sorted(trees.items())), parts


def reference() -> dict[str, str]:
    """The texts of the language reference by the name of their topic."""
    from pydoc_data.topics import topics  # noqa: PLC0415 - half a megabyte that only the demo needs

    texts: dict[str, str] = topics
    return texts
