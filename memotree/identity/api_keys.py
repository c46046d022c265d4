"""API keys: 256 random bits as a text. Only their SHA-256 is kept, so whoever reads the database can use none."""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from memotree_storage.model.node import new_id

_PREFIX: Final = "mt_"
"""What every key begins with, so that people and scanners of published code recognise one."""

_BYTES: Final = 32
_CHARACTERS: Final = 43
"""Of 32 bytes in base64url without padding."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made.

    Attributes:
        key_id: Names it; no secret.
        text: The key itself, which is shown once.
    """

    key_id: str
    text: str


def new_key() -> NewKey:
    """Make a key."""
    text = base64.urlsafe_b64encode(secrets.token_bytes(_BYTES)).rstrip(b"=").decode("ascii")
    return NewKey(new_id(), _PREFIX + text)


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return text.startswith(_PREFIX) and len(text) == len(_PREFIX) + _CHARACTERS and text.isascii()


def digest(text: str) -> bytes:
    """What is kept of a key: 32 bytes. The key has 256 random bits, so it needs no salt and no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
