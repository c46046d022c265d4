"""Makes the key in the data folder that of an administrator."""

from pathlib import Path
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.model.access import ALL_WORKSPACES
from memotree_storage.postgres import access
from memotree_storage.postgres.access import GrantRow
from memotree_storage.postgres.database import Connection

from memotree.identity.access import Access
from memotree.identity.api_keys import digest, is_key, new_key
from memotree.identity.errors import LocalKeyUnwritableError
from memotree.identity.key_file import KEY_FILE, read_key, write_key
from memotree.request.principal import ALL_BRANCHES, Role

ADMINISTRATOR: Final = "admin"
"""The principal of the key."""

_LABEL: Final = "in the data folder"


async def ensure_local_key(found: Access, data_folder: Path) -> bool:
    """Make a key of an administrator in the data folder, unless the one there is valid.

    A key that the tables do not have was deleted, or is that of another database: another one takes its place, so that
    a key which was ended stays ended. Earlier keys of the folder are ended, too.

    Returns:
        Whether it was made.

    Raises:
        LocalKeyUnwritableError: The folder does not take it.
    """
    key = await in_store_thread(read_key, data_folder)
    if is_key(key) and found.has_key(digest(key)):
        return False
    made = new_key()

    async def enter(conn: Connection) -> set[str]:
        if found.find(ADMINISTRATOR) is None:
            await access.put_principal(conn, ADMINISTRATOR, "")
        role = GrantRow(ADMINISTRATOR, ALL_WORKSPACES, ALL_BRANCHES, Role.ADMIN.name.lower())
        await access.put_grant(conn, role)
        for each in found.keys_of(ADMINISTRATOR):
            if each.label == _LABEL:
                await access.delete_key(conn, each.key_id)
        await access.add_key(conn, made.key_id, ADMINISTRATOR, digest(made.text), label=_LABEL)
        return {ADMINISTRATOR}

    await found.change(enter)
    try:
        await in_store_thread(write_key, data_folder, made.text)
    except OSError as error:
        raise LocalKeyUnwritableError(data_folder / KEY_FILE, error.strerror) from None
    return True
