"""The later parts of an erasure: rows, files and caches that are not made from Git, and what databases leave behind.

Each part can be repeated, so a job that was killed begins again at the part that it was in.
"""

import asyncio
import mmap
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from memotree_storage import faults
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.erasure.finding import discarded_files, staged_with
from memotree_storage.erasure.rewriting import Order
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.model.erasure import ERASED_TITLE, Redaction, needles_of
from memotree_storage.postgres import erasures, sessions, staging
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store

_LOOK_AGAIN: Final = 0.2
_PATIENCE: Final = 120.0
"""Seconds to wait for calls that began before, since their transactions keep dead rows in the tables."""

_LOG_SUFFIX: Final = ".log"
_log = structlog.get_logger(__name__)


class JobsHaveTextError(FailedPreconditionError):
    """Jobs that are not over have what is to be erased."""

    reason = "JOBS_HAVE_TEXT"
    stops_job = True

    def __init__(self, jobs: tuple[str, ...]) -> None:
        super().__init__(
            f"Jobs that are not over have what is to be erased: {', '.join(jobs[:10])}. Cancel them or wait for their "
            "end, then resume this one."
        )


async def remove_texts(store: Store, order: Order) -> int:
    """Take what goes out of staged changes, results of requests, jobs, logs, trash and backups in the data folder.

    Returns:
        How many staged changes were changed or removed.

    Raises:
        JobsHaveTextError: Jobs that are not over have it.
    """
    workspace_id = order.workspace_id
    async with store.database.connection() as conn:
        redaction = await redaction_after(conn, order)
        listed = await sessions.list_sessions(conn, workspace_id, closed=True)
    changed = 0
    for session in listed:
        async with store.locks.sessions.of(session.session_id), store.database.transaction() as conn:
            changed += await _redact_session(conn, session.session_id, redaction)
    async with store.database.transaction() as conn:
        found = await erasures.affected_rows(conn, workspace_id, redaction, order.erasure_id)
        if found.unfinished_jobs:
            raise JobsHaveTextError(found.unfinished_jobs)
        await erasures.remove_rows(conn, workspace_id, found, redaction)
        await erasures.forget_answers(conn)
    faults.point("erase.rows-removed")
    await in_store_thread(_remove_files, store, workspace_id)
    if redaction.is_of_text:
        await in_store_thread(redact_logs, store.data_folder, order.target.text)
    return changed


async def redaction_after(conn: Connection, order: Order) -> Redaction:
    """What the target means after the history was rewritten, in which the archive of a document is no more."""
    if order.target.text:
        return Redaction(order.target)
    nodes = {order.target.node_id} if order.target.node_id else set[str]()
    if order.target.archive_id:
        nodes |= await erasures.nodes_ever_in(conn, order.workspace_id, order.target.archive_id)
    return Redaction(order.target, frozenset(nodes))


async def _redact_session(conn: Connection, session_id: str, redaction: Redaction) -> int:
    changed = 0
    async for row, kept in staged_with(conn, session_id, redaction):
        changed += 1
        if row.entry is not None and kept is None:
            await staging.unstage(conn, session_id, [row.entry_id])
            continue
        if kept is not None and kept != row.entry:
            await staging.restage(conn, session_id, row, kept, row.derived_blob)
        messages = [redaction.text(each) for each in row.messages] if redaction.is_of_text else []
        title = redaction.text(row.version.title) if redaction.is_of_text else ERASED_TITLE
        await staging.forget_words(conn, session_id, row.entry_id, messages, title if kept is None else None)
    return changed


def _remove_files(store: Store, workspace_id: str) -> None:
    for path in list(discarded_files(store, workspace_id)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        _log.info("an erasure removed a copy of the workspace", name=path.name)


def redact_logs(folder: Path, text: str) -> None:
    """Overwrite a text in log files with stars, as it is and as JSON writes it.

    As many as it had bytes, since programs go on writing at the end of these files. A file of any size is mapped, not
    read.
    """
    for path in _logs(folder):
        if not path.stat().st_size:
            continue  # nothing can be mapped
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            for needle in needles_of(text):
                at = data.find(needle)
                while at >= 0:
                    data[at : at + len(needle)] = b"*" * len(needle)
                    at = data.find(needle, at + len(needle))
            data.flush()
            os.fsync(file.fileno())


def _logs(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith(".git")]
        yield from (Path(parent, name) for name in files if name.endswith(_LOG_SUFFIX))


async def compact(store: Store, optimise: Callable[[], Awaitable[None]] | None) -> list[str]:
    """Leave nothing of deleted rows and points in the files of the stores; return what could not be done.

    The tables are rewritten one after the other, and none can be used meanwhile. What a running call may still read
    would stay in them, so running calls are waited for first: two minutes at most. The same is done again before the
    planner's statistics are rewritten.

    Args:
        store: An open store.
        optimise: Writes the files of the index anew; ``None`` for a Qdrant of one's own.
    """
    left: list[str] = []
    async with store.database.connection() as conn:
        have_ended = await _all_have_ended(conn)
        if not have_ended:
            left.append("A transaction from before the erasure did not end, so the tables may keep old rows.")
        elif not await erasures.sees_all(conn):
            left.append("PostgreSQL does not show transactions of other users; for these the tables may keep old rows.")
        await erasures.compact_tables(conn)
        if have_ended and not await _all_have_ended(conn):
            left.append("A transaction did not end, so the planner's old statistics may have values of columns.")
        left += await erasures.compact_rest(conn)
    faults.point("erase.compacted")
    if optimise is None:
        left.append("Qdrant keeps deleted points in its files until it optimises its segments.")
    else:
        await optimise()
    return left


async def _all_have_ended(conn: Connection) -> bool:
    """Wait until all transactions that run now have ended, or for two minutes; return whether they have."""
    number = await erasures.horizon(conn)
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while not await erasures.is_settled(conn, number):  # noqa: ASYNC110 - PostgreSQL tells nobody
                await asyncio.sleep(_LOOK_AGAIN)
            return True
    return False
