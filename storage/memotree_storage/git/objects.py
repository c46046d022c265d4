"""Git objects as bytes: their ids, and encoding and parsing of commits and tags.

The formats are those of Git's ``Documentation/gitformat-*`` and ``fsck.c``. Objects written here pass ``git fsck
--strict``. Parsing is tolerant, since people push commits made by any program.
"""

import codecs
import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from hashlib import sha1
from typing import Final

from memotree_storage.errors import CorruptError, FieldViolation, InvalidInputError, NotFoundError
from memotree_storage.model import trailers
from memotree_storage.ports import CommitInfo, Signature, TagDraft

COMMIT: Final = 1
TREE: Final = 2
BLOB: Final = 3
TAG: Final = 4

KIND_NAMES: Final = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}

KIND_NUMBERS: Final = {name: number for number, name in KIND_NAMES.items()}

_HEX_ID = re.compile(r"[0-9a-f]{40}")
_HEX_ID_BYTES = re.compile(rb"[0-9a-f]{40}")
_TAG_SIGNATURE = re.compile(rb"^-----BEGIN (?:SSH|PGP) SIGNATURE-----$", re.MULTILINE)
_CRUFT: Final = "<>\n\0"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND: Final = int((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH).total_seconds())
_FIRST_SECOND: Final = int((datetime(1, 1, 2, tzinfo=UTC) - _EPOCH).total_seconds())


MOST_PARENTS: Final = 100
"""Parents that a commit may have; the widest merge in the history of Linux has 66."""

LONGEST_TAG_MESSAGE: Final = 65_536
"""Characters that are read of a tag's message; Git has all."""

LONGEST_IDENTITY: Final = 1_000
"""Characters that are read of a name or an address; Git has all."""

_MOST_LINES: Final = 1_000
"""Lines that are read before a message; those that MemoTree knows come first."""

_CHARACTER: Final = 4
"""The most bytes of a character."""

_LONGEST_ZONE: Final = 16
_LONGEST_ENCODING: Final = 40
_TEXT_CODECS: Final = (
    *("ascii", "big5", "cp", "euc_", "gb", "hz", "iso2022_", "iso8859", "johab", "koi8", "mac", "ptcp154", "shift_jis"),
    *("tis-620", "utf-8", "utf-16", "utf-32"),
)
"""How the names of codecs for texts begin; they all take time in proportion to the length."""


class ObjectMissingError(NotFoundError):
    """The repository has no such object, or the object is of another kind than expected."""

    reason = "OBJECT_MISSING"

    def __init__(self, object_id: str, kind: str = "object") -> None:
        super().__init__(
            f"The repository has no {kind} {object_id!r}. If you gave this id, check it. Otherwise a part of the "
            "repository is lost: run `git fsck --full` there, and restore what is missing from a clone or a backup.",
            resource_type=kind,
            resource_name=object_id,
        )


class ObjectDamagedError(CorruptError):
    """The bytes of an object on disk do not match its id."""

    reason = "OBJECT_DAMAGED"

    def __init__(self, object_id: str, detail: str = "its bytes do not have that id") -> None:
        super().__init__(
            f"Object {object_id} of the repository is damaged ({detail}); run `git fsck --full` there and restore it "
            "from a clone or a backup."
        )


class ObjectTooLargeError(CorruptError):
    """An object is larger than MemoTree reads, as a small push can bring one."""

    reason = "OBJECT_TOO_LARGE"

    def __init__(self, object_id: str, problem: str) -> None:
        super().__init__(f"Object {object_id} {problem}.")


class TooManyParentsError(CorruptError):
    """A commit has more parents than MemoTree reads, as a small push can bring one."""

    reason = "TOO_MANY_PARENTS"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"Commit {commit_id} has more than {MOST_PARENTS} parents, so it is not read. Move the branches that have "
            "it back with git."
        )


class InvalidSignatureError(InvalidInputError):
    """An author, committer or tagger that a Git object cannot store."""

    reason = "INVALID_SIGNATURE"


class InvalidMessageError(InvalidInputError):
    """A commit or tag message that a Git object cannot store."""

    reason = "INVALID_MESSAGE"


def object_id(kind: int, data: bytes) -> bytes:
    """Return the id (20 bytes) that Git gives to ``data`` as an object of ``kind``."""
    digest = sha1(b"%s %d\0" % (KIND_NAMES[kind], len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def raw_id(hex_id: str, kind: str = "object") -> bytes:
    """Return the 20 bytes of a 40-digit id.

    Raises:
        ObjectMissingError: The text is not an object id, so the repository cannot have such an object.
    """
    if _HEX_ID.fullmatch(hex_id) is None:
        raise ObjectMissingError(hex_id, kind)
    return bytes.fromhex(hex_id)


def is_hex_id(text: str) -> bool:
    """Whether ``text`` is a full object id: 40 hex digits in lower case."""
    return _HEX_ID.fullmatch(text) is not None


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_commit(tree: bytes, parents: Sequence[str], author: Signature, committer: Signature, message: str) -> bytes:
    """Encode a commit object; the message ends with a line break, as in Git's own commits."""
    lines = [b"tree " + tree.hex().encode()]
    lines += [b"parent " + parent.encode() for parent in parents]
    lines.append(b"author " + encode_signature("author", author))
    lines.append(b"committer " + encode_signature("committer", committer))
    return b"\n".join([*lines, b"", encode_message("message", message)])


def encode_tag(target: bytes, draft: TagDraft) -> bytes:
    """Encode an annotated tag object that points to the commit ``target``."""
    lines = [
        b"object " + target.hex().encode(),
        b"type commit",
        b"tag " + draft.name.encode(),
        b"tagger " + encode_signature("tag.tagger", draft.tagger),
    ]
    return b"\n".join([*lines, b"", encode_message("tag.message", draft.message)])


def encode_message(field: str, message: str) -> bytes:
    """Encode a message with a final line break.

    Raises:
        InvalidMessageError: The message contains NUL or a lone surrogate.
    """
    try:
        data = message.encode()
    except UnicodeEncodeError as error:
        problem = f"holds a lone surrogate at character {error.start}; send text that is valid Unicode"
        raise _invalid_message(field, problem) from error
    if b"\0" in data:
        raise _invalid_message(field, "holds a NUL character, where Git would cut it off; remove it")
    return data if data.endswith(b"\n") else data + b"\n"


def _invalid_message(field: str, problem: str) -> InvalidMessageError:
    return InvalidMessageError(f"{field}: {problem}", [FieldViolation(field, problem)])


def encode_signature(field: str, signature: Signature) -> bytes:
    """Encode ``Name <email> seconds +hhmm``; white space around name and email is removed, as Git does.

    Raises:
        InvalidSignatureError: The name is blank; name or email contains ``<``, ``>``, a line break or NUL; or the time
            has no zone or is before 1970 (Git has no notation for it).
    """
    name = _identity_part(f"{field}.name", signature.name)
    email = _identity_part(f"{field}.email", signature.email)
    if not name:
        raise _invalid_signature(f"{field}.name", "is blank; give the name of who did it")
    seconds, zone = _git_time(f"{field}.when", signature.when)
    return b"%s <%s> %d %s" % (name, email, seconds, zone)


def _identity_part(field: str, text: str) -> bytes:
    for character in _CRUFT:
        if character in text:
            raise _invalid_signature(field, f"holds {character!r}, which Git can't store there; remove it")
    try:
        return text.strip().encode()
    except UnicodeEncodeError as error:
        problem = f"holds a lone surrogate at character {error.start}; send text that is valid Unicode"
        raise _invalid_signature(field, problem) from error


def _git_time(field: str, when: datetime) -> tuple[int, bytes]:
    offset = when.utcoffset()
    if offset is None:
        raise _invalid_signature(field, "has no time zone; give an offset from UTC")
    seconds = (when - _EPOCH) // timedelta(seconds=1)
    if seconds < 0:
        raise _invalid_signature(field, "is before 1970, which Git can't store; give a later time")
    minutes = round(offset.total_seconds() / 60)
    sign = b"-" if minutes < 0 else b"+"
    return seconds, b"%s%02d%02d" % (sign, *divmod(abs(minutes), 60))


def _invalid_signature(field: str, problem: str) -> InvalidSignatureError:
    return InvalidSignatureError(f"{field}: {problem}", [FieldViolation(field, problem)])


# --- reading ---------------------------------------------------------------------------------------------------------


def parse_commit(commit_id: str, data: bytes) -> CommitInfo:
    """Parse the text of a commit object.

    Text that is not valid in the commit's encoding gets replacement characters; a time that Python cannot represent is
    replaced by the nearest one that it can. A long message keeps its beginning and its trailers.

    Raises:
        ObjectDamagedError: The commit names no tree, or an id in it is malformed.
        TooManyParentsError: It has more than `MOST_PARENTS`.
    """
    head, _, message = data.partition(b"\n\n")
    tree, parents, encoding = "", [], "utf-8"
    author = committer = b""
    for keyword, value in _head_lines(head):
        if keyword == b"tree" and not tree:
            tree = value.decode("ascii", "replace")
        elif keyword == b"parent":
            parents.append(value.decode("ascii", "replace"))
        elif keyword == b"author" and not author:
            author = value
        elif keyword == b"committer" and not committer:
            committer = value
        elif keyword == b"encoding":
            encoding = value[: _LONGEST_ENCODING + 1].decode("ascii", "replace")
    if len(parents) > MOST_PARENTS:
        raise TooManyParentsError(commit_id)
    if not all(map(is_hex_id, (tree, *parents))):
        raise ObjectDamagedError(commit_id)
    return CommitInfo(
        commit_id=commit_id,
        tree_id=tree,
        parents=tuple(parents),
        author=parse_signature(author, encoding),
        committer=parse_signature(committer, encoding),
        message=_parse_message(message, encoding, trailers.LONGEST_MESSAGE),
    )


def _head_lines(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keyword and value of the first lines before a message."""
    start = 0
    for _ in range(_MOST_LINES):
        end = head.find(b"\n", start)
        keyword, _, value = head[start : None if end < 0 else end].partition(b" ")
        yield keyword, value
        if end < 0:
            return
        start = end + 1


def _parse_message(data: bytes, encoding: str, limit: int) -> str:
    """Decode a message and cut it to ``limit`` characters; no more is decoded than can be kept."""
    most = _CHARACTER * (limit + 1)
    if len(data) <= most:
        return trailers.cut_message(_decode(data, encoding), limit)
    ending = data.rstrip(b"\n")[-limit:]  # trailers are kept up to a quarter of the limit
    _, blank, last = ending.rpartition(b"\n\n")
    kept = _decode(last if blank else b"", encoding)
    return trailers.cut_message(f"{_decode(data[:most], encoding)}\n…\n\n{kept}\n", limit)


def parse_signature(line: bytes, encoding: str = "utf-8") -> Signature:
    """Parse ``Name <email> seconds +hhmm``; parts that are missing or broken become empty, or 1970 for the time."""
    identity, _, time = line.rpartition(b">")
    name, _, email = identity.partition(b"<")
    seconds, _, zone = time.strip().partition(b" ")
    try:
        second = min(max(int(seconds), _FIRST_SECOND), _LAST_SECOND)
    except ValueError:
        second = 0
    try:
        when = datetime.fromtimestamp(second, _parse_zone(zone[:_LONGEST_ZONE]))
    except (ValueError, OverflowError):  # near the greatest or smallest date, some zones are out of range
        when = datetime.fromtimestamp(second, UTC)
    return Signature(_parse_identity(name, encoding), _parse_identity(email, encoding), when)


def _parse_identity(part: bytes, encoding: str) -> str:
    return _decode_identity(part.strip()[: _CHARACTER * LONGEST_IDENTITY], encoding)


@lru_cache(maxsize=8192)
def _decode_identity(part: bytes, encoding: str) -> str:
    return _decode(part, encoding)[:LONGEST_IDENTITY]


@lru_cache(maxsize=256)
def _parse_zone(zone: bytes) -> timezone:
    try:
        number = int(zone)
    except ValueError:
        return UTC
    minutes = abs(number) // 100 * 60 + abs(number) % 100
    if minutes == 0 or minutes >= 24 * 60:
        return UTC
    return timezone(timedelta(minutes=minutes if number > 0 else -minutes))


def _decode(data: bytes, encoding: str) -> str:
    """Decode text so that every store can hold it, whatever encoding the commit claims to have."""
    text = data.decode(_codec(encoding), "replace")
    if not text.isprintable():  # some encodings yield lone surrogates
        text = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return text


@lru_cache(maxsize=64)
def _codec(encoding: str) -> str:
    """The codec for an encoding that a commit claims; UTF-8 for one that no text is written in.

    Python has others that are no encodings of text, or take time that grows with the square of the length (punycode).
    """
    if len(encoding) <= _LONGEST_ENCODING and encoding.isascii():
        with contextlib.suppress(LookupError, ValueError):  # unknown, or with a NUL
            name = codecs.lookup(encoding).name
            if name.startswith(_TEXT_CODECS):
                return name
    return "utf-8"


def parse_tag(data: bytes) -> TagDraft:
    """Parse an annotated tag as tolerantly as a commit; a missing tagger gets the time 1970."""
    head, _, message = data.partition(b"\n\n")
    if (signature := _TAG_SIGNATURE.search(message)) is not None:
        message = message[: signature.start()]
    fields = dict(_head_lines(head))
    return TagDraft(
        _decode(fields.get(b"tag", b"")[: _CHARACTER * LONGEST_IDENTITY], "utf-8"),
        _parse_message(message, "utf-8", LONGEST_TAG_MESSAGE),
        parse_signature(fields.get(b"tagger", b"")),
    )


def tag_target(tag_id: str, data: bytes) -> bytes:
    """Return the id of the object that an annotated tag points to."""
    value = data[7:47]
    if not data.startswith(b"object ") or _HEX_ID_BYTES.fullmatch(value) is None:
        raise ObjectDamagedError(tag_id)
    return bytes.fromhex(value.decode())
