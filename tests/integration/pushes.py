"""Commits with git that bypass the store, and the store that mirrors them."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from by_hand import file_changes
from integration.worlds import World
from memotree_storage.model import trailers
from memotree_storage.model.node import Entry
from memotree_storage.model.trailers import with_trailers
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import sessions
from memotree_storage.store import Store
from memotree_storage.verify import Difference, verify

PERSON = Signature("A person", "person@example.org", datetime(2024, 5, 1, tzinfo=UTC))
DEADLINE = 60.0
OpenAgain = Callable[[], AbstractAsyncContextManager[Store]]
"""Opens the store as a starting server does."""


async def differences(store: Store, workspace_id: str) -> list[str]:
    return [found.description async for found in verify(store, workspace_id) if isinstance(found, Difference)]


def push(
    world: World,
    branch: str,
    *entries: Entry,
    parent: str | None = None,
    by: Signature | None = None,
    **marks: str,
) -> str:
    """Commit with git alone, on a branch or on ``parent``; marks become trailers."""
    ref = f"refs/heads/{branch}"
    head = world.repository.refs().get(ref)
    named = {"session": trailers.SESSION, "tag": trailers.TAG, "request": trailers.REQUEST}
    draft = CommitDraft(
        parent or head,
        file_changes(world.repository, parent or head or "", {entry.id: entry for entry in entries}),
        with_trailers("Change something", {named[key]: value for key, value in marks.items()}),
        by or service_signature(),
        by or service_signature(),
    )
    commit_id = world.repository.write_commit(draft).commit_id
    assert world.repository.move_ref(ref, head, commit_id)
    return commit_id


def push_files(world: World, files: Mapping[str, bytes | None], branch: str = "main") -> str:
    """Commit files with git alone, by their paths; ``None`` removes one."""
    ref = f"refs/heads/{branch}"
    head = world.repository.ref(ref)
    commit_id = world.repository.write_commit(CommitDraft(head, files, "Change files\n", PERSON, PERSON)).commit_id
    assert world.repository.move_ref(ref, head, commit_id)
    return commit_id


async def rewind(world: World, to: str, branch: str = "main") -> None:
    """Move a branch with git alone, and let the store see it."""
    name = f"refs/heads/{branch}"
    assert world.repository.move_ref(name, world.repository.ref(name), to)
    await world.store.catch_up(world.workspace)


async def session_of(world: World, session_id: str) -> sessions.Session:
    async with world.store.database.connection() as conn:
        return await sessions.find_session(conn, world.workspace, session_id)


async def run(store: Store, statement: str, *arguments: Any) -> int:
    async with store.database.connection() as conn:
        return (await conn.execute(statement.encode(), arguments)).rowcount


async def rows(store: Store, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    async with store.database.connection() as conn:
        return await (await conn.execute(query.encode(), arguments)).fetchall()


async def somebody_waits(store: Store) -> None:
    """Wait until a transaction waits for a lock of another one."""
    waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    deadline = time.monotonic() + DEADLINE
    while not await run(store, waits):
        assert time.monotonic() < deadline, "waited in vain until a transaction waits for a lock of another one"
        await asyncio.sleep(0.01)
