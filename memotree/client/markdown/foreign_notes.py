"""Notes of other programs, as values: what a file says, which note is below which, and where its links lead."""

import hashlib
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memotree.client.markdown.file_names import SUFFIX
from memotree.client.markdown.links import linked_file
from memotree.client.node_values import Relation

FILE: Final = "markdown_file"
"""The attribute with the path that a node was imported from; that of a folder without a note ends with a slash."""

HASH: Final = "markdown_hash"
"""The attribute with a hash of what the file said at the last import."""

NAMES: Final = ("aliases", "permalink")
"""The attributes that have other names of a note, separated by commas."""

_MOST_DESCRIPTION: Final = 500


@dataclass(frozen=True, slots=True)
class ForeignLink:
    """A link of a note.

    Attributes:
        target: The name of a note, or a path from the file.
        is_name: Which of the two.
        type: The type of the relation that it becomes.
        description: What the relation says.
    """

    target: str
    is_name: bool
    type: str = "REFERENCES"
    description: str = ""


@dataclass(frozen=True, slots=True)
class ForeignNote:
    """A note of another program.

    Attributes:
        key: Its path from the top of the folder.
        home: The key of the note that it is below; empty for none.
        brief: One line that says what it is; ``None`` if it has none.
        names: Other names that links may have for it.
    """

    key: str
    home: str
    title: str
    content: str = ""
    type: str = "note"
    tags: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    brief: str | None = None
    names: tuple[str, ...] = ()
    links: tuple[ForeignLink, ...] = ()

    @property
    def hash(self) -> str:
        """A hash of what it says; its links follow from that."""
        content = hashlib.sha256(self.content.encode()).digest()
        return hash_of(self.title, self.type, content, self.tags, self.attributes, self.brief)


@dataclass(frozen=True, slots=True)
class ForeignFolder:
    """The notes of a folder, each after the one that it is below, and what was left out, as sentences."""

    file_format: str
    notes: Sequence[ForeignNote]
    warnings: Sequence[str] = ()


def hash_of(
    title: str, kind: str, content: bytes, tags: Iterable[str], attributes: Mapping[str, str], brief: str | None
) -> str:
    """A hash of the fields of a note; ``content`` is the SHA-256 of the content."""
    own = {name: value for name, value in attributes.items() if name not in {FILE, HASH}}
    told = json.dumps([title, kind, content.hex(), list(tags), own, brief], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


class Directory:
    """Finds the note that a link means, as Obsidian does: by its path, the end of it, another name, or its title."""

    def __init__(self, notes: Iterable[ForeignNote]) -> None:
        self._by_path: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = {}
        for note in notes:
            path = _without_suffix(note.key).casefold()
            self._by_path[path] = note.key
            parts = path.split("/")
            ends = {"/".join(parts[start:]) for start in range(len(parts))}
            for name in {*ends, *(name.casefold() for name in _names(note) if name)}:
                self._by_name.setdefault(name, []).append(note.key)

    def find(self, link: ForeignLink, file: str) -> str:
        """The key of the note that a link in ``file`` leads to; empty if there is none."""
        if link.is_name:
            found = self._by_name.get(_without_suffix(link.target).strip("/").casefold(), [])
            here = posixpath.dirname(file)
            return min(found, key=lambda key: (posixpath.dirname(key) != here, key.count("/"), key), default="")
        path = link.target.lstrip("/") if link.target.startswith("/") else link.target
        whole = linked_file(path, "" if link.target.startswith("/") else file)
        return self._by_path.get(_without_suffix(whole).casefold(), "")


def _names(note: ForeignNote) -> list[str]:
    return [note.title, *(part.strip() for name in note.names for part in name.split(","))]


def _without_suffix(path: str) -> str:
    stripped = path.rstrip("/")
    return stripped[: -len(SUFFIX)] if stripped.lower().endswith(SUFFIX) else stripped


def relations_of(
    links: Iterable[ForeignLink], key: str, directory: Directory, ids: Mapping[str, str]
) -> tuple[tuple[Relation, ...], list[str]]:
    """The relations that the links of a note become, and the targets that lead to no note."""
    found: dict[tuple[str, str], list[str]] = {}
    nowhere = []
    for link in links:
        target = directory.find(link, key)
        if not target:
            nowhere.append(link.target)
        elif target != key:
            told = found.setdefault((link.type, ids[target]), [])
            if link.description and link.description not in told:
                told.append(link.description)
    relations = [
        Relation(kind, target, "; ".join(told)[:_MOST_DESCRIPTION])  # type: ignore[arg-type] # a name of the enum
        for (kind, target), told in sorted(found.items())
    ]
    return tuple(relations), nowhere
