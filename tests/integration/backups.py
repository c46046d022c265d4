"""Backups for tests: made of an open store, and restored over its data folder."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
from integration.pushes import OpenAgain
from integration.worlds import World
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


Case = Callable[[World], AsyncGenerator[None, World]]
"""What a test does in a workspace before a backup, after it up to the second ``yield``, and when it is restored."""


async def restore_with(cases: Sequence[Case], world: World, file: Path, again: OpenAgain, lost: str = "") -> None:
    """Go through all cases with one backup and one restore, each in a workspace of its own.

    Args:
        cases: The cases.
        world: A world of the store.
        file: The backup.
        again: Opens the store again.
        lost: The address of the database, if it loses everything before the store opens again.
    """
    worlds = [await World.create(world.store, world.pages, world.limits) for _ in cases]
    running = [case(each) for case, each in zip(cases, worlds, strict=True)]
    for each in running:
        await anext(each)
    await save(world.store, file)
    for each in running:
        await anext(each)
    await put_back(world.store, [file])
    if lost:
        await lose_rows(lost)
    async with again() as store:
        for each, before in zip(running, worlds, strict=True):
            with suppress(StopAsyncIteration):
                await each.asend(before.on(store))
                raise AssertionError("a case has a third yield")


def only(backup: Backup) -> SavedWorkspace:
    """The only workspace of a backup."""
    (found,) = backup.listed.workspaces
    return found
