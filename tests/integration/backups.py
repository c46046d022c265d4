"""Backups for tests: made of an open store, and restored over its data folder."""

from collections.abc import Sequence
from pathlib import Path

import psycopg
from memotree_storage.backup.restoring import restore_backup
from memotree_storage.backup.writing import write_backup
from memotree_storage.git.backup_file import Backup, open_backup
from memotree_storage.git.backup_list import SavedWorkspace
from memotree_storage.store import Store


async def save(store: Store, file: Path, since: Path | None = None) -> Path:
    """Write a backup, or an increment of another one; return the file."""
    listed = None if since is None else open_backup(since).listed
    file.write_bytes(b"".join([chunk async for chunk in write_backup(store, "0", listed)]))  # noqa: ASYNC240 - small
    return file


async def put_back(store: Store, files: Sequence[Path]) -> None:
    """Close a store and restore a backup over it."""
    await store.close()
    restore_backup(files, store.data_folder, replace=True)


async def lose_rows(database_url: str) -> None:
    """Lose all that PostgreSQL has; no store may be open."""
    async with await psycopg.AsyncConnection.connect(database_url) as conn:
        await conn.execute("drop schema mirror cascade")
        await conn.execute("drop schema work cascade")


def only(backup: Backup) -> SavedWorkspace:
    """The only workspace of a backup."""
    (found,) = backup.listed.workspaces
    return found
