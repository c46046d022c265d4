"""Page tokens that stay valid when the server starts again: their secret key is in the data folder."""

import re
import secrets
from pathlib import Path
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread

from memotree.identity.errors import LocalKeyUnwritableError
from memotree.identity.key_file import PAGE_KEY_FILE, read_key, write_key
from memotree.request.pages import KEY_BYTES, PageTokens

_KEY: Final = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


async def open_page_tokens(data_folder: Path) -> PageTokens:
    """What makes and reads page tokens; their key is made unless the data folder has one.

    Raises:
        LocalKeyUnwritableError: The folder does not take it.
    """
    return PageTokens(await in_store_thread(_key_of, data_folder))


def _key_of(data_folder: Path) -> bytes:
    found = read_key(data_folder, PAGE_KEY_FILE)
    if not _KEY.fullmatch(found):
        found = secrets.token_hex(KEY_BYTES)
        try:
            write_key(data_folder, found, PAGE_KEY_FILE)
        except OSError as error:
            raise LocalKeyUnwritableError(data_folder / PAGE_KEY_FILE, error.strerror) from None
    return bytes.fromhex(found)
