"""Keys in files of the data folder, made at the first start: the administrator's, and that of page tokens.

Commands and hooks on the same machine read the administrator's. Whoever can read the folder can read the whole memory
anyway, so the files give them nothing new. This module imports nothing of the server, so that commands start at once.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from memotree.environment import API_KEY_VARIABLE

KEY_FILE: Final = "admin.key"
"""The administrator's key."""

PAGE_KEY_FILE: Final = "page-tokens.key"
"""The key of page tokens."""


def read_key(data_folder: Path, name: str = KEY_FILE) -> str:
    """A key in the data folder; empty if there is none, or this user may not read it."""
    try:
        return (data_folder / name).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def local_key(data_folder: Path) -> str:
    """The key for the server of a folder: that of ``MEMOTREE_API_KEY``, else the one in the folder."""
    return os.environ.get(API_KEY_VARIABLE, "").strip() or read_key(data_folder)


def write_key(data_folder: Path, key: str, name: str = KEY_FILE) -> None:
    """Write a key so that only this user can ever read it, and so that it is whole or not there.

    Raises:
        OSError: The folder cannot be written to.
    """
    path = data_folder / name
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
