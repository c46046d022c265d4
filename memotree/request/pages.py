"""Pages of long lists: opaque tokens, each valid only for the call that returned it.

The rules are those of https://google.aip.dev/158: a token belongs to one method and its arguments; only the page size
may change from page to page. A token holds where the next page begins, and a code that only this server can make (HMAC
with SHA-256): a token that somebody else wrote is refused before anything in it is used.

A token gives no right. It is not encrypted, so whoever has it can read what it holds, and the check of who calls looks
at the request, never into the token. So an operation must not take from a cursor what the caller would need a right to
name in the request, such as a session: `lookup.page_revision` refuses a session that the request does not name.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from memotree_storage.errors import FieldViolation, InvalidInputError

from memotree.request.principal import principal

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 1000

PAGE_BYTES: Final = 2 << 20
"""The most bytes of the messages of a page; a page ends early so that it fits into one gRPC message."""

KEY_BYTES: Final = 32
"""How long the secret key of the tokens is."""

_VERSION: Final = 1
_CODE_BYTES: Final = 16
_MAX_TOKEN: Final = 16_384
"""Characters; a cursor holds a position, never content."""

_INT64: Final = range(-(1 << 63), 1 << 63)

_One = TypeVar("_One", bound=Message)

Cursor = dict[str, Any]
"""The beginning of the next page: texts, 64-bit integers and times with a zone, by name."""


class InvalidPageTokenError(InvalidInputError):
    """A page token that this server did not give for this call."""

    reason = "INVALID_PAGE_TOKEN"

    def __init__(self) -> None:
        sentence = "It was not given for this call with these arguments; begin at the first page, without a token."
        super().__init__(f"page_token: {sentence}", [FieldViolation("page_token", sentence)])


class InvalidPageSizeError(InvalidInputError):
    """A page size below 0."""

    reason = "INVALID_PAGE_SIZE"

    def __init__(self, field: str, size: int) -> None:
        sentence = f"{size} is below 0; give 0 for {DEFAULT_PAGE_SIZE} or a number up to {MAX_PAGE_SIZE}."
        super().__init__(f"{field}: {sentence}", [FieldViolation(field, sentence)])


def page_size(given: int, *, field: str = "page_size") -> int:
    """How many entries a page has: 50 for 0, never more than 1000.

    Errors: ``InvalidPageSizeError`` below 0.
    """
    if given < 0:
        raise InvalidPageSizeError(field, given)
    return min(given or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def fitting(messages: Iterable[_One]) -> list[_One]:
    """The first messages, as many as fit into one page, but at least one; takes no more than one that does not fit."""
    found: list[_One] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if size > PAGE_BYTES and found:
            break
        found.append(message)
    return found


class PageTokens:
    """Makes and reads page tokens: base64url of the JSON array ``[version, code, cursor]``.

    The code is over the type of the request, all its arguments but ``page_size`` and ``page_token``, the cursor and who
    calls. So a token that was forged, cut, mistyped or given to another call or by another principal is refused.

    Args:
        key: The secret of the code, `KEY_BYTES` random bytes. Without it, tokens are valid for this object alone.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key

    def write(self, request: Message, cursor: Mapping[str, Any] | None) -> str:
        """The token for the page after the one that answers ``request``; empty after the last page (no cursor)."""
        if cursor is None:
            return ""
        return _encoded([_VERSION, self._code(request, cursor), cursor])

    def read(self, request: Message, shape: Mapping[str, type]) -> Cursor | None:
        """The cursor in the request's token, or ``None`` on the first page.

        Args:
            request: The request with its ``page_token``.
            shape: The names that a cursor of this call has, with their types: ``str``, ``int`` or ``datetime``.

        Raises:
            InvalidPageTokenError: The token was not given for this call, or has another shape.
        """
        token: str = request.page_token  # type: ignore[attr-defined]  # every request that lists has one
        if not token:
            return None
        try:
            version, _, values = _decoded(token)
            cursor = {name: _read(values.pop(name), kind) for name, kind in shape.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InvalidPageTokenError from None
        # Encoding it again must give the same token: this checks the code, and accepts one spelling only.
        if version != _VERSION or values or not _are_equal(self.write(request, cursor), token):
            raise InvalidPageTokenError
        return cursor

    def _code(self, request: Message, cursor: Mapping[str, Any]) -> str:
        arguments = type(request)()
        arguments.CopyFrom(request)
        for field in ("page_size", "page_token"):
            arguments.ClearField(field)
        name = request.DESCRIPTOR.full_name.encode()
        parts = [name, arguments.SerializeToString(deterministic=True), _json(cursor)]
        if owner := principal().owner:
            parts.append(owner.encode())
        told = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.new(self._key, told, hashlib.sha256).hexdigest()[: 2 * _CODE_BYTES]


def _are_equal(made: str, given: str) -> bool:
    """Whether two tokens are equal; takes the same time wherever they differ."""
    return hmac.compare_digest(made.encode(), given.encode())


def _json(value: Any) -> bytes:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=datetime.isoformat
    ).encode()


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(_json(value)).rstrip(b"=").decode("ascii")


def _decoded(token: str) -> Any:
    if len(token) > _MAX_TOKEN:
        raise ValueError(len(token))
    return json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))


def _read(value: Any, kind: type) -> str | int | datetime:
    """A value of the cursor that PostgreSQL takes.

    Errors: ``ValueError`` or ``TypeError`` for one of another type, and for what no query can hold.
    """
    if kind is datetime:
        when = datetime.fromisoformat(value)
        if when.tzinfo is not None:
            return when
    elif kind is int:
        if type(value) is int and value in _INT64:
            return value
    elif isinstance(value, str) and "\0" not in value:
        value.encode()  # refuses half of a surrogate pair
        return value
    raise ValueError(value)
