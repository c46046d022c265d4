"""Validation: the rules for nodes, archives, names, authors and times.

Every check collects all faults before it raises, so that a caller can correct them in one go. Text is kept exactly as
it was given: nothing is trimmed or normalised here (`canonical_node` sorts the collections of a node).
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.attribute_names import RESERVED
from memotree_storage.model.hidden_characters import hidden_character
from memotree_storage.model.node import NODE_TYPES, RELATION_TYPES, Archive, Node, Relation, Source, is_id
from memotree_storage.model.position import position_fault


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum sizes of the parts of a node and an archive; ``bytes`` are bytes of UTF-8, ``chars`` are code points."""

    title_chars: int = 500
    brief_chars: int = 500
    summary_bytes: int = 8 << 10
    content_bytes: int = 1 << 20
    tags: int = 64
    tag_chars: int = 100
    attributes: int = 64  # without those that only MemoTree sets
    attribute_key_chars: int = 64
    attribute_value_bytes: int = 4 << 10
    relations: int = 1000
    relation_description_chars: int = 500
    archive_name_chars: int = 200
    archive_description_bytes: int = 8 << 10
    model_id_chars: int = 200
    document_id_chars: int = 500
    heading_chars: int = 2000


DEFAULT_LIMITS: Final = Limits()

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The earliest time of a commit: Git's clock starts here."""

LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
"""The latest time of a commit: the calendars of most languages end here."""

MAX_OFFSET: Final = (1 << 53) - 1
"""The greatest offset or page of a source: the greatest integer up to which JSON numbers and doubles are exact."""

_WORKSPACE_NAME_CHARS: Final = 64
_WORKSPACE_NAME_BYTES: Final = 200  # a folder name can have 255 bytes, and a suffix may follow
_AUTHOR_CHARS: Final = 200

# Control characters (category Cc) and lone surrogates are never allowed. A single line has no tabs and no line breaks
# of any kind, so the two separators of categories Zl and Zp are excluded too.
_NOT_IN_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MARKLESS: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe0e\ufe0f")
"""Characters that Unicode classifies as letters or marks but that are invisible: fillers, joiners, an empty braille
cell, variation selectors."""

_TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DEVICE_NAME: Final = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)


class InvalidTextError(InvalidInputError):
    """A text contains a character that is not allowed, is blank or is too long."""

    reason = "INVALID_TEXT"


class InvalidNodeError(InvalidInputError):
    """A node breaks one or more rules."""

    reason = "INVALID_NODE"


class InvalidArchiveError(InvalidInputError):
    """An archive breaks one or more rules."""

    reason = "INVALID_ARCHIVE"


class InvalidNameError(InvalidInputError):
    """A workspace's or archive's name is not allowed."""

    reason = "INVALID_NAME"


class InvalidAuthorError(InvalidInputError):
    """An author's name or address cannot be written into a Git commit."""

    reason = "INVALID_AUTHOR"


class InvalidTimeError(InvalidInputError):
    """A time is outside the range that a commit can have."""

    reason = "INVALID_TIME"


def text_faults(
    field: str,
    text: str,
    *,
    multiline: bool = False,
    required: bool = False,
    max_chars: int | None = None,
    max_bytes: int | None = None,
) -> Iterator[FieldViolation]:
    """Yield the faults of a text.

    Args:
        field: The path to name in a violation.
        text: The text as it was given.
        multiline: Whether tab, line feed and carriage return are allowed; if not, no line break of any kind is.
        required: Whether a blank text is a fault.
        max_chars: The maximum number of code points.
        max_bytes: The maximum size in UTF-8.
    """
    if required and not text.strip():
        yield FieldViolation(field, "must not be blank; give it at least one visible character")
    if max_chars is not None and len(text) > max_chars:
        yield FieldViolation(field, f"has {len(text)} characters, over the limit of {max_chars}; shorten it")
    # A text shorter than a quarter of the limit cannot exceed it, so most texts need not be encoded for this check.
    if max_bytes is not None and len(text) > max_bytes // 4:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > max_bytes:
            yield FieldViolation(
                field, f"has {size} bytes of UTF-8, over the limit of {max_bytes} bytes; shorten or split it"
            )
    found = (_NOT_IN_TEXT if multiline else _NOT_IN_LINE).search(text)
    if found is not None:
        yield FieldViolation(field, _character_fault(found[0], found.start(), multiline=multiline))


def _invisible(field: str, text: str, max_chars: int | None = None) -> Iterator[FieldViolation]:
    """Yield a fault if a text is not blank but invisible, for example a single U+200B.

    Only texts that are to be stored are checked: a file that was committed before this rule stays readable. A text with
    more than ``max_chars`` has a fault already, and is not looked through.
    """
    if max_chars is not None and len(text) > max_chars:
        return
    marks = (
        not character.isspace() and character not in _BLANK and unicodedata.category(character) not in _MARKLESS
        for character in text
    )
    if text.strip() and not any(marks):
        codes = ", ".join(f"U+{ord(character):04X}" for character in text[:3])
        yield FieldViolation(field, f"shows nothing ({codes}); give it at least one visible character")


def _character_fault(character: str, offset: int, *, multiline: bool) -> str:
    code = f"U+{ord(character):04X}"
    if character == "\0":
        what = "a NUL"
    elif unicodedata.category(character) == "Cs":
        what = f"half of a surrogate pair ({code})"
    elif not multiline and character in "\t\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029":
        return f"must be one line, but has a tab or line break ({code}) at offset {offset}; replace it by a space"
    else:
        what = f"a control character ({code})"
    return f"has {what} at offset {offset}; remove it"


def check_text(
    field: str,
    text: str,
    *,
    multiline: bool = False,
    required: bool = False,
    max_chars: int | None = None,
    max_bytes: int | None = None,
) -> None:
    """Refuse a text that breaks a rule (the arguments are those of `text_faults`).

    Raises:
        InvalidTextError: With every fault.
    """
    found = text_faults(field, text, multiline=multiline, required=required, max_chars=max_chars, max_bytes=max_bytes)
    faults = [*found, *(_invisible(field, text, max_chars) if required else ())]
    _raise_if(InvalidTextError, "The text cannot be stored", faults)


def _raise_if(error: type[InvalidInputError], intro: str, faults: Sequence[FieldViolation]) -> None:
    if faults:
        raise error(f"{intro}: " + "; ".join(f"{fault.field} {fault.description}" for fault in faults) + ".", faults)


# --- Nodes and archives ----------------------------------------------------------------------------------------------


def canonical_node(node: Node) -> Node:
    """Return the node with tags trimmed, and tags and relations sorted and without duplicates.

    Of several relations of one type to one target, the last is kept. Blank tags are kept, so that validation can report
    them.
    """
    relations = {(relation.type, relation.target_id): relation for relation in node.relations}
    return replace(
        node,
        tags=tuple(sorted({tag.strip() for tag in node.tags})),
        relations=tuple(relations[key] for key in sorted(relations)),
    )


def check_node(
    node: Node,
    limits: Limits = DEFAULT_LIMITS,
    types: AbstractSet[str] = NODE_TYPES,
    tell: Callable[[FieldViolation], FieldViolation] | None = None,
) -> None:
    """Refuse a node that breaks a rule.

    Args:
        node: The node, its tags and relations in canonical order (see `canonical_node`).
        limits: The maximum sizes.
        types: The registry of node types; an empty set admits any well-formed name.
        tell: Translates a fault of the node into one of the caller's own input, whose fields may have other names.

    Raises:
        InvalidNodeError: With every fault.
    """
    faults = [*node_faults(node, limits, types), *_invisible("title", node.title, limits.title_chars)]
    _raise_if(InvalidNodeError, "The node cannot be stored", [tell(fault) for fault in faults] if tell else faults)


def node_faults(
    node: Node, limits: Limits = DEFAULT_LIMITS, types: AbstractSet[str] = NODE_TYPES
) -> Iterator[FieldViolation]:
    """Yield a fault for every rule that the node breaks; the arguments are those of `check_node`."""
    yield from _id_faults("id", node.id)
    yield from _id_faults("archive_id", node.archive_id)
    if node.parent_id is not None:
        yield from _id_faults("parent_id", node.parent_id)
        if node.parent_id == node.id:
            yield FieldViolation("parent_id", "is the node itself; name another node, or none for a root")
    fault = position_fault(node.position)
    if fault:
        yield FieldViolation("position", fault)
    yield from _type_faults(node.type, types)
    yield from text_faults("title", node.title, required=True, max_chars=limits.title_chars)
    yield from text_faults("brief", node.brief, max_chars=limits.brief_chars)
    yield from text_faults("summary", node.summary, multiline=True, max_bytes=limits.summary_bytes)
    yield from text_faults("content", node.content, multiline=True, max_bytes=limits.content_bytes)
    yield from _tag_faults(node.tags, limits)
    yield from _attribute_faults(node.attributes, limits)
    yield from _relation_faults(node, limits)
    if node.source is not None:
        yield from _source_faults(node.source, limits)


def _id_faults(field: str, text: str) -> Iterator[FieldViolation]:
    if not is_id(text):
        yield FieldViolation(
            field, f"{text[:40]!r} is not a full id; an id has 16 characters of 0-9 and a-z without i, l, o, u"
        )


def _type_faults(name: str, types: AbstractSet[str]) -> Iterator[FieldViolation]:
    if types and name not in types:
        yield FieldViolation("type", f"{name[:70]!r} is not registered; choose one of {', '.join(sorted(types))}")
    elif not types and not _TYPE_NAME.fullmatch(name):
        yield FieldViolation(
            "type", f"{name[:70]!r} is not a type name; use up to 64 lower-case letters, digits and _, a letter first"
        )


def _tag_faults(tags: Sequence[str], limits: Limits) -> Iterator[FieldViolation]:
    if len(tags) > limits.tags:
        yield FieldViolation("tags", f"has {len(tags)} tags, over the limit of {limits.tags}; remove some")
        return
    for index, tag in enumerate(tags):
        field = f"tags[{index}]"
        yield from text_faults(field, tag, required=True, max_chars=limits.tag_chars)
        if tag != tag.strip() and tag.strip():
            yield FieldViolation(field, "starts or ends with a blank; trim it")
        if "," in tag:
            yield FieldViolation(field, "has a comma, which separates tags on a command line; use another character")
    if list(tags) != sorted(set(tags)):
        yield FieldViolation("tags", "must be sorted and free of duplicates; use canonical_node")


def _attribute_faults(attributes: Mapping[str, str], limits: Limits) -> Iterator[FieldViolation]:
    given = len(attributes.keys() - RESERVED)
    if given > limits.attributes:
        yield FieldViolation(
            "attributes", f"has {given} attributes, over the limit of {limits.attributes}; remove some"
        )
        return
    for key, value in attributes.items():
        field = f"attributes[{key[:70]!r}]"
        if len(key) > limits.attribute_key_chars:
            yield FieldViolation(
                field, f"has a key of {len(key)} characters, over the limit of {limits.attribute_key_chars}; shorten it"
            )
        if not key or not _is_word(key[0]) or not all(_is_word(letter) or letter in ".-:/" for letter in key):
            yield FieldViolation(
                field, "must have a key of letters, digits and . _ - : / that starts with a letter, digit or _"
            )
        yield from text_faults(field, value, multiline=True, max_bytes=limits.attribute_value_bytes)


def _is_word(letter: str) -> bool:
    # Marks are parts of letters in many scripts (the vowel signs of Hindi), so \w would be too narrow.
    return letter == "_" or unicodedata.category(letter)[0] in "LMN"


def _relation_faults(node: Node, limits: Limits) -> Iterator[FieldViolation]:
    relations = node.relations
    if len(relations) > limits.relations:
        yield FieldViolation(
            "relations", f"has {len(relations)} relations, over the limit of {limits.relations}; remove some"
        )
        return
    for index, relation in enumerate(relations):
        field = f"relations[{index}]"
        if relation.type not in RELATION_TYPES:
            choice = ", ".join(sorted(RELATION_TYPES))
            yield FieldViolation(
                f"{field}.type", f"{relation.type[:70]!r} is not a relation type; choose one of {choice}"
            )
        yield from _id_faults(f"{field}.target_id", relation.target_id)
        if relation.target_id == node.id:
            yield FieldViolation(f"{field}.target_id", "is the node itself; a node cannot relate to itself")
        yield from text_faults(
            f"{field}.description", relation.description, max_chars=limits.relation_description_chars
        )
    if [_key(relation) for relation in relations] != sorted({_key(relation) for relation in relations}):
        yield FieldViolation("relations", "must be sorted, one per type and target; use canonical_node")


def _key(relation: Relation) -> tuple[str, str]:
    return relation.type, relation.target_id


def _source_faults(source: Source, limits: Limits) -> Iterator[FieldViolation]:
    yield from text_faults("source.document_id", source.document_id, required=True, max_chars=limits.document_id_chars)
    yield from text_faults("source.heading", source.heading, max_chars=limits.heading_chars)
    for name, number in (("start", source.start), ("end", source.end), ("page", source.page)):
        if not 0 <= number <= MAX_OFFSET:
            yield FieldViolation(f"source.{name}", f"must be a number from 0 to {MAX_OFFSET}")
    if source.end < source.start:
        yield FieldViolation("source.end", f"is {source.end}, before the start at {source.start}; swap them")
    if source.sha256 and not _SHA256.fullmatch(source.sha256):
        yield FieldViolation("source.sha256", "must be 64 lower-case hex digits, or empty")


def check_archive(
    archive: Archive,
    limits: Limits = DEFAULT_LIMITS,
    tell: Callable[[FieldViolation], FieldViolation] | None = None,
) -> None:
    """Refuse an archive that breaks a rule; ``tell`` is that of `check_node`.

    Raises:
        InvalidArchiveError: With every fault.
    """
    faults = [*archive_faults(archive, limits), *_invisible("name", archive.name, limits.archive_name_chars)]
    _raise_if(
        InvalidArchiveError, "The archive cannot be stored", [tell(fault) for fault in faults] if tell else faults
    )


def archive_faults(archive: Archive, limits: Limits = DEFAULT_LIMITS) -> Iterator[FieldViolation]:
    """Yield a fault for every rule that the archive breaks."""
    yield from _id_faults("id", archive.id)
    yield from text_faults("name", archive.name, required=True, max_chars=limits.archive_name_chars)
    yield from text_faults("model_id", archive.model_id, max_chars=limits.model_id_chars)
    yield from text_faults(
        "description", archive.description, multiline=True, max_bytes=limits.archive_description_bytes
    )
    yield from _attribute_faults(archive.attributes, limits)


# --- Names, authors, times -------------------------------------------------------------------------------------------


def check_name(field: str, name: str) -> None:
    """Refuse a workspace name that is not a valid folder name on every system, or that could escape its folder.

    Allowed are 1 to 64 letters (of any script), digits, ``.``, ``_`` and ``-``, starting with a letter or digit,
    without ``..``, a final dot, or a device name that Windows reserves. So a path, a drive and ``..`` are refused.

    Raises:
        InvalidNameError: With every fault.
    """
    faults = list(text_faults(field, name, required=True, max_chars=_WORKSPACE_NAME_CHARS))
    if not faults:
        faults.extend(FieldViolation(field, fault) for fault in _folder_faults(name))
    _raise_if(InvalidNameError, "The name is not allowed", faults)


def _folder_faults(name: str) -> Iterator[str]:
    hidden = hidden_character(name)
    if hidden is not None:
        yield f"has U+{ord(hidden):04X}, which cannot be seen; remove it"
    elif not all((_is_word(letter) or letter in ".-") for letter in name):
        yield "may have only letters, digits, '.', '_' and '-'; no path, no drive, no space"
    if unicodedata.category(name[0])[0] not in "LN":
        yield "must start with a letter or a digit"
    if ".." in name:
        yield "must not have '..'"
    if name.endswith("."):
        yield "must not end with a dot"
    if _DEVICE_NAME.fullmatch(name.partition(".")[0]):
        yield "is a device name on Windows; choose another"
    if len(name.encode()) > _WORKSPACE_NAME_BYTES:
        yield f"has over {_WORKSPACE_NAME_BYTES} bytes of UTF-8; shorten it"
    if not unicodedata.is_normalized("NFC", name):
        yield "is not in Unicode normal form C, so that an equal looking name could be another folder; normalise it"


def check_archive_name(field: str, name: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse an archive name that is blank, too long or has several lines; any other text is allowed.

    Raises:
        InvalidNameError: With every fault.
    """
    faults = [
        *text_faults(field, name, required=True, max_chars=limits.archive_name_chars),
        *_invisible(field, name, limits.archive_name_chars),
    ]
    _raise_if(InvalidNameError, "The name is not allowed", faults)


def check_author(name: str, email: str, field: str = "author", name_field: str = "") -> None:
    """Refuse an author that Git cannot write into a commit; the address may be empty.

    Args:
        name: The name.
        email: The address.
        field: The path of the author, whose parts are ``name`` and ``email``.
        name_field: The path of the name if it is not part of an author.

    Raises:
        InvalidAuthorError: With every fault.
    """
    name_field = name_field or f"{field}.name"
    faults = [
        *text_faults(name_field, name, required=True, max_chars=_AUTHOR_CHARS),
        *_invisible(name_field, name, _AUTHOR_CHARS),
    ]
    faults.extend(text_faults(f"{field}.email", email, max_chars=_AUTHOR_CHARS))
    for part, text in ((name_field, name), (f"{field}.email", email)):
        if "<" in text or ">" in text:
            faults.append(FieldViolation(part, "must not have '<' or '>', which delimit the address in a commit"))
        if text.strip() and text != text.strip():
            faults.append(FieldViolation(part, "starts or ends with a blank; trim it"))
    _raise_if(InvalidAuthorError, "The author cannot be written into a commit", faults)


def check_time(field: str, when: datetime) -> None:
    """Refuse a time without a zone, before 1970 or after 9999 (in UTC).

    Raises:
        InvalidTimeError: With the fault.
    """
    if when.tzinfo is None or when.utcoffset() is None:
        fault = "has no time zone; give one"
    elif not EARLIEST <= when <= LATEST:
        fault = f"is {when.isoformat()}, outside 1970-01-01 to 9999-12-31 (UTC); choose a time between them"
    else:
        return
    raise InvalidTimeError(
        f"The time cannot be written into a commit: {field} {fault}.", [FieldViolation(field, fault)]
    )
