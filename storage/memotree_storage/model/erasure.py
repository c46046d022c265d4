"""What an erasure takes away, and what stays in its place: pure values and functions, without any store.

A node that is erased stays in the tree as an empty one, since the tree of every old commit must remain whole. A
document goes whole. A text is replaced wherever it stands. Rewriting a file depends on its path and bytes alone, so
equal files are rewritten once, and a history that is rewritten twice gets the same commits.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from memotree_storage.errors import FailedPreconditionError, InvalidInputError
from memotree_storage.model.attribute_names import SUMMARY_BY
from memotree_storage.model.codec import InvalidFileError, decode_entry, encode_entry
from memotree_storage.model.node import Archive, Entry, Node
from memotree_storage.model.paths import entry_path, parse_path
from memotree_storage.model.provenance import brief_is_made, summary_is_made, with_provenance

ERASURES_REF: Final = "refs/memotree/erasures"
"""The ref whose commits are the record of all erasures of a workspace."""

ERASED: Final = "erased"
"""What stands where a text was erased."""

ERASED_TITLE: Final = "Erased"
FIELDS: Final = ("title", "brief", "summary", "content", "tags", "relations", "source")
"""The fields of a node that can be erased alone; an attribute is named ``attributes.<name>``."""

ATTRIBUTE: Final = "attributes."
LEAST_TEXT: Final = 4
"""The least characters of a text that can be erased: a shorter one stands in too many words."""

MOST_TEXT: Final = 10_000
"""The most characters of a text that can be erased."""

_LEAST_TITLE: Final = 4
_NO_SUMMARY: Final = "erased"
"""Stands for the hash of what a summary was made of, which no input has: so the summary counts as stale."""


class InvalidErasureError(InvalidInputError):
    """What is to be erased is not named as it must be."""

    reason = "INVALID_ERASURE"


class NameHasTextError(FailedPreconditionError):
    """A branch or tag has the text in its name, which an erasure does not change."""

    reason = "NAME_HAS_TEXT"


@dataclass(frozen=True, slots=True)
class ErasureTarget:
    """What is to be erased: one of a node, fields of a node, an archive with all that stands in it, or a text.

    Attributes:
        node_id: The node.
        fields: Fields of the node; none for the whole node.
        archive_id: The archive of a document.
        text: A text, matched exactly, wherever it stands.
    """

    node_id: str = ""
    fields: tuple[str, ...] = ()
    archive_id: str = ""
    text: str = ""

    @property
    def kind(self) -> str:
        """The kind: ``node``, ``field``, ``document`` or ``text``."""
        if self.node_id:
            return "field" if self.fields else "node"
        return "document" if self.archive_id else "text"

    def encode(self) -> bytes:
        """The target as JSON, the same for equal targets."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ErasureTarget":
        """The target that `encode` has written."""
        found = json.loads(data)
        return cls(**{**found, "fields": tuple(found["fields"])})


def check_target(target: ErasureTarget) -> None:
    """Check that a target names one thing, and that a text is neither too short nor too long.

    Raises:
        InvalidErasureError: It does not.
    """
    if sum(map(bool, (target.node_id, target.archive_id, target.text))) != 1:
        raise InvalidErasureError.at("target", "names none or several; give one of a node, an archive or a text.")
    for name in target.fields:
        if name not in FIELDS and not (name.startswith(ATTRIBUTE) and name != ATTRIBUTE):
            known = ", ".join(FIELDS)
            raise InvalidErasureError.at(
                "target.fields", f"{name[:40]!r} is no field that can be erased; give {known} or attributes.<name>."
            )
    if target.text and not LEAST_TEXT <= len(target.text) <= MOST_TEXT:
        raise InvalidErasureError.at(
            "target.text", f"has {len(target.text)} characters; give {LEAST_TEXT} to {MOST_TEXT}."
        )


@dataclass(frozen=True, slots=True)
class Redaction:
    """Rewrites single files, names and messages of a history.

    Attributes:
        target: What goes.
        nodes: For a document, all nodes that ever stood in its archive. For a node, itself.
        above: The nodes that the erased ones ever stood below: their generated summaries may repeat what goes.
        titles: Titles that the erased nodes ever had, which messages of commits repeat.
    """

    target: ErasureTarget
    nodes: frozenset[str] = frozenset()
    above: frozenset[str] = frozenset()
    titles: frozenset[str] = frozenset()
    _needles: tuple[bytes, ...] = field(init=False, default=(), compare=False)
    _beginnings: frozenset[str] = field(init=False, default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        """Prepare the forms in which the text can stand in a file."""
        object.__setattr__(self, "_needles", needles_of(self.target.text))
        concerned = self.nodes | self.above
        object.__setattr__(self, "_beginnings", frozenset(each[:size] for each in concerned for size in (2, 4)))

    @property
    def is_of_text(self) -> bool:
        """Whether any file may be concerned, and not only those of some nodes."""
        return bool(self.target.text)

    def concerns(self, path: str) -> bool:
        """Whether the file at a path can have what goes; if not, it is not read."""
        if self.is_of_text:
            return True
        found = parse_path(path)
        if found is None:
            return False
        return found[1] in self.nodes or found[1] in self.above or found[1] == self.target.archive_id

    def is_below(self, folder: str) -> bool:
        """Whether a folder can have a file that is concerned; its path ends with a slash."""
        if self.is_of_text or folder in {"nodes/", "archives/"}:
            return True
        ids = folder.removeprefix("nodes/").replace("/", "")
        return folder.startswith("nodes/") and ids in self._beginnings

    def is_of_erased(self, path: str) -> bool:
        """Whether a path is that of a node or archive that is erased itself."""
        found = parse_path(path)
        return found is not None and (found[1] in self.nodes or found[1] == self.target.archive_id)

    def file(self, path: str, data: bytes, *, later: bool) -> tuple[str, bytes] | None:
        """The path and bytes of a file without what goes; ``None`` if the file goes whole.

        Args:
            path: Its path in the tree.
            data: Its bytes.
            later: Whether what goes was in this history before or is now, so that a summary can repeat it.
        """
        if parse_path(path) is None:
            return path, self.raw(data)
        try:
            entry = decode_entry(path, data)
        except InvalidFileError:
            if self.is_of_erased(path):
                return None  # nobody can tell which part of it is which
            return path, self.raw(data)
        kept = self.entry(entry, later=later)
        if kept is None:
            return None
        if kept == entry:
            return path, self.raw(data)
        return entry_path(kept), self.raw(encode_entry(kept))

    def entry(self, entry: Entry, *, later: bool = True) -> Entry | None:
        """An entry without what goes; ``None`` if it goes whole."""
        if self.is_of_text:
            return self._without_text(entry)
        if isinstance(entry, Archive):
            return None if entry.id == self.target.archive_id else entry
        if self.target.archive_id and entry.archive_id == self.target.archive_id:
            return None
        if entry.id in self.nodes:
            return _without_fields(entry, self.target.fields) if self.target.fields else _emptied(entry)
        if entry.id in self.above and later:
            return _without_generated(entry)
        return entry

    def raw(self, data: bytes) -> bytes:
        """Bytes without the text, in any form in which it can stand there."""
        for needle in self._needles:
            if needle in data:
                data = data.replace(needle, ERASED.encode())
        return data

    def name(self, name: bytes) -> bytes:
        """A file's name without the text."""
        return self.raw(name)

    def has_text(self, text: str) -> bool:
        """Whether a text has what goes."""
        return bool(self.target.text) and self.target.text in text

    def text(self, text: str) -> str:
        """A text without what goes."""
        return text.replace(self.target.text, ERASED) if self.target.text else text

    def message(self, message: str, *, touches: bool) -> str:
        """The message of a commit or tag without what goes.

        Args:
            message: The message.
            touches: Whether the commit changes what is erased: then titles go from its own words, too.
        """
        if self.is_of_text:
            return self.text(message)
        lines: list[str] = []
        skipping = False
        for line in message.split("\n"):
            found = _LISTED.fullmatch(line)
            if found is not None:
                skipping = found[1] in self.nodes or found[1] == self.target.archive_id
                lines.append(f"- {ERASED} ({found[1]}){found[2] or ''}" if skipping else line)
            elif not (skipping and (line.startswith("    ") or not line.strip()) and line):
                skipping = skipping and not line
                lines.append(line)
        told = "\n".join(lines)
        if touches:
            for title in sorted(self.titles, key=len, reverse=True):
                told = told.replace(title, ERASED)
        return told

    def json(self, value: Any) -> Any:
        """A JSON value without the text in any of its strings."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(each) for each in value]
        if isinstance(value, dict):
            return {key: self.json(each) for key, each in value.items()}
        return value

    def is_in(self, data: bytes) -> bool:
        """Whether bytes of a row have what goes, or name a node that is erased."""
        if self._needles:
            return any(needle in data for needle in self._needles)
        if self.target.archive_id and self.target.archive_id.encode() in data:
            return True
        return any(found.decode() in self.nodes for found in _IDS.findall(data)) if self.nodes else False

    def _without_text(self, entry: Entry) -> Entry:
        if isinstance(entry, Archive):
            name = entry.name.replace(self.target.text, f"{ERASED} {entry.id[:6]}")
            return replace(
                entry,
                name=name,
                model_id=self.text(entry.model_id),
                description=self.text(entry.description),
                attributes=self._attributes(entry.attributes),
            )
        source = entry.source
        if source is not None:
            source = replace(source, heading=self.text(source.heading), document_id=self.text(source.document_id))
        return replace(
            entry,
            title=self.text(entry.title),
            brief=self.text(entry.brief),
            summary=self.text(entry.summary),
            content=self.text(entry.content),
            tags=tuple(sorted({self.text(tag) for tag in entry.tags})),
            relations=tuple(replace(each, description=self.text(each.description)) for each in entry.relations),
            attributes=self._attributes(entry.attributes),
            source=source,
        )

    def _attributes(self, attributes: Mapping[str, str]) -> dict[str, str]:
        return {self.text(name): self.text(value) for name, value in attributes.items()}


_LISTED: Final = re.compile(r"- .*\(([0-9a-hjkmnp-tv-z]{16})\)((?:: [a-z_, ]+)?)")
_IDS: Final = re.compile(rb"(?=([0-9a-hjkmnp-tv-z]{16}))")


def titles_for(titles: frozenset[str]) -> frozenset[str]:
    """The titles that are taken from messages: shorter ones stand in words that have nothing to do with the node."""
    return frozenset(title for title in titles if len(title) >= _LEAST_TITLE and title != ERASED_TITLE)


def needles_of(text: str) -> tuple[bytes, ...]:
    """The bytes that a text is in files: as it is, and as JSON writes it; none for an empty text."""
    if not text:
        return ()
    forms = (text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1])
    return tuple(dict.fromkeys(form.encode("utf-8", "surrogatepass") for form in forms))


def _emptied(node: Node) -> Node:
    return Node(node.id, node.archive_id, node.parent_id, node.position, node.type, title=ERASED_TITLE)


def _without_fields(node: Node, fields: tuple[str, ...]) -> Node:
    changes: dict[str, Any] = {}
    if "content" in fields:
        changes["content"] = ""
        if node.source is not None:
            changes["source"] = replace(node.source, heading="", sha256="")
        if node.title and node.content.lstrip().startswith(node.title.rstrip("… .")):
            changes["title"] = ERASED_TITLE
        node = _without_generated(node)
    attributes = dict(node.attributes)
    for name in fields:
        if name.startswith(ATTRIBUTE):
            attributes.pop(name.removeprefix(ATTRIBUTE), None)
        elif name in {"brief", "summary"}:
            changes[name] = ""
        elif name == "title":
            changes[name] = ERASED_TITLE
        elif name in {"tags", "relations"}:
            changes[name] = ()
        elif name == "source":
            changes[name] = None
    return replace(node, attributes=attributes, **changes)


def _without_generated(node: Node) -> Node:
    """A node without the summary and brief that were generated, marked so that they are made again."""
    attributes = dict(node.attributes)
    brief = "" if brief_is_made(attributes) else node.brief
    if not summary_is_made(attributes):
        return replace(node, brief=brief)
    by = attributes.get(SUMMARY_BY, "")
    return replace(node, brief=brief, summary="", attributes=with_provenance(attributes, by, _NO_SUMMARY))
