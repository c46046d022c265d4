"""Pages of long lists: opaque tokens that only this service can make, and only for the call they came from.

The habits are those of https://google.aip.dev/158: a token belongs to one method and its arguments; only the page size
may change from page to page.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message
from memotree_storage.errors import FieldViolation, InvalidInputError

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 1000

KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 16
_MAX_TOKEN: Final = 16_384
"""Characters; a cursor holds a position, never content."""

Cursor = dict[str, Any]
"""Where the next page begins: JSON values by name."""


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


class PageTokens:
    """Makes and reads page tokens.

    A token is the cursor, signed (HMAC-SHA-256) together with the type of the request and all its arguments but
    ``page_size`` and ``page_token``. It is readable to who decodes it, so a cursor must hold nothing secret.

    Args:
        key: At least 32 random bytes. Servers that share a key take each other's tokens.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            message = f"a key has at least {KEY_BYTES} bytes, this one has {len(key)}"
            raise ValueError(message)
        self._key = key

    def write(self, request: Message, cursor: Mapping[str, Any] | None) -> str:
        """The token for the page after the one that answers ``request``; empty when there is none (``None``)."""
        if cursor is None:
            return ""
        payload = json.dumps(cursor, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
        token = base64.urlsafe_b64encode(self._signature(request, payload) + payload)
        return token.rstrip(b"=").decode("ascii")

    def read(self, request: Message, shape: Mapping[str, type | tuple[type, ...]] | None = None) -> Cursor | None:
        """The cursor in the request's token, or ``None`` on the first page.

        Args:
            request: The request with its ``page_token``.
            shape: The names a cursor of this call has, with the types of their values; a token of an older version of
                MemoTree with another shape is refused. Not checked when absent.

        Errors: ``InvalidPageTokenError`` for a token that is forged, of another call, or of another shape.
        """
        token: str = request.page_token  # type: ignore[attr-defined]  # every request that lists has one
        if not token:
            return None
        signature, payload = _unpack(token)
        if not hmac.compare_digest(signature, self._signature(request, payload)):
            raise InvalidPageTokenError
        cursor: Cursor = json.loads(payload)
        if shape is not None and not _fits(cursor, shape):
            raise InvalidPageTokenError
        return cursor

    def _signature(self, request: Message, payload: bytes) -> bytes:
        arguments = type(request)()
        arguments.CopyFrom(request)
        for field in ("page_size", "page_token"):
            arguments.ClearField(field)
        name = request.DESCRIPTOR.full_name.encode()
        parts = (name, arguments.SerializeToString(deterministic=True), payload)
        signed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._key, signed, hashlib.sha256)[:_SIGNATURE_BYTES]


def _unpack(token: str) -> tuple[bytes, bytes]:
    """Signature and payload of a token; only the one spelling that ``write`` uses is taken."""
    if len(token) > _MAX_TOKEN:
        raise InvalidPageTokenError
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidPageTokenError from None
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != token:
        raise InvalidPageTokenError
    return raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]


def _fits(cursor: Cursor, shape: Mapping[str, type | tuple[type, ...]]) -> bool:
    return cursor.keys() == shape.keys() and all(isinstance(cursor[name], kind) for name, kind in shape.items())


def read_or_make_key(path: Path) -> bytes:
    """The key in the file at ``path``, which is made (readable by its owner only) when it is not there.

    Two processes that begin at once end with one key.
    """
    with suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
        path.unlink()  # a power cut left a part of it; tokens that it signed are lost with it
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)  # unlike a rename, this never replaces the key of somebody who was first
    finally:
        draft.unlink()
    return path.read_bytes()
