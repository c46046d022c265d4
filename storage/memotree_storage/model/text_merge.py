"""Three-way merge of two texts that started from one: by lines and, where both sides changed one passage, by sentences.

Each side's changes are the stretches of the base that it replaced, which follow from what it has in common with the
base (`line_matching`). A stretch that one side alone replaced takes that side's lines; one that both replaced by the
same lines takes these. Changes of both sides that overlap, or that touch without a line between them, are compared
again sentence by sentence, where changes may touch: two people who edit neighbouring sentences both keep their edit.
Lines of code and of tables have no sentences and are left as they are. What still overlaps is a conflict.

The rules by lines are those of ``git merge-file``. Its program is not called: a server may have none, and each call
would be a process. The libraries for this either have a licence that Apache-2.0 cannot take in, or take quadratic time
for some texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memotree_storage.model.line_matching import matches
from memotree_storage.model.sentences import Prose, sentences_of


@dataclass(frozen=True, slots=True)
class _Change:
    """A stretch of the base, ``low`` to ``high``, which a side has replaced by its own from ``begin`` to ``end``."""

    low: int
    high: int
    begin: int
    end: int


@dataclass(slots=True)
class _Region:
    """A stretch of the base, and the changes that the sides made there."""

    low: int
    high: int
    ours: list[_Change]
    theirs: list[_Change]


def merge_texts(base: str, ours: str, theirs: str) -> str | None:
    """Merge two texts; which of them is called "ours" makes no difference.

    Returns:
        The text with the changes of both sides; ``None`` if both changed one place differently, or if more lines
        differ than are compared (`line_matching.MOST_LINES`).
    """
    if theirs in (ours, base):
        return ours
    if ours == base:
        return theirs
    sides = [text.split("\n") for text in (base, ours, theirs)]
    merged = _merge(*sides)
    if merged is None:  # where lines are repeated, what is common can be told in several ways; from the end is another
        merged = _merge(*(side[::-1] for side in sides))
        merged = _merge(*sides, prose=Prose(sides[0])) if merged is None else merged[::-1]
    return None if merged is None else "\n".join(merged)


@dataclass(frozen=True, slots=True)
class Hunk:
    """A part of a text that both sides changed differently.

    Attributes:
        base: The part that both started from; "" if there is none.
        ours: The part of our side, likewise.
        theirs: The part of their side, likewise.
        is_of_lines: Whether it is of whole lines, each with its end, and not of sentences.
    """

    base: str
    ours: str
    theirs: str
    is_of_lines: bool


def parts_of(base: str, ours: str, theirs: str) -> list[str | Hunk]:
    """The parts of a text that does not merge: what both sides agree on, and the hunks between.

    Joined, with a choice for each hunk, they are the text with one more line end. If too many lines differ to be
    compared, the whole text is one hunk.
    """
    sides = [text.split("\n") for text in (base, ours, theirs)]
    found: list[str | Hunk] = []
    for part in _parts(*sides, prose=Prose(sides[0])):
        if isinstance(part, _Sentences):
            found += [*(_part(section, "") for section in part.sections), "\n"]
        else:
            found.append(_part(part, "\n"))
    return [part for part in found if part]


def _part(section: "_Section", end: str) -> str | Hunk:
    if not isinstance(section, _Clash):
        return "".join(f"{item}{end}" for item in section)
    base, ours, theirs = (
        "".join(f"{item}{end}" for item in side) for side in (section.base, section.ours, section.theirs)
    )
    return Hunk(base, ours, theirs, is_of_lines=bool(end))


@dataclass(frozen=True, slots=True)
class _Clash:
    """Lines or sentences that both sides replaced differently; the first one of the base is number ``low`` there."""

    low: int
    base: Sequence[str]
    ours: Sequence[str]
    theirs: Sequence[str]


_Section = Sequence[str] | _Clash


@dataclass(frozen=True, slots=True)
class _Sentences:
    """Lines of prose whose sentences do not all merge: those that do, and clashes."""

    sections: Sequence[_Section]


def _merge(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, prose: Prose | None = None
) -> list[str] | None:
    """Merge lines; ``None`` for a conflict. For the arguments see `_parts`."""
    merged: list[str] = []
    for part in _parts(base, ours, theirs, prose=prose):
        if isinstance(part, _Clash | _Sentences):
            return None
        merged += part
    return merged


def _parts(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, prose: Prose | None = None
) -> Iterator[_Section | _Sentences]:
    """The merged lines, and what does not merge, in the order of the text.

    Args:
        base: What both sides started from.
        ours: One side.
        theirs: The other one.
        prose: Where lines are compared again by sentences; without it nowhere.
    """
    for section in _sections(base, ours, theirs, touching=True):
        sentences = _by_sentences(section, prose) if isinstance(section, _Clash) and prose is not None else None
        if sentences is None:
            yield section
        elif any(isinstance(each, _Clash) for each in sentences):
            yield _Sentences(sentences)
        else:
            yield ["".join("".join(each) for each in sentences if not isinstance(each, _Clash))]


def _by_sentences(clash: _Clash, prose: Prose) -> list[_Section] | None:
    """The sentences of lines that clash; ``None`` if they are not prose on all sides."""
    sides = clash.base, clash.ours, clash.theirs
    if not all(sides) or not prose.holds(clash.low, clash.low + len(clash.base)):
        return None
    if not all(Prose(part).holds(0, len(part)) for part in sides[1:]):
        return None
    return list(_sections(*(sentences_of("\n".join(part)) for part in sides), touching=False))


def _sections(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, touching: bool) -> Iterator[_Section]:
    """What merges and what clashes, in the order of the text; everything clashes if there is too much to compare.

    Args:
        base: What both sides started from.
        ours: One side.
        theirs: The other one.
        touching: Whether changes that touch clash, as overlapping ones do.
    """
    our_changes, their_changes = _changes(base, ours), _changes(base, theirs)
    if our_changes is None or their_changes is None:
        yield _Clash(0, base, ours, theirs)
        return
    done = 0
    for region in _regions(our_changes, their_changes, touching=touching):
        yield base[done : region.low]
        done = region.high
        our, their = _replaced(region, region.ours, ours), _replaced(region, region.theirs, theirs)
        if our is None or their is None or our == their:
            yield our or their or []
        else:
            yield _Clash(region.low, base[region.low : region.high], our, their)
    yield base[done:]


def _changes(base: Sequence[str], side: Sequence[str]) -> list[_Change] | None:
    """What a side has replaced, in order; ``None`` if there is too much to compare."""
    found = matches(base, side)
    if found is None:
        return None
    changes: list[_Change] = []
    low = begin = 0
    for match in found:
        if (match.before, match.after) != (low, begin):
            changes.append(_Change(low, match.before, begin, match.after))
        low, begin = match.before + match.count, match.after + match.count
    if (low, begin) != (len(base), len(side)):
        changes.append(_Change(low, len(base), begin, len(side)))
    following = dict(enumerate(changes[1:]))
    return [_slid(change, base, side, following.get(number)) for number, change in enumerate(changes)]


def _slid(change: _Change, base: Sequence[str], side: Sequence[str], after: _Change | None) -> _Change:
    """The same change as late as it can be told: of two equal lines, the second one is the new one.

    Args:
        change: Lines that the side only added, or only removed; others are left as they are.
        base: The base.
        side: The side.
        after: The next change of the side, before which it stays.
    """
    low, high, begin, end = change.low, change.high, change.begin, change.end
    last = len(base) if after is None else after.low - 1
    if low == high:
        while high < last and side[begin] == side[end]:
            low, high, begin, end = low + 1, high + 1, begin + 1, end + 1
    elif begin == end:
        while high < last and base[low] == base[high]:
            low, high, begin, end = low + 1, high + 1, begin + 1, end + 1
    return _Change(low, high, begin, end)


def _regions(ours: Sequence[_Change], theirs: Sequence[_Change], *, touching: bool) -> Iterator[_Region]:
    """The stretches of the base in which changes overlap, in order.

    Args:
        ours: The changes of one side.
        theirs: Those of the other one.
        touching: Changes without a line between them count as one stretch; otherwise only insertions at one place do.
    """
    sided = [(change, True) for change in ours] + [(change, False) for change in theirs]
    sided.sort(key=lambda each: (each[0].low, each[0].high))
    region: _Region | None = None
    for change, is_ours in sided:
        if region is not None and _joins(region, change, touching=touching):
            region.high = max(region.high, change.high)
        else:
            if region is not None:
                yield region
            region = _Region(change.low, change.high, [], [])
        (region.ours if is_ours else region.theirs).append(change)
    if region is not None:
        yield region


def _joins(region: _Region, change: _Change, *, touching: bool) -> bool:
    if change.low < region.high or (touching and change.low == region.high):
        return True
    return region.low == region.high == change.low == change.high


def _replaced(region: _Region, changes: Sequence[_Change], side: Sequence[str]) -> Sequence[str] | None:
    """What a side has in place of a stretch of the base; ``None`` if it has changed nothing there."""
    if not changes:
        return None
    begin = changes[0].begin - (changes[0].low - region.low)
    return side[begin : changes[-1].end + (region.high - changes[-1].high)]
