"""Checks with a short timeout whether the stores behind the server answer."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Collection
from functools import cache
from importlib.metadata import version
from typing import Final

import structlog
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.store import Store

from memotree.v1 import maintenance_service_pb2 as pb

PATIENCE: Final = 2.0
"""Seconds within which a store must answer."""

_NOBODY: Final = ""
_log = structlog.get_logger(__name__)


async def statuses(store: Store, embedded: Collection[str]) -> list[pb.StoreStatus]:
    """The status of each store, all asked at once; ``embedded`` names those that the server runs itself."""
    return list(
        await asyncio.gather(
            git_status(store),
            postgres_status(store, embedded="postgres" in embedded),
            qdrant_status(store, embedded="qdrant" in embedded),
        )
    )


async def git_status(store: Store) -> pb.StoreStatus:
    """Whether the repositories can be written, and the versions of dulwich and git."""
    return await _asked("git", lambda: in_store_thread(_git_detail, store), embedded=True)


async def postgres_status(store: Store, *, embedded: bool) -> pb.StoreStatus:
    """Whether PostgreSQL answers, and its version."""

    async def ask() -> str:
        return f"PostgreSQL {await store.database.answers()}"

    return await _asked("postgres", ask, embedded=embedded)


async def qdrant_status(store: Store, *, embedded: bool) -> pb.StoreStatus:
    """Whether the index answers."""

    async def ask() -> str:
        await store.index.count(_NOBODY)
        return f"qdrant-edge-py {version('qdrant-edge-py')}" if embedded else "A Qdrant server; it answers."

    return await _asked("qdrant", ask, embedded=embedded)


async def _asked(name: str, ask: Callable[[], Awaitable[str]], *, embedded: bool) -> pb.StoreStatus:
    try:
        async with asyncio.timeout(PATIENCE):
            detail = await ask()
    except TimeoutError:
        return _unhealthy(name, f"It has not answered within {PATIENCE:g} seconds.", embedded=embedded)
    except MemoTreeError as error:
        return _unhealthy(name, error.message, embedded=embedded)
    except Exception:  # noqa: BLE001 - a status call never fails: it reports what is wrong
        _log.exception("the health check of a store failed", store=name)
        return _unhealthy(name, "Its health check failed; the server's log has the error.", embedded=embedded)
    return pb.StoreStatus(name=name, healthy=True, embedded=embedded, detail=detail)


def _unhealthy(name: str, why: str, *, embedded: bool) -> pb.StoreStatus:
    return pb.StoreStatus(name=name, healthy=False, embedded=embedded, detail=why)


class FolderRefusedError(UnavailableError):
    """The folder of the repositories cannot be written."""

    reason = "WORKSPACES_NOT_WRITABLE"


def _git_detail(store: Store) -> str:
    folder = store.data_folder / "workspaces"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise FolderRefusedError(
            "The folder of the repositories cannot be read and written; check its owner and rights."
        )
    program = shutil.which("git")
    if program is None:
        return f"dulwich {version('dulwich')}; no git program, so packs are not consolidated"
    return f"dulwich {version('dulwich')}, {_git_version(program)}"


@cache
def _git_version(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=True)  # noqa: S603 - git, found on the PATH
    return done.stdout.strip()
