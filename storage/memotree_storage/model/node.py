"""Nodes and archives: the unit of knowledge and the tree that holds it."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ID_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in lower case: no i, l, o, u."""

ID_LENGTH: Final = 16
"""Characters of a full id: 80 random bits, five per character."""

MIN_PREFIX: Final = 4
"""The shortest prefix that can stand for an id."""

DEFAULT_TYPE: Final = "note"

LEAF_TYPE: Final = "leaf_chunk"
"""The type of a chunk of a document."""

SUMMARY_TYPE: Final = "summary_node"
"""The only type whose content is not stored but joined from its leaves."""

NODE_TYPES: Final = frozenset(
    {
        "note",
        "concept",
        "memory",
        "plan",
        "reference",
        "code",
        LEAF_TYPE,
        SUMMARY_TYPE,
        "project",
        "goal",
        "task",
        "review",
    }
)
"""The registry of built-in node types (SPEC.md, Words)."""

RELATION_TYPES: Final = frozenset(
    {"REFERENCES", "INSPIRED_BY", "CONTRADICTS", "EXTENDS", "DEPENDS_ON", "SUPERSEDES", "PART_OF", "ABOUT"}
)
"""The types that a relation can have (CANVAS-10)."""

_ID = re.compile(rf"[{ID_ALPHABET}]{{{ID_LENGTH}}}")
_PREFIX = re.compile(rf"[{ID_ALPHABET}]{{{MIN_PREFIX},{ID_LENGTH}}}")


def new_id() -> str:
    """Return a fresh id: 80 random bits as 16 characters, evenly distributed over every prefix."""
    return _written(secrets.randbits(5 * ID_LENGTH))


def derived_id(*names: str | int) -> str:
    """Return an id derived from names: as evenly distributed as a fresh one, and the same for the same names."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return _written(int.from_bytes(digest[: 5 * ID_LENGTH // 8], "big"))


def _written(number: int) -> str:
    return "".join(ID_ALPHABET[(number >> shift) & 31] for shift in range(5 * (ID_LENGTH - 1), -1, -5))


def is_id(text: str) -> bool:
    """Whether ``text`` is a full id."""
    return _ID.fullmatch(text) is not None


def is_id_prefix(text: str) -> bool:
    """Whether ``text`` is a full id or long enough to abbreviate one."""
    return _PREFIX.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, order=True)
class Relation:
    """A typed edge from the node that holds it to ``target_id``; type and target identify it."""

    type: str
    target_id: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a node's content came from (FOREST-4).

    Attributes:
        document_id: The document that the content was cut from.
        start: Offset of the first character in the document's text.
        end: Offset after the last character.
        page: Page number from 1, or 0 if the document has no pages.
        heading: The headings above it, outermost first, joined by `` > ``.
        sha256: Hash of the source text in hex.
    """

    document_id: str
    start: int = 0
    end: int = 0
    page: int = 0
    heading: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One node, as its file represents it.

    ``parent_id`` is ``None`` for a root of its archive; ``position`` orders siblings (see ``position.py``); ``tags``
    and ``relations`` are sorted and free of duplicates; path, depth and times are derived and never stored.
    """

    id: str
    archive_id: str
    parent_id: str | None
    position: str
    type: str = DEFAULT_TYPE
    title: str = ""
    brief: str = ""
    summary: str = ""
    content: str = ""
    tags: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """A memory tree (with one or several roots) in a workspace; ``model_id`` names the agent or model it belongs to.

    ``attributes`` holds free key-value facts, among them those of the document that was ingested into the archive.
    """

    id: str
    name: str
    model_id: str = ""
    description: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


Entry = Node | Archive
"""What a file of the tree decodes to."""
