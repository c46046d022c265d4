"""Makes a backup: each workspace with its Git history and its rows of the schema ``work`` as they were at one moment.

A commit moves a ref and then changes rows, so a ref and rows of two moments may contradict each other. Commits of a
workspace therefore wait until its refs are listed and PostgreSQL has taken a snapshot. The rows and objects are written
after that, while commits go on; one workspace at a time is on the disk.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from memotree_storage import faults
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import CorruptError, MemoTreeError
from memotree_storage.git.backup_file import digest_of, ending, member
from memotree_storage.git.backup_list import BackupList, SavedTable, SavedWorkspace
from memotree_storage.git.bundles import write_bundle
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.unpacking import BACKUP_WORK
from memotree_storage.git.work_folders import work_folder
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.erasure import ERASURES_REF
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.postgres.database import WORK_MIGRATIONS
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.postgres.saved_rows import CopiedTable, save_rows
from memotree_storage.store import Store

_ATTEMPTS: Final = 3
"""An erasure may put a new generation of a repository in its place while the old one is read."""

_log = structlog.get_logger(__name__)


async def write_backup(store: Store, version: str, since: BackupList | None = None) -> AsyncGenerator[bytes, None]:
    """Yield a backup of all workspaces in chunks.

    Args:
        store: An open store.
        version: The version of MemoTree.
        since: The list of an earlier backup: the new one has only objects that this lacks.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git could not read a repository.
    """
    created_at, saved, rows_answer = datetime.now(UTC), list[SavedWorkspace](), True
    with work_folder(store.data_folder, BACKUP_WORK) as folder:
        for workspace_id, name in (await in_store_thread(names_of, store.repositories)).items():
            previous = None if since is None else since.of(workspace_id)
            part = await _save(store, workspace_id, previous, folder, rows=rows_answer)
            if part is None:
                continue  # it was deleted meanwhile
            rows_answer = part.tables is not None
            saved.append(await in_store_thread(part.listed, name))
            for path, file in part.files():
                chunks = member(file, path)
                while (chunk := await in_store_thread(next, chunks, None)) is not None:
                    yield chunk
                await in_store_thread(path.unlink)
            faults.point("backup.workspace-written")
    listed = BackupList(tuple(saved), created_at, version, "" if since is None else since.sha256, len(WORK_MIGRATIONS))
    yield await in_store_thread(ending, listed)


def names_of(repositories: Repositories) -> dict[str, str]:
    """The names of all workspaces, by id; one whose description cannot be read is called by its id."""
    found = repositories.descriptions()
    return {info.workspace_id: info.name for info in found.readable} | {each: each for each in found.faults}


@dataclass(frozen=True, slots=True)
class _Part:
    """A workspace on its way into the backup: its refs, its bundle (none if nothing has changed), and its tables."""

    workspace_id: str
    refs: dict[str, str]
    bundle: Path | None
    is_complete: bool
    tables: list[CopiedTable] | None

    def files(self) -> Iterator[tuple[Path, str]]:
        """Its files on the disk, and their names in the backup."""
        if self.bundle is not None:
            yield self.bundle, f"workspaces/{self.workspace_id}.bundle"
        for table in self.tables or ():
            yield table.path, self._file(table)

    def listed(self, name: str) -> SavedWorkspace:
        """What the list says about it."""
        tables = None
        if self.tables is not None:
            tables = tuple(map(self._table, self.tables))
        if self.bundle is None:
            return SavedWorkspace(self.workspace_id, name, "", 0, "", self.refs, self.is_complete, tables)
        size, digest = self.bundle.stat().st_size, digest_of(self.bundle)
        file = f"workspaces/{self.workspace_id}.bundle"
        return SavedWorkspace(self.workspace_id, name, file, size, digest, self.refs, self.is_complete, tables)

    def _table(self, table: CopiedTable) -> SavedTable:
        size = table.path.stat().st_size
        return SavedTable(table.table, table.columns, self._file(table), table.rows, size, digest_of(table.path))

    def _file(self, table: CopiedTable) -> str:
        return f"workspaces/{self.workspace_id}/{table.table}.copy"


async def _save(
    store: Store, workspace_id: str, previous: SavedWorkspace | None, folder: Path, *, rows: bool
) -> _Part | None:
    for attempt in range(_ATTEMPTS):
        try:
            repository = await in_store_thread(store.repositories.get, workspace_id)
            refs, tables = await _at_one_moment(store, workspace_id, repository, folder, rows=rows)
            bundle = folder / f"{workspace_id}.bundle"
            is_complete = await in_store_thread(_bundle, repository, bundle, refs, previous)
        except WorkspaceNotFoundError:
            return None
        except CorruptError:
            if attempt == _ATTEMPTS - 1 or not await _is_replaced(store, workspace_id, repository):
                raise
        else:
            return _Part(workspace_id, refs, bundle if bundle.exists() else None, is_complete, tables)
    return None


async def _is_replaced(store: Store, workspace_id: str, repository: GitRepository) -> bool:
    """Whether another generation of the repository is in its place, or none since the workspace was deleted."""
    try:
        return await in_store_thread(store.repositories.get, workspace_id) is not repository
    except WorkspaceNotFoundError:
        return True


def _bundle(repository: GitRepository, target: Path, refs: dict[str, str], previous: SavedWorkspace | None) -> bool:
    """Write the bundle, unless nothing has changed; return whether it has all objects."""
    known: dict[str, str | None] = {}
    if previous is not None and previous.refs.get(ERASURES_REF) == refs.get(ERASURES_REF):
        if previous.refs == refs:
            return False
        # Some may be gone, with branches that were deleted.
        known = {each: repository.peel(each) for each in set(previous.refs.values()) if repository.exists(each)}
    write_bundle(repository.path, target, refs, known)
    return not known


async def _at_one_moment(
    store: Store, workspace_id: str, repository: GitRepository, folder: Path, *, rows: bool
) -> tuple[dict[str, str], list[CopiedTable] | None]:
    """The refs of a workspace and its rows; no rows if PostgreSQL does not answer."""
    if not rows:
        return await in_store_thread(repository.refs), None
    try:
        async with AsyncExitStack() as stack:
            await _settle(store, workspace_id)
            async with store.locks.workspaces.of(workspace_id):
                conn = await stack.enter_async_context(store.database.repeatable_read())
                await conn.execute("set local statement_timeout = 0")
                await conn.execute("select from work.setting limit 1")  # the snapshot is that of the first query
                refs = await in_store_thread(repository.refs)
            return refs, await save_rows(conn, workspace_id, folder)
    except DatabaseUnavailableError as error:
        _log.warning("a backup has no rows of PostgreSQL", why=error.message)
        return await in_store_thread(repository.refs), None


async def _settle(store: Store, workspace_id: str) -> None:
    """Let the rows follow commits that failed after their branch had moved."""
    for session_id, owner in list(store.unsettled.items()):
        if owner == workspace_id:
            try:
                await store.settle(session_id)
            except DatabaseUnavailableError:
                raise
            except MemoTreeError as error:  # the workspace is set aside; its backup is needed all the more
                _log.warning("a session is not settled in a backup", session=session_id, why=error.message)
