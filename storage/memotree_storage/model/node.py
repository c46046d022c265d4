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
"""The shortest prefix that may stand for an id."""

DEFAULT_TYPE: Final = "note"

LEAF_TYPE: Final = "leaf_chunk"
"""The type of a piece of a document."""

SUMMARY_TYPE: Final = "summary_node"
"""The one type whose content is made from its leaves and not stored."""

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
"""The types a relation may have (CANVAS-10)."""

_ID = re.compile(rf"[{ID_ALPHABET}]{{{ID_LENGTH}}}")
_PREFIX = re.compile(rf"[{ID_ALPHABET}]{{{MIN_PREFIX},{ID_LENGTH}}}")


def new_id() -> str:
    """A fresh id: 80 random bits as 16 characters, spread evenly over every prefix."""
    return _written(secrets.randbits(5 * ID_LENGTH))


def derived_id(*names: str | int) -> str:
    """An id that names decide: as evenly spread as a fresh one, and the same whenever the names are."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return _written(int.from_bytes(digest[: 5 * ID_LENGTH // 8], "big"))


def _written(number: int) -> str:
    return "".join(ID_ALPHABET[(number >> shift) & 31] for shift in range(5 * (ID_LENGTH - 1), -1, -5))


def is_id(text: str) -> bool:
    """Whether ``text`` is a full id."""
    return _ID.fullmatch(text) is not None


def is_id_prefix(text: str) -> bool:
    """Whether ``text`` may abbreviate an id (or is one)."""
    return _PREFIX.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, order=True)
class Relation:
    """A typed arrow from the node that holds it to ``target_id``; type and target together are its identity."""

    type: str
    target_id: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a node's content came from (FOREST-4).

    Attributes:
        document_id: The document it was cut from.
        start: Offset of the first character in the document's text.
        end: Offset behind the last character.
        page: Page number from 1, or 0 when the document has no pages.
        heading: The heading it stands under, outermost first, joined by `` > ``.
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
    """One node as it stands in its file.

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
    """One memory tree (or several roots) of a workspace; ``model_id`` names the agent or model it belongs to.

    ``attributes`` has free facts by name; those of a document that was ingested stand here.
    """

    id: str
    name: str
    model_id: str = ""
    description: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


Entry = Node | Archive
"""What a file of the tree decodes to."""
