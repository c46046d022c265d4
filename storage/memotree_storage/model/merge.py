"""Three-way merge of nodes and archives, field by field.

Both sides started from one base. If only one side changed a field, its value is taken; if both changed it to different
values, that is a conflict. Tags, attributes and relations merge item by item. A node's place (archive and parent) is
one field; its position among its siblings never conflicts. Content merges by lines, and prose by sentences
(`text_merge`). The set of conflicts does not depend on which side is called "ours".

Briefs and summaries conflict only if two people wrote them. A person's text wins over a generated one. Of two generated
ones that of the side that changed the content is kept. If the summary does not come from the side whose content is
kept, it is marked: as older than the content if a person wrote it, as to be regenerated if it was generated.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from memotree_storage.conflicts import Absence, Conflict, ConflictKind, FieldValue, RelationValue
from memotree_storage.model.attribute_names import BRIEF_BY, RESERVED, SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING, VALID_TO
from memotree_storage.model.field_values import entry_value, place_value, source_value
from memotree_storage.model.node import Archive, Entry, Node, Relation, Source
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    PERSON,
    brief_is_made,
    summary_is_made,
    with_brief_by,
    without_provenance,
)
from memotree_storage.model.text_merge import merge_texts
from memotree_storage.model.validity import validity_faults

_NODE_TEXTS: Final = ("type", "title")
"""The fields of a node that merge as a whole, apart from brief and summary."""

_ARCHIVE_TEXTS: Final = ("name", "model_id", "description")
"""The fields of an archive that merge as a whole; its attributes merge key by key."""


_Side = Literal["ours", "theirs"]


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge.

    Attributes:
        entry: The merged entry, ``None`` if it is deleted. A field in conflict has the value of our side.
        conflicts: The fields that both sides changed differently; empty if the merge is clean.
    """

    entry: Entry | None
    conflicts: tuple[Conflict, ...] = ()


def merge_entries(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> MergeResult:
    """Merge two versions of one entry; ``None`` means that this side (or the base) does not have it.

    The result can break a rule that each side keeps (the number of tags, for example): validate it before you store it.
    """
    side = _choose(base, ours, theirs)
    if side is not None:
        return MergeResult(theirs if side == "theirs" else ours)
    if base is not None and (ours is None or theirs is None):
        return deleted_and_changed(base, ours, theirs)
    if isinstance(ours, Node) and isinstance(theirs, Node) and (base is None or isinstance(base, Node)):
        return _Merge(ours.id, base).nodes(base, ours, theirs)
    if isinstance(ours, Archive) and isinstance(theirs, Archive) and (base is None or isinstance(base, Archive)):
        return _Merge(ours.id, base).archives(base, ours, theirs)
    return _kinds_differ(base, ours, theirs)


def deleted_and_changed(base: Entry, ours: Entry | None, theirs: Entry | None) -> MergeResult:
    """The conflict of a side that deleted an entry, which is ``None``, with one that changed it."""
    deleted, changed = ("Our", "their") if ours is None else ("Their", "our")
    description = (
        f"{deleted} side deleted it and {changed} side changed it; delete it on both sides or keep the change."
    )
    our, their = (Absence.DELETED if side is None else entry_value(side) for side in (ours, theirs))
    kind = ConflictKind.CHANGED_AND_DELETED
    return MergeResult(ours, (Conflict(kind, base.id, "", entry_value(base), our, their, description),))


def _kinds_differ(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> MergeResult:
    entry_id = next(entry.id for entry in (ours, theirs) if entry is not None)
    description = "One side has a node of this id and the other an archive; keep one of them."
    start, our, their = map(entry_value, (base, ours, theirs))
    kind = ConflictKind.CREATED_TWICE if base is None else ConflictKind.BOTH_CHANGED
    return MergeResult(ours, (Conflict(kind, entry_id, "", start, our, their, description),))


class _Merge:
    """One merge: chooses each value and collects the conflicts."""

    def __init__(self, entry_id: str, base: Entry | None) -> None:
        self._id = entry_id
        self._kind = ConflictKind.CREATED_TWICE if base is None else ConflictKind.BOTH_CHANGED
        self._conflicts: list[Conflict] = []

    def nodes(self, base: Node | None, ours: Node, theirs: Node) -> MergeResult:
        archive_id, parent_id, position = self._placement(base, ours, theirs)
        texts = {field: self._text(field, base, ours, theirs) for field in _NODE_TEXTS}
        known = len(self._conflicts)
        content = self._content(base, ours, theirs)
        is_open = len(self._conflicts) > known
        summary = self._taken("summary", base, ours, theirs, _summary_side(base, ours, theirs, is_open=is_open))
        brief = self._taken("brief", base, ours, theirs, _brief_side(base, ours, theirs, is_open=is_open))
        given = [without_provenance(side.attributes) if side else {} for side in (base, ours, theirs)]
        records = _records(base, summary, brief, content)
        attributes = self._items("attributes", *given)
        attributes = self._with_valid_time(attributes, base, ours, theirs)
        node = replace(
            ours,
            archive_id=archive_id,
            parent_id=parent_id,
            position=position,
            **texts,
            content=content,
            brief=brief.brief,
            summary=summary.summary,
            tags=_merge_sets(base.tags if base else (), ours.tags, theirs.tags),
            attributes={**attributes, **records},
            relations=self._relations(base, ours, theirs),
            source=self._source(base, ours, theirs),
        )
        return MergeResult(node, tuple(self._conflicts))

    def archives(self, base: Archive | None, ours: Archive, theirs: Archive) -> MergeResult:
        texts = {field: self._text(field, base, ours, theirs) for field in _ARCHIVE_TEXTS}
        attributes = self._items("attributes", base.attributes if base else {}, ours.attributes, theirs.attributes)
        return MergeResult(replace(ours, **texts, attributes=attributes), tuple(self._conflicts))

    def _conflict(self, field: str, base: FieldValue, ours: FieldValue, theirs: FieldValue) -> None:
        description = f"Both sides changed {field} differently; choose one value, or write a new one."
        self._conflicts.append(Conflict(self._kind, self._id, field, base, ours, theirs, description))

    def _with_valid_time(self, merged: dict[str, str], base: Node | None, ours: Node, theirs: Node) -> dict[str, str]:
        """Note a conflict if the end of the valid time comes from one side and a later beginning from the other.

        The end is that of our side then.
        """
        if not any(validity_faults(merged)) or any(any(validity_faults(side.attributes)) for side in (ours, theirs)):
            return merged
        given = [side.attributes if side else {} for side in (base, ours, theirs)]
        if not any(one.field == f"attributes.{VALID_TO}" for one in self._conflicts):
            self._conflict(f"attributes.{VALID_TO}", *(side.get(VALID_TO, Absence.NONE) for side in given))
        others = {name: value for name, value in merged.items() if name != VALID_TO}
        return others | ({VALID_TO: ours.attributes[VALID_TO]} if VALID_TO in ours.attributes else {})

    def _taken(self, field: str, base: Node | None, ours: Node, theirs: Node, side: _Side | None) -> Node:
        """The side whose brief or summary is taken; without one, a conflict is noted and ours is returned."""
        if side is None:
            self._conflict(field, *(getattr(entry, field, Absence.NONE) for entry in (base, ours, theirs)))
        return theirs if side == "theirs" else ours

    def _text(self, field: str, base: Entry | None, ours: Entry, theirs: Entry) -> str:
        start: str | None = getattr(base, field) if base is not None else None
        our: str = getattr(ours, field)
        their: str = getattr(theirs, field)
        side = _choose(start, our, their)
        if side is None:
            self._conflict(field, Absence.NONE if start is None else start, our, their)
        return their if side == "theirs" else our

    def _content(self, base: Node | None, ours: Node, theirs: Node) -> str:
        merged = None if base is None else merge_texts(base.content, ours.content, theirs.content)
        return self._text("content", base, ours, theirs) if merged is None else merged

    def _source(self, base: Node | None, ours: Node, theirs: Node) -> Source | None:
        side = _choose(base.source if base is not None else _MISSING, ours.source, theirs.source)
        if side is None:
            self._conflict("source", *map(source_value, (base, ours, theirs)))
        return theirs.source if side == "theirs" else ours.source

    def _placement(self, base: Node | None, ours: Node, theirs: Node) -> tuple[str, str | None, str]:
        """Archive, parent and position. The side that moved the node to another parent also decides the position."""
        start, our, their = _place(base) if base is not None else _MISSING, _place(ours), _place(theirs)
        side = _choose(start, our, their)
        if side is None:
            self._conflict("parent", *map(place_value, (base, ours, theirs)))
        if our == their:
            position = base.position if base is not None else _MISSING
            moved = theirs if _choose(position, ours.position, theirs.position) == "theirs" else ours
        else:
            moved = theirs if side == "theirs" else ours
        return moved.archive_id, moved.parent_id, moved.position

    def _items(
        self,
        field: str,
        base: Mapping[str, str],
        ours: Mapping[str, str],
        theirs: Mapping[str, str],
        *,
        told: Callable[[str, str], FieldValue] = lambda _, text: text,
    ) -> dict[str, str]:
        """Merge key by key; a missing key counts as a value of its own, and ``told`` is how a conflict has a value."""
        merged: dict[str, str] = {}
        for key in sorted({*base, *ours, *theirs}):
            start, our, their = base.get(key), ours.get(key), theirs.get(key)
            side = _choose(start, our, their)
            if side is None:
                sides = (Absence.NONE if text is None else told(key, text) for text in (start, our, their))
                self._conflict(f"{field}.{key}", *sides)
            value = their if side == "theirs" else our
            if value is not None:
                merged[key] = value
        return merged

    def _relations(self, base: Node | None, ours: Node, theirs: Node) -> tuple[Relation, ...]:
        merged = self._items(
            "relations",
            *(_described(side) for side in (base, ours, theirs)),
            told=lambda key, text: RelationValue(*_type_and_target(key), text),
        )
        return tuple(Relation(*_type_and_target(key), text) for key, text in merged.items())


_MISSING: Final = object()
"""Stands for the base's value when there is no base: it differs from every value."""


def _choose(base: object, ours: object, theirs: object) -> _Side | None:
    """The side whose value is taken; ``None`` if both sides changed it differently."""
    if theirs in (ours, base):
        return "ours"
    return "theirs" if ours == base else None


def _summary_side(base: Node | None, ours: Node, theirs: Node, *, is_open: bool) -> _Side | None:
    """The side whose summary is taken; ``None`` if two people wrote different ones.

    While the content is in conflict (``is_open``), ours goes with ours.
    """
    if _summary(ours) == _summary(theirs):  # the content decides, so that the summary is not taken for an older one
        return "theirs" if base is not None and theirs.content != base.content else "ours"
    side = _choose(base and _summary(base), _summary(ours), _summary(theirs))
    made = summary_is_made(ours.attributes), summary_is_made(theirs.attributes)
    if side is not None:
        return side
    if all(made):
        return "theirs" if not is_open and _rank(base, theirs) > _rank(base, ours) else "ours"
    if not any(made):  # the marks differ, or the texts do
        return _choose(base and base.summary, ours.summary, theirs.summary)
    person: tuple[_Side, Node] = ("theirs", theirs) if made[0] else ("ours", ours)
    has_written = base is None or summary_is_made(base.attributes) or person[1].summary != base.summary
    return person[0] if has_written else _other(person[0])


def _brief_side(base: Node | None, ours: Node, theirs: Node, *, is_open: bool) -> _Side | None:
    """The side whose brief is taken; see `_summary_side`."""
    made = brief_is_made(ours.attributes), brief_is_made(theirs.attributes)
    start = base and (base.brief, brief_is_made(base.attributes))
    side = _choose(start, (ours.brief, made[0]), (theirs.brief, made[1]))
    if side is not None or not any(made):
        return side
    if all(made):
        ranks = [(base is not None and one.content != base.content, one.brief) for one in (ours, theirs)]
        return "theirs" if not is_open and ranks[1] > ranks[0] else "ours"
    return "theirs" if made[0] else "ours"


def _other(side: _Side) -> _Side:
    return "theirs" if side == "ours" else "ours"


def _rank(base: Node | None, side: Node) -> tuple[bool, bool, list[str]]:
    """Orders two generated summaries; the greater one is kept.

    That of the changed content comes first, then a pending one, which must keep its mark, then any fixed order.
    """
    return (
        base is not None and side.content != base.content,
        side.attributes.get(SUMMARY_PENDING) == PENDING_CONTENT,
        [side.attributes.get(SUMMARY_OF, ""), *(text or "" for text in _summary(side))],
    )


def _summary(node: Node) -> tuple[str | None, ...]:
    """The summary and its provenance."""
    return (node.summary, *(node.attributes.get(name) for name in (SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING)))


def _records(base: Node | None, summary: Node, brief: Node, content: str) -> dict[str, str]:
    """The provenance of a merged node.

    Args:
        base: The base.
        summary: The side whose summary was taken.
        brief: The side whose brief was taken.
        content: The merged content.
    """
    kept = {name: summary.attributes[name] for name in RESERVED - {BRIEF_BY} if name in summary.attributes}
    is_new = base is None or _summary(summary) != _summary(base)
    if is_new and summary.summary and summary.content != content:
        kept[SUMMARY_PENDING] = PENDING_CONTENT
    if not brief_is_made(brief.attributes):
        return with_brief_by(kept, PERSON)
    return with_brief_by(kept, brief.attributes.get(BRIEF_BY) or brief.attributes.get(SUMMARY_BY, "generated"))


def _merge_sets(base: Iterable[str], ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """The items that both sides have or that either side added; an item that either side removed is gone."""
    start, our, their = set(base), set(ours), set(theirs)
    return tuple(sorted((our & their) | (our - start) | (their - start)))


def _place(node: Node) -> tuple[str, str | None]:
    return node.archive_id, node.parent_id


def _type_and_target(key: str) -> tuple[str, str]:
    """The parts of a key of `_described`."""
    kind, _, target = key.partition(".")
    return kind, target


def _described(node: Node | None) -> dict[str, str]:
    """The descriptions of a node's relations, by ``type.target``."""
    relations = node.relations if node is not None else ()
    return {f"{relation.type}.{relation.target_id}": relation.description for relation in relations}
