"""Turns packed leaves into the answer: passages, and one Markdown text for a prompt.

Leaves that follow each other in their document form one passage. Documents are ordered by their best leaf; a note is a
document of its own. Within a document everything is in document order, whatever the scores, because a reader follows a
text and not a ranking.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.model.titles import titled

from memotree.request.quoted_text import has_lines, quoted

_LINE_END: Final = "\n"
_MOST_HASHES: Final = 6
LEFT_OUT: Final = "[…]"
"""Marks the place between two passages where leaves of the document were left out."""

ID_TOKENS: Final = 6
"""The tokens that the id of a leaf and the blank line before it take in the text."""

FAR: Final = 0.001
"""A leaf is far below the best if its score is less than this share of the best one's; scores are third powers."""

FAR_BELOW: Final = "What follows is far less like the question:"
"""Stands before the documents and notes whose best leaf is far below the best one of all."""


@dataclass(frozen=True, slots=True)
class PackedLeaf:
    """A leaf that is part of an answer.

    Attributes:
        node_id: The id of the leaf.
        archive_id: The id of its archive.
        place: Its index among all leaves of the archive.
        score: From 0 to 1.
        tokens: Tokens of its title and text in the answer.
        text: Its content, or the excerpt of it that fits.
        title: Its title, if that says more than the content does.
        headings: The headings above it, outermost first.
        span: The offsets of its content in the source document, or ``None``.
        remark: When it holds, if it says so or is superseded, and when it was changed.
        former: What was said before instead of it, if the question is about that.
        document: The index of the first leaf of its document; an archive may have several.
    """

    node_id: str
    archive_id: str
    place: int
    score: float
    tokens: int
    text: str
    title: str = ""
    headings: tuple[str, ...] = ()
    span: tuple[int, int] | None = None
    remark: str = ""
    former: str = ""
    document: int = 0

    @property
    def home(self) -> tuple[str, int]:
        """What identifies its document."""
        return self.archive_id, self.document

    @property
    def said(self) -> str:
        """Its text, after its title if it has one of its own."""
        return titled(self.title, self.text)

    @property
    def shown(self) -> str:
        """What it says, before what was said instead."""
        return f"{self.said.rstrip()}\n{self.former}" if self.former else self.said


@dataclass(frozen=True, slots=True)
class JoinedLeaves:
    """Leaves that follow each other in one document."""

    leaves: tuple[PackedLeaf, ...]

    @property
    def archive_id(self) -> str:
        """The id of their archive."""
        return self.leaves[0].archive_id

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings above the first leaf, outermost first."""
        return self.leaves[0].headings

    @property
    def score(self) -> float:
        """The score of the best leaf."""
        return max(leaf.score for leaf in self.leaves)

    @property
    def text(self) -> str:
        """The texts of the leaves joined: without a gap if they were cut from one text there, else by line breaks."""
        parts = [self.leaves[0].shown]
        for before, leaf in zip(self.leaves, self.leaves[1:], strict=False):
            parts += [_between(before, leaf), leaf.shown]
        return "".join(parts)


def joined(leaves: Iterable[PackedLeaf]) -> list[JoinedLeaves]:
    """Returns the passages: documents by their best leaf (ties by id), within a document in document order."""
    documents: dict[tuple[str, int], list[PackedLeaf]] = {}
    for leaf in leaves:
        documents.setdefault(leaf.home, []).append(leaf)
    best_first = sorted(documents.items(), key=lambda item: (-max(leaf.score for leaf in item[1]), item[0]))
    return [
        JoinedLeaves(tuple(run)) for _, found in best_first for run in _runs(sorted(found, key=lambda leaf: leaf.place))
    ]


def markdown(passages: Sequence[JoinedLeaves], names: Mapping[str, str]) -> str:
    """Renders passages as Markdown: a heading for each document and section, and the node id before each leaf.

    A line divides what is far below the best from the rest.

    Args:
        passages: In the order of `joined`.
        names: The name of each archive by id.
    """
    return "\n\n".join(_blocks(passages, names))


def _blocks(passages: Sequence[JoinedLeaves], names: Mapping[str, str]) -> Iterator[str]:
    before: PackedLeaf | None = None
    shown: tuple[str, ...] = ()
    far = _first_far(passages)
    for passage in passages:
        first = passage.leaves[0]
        name = names.get(passage.archive_id, "")
        if passage is far:
            yield FAR_BELOW
        if before is not None and before.home == first.home:
            yield LEFT_OUT
        elif before is None or before.archive_id != first.archive_id or shown not in ((), _own(first, name)):
            yield f"# {name}" if name else "#"
            shown = ()
        lines: list[str] = []
        for leaf in passage.leaves:
            headings = _own(leaf, name)
            if headings != shown:
                if lines:
                    yield "\n".join(lines)
                    lines = []
                yield from _headings(headings, shown, leaf)
                shown = headings
            lines.append(with_id(leaf.node_id, leaf.said, leaf.remark, leaf.former))
        yield "\n".join(lines)
        before = passage.leaves[-1]


def _first_far(passages: Sequence[JoinedLeaves]) -> JoinedLeaves | None:
    """Returns the first passage of the first document that is far below the best; ``None`` if none is."""
    first: dict[tuple[str, int], JoinedLeaves] = {}
    best: dict[tuple[str, int], float] = {}
    for passage in passages:
        home = passage.leaves[0].home
        first.setdefault(home, passage)
        best[home] = max(best.get(home, 0.0), passage.score)
    top = max(best.values(), default=0.0)
    return next((first[home] for home, score in best.items() if score < FAR * top), None)


def _own(leaf: PackedLeaf, name: str) -> tuple[str, ...]:
    """Returns the headings of a leaf without a first one that only repeats the archive's name."""
    return leaf.headings[1:] if leaf.headings[:1] == (name,) else leaf.headings


def _headings(headings: Sequence[str], shown: Sequence[str], leaf: PackedLeaf) -> Iterator[str]:
    """Yields the headings that are not shown already, without the last one if the leaf's own text begins with it."""
    shared = 0
    while shared < min(len(headings), len(shown)) and headings[shared] == shown[shared]:
        shared += 1
    for depth in range(shared, len(headings)):
        is_last = depth == len(headings) - 1
        if not (is_last and _begins_with(leaf.text, headings[depth])):
            yield f"{'#' * min(depth + 2, _MOST_HASHES)} {headings[depth]}"


def _begins_with(text: str, heading: str) -> bool:
    first = text.lstrip().split("\n", 1)[0]
    return first.strip("#*= \t\r") == heading


def with_id(node_id: str, text: str, remark: str = "", former: str = "") -> str:
    """Renders a stored text with the id of its node: before a text of one line, on a line above a longer one.

    A longer text is quoted, so that no line of it passes for a line of the answer.

    Args:
        node_id: The id.
        text: What the node says.
        remark: What there is to know about it.
        former: What was said before, a line for each text.
    """
    head = f"[{node_id}] ({remark})" if remark else f"[{node_id}]"
    said = f"{head}\n{quoted(text)}" if has_lines(text) else f"{head} {text.strip(_LINE_END)}"
    return f"{said.rstrip()}\n{former}" if former else said


def _runs(leaves: Sequence[PackedLeaf]) -> Iterator[list[PackedLeaf]]:
    run: list[PackedLeaf] = []
    for leaf in leaves:
        if run and leaf.place != run[-1].place + 1:
            yield run
            run = []
        run.append(leaf)
    yield run


def _between(before: PackedLeaf, leaf: PackedLeaf) -> str:
    spans = before.span, leaf.span
    is_cut_apart = (
        spans[0] is not None and spans[1] is not None and spans[0][0] < spans[0][1] == spans[1][0] and not leaf.title
    )
    return "" if is_cut_apart or before.text.endswith("\n") else "\n"
