"""The canonical file format of nodes and archives.

A file is YAML front matter between two ``---`` lines, followed by the content as it is. In the form that this module
writes, keys have a fixed order, each value and each list item is on its own line, empty fields are left out, and a
string that YAML could take for something else (or that has a line break) is a double-quoted scalar that YAML 1.1, YAML
1.2 and JSON read alike. So a change of one field changes one line, and ``encode_entry(decode_entry(path, data)) ==
data`` holds for every file that this module wrote.

Files that a person wrote or edited may use any YAML. They are read through PyYAML's event parser, which builds no
objects, so that aliases, tags and deep nesting are refused before they can cost anything.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.front_matter_parsing import FrontMatterError, Tree, parse_front_matter
from memotree_storage.model.node import DEFAULT_TYPE, Archive, Entry, Node, Relation, Source
from memotree_storage.model.paths import parse_path
from memotree_storage.model.position import FIRST
from memotree_storage.model.scalars import write_scalar
from memotree_storage.model.validation import Limits, archive_faults, canonical_node, node_faults

READ_LIMITS: Final = Limits(content_bytes=1 << 28)
"""Limits for reading: lowering a limit in the service's settings never hides what was committed before."""

MOST_FAULTS: Final = 20
"""Faults of a file that are told."""

MOST_TOLD: Final = 2_000
"""Characters of the faults that a message tells, if they are several."""

_LONGEST_FIELD: Final = 100
_LONGEST_DESCRIPTION: Final = 1_000
_FENCE: Final = "---\n"
_CLOSING: Final = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_OPENING: Final = re.compile(r"---[ \t]*\r?\n")
_NUMBER: Final = re.compile(r"[0-9]{1,16}")
_ANY_TYPE: Final[frozenset[str]] = frozenset()

_NODE_KEYS: Final = frozenset(
    {
        "id",
        "archive",
        "parent",
        "position",
        "type",
        "title",
        "brief",
        "summary",
        "tags",
        "attributes",
        "relations",
        "source",
    }
)
_ARCHIVE_KEYS: Final = frozenset({"id", "name", "model", "attributes"})
_KEY_OF: Final = {
    "archive_id": "archive",
    "parent_id": "parent",
    "model_id": "model",
    "source.document_id": "source.document",
}
_SOURCE_KEYS: Final = frozenset({"document", "start", "end", "page", "heading", "sha256"})


class InvalidFileError(InvalidInputError):
    """A file of the tree is not a valid node or archive; ``path`` names it.

    It tells the first faults, `MOST_FAULTS` at most, and how many more there are: anybody may push a file of a million.
    """

    reason = "INVALID_FILE"

    def __init__(self, path: str, faults: Sequence[FieldViolation]) -> None:
        told = [_shortened(fault) for fault in faults[:MOST_FAULTS]]
        listed = [f"{fault.field} {fault.description}".strip() for fault in told]
        while len(listed) > 1 and sum(map(len, listed)) > MOST_TOLD:
            listed.pop()
        if len(listed) < len(faults):
            listed.append(f"and {len(faults) - len(listed):,} more")
        message = f"{path[:200]!r} cannot be read: {'; '.join(listed)}. Correct the file and commit it again."
        super().__init__(message, told)
        self.path = path


def _shortened(fault: FieldViolation) -> FieldViolation:
    return FieldViolation(fault.field[:_LONGEST_FIELD], fault.description[:_LONGEST_DESCRIPTION])


# --- Writing ---------------------------------------------------------------------------------------------------------


def encode_entry(entry: Entry) -> bytes:
    """Encode a valid node or archive (see ``validation.py``) as a file in canonical form."""
    return _encode_node(entry) if isinstance(entry, Node) else _encode_archive(entry)


def _encode_node(node: Node) -> bytes:
    lines = ["---\nid: ", write_scalar(node.id), "\narchive: ", write_scalar(node.archive_id)]
    for key, text in (
        ("parent", node.parent_id),
        ("position", node.position),
        ("type", node.type),
        ("title", node.title),
        ("brief", node.brief),
        ("summary", node.summary),
    ):
        if text:
            lines += "\n", key, ": ", write_scalar(text)
    if node.tags:
        lines.append("\ntags:")
        for tag in node.tags:
            lines += "\n  - ", write_scalar(tag)
    _write_attributes(lines, node.attributes)
    if node.relations:
        lines.append("\nrelations:")
        for relation in node.relations:
            lines += "\n  - ", write_scalar(_relation_text(relation))
    if node.source is not None:
        _write_source(lines, node.source)
    return _close(lines, node.content)


def _write_attributes(lines: list[str], attributes: Mapping[str, str]) -> None:
    if attributes:
        lines.append("\nattributes:")
        for key in sorted(attributes):
            lines += "\n  ", write_scalar(key), ": ", write_scalar(attributes[key])


def _relation_text(relation: Relation) -> str:
    text = f"{relation.type} {relation.target_id}"
    return f"{text} {relation.description}" if relation.description else text


def _write_source(lines: list[str], source: Source) -> None:
    lines += "\nsource:\n  document: ", write_scalar(source.document_id)
    for key, number in (("start", source.start), ("end", source.end), ("page", source.page)):
        if number:
            lines += "\n  ", key, ": ", str(number)
    for key, text in (("heading", source.heading), ("sha256", source.sha256)):
        if text:
            lines += "\n  ", key, ": ", write_scalar(text)


def _encode_archive(archive: Archive) -> bytes:
    lines = ["---\nid: ", write_scalar(archive.id), "\nname: ", write_scalar(archive.name)]
    if archive.model_id:
        lines += "\nmodel: ", write_scalar(archive.model_id)
    _write_attributes(lines, archive.attributes)
    return _close(lines, archive.description)


def _close(lines: list[str], body: str) -> bytes:
    lines.append("\n---\n")
    if body:
        lines += body, "\n"
    return "".join(lines).encode()


# --- Reading ---------------------------------------------------------------------------------------------------------


def decode_entry(path: str, data: bytes, limits: Limits = READ_LIMITS, types: AbstractSet[str] = _ANY_TYPE) -> Entry:
    """Decode and validate a file of the tree.

    Args:
        path: The path of the file in the tree; the id in the file must agree with it.
        data: The bytes of the file. A byte order mark and CRLF in the front matter are ignored; a missing ``position``
            or ``type`` gets its default; tags and relations are sorted.
        limits: The maximum sizes.
        types: The registry of node types. The default, an empty set, admits any well-formed name, since the plugin that
            wrote the file may not be installed here.

    Raises:
        InvalidFileError: The file cannot be read or breaks a rule; the error lists every fault, up to `MOST_FAULTS`.
    """
    place = parse_path(path)
    if place is None:
        raise InvalidFileError(path, [FieldViolation("", "its path is not that of a node or an archive")])
    kind, entry_id = place
    tree, body = _split(path, data)
    reader = _Reader(tree)
    reader.known(_NODE_KEYS if kind == "node" else _ARCHIVE_KEYS)
    entry: Entry = _read_node(reader, body) if kind == "node" else _read_archive(reader, body)
    faults = reader.faults
    if not faults:
        broken = node_faults(entry, limits, types) if isinstance(entry, Node) else archive_faults(entry, limits)
        faults = [FieldViolation(_KEY_OF.get(fault.field, fault.field), fault.description) for fault in broken]
    if not faults and entry.id != entry_id:
        faults = [FieldViolation("id", f"is {entry.id}, but the file's name says {entry_id}; make them agree")]
    if faults:
        raise InvalidFileError(path, faults)
    return entry


def _split(path: str, data: bytes) -> tuple[Tree, str]:
    """Return the front matter as a tree of strings, and the body without its final line break."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        fault = FieldViolation("", f"it is not UTF-8 (byte {error.start}); save it as UTF-8")
        raise InvalidFileError(path, [fault]) from error
    text = text.removeprefix("\ufeff")
    if text.startswith(_FENCE) and (end := text.find("\n---\n", 3)) >= 0:
        head, body, line_break = text[4 : end + 1], text[end + 5 :], "\n"
    else:
        opening = _OPENING.match(text)
        closing = _CLOSING.search(text, opening.end()) if opening else None
        if opening is None or closing is None:
            fault = FieldViolation("", "it does not start with front matter between two '---' lines")
            raise InvalidFileError(path, [fault])
        head, body = text[opening.end() : closing.start()], text[closing.end() :]
        line_break = "\r\n" if opening[0].endswith("\r\n") and body.endswith("\r\n") else "\n"
    try:
        return parse_front_matter(head), body.removesuffix(line_break)
    except FrontMatterError as error:
        raise InvalidFileError(path, [FieldViolation("", str(error))]) from error


class _Reader:
    """Takes typed values from a tree of strings and collects the faults."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.faults: list[FieldViolation] = []

    def known(self, keys: AbstractSet[str]) -> None:
        self.unknown(self._tree, keys, "", "; put it under attributes")

    def unknown(self, given: Iterable[str], known: AbstractSet[str], prefix: str, way_out: str = "") -> None:
        description = f"is an unknown key, known are {', '.join(sorted(known))}{way_out}"
        for key in given:
            if key not in known:
                self.fault(f"{prefix}{key[:70]}", description)

    def fault(self, field: str, description: str) -> None:
        self.faults.append(FieldViolation(field, description))

    def text(self, key: str, default: str = "") -> str:
        value = self._tree.get(key, default)
        if isinstance(value, str):
            return value or default
        self.fault(key, "must be one text")
        return default

    def items(self, key: str) -> list[str]:
        value = self._tree.get(key, [])
        if isinstance(value, list):
            return value
        if value != "":
            self.fault(key, "must be a list, one item per line after '- '")
        return []

    def mapping(self, key: str) -> dict[str, str]:
        value = self._tree.get(key, {})
        if isinstance(value, dict):
            return value
        if value != "":
            self.fault(key, "must be a mapping, one 'key: value' per line")
        return {}


def _read_node(reader: _Reader, body: str) -> Node:
    parent = reader.text("parent")
    node = Node(
        id=reader.text("id"),
        archive_id=reader.text("archive"),
        parent_id=None if parent in {"", "~", "null"} else parent,
        position=reader.text("position", FIRST),
        type=reader.text("type", DEFAULT_TYPE),
        title=reader.text("title"),
        brief=reader.text("brief"),
        summary=reader.text("summary"),
        content=body,
        tags=tuple(reader.items("tags")),
        relations=tuple(_each(reader.items("relations"), _read_relation)),
        attributes=reader.mapping("attributes"),
        source=_read_source(reader),
    )
    return canonical_node(node)


def _each(items: list[str], read: Callable[[str], Relation]) -> list[Relation]:
    return [read(item) for item in items]


def _read_relation(text: str) -> Relation:
    kind, _, rest = text.partition(" ")
    target, _, description = rest.partition(" ")
    return Relation(kind, target, description)


def _read_source(reader: _Reader) -> Source | None:
    fields: Mapping[str, str] = reader.mapping("source")
    if not fields:
        return None
    numbers = {}
    for key in ("start", "end", "page"):
        text = fields.get(key, "0")
        if not _NUMBER.fullmatch(text):
            reader.fault(f"source.{key}", f"{text[:40]!r} is not a number of up to 16 digits")
            text = "0"
        numbers[key] = int(text)
    reader.unknown(fields, _SOURCE_KEYS, "source.")
    return Source(
        document_id=fields.get("document", ""),
        start=numbers["start"],
        end=numbers["end"],
        page=numbers["page"],
        heading=fields.get("heading", ""),
        sha256=fields.get("sha256", ""),
    )


def _read_archive(reader: _Reader, body: str) -> Archive:
    return Archive(
        id=reader.text("id"),
        name=reader.text("name"),
        model_id=reader.text("model"),
        description=body,
        attributes=reader.mapping("attributes"),
    )
