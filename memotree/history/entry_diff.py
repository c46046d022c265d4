"""The messages that describe how an entry changed between two versions."""

from collections.abc import Callable, Mapping
from typing import Final

from memotree_storage.model.changes import fields_changed
from memotree_storage.model.node import Archive, Entry, Node, Source

from memotree.history.text_diff import cut, unified
from memotree.history.word_diff import Kind, by_words
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

CREATED = types_pb2.CHANGE_KIND_CREATED
UPDATED = types_pb2.CHANGE_KIND_UPDATED
DELETED = types_pb2.CHANGE_KIND_DELETED

_BY_LINES: Final = frozenset({"content", "summary", "description"})
_TEXTS: Final = _BY_LINES | {"title", "brief", "name"}
_PART_KINDS: Final = {
    Kind.KEPT: pb.TEXT_PART_KIND_KEPT,
    Kind.REMOVED: pb.TEXT_PART_KIND_REMOVED,
    Kind.ADDED: pb.TEXT_PART_KIND_ADDED,
    Kind.OMITTED: pb.TEXT_PART_KIND_OMITTED,
}
_ARCHIVE_FIELDS: Final = ("name", "model", "description", "attributes")


def entry_change(before: Entry | None, after: Entry | None, *, fields: bool, words: bool = False) -> pb.EntryChange:
    """The change between two versions of one entry; ``None`` where it does not exist, which is not so for both.

    With ``fields`` it has the fields that differ; with ``words`` their texts are compared by words.
    """
    shown = after or before
    if shown is None:
        message = "an entry that exists on neither side has not changed"
        raise ValueError(message)
    return pb.EntryChange(
        node_id=shown.id,
        kind=CREATED if before is None else DELETED if after is None else UPDATED,
        title=shown.name if isinstance(shown, Archive) else shown.title,
        is_archive=isinstance(shown, Archive),
        fields=field_changes(before, after, words=words) if fields else [],
        summary=_sentence(before, after),
    )


def field_changes(before: Entry | None, after: Entry | None, *, words: bool = False) -> list[pb.FieldChange]:
    """The fields that differ; for an entry that exists on one side only, the fields that are not empty."""
    if before is None or after is None or type(before) is not type(after):
        names = list(_ARCHIVE_FIELDS if isinstance(after or before, Archive) else _READ)
    else:
        names = fields_changed(before, after)
    pairs = ((name, _text(before, name), _text(after, name)) for name in names)
    told = _by_words if words else _by_lines
    return [told(name, old, new) for name, old, new in pairs if old != new]


def _by_words(name: str, old: str, new: str) -> pb.FieldChange:
    if name not in _TEXTS and "\n" not in old and "\n" not in new:
        return pb.FieldChange(field=name, old_value=cut(old), new_value=cut(new))
    parts = [pb.TextPart(kind=_PART_KINDS[part.kind], text=part.text) for part in by_words(old, new)]
    if name == "content":
        return pb.FieldChange(field=name, parts=parts)
    return pb.FieldChange(field=name, old_value=cut(old), new_value=cut(new), parts=parts)


def _by_lines(name: str, old: str, new: str) -> pb.FieldChange:
    if name not in _BY_LINES and "\n" not in old and "\n" not in new:
        return pb.FieldChange(field=name, old_value=cut(old), new_value=cut(new))
    diff = unified(old, new)
    if name == "content":
        return pb.FieldChange(field=name, diff=diff)
    return pb.FieldChange(field=name, old_value=cut(old), new_value=cut(new), diff=diff)


def _sentence(before: Entry | None, after: Entry | None) -> str:
    if before is None:
        return "Created."
    if after is None:
        return "Deleted."
    names = fields_changed(before, after)
    edited = [name for name in names if name not in {"parent", "position"}]
    sentences = [f"Changed {_enumerated(edited)}."] if edited else []
    if isinstance(after, Node) and "parent" in names:
        sentences.append(f"Moved below {after.parent_id}." if after.parent_id else "Moved to the roots of its archive.")
    if "position" in names:
        sentences.append("Moved among its siblings.")
    return " ".join(sentences) or "Its file was written in another form; no value changed."


def _enumerated(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _text(entry: Entry | None, name: str) -> str:
    """A field as readable text; "" if the entry does not have it."""
    if entry is None:
        return ""
    if isinstance(entry, Archive):
        values = {
            "name": entry.name,
            "model": entry.model_id,
            "description": entry.description,
            "attributes": _attributes_text(entry.attributes),
        }
        return values.get(name, "")
    read = _READ.get(name)
    return read(entry) if read else ""


def _attributes_text(attributes: Mapping[str, str]) -> str:
    return "\n".join(f"{key}: {attributes[key]}" for key in sorted(attributes))


def _source_text(source: Source) -> str:
    parts = [f"document {source.document_id}", f"characters {source.start} to {source.end}"]
    parts += [f"page {source.page}"] if source.page else []
    parts += [f"under {source.heading}"] if source.heading else []
    parts += [f"SHA-256 {source.sha256}"] if source.sha256 else []
    return ", ".join(parts)


_READ: Final[Mapping[str, Callable[[Node], str]]] = {
    "type": lambda node: node.type,
    "title": lambda node: node.title,
    "brief": lambda node: node.brief,
    "summary": lambda node: node.summary,
    "tags": lambda node: ", ".join(node.tags),
    "attributes": lambda node: _attributes_text(node.attributes),
    "relations": lambda node: "\n".join(
        f"{relation.type} {relation.target_id} {relation.description}".rstrip() for relation in node.relations
    ),
    "source": lambda node: _source_text(node.source) if node.source else "",
    "content": lambda node: node.content,
    "parent": lambda node: node.parent_id or f"(root of archive {node.archive_id})",
    "position": lambda node: node.position,
}
