"""LangGraph's items as notes, and its filters and conditions, which are applied to the items that MemoTree found."""

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from langgraph.store.base import Item, MatchCondition, PutOp, SearchItem

from memotree.client import Change, Node, changes
from memotree.integrations.named_nodes import Place
from memotree.integrations.note_values import TEXT_AT, from_note, from_word, one_line, one_word, to_note

ITEM_TYPE: Final = "memory"
"""The node type of an item."""

NAMESPACE_TYPE: Final = "note"
"""The node type of a namespace."""

_KEY: Final = "_key"
_NAMESPACE: Final = "_namespace"
_CREATED: Final = "_created"
_UPDATED: Final = "_updated"
_INDEXED: Final = "_indexed"
_VALID_TO: Final = "valid_to"

Namespace = tuple[str, ...]


def is_item(node: Node) -> bool:
    """Whether a node is an item of the store that still holds, and not a namespace or a note of a person."""
    return node.type == ITEM_TYPE and _KEY in node.attributes and _NAMESPACE in node.attributes and not _is_over(node)


def _is_over(node: Node) -> bool:
    end = _moment(node, _VALID_TO)
    return end is not None and end <= datetime.now(UTC)


def is_namespace(node: Node) -> bool:
    """Whether a node is a namespace."""
    return node.type == NAMESPACE_TYPE and _NAMESPACE in node.attributes and _KEY not in node.attributes


def is_indexed(node: Node) -> bool:
    """Whether searches by text may find an item."""
    return node.attributes.get(_INDEXED) != "no"


def namespace_of(node: Node) -> Namespace:
    """Returns the namespace that a node is, or that its item is in."""
    text = from_word(node.attributes[_NAMESPACE])
    return tuple(text.split(".")) if text else ()  # no label is empty, so "" is the root


def to_item(node: Node) -> Item:
    """Returns the item of a node with content."""
    return Item(**_parts(node))


def to_search_item(node: Node, score: float | None = None) -> SearchItem:
    """Returns the item of a node with content, as a result of a search."""
    return SearchItem(**_parts(node), score=score)


def _parts(node: Node) -> dict[str, Any]:
    put, committed = _moment(node, _UPDATED), node.update_time or datetime.now(UTC)
    updated = max(put, committed) if put else committed  # a commit has whole seconds, and may be another's change
    return {
        "namespace": namespace_of(node),
        "key": from_word(node.attributes[_KEY]),
        "value": from_note(node),
        "created_at": min(_moment(node, _CREATED) or updated, updated),
        "updated_at": updated,
    }


def _moment(node: Node, name: str) -> datetime | None:
    """The time in an attribute; ``None`` if a person made it unreadable."""
    try:
        found = datetime.fromisoformat(node.attributes.get(name, ""))
    except ValueError:
        return None
    return found if found.tzinfo else None


def put_change(op: PutOp, place: Place, parent_id: str, archive: str) -> Change:
    """Returns the change that stores an item: a new note, or the new text of the one that is there."""
    assert op.value is not None  # noqa: S101 - the caller tells puts from deletions
    note = to_note(op.value)
    title = one_line(str(op.value.get("title") or "")) or one_line(note.text) or one_line(op.key) or "An item"
    moment = datetime.now(UTC)
    now = moment.isoformat()
    end = (moment + timedelta(minutes=op.ttl)).isoformat() if op.ttl is not None else ""
    indexed = "no" if op.index is False else "yes"
    attributes = {_INDEXED: indexed, TEXT_AT: "", **note.attributes, _UPDATED: now}
    if end or place.is_alive:  # an empty one takes away what an earlier put has set
        attributes[_VALID_TO] = end
    if place.is_alive:
        return changes.update(place.node_id, title=title, content=note.content, attributes=attributes)
    return changes.create(
        title,
        note.content,
        parent=parent_id,
        archive=archive,
        node_type=ITEM_TYPE,
        node_id=place.node_id,
        attributes={
            **attributes,
            _KEY: one_word(op.key),
            _NAMESPACE: one_word(".".join(op.namespace)),
            _CREATED: now,
        },
    )


def namespace_change(namespace: Namespace, place: Place, parent_id: str, archive: str) -> Change:
    """Returns the change that creates a namespace before its siblings that are items."""
    return changes.create(
        one_line(namespace[-1]) or "A namespace",
        parent=parent_id or None,
        archive=archive,
        node_type=NAMESPACE_TYPE,
        node_id=place.node_id,
        position=0,
        auto_generate_summary=False,
        attributes={_NAMESPACE: one_word(".".join(namespace))},
    )


def matches(condition: MatchCondition, namespace: Namespace) -> bool:
    """Whether a namespace begins or ends with a path, in which "*" stands for any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :] if path else ()
    return all(wanted in {"*", label} for wanted, label in zip(path, part, strict=True))


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value passes a filter."""
    return all(_equals(value.get(name), expected) for name, expected in (wanted or {}).items())


def _equals(value: Any, expected: Any) -> bool:
    match expected:
        case dict() if any(str(name).startswith("$") for name in expected):
            return all(_holds(value, name, other) for name, other in expected.items())
        case dict():
            return isinstance(value, dict) and all(_equals(value.get(name), each) for name, each in expected.items())
        case list() | tuple():
            return (
                isinstance(value, list)
                and len(value) == len(expected)
                and all(_equals(inner, each) for inner, each in zip(value, expected, strict=True))
            )
        case _:
            return bool(value == expected)


_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _holds(value: Any, name: str, other: Any) -> bool:
    """Whether a comparison holds; one by order never holds for a value that is no number."""
    if name == "$eq":
        return bool(value == other)
    if name == "$ne":
        return bool(value != other)
    if name not in _ORDERS:
        raise ValueError(f"Unsupported operator: {name}. Use $eq, $ne, $gt, $gte, $lt or $lte.")
    try:
        return _ORDERS[name](float(value), float(other))
    except (TypeError, ValueError):
        return False
