"""Commit trailers: MemoTree writes them at the end of a commit message and reads them after a crash or in a rebuild."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from memotree_storage.model.node import is_id

SESSION: Final = "MemoTree-Session"
AGENT: Final = "MemoTree-Agent"
TOOL: Final = "MemoTree-Tool"
REQUEST: Final = "MemoTree-Request"
REQUEST_DIGEST: Final = "MemoTree-Request-Digest"
TAG: Final = "MemoTree-Tag"
JOB: Final = "MemoTree-Job"
PROPOSAL: Final = "MemoTree-Proposal"
REVIEWED_BY: Final = "Reviewed-by"
CO_AUTHOR: Final = "Co-authored-by"

LONGEST_MESSAGE: Final = 32_768
"""Characters that are read of a commit's message, with its trailers; Git has all."""

LONGEST_REQUEST_ID: Final = 128
"""Characters that a request id may have, as it is given."""

_OWNER_DIGITS: Final = 24
"""Hexadecimal digits that stand for the owner of a request id: 96 bits."""

_OWNER: Final = re.compile(rf"[0-9a-f]{{{_OWNER_DIGITS}}}:")

_TRAILER: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (.*)")


@dataclass(frozen=True, slots=True)
class Marks:
    """The session and the request that a commit says it was made by; ``None`` where it says nothing that can be."""

    session_id: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """What a commit records of the call that made it.

    Attributes:
        id: The request id, as `owned_request_id` makes it; empty if the call has none.
        digest: A digest of the call with its arguments; empty if it is not known.
        co_author: Name and address of whom the call names as the author, if somebody else makes the call; else empty.
    """

    id: str = ""
    digest: str = ""
    co_author: str = ""

    def trailers(self) -> dict[str, str]:
        """Return the trailers of a commit that this call makes."""
        named = {CO_AUTHOR: self.co_author} if self.co_author else {}
        return {**named, REQUEST: self.id, REQUEST_DIGEST: self.digest if self.id else ""}

    def made(self, message: str) -> bool:
        """Whether this call made a commit that has its request id; one without a digest counts as made by it."""
        return trailers_of(message).get(REQUEST_DIGEST, self.digest) == self.digest


def with_trailers(message: str, trailers: Mapping[str, str]) -> str:
    """Append the trailers to a message as its last paragraph; trailers with an empty value are left out."""
    lines = [f"{key}: {value}" for key, value in trailers.items() if value]
    body = message.rstrip("\n")
    return f"{body}\n\n" + "\n".join(lines) + "\n" if lines else body + "\n"


def trailers_of(message: str) -> dict[str, str]:
    """Read the trailers of a message: its last paragraph, if every line of that paragraph is a trailer."""
    paragraphs = message.rstrip("\n").split("\n\n")
    if len(paragraphs) < 2:  # noqa: PLR2004 - a subject alone holds no trailers
        return {}
    found = [_TRAILER.fullmatch(line) for line in paragraphs[-1].split("\n")]
    return {match[1]: match[2] for match in found if match} if all(found) else {}


def cut_message(message: str, limit: int) -> str:
    """Return a message of ``limit`` characters at most: its beginning, and its trailers if they are short."""
    if len(message) <= limit:
        return message
    last = message.rstrip("\n").rpartition("\n\n")[2]
    kept = f"\n…\n\n{last}\n" if len(last) <= limit // 4 and trailers_of(f"\n\n{last}") else "\n…\n"
    return message[: limit - len(kept)].rstrip() + kept


def marks_of(message: str) -> Marks:
    """Read the marks of a message. Anybody may push trailers, so a value that MemoTree never writes is none."""
    found = trailers_of(message)
    session_id, request_id = found.get(SESSION, ""), found.get(REQUEST, "")
    return Marks(
        session_id if is_id(session_id) else None,
        request_id if request_id and is_request_id(given_request_id(request_id)) else None,
    )


def owned_request_id(owner: str, request_id: str) -> str:
    """The form in which a request id is kept: with a mark of who gave it, so that each owner has ids of its own.

    Tables, commits, proposals and the ids of what a call makes all have this form. So two owners that give the same id
    meet nowhere.

    Args:
        owner: The name of who gave it; empty if that is not known.
        request_id: The id as it was given; an empty one stays empty.
    """
    if not owner or not request_id:
        return request_id
    return f"{hashlib.sha256(owner.encode()).hexdigest()[:_OWNER_DIGITS]}:{request_id}"


def given_request_id(kept: str) -> str:
    """The request id as it was given, of one as it is kept."""
    return _OWNER.sub("", kept, count=1) if _OWNER.match(kept) else kept


def is_request_id(text: str) -> bool:
    """Whether a text can be a request id: not too long, and printable."""
    return len(text) <= LONGEST_REQUEST_ID and text.isprintable()
