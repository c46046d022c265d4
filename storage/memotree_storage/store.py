"""The whole store in one object: Git, mirror, working state and index, opened, recovered and closed together.

This is the entry point of the library. The service builds on it, and so can any program that needs versioned trees
without gRPC. `memotree_storage.commit` changes what it holds.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import structlog

from memotree_storage import faults
from memotree_storage.cache import BoundedCache, Misremembered
from memotree_storage.concurrency.background import BackgroundTasks
from memotree_storage.concurrency.cancellation import retry_until_done
from memotree_storage.concurrency.groups import Groups
from memotree_storage.concurrency.locks import KeyedLocks, StoreLocks
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError, MemoTreeError, UnavailableError
from memotree_storage.git import restored, unpacking
from memotree_storage.git.generations import read_mark, remove_erased_mark
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.signing import Signer
from memotree_storage.git.workspaces import Repositories
from memotree_storage.index.indexer import Indexer
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.index.search import Search
from memotree_storage.maintenance.background import BackgroundMaintenance, remove_gone_points
from memotree_storage.maintenance.erased import follow_generation
from memotree_storage.maintenance.indexes import Indexes, OpenPoints
from memotree_storage.maintenance.restored import forget_lost
from memotree_storage.mirror.catch_up import (
    Report,
    catch_up,
    catch_up_in_transaction,
    is_behind,
    note_committer,
    replay_in_transaction,
)
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.model.workspace import SERVICE_EMAIL, WorkspaceInfo
from memotree_storage.ports import CommitStore, Embedder, IndexUnavailableError, VectorIndex
from memotree_storage.postgres import projector, registry, tree
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.known_revisions import KnownRevisions
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_log = structlog.get_logger(__name__)


PlacedVersion = tuple[Version, list[str], int]
"""A version with the ids above it, root first, and the number of its children."""

CacheCheck = Callable[[Connection, str], Awaitable[list[Misremembered]]]
"""Compares what a cache has of the rows of a workspace with the rows."""

_PLACED: Final = 20_000
_MOST_COMPARED: Final = 5000
"""Remembered nodes that are compared with their rows: the latest ones."""


class WorkspaceSetAsideError(FailedPreconditionError):
    """The workspace could not be recovered at the start, and takes no changes until somebody mends it."""

    reason = "WORKSPACE_SET_ASIDE"

    def __init__(self, why: str) -> None:
        super().__init__(f"The workspace takes no changes until this is mended: {why} Then send the call again.")


class Store:
    """Git repositories below a data folder, mirrored in a database and an index.

    Args:
        data_folder: Holds ``workspaces/`` (the repositories) and ``trash/``. Only one store may use it at a time; take
            ``memotree_storage.embedded.lock.DataFolderLock``, as a server does, if that is not certain.
        database: The PostgreSQL database.
        index: The index of vectors and terms that answers.
        embedder: Makes its vectors.
        request_retention: How long the result of a request id is kept.
        committer_email: The committer address of sessions' commits. After a crash, only commits with this address (or
            one that an earlier start used) are recognised as a session's.
        after_push: A command that git runs after each push to a repository; none if it is empty.
        before_push: A command that git asks before each push, likewise.
        before_branch: A command that git asks before a branch of a strict workspace moves, likewise.
        max_depth: The greatest depth that a commit of a session may put a node at; none if it is ``None``.
        open_points: Opens the points of another model; without it, those of a model that is no longer used stay.
        signer: Signs all commits and tags; nobody if it is ``None``.
    """

    def __init__(
        self,
        data_folder: Path,
        database: Database,
        index: VectorIndex,
        embedder: Embedder,
        *,
        request_retention: timedelta = timedelta(days=7),
        committer_email: str = SERVICE_EMAIL,
        after_push: Sequence[str] = (),
        before_push: Sequence[str] = (),
        before_branch: Sequence[str] = (),
        max_depth: int | None = None,
        open_points: OpenPoints | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.data_folder = data_folder
        self.max_depth = max_depth
        self.database = database
        self._committer_email = committer_email
        places, hooks = (data_folder / "workspaces", data_folder / "trash"), (after_push, before_push, before_branch)
        self.repositories = Repositories(*places, *hooks, signer)
        self.entries = EntryReader(self.repositories)
        self.locks = StoreLocks()
        self.known_revisions = KnownRevisions(self.locks.workspaces)
        self.background = BackgroundTasks()
        self.commits = Groups[Any]()  # of `memotree_storage.commit.group_commit`, by workspace
        self.indexes = Indexes(database, self.locks, ModelIndex(database, index, embedder, self.entries), open_points)
        self.maintenance = BackgroundMaintenance(
            database, self.repositories, lambda: self.indexes.points, request_retention, self.locks
        )
        self.placed: BoundedCache[tuple[str, int, str, str], PlacedVersion] = BoundedCache(_PLACED)
        """Entries at commits, with their place in the tree, by (workspace, its generation, commit, entry)."""
        self.generations: Counter[str] = Counter()
        """How often the rows of a workspace were replaced, by id; what is cached of rows belongs to one generation."""
        self.cache_checks: list[CacheCheck] = [self._check_placed]
        """Compare what is cached of the rows of a workspace with the rows; `verify` calls them."""
        self.forgetting: list[Callable[[str], None]] = []
        """Forget what is kept of the rows of a workspace elsewhere than by generation, at once; given its id."""
        self.noticing: list[Callable[[str], None]] = []  # told of each workspace with a new commit or ref; never blocks
        self.unsettled: dict[str, str] = {}
        """Sessions with a commit that their rows may not show yet, and the workspace of each."""
        self._not_recovered: dict[str, str] = {}
        self._incomplete: set[str] = set()  # lost rows, and not rebuilt yet
        self._not_followed: dict[str, str] = {}
        self._admission = KeyedLocks()

    @property
    def current(self) -> ModelIndex:
        """The index that answers, with its embedding model."""
        return self.indexes.current

    @property
    def index(self) -> VectorIndex:
        """The points of the index that answers."""
        return self.current.points

    @property
    def embedder(self) -> Embedder:
        """The embedding model of the index that answers."""
        return self.current.embedder

    @property
    def indexer(self) -> Indexer:
        """Applies the outbox to the index that answers."""
        return self.current.indexer

    @property
    def search(self) -> Search:
        """Searches the index that answers."""
        return self.current.search

    async def open(self) -> None:
        """Connect, recover from a crash if there was one, and bring the mirrors up to date with Git.

        A workspace that cannot be recovered is logged and left as it is; the others work.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            IndexUnavailableError: The index does not answer.
        """
        await self.database.open()
        await self.index.prepare()
        await in_store_thread(unpacking.finish_restore, self.data_folder)
        await in_store_thread(self.repositories.clear_unfinished)
        await in_store_thread(unpacking.clear_unfinished, self.data_folder)
        await self.indexes.begin(await in_store_thread(self.repositories.ids))
        async with self.database.transaction() as conn:
            await note_committer(conn, self._committer_email)
        await self._forget_missing()
        described = await in_store_thread(self.repositories.descriptions)
        self._not_recovered.update(described.faults)
        registered = await self._registered_names()
        for workspace_id in described.faults.keys() - registered.keys():  # so that it is listed, and can be mended
            await self._enter(await in_store_thread(self.repositories.nameless, workspace_id))
        infos = registry.told_apart(described.readable, registered)
        for info in infos:
            await self._alone(info, self._enter)
        for info in infos:
            await self._alone(info, self._recover)
        await remove_gone_points(self.database, self.indexes.points)  # of workspaces that were deleted
        await self.indexer.forget_applied()
        self.indexer.start()
        self.background.start(retry_until_done("earlier indexes are left", self.indexes.delete_retired))
        self.maintenance.start()

    async def close(self) -> None:
        """Stop the background work and release every resource. Nothing acknowledged is lost."""
        await self.commits.finish()
        await self.background.finish()
        await self.maintenance.stop()
        await self.indexes.stop()
        await self.database.close()
        await in_store_thread(self.repositories.close)

    def notice_commit(self, workspace_id: str) -> None:
        """Tell the background work that a workspace has a new commit or ref, after its transaction has ended."""
        self.indexer.notice(workspace_id)
        self.maintenance.notice(workspace_id)
        for notice in self.noticing:
            notice(workspace_id)

    async def catch_up(self, workspace_id: str, report: Report | None = None) -> int:
        """Mirror the commits and refs that the mirror lacks; return the number of new commits.

        It waits for the lock of the workspace, so the caller must not hold it, nor the lock of a session.
        """
        async with self.locks.workspaces.of(workspace_id):
            return await self._catch_up(workspace_id, report)

    async def _catch_up(self, workspace_id: str, report: Report | None = None) -> int:
        """The same for a caller that holds the lock of the workspace."""
        repository = await in_store_thread(self.repositories.get, workspace_id)
        with self.following(workspace_id):
            result = await catch_up(self.database, workspace_id, repository, self.entries, report)
        if result.refs_changed:
            self.notice_commit(workspace_id)
        return result.commits

    def forget_cached(self, workspace_id: str) -> None:
        """Forget what is cached of the rows of a workspace: what is cached belongs to the generation that it read."""
        self.generations[workspace_id] += 1
        for forget in self.forgetting:
            forget(workspace_id)

    async def _check_placed(self, conn: Connection, workspace_id: str) -> list[Misremembered]:
        found = []
        now = (workspace_id, self.generations[workspace_id])
        remembered = [(key, value) for key, value in self.placed.items() if key[:2] == now]
        for (*_, commit_id, entry_id), placed in remembered[-_MOST_COMPARED:]:
            if placed != await tree.one(Snapshot(conn, State(workspace_id, commit_id)), entry_id):
                found.append(Misremembered("node", commit_id, entry_id))
        return found

    async def settle(self, session_id: str) -> None:
        """Before a session is edited: follow Git, if a commit of it failed after its branch had moved.

        Otherwise the edit would be made on changes that are committed already. As with `catch_up`, the caller must not
        hold the lock of the session.
        """
        workspace_id = self.unsettled.get(session_id)
        if workspace_id is not None:
            async with self.locks.workspaces.of(workspace_id):  # while it is held, no commit of the session can fail
                await self._catch_up(workspace_id)
                self.unsettled.pop(session_id, None)

    @property
    def set_aside(self) -> dict[str, str]:
        """Why workspaces take no changes: their repository could not be recovered, or not be followed. By id."""
        return self._not_recovered | self._not_followed

    def forget_failures(self, workspace_id: str) -> None:
        """Forget why a workspace took no changes: it was rebuilt, or deleted."""
        self._not_recovered.pop(workspace_id, None)
        self._not_followed.pop(workspace_id, None)
        self._incomplete.discard(workspace_id)

    @contextmanager
    def following(self, workspace_id: str) -> Iterator[None]:
        """Around the mirroring of what is in Git, without which a workspace takes no changes: note why it fails."""
        try:
            yield
        except UnavailableError:
            raise
        except MemoTreeError as error:
            self._not_followed[workspace_id] = error.message
            raise
        self._not_followed.pop(workspace_id, None)

    async def rebuild(self, workspace_id: str, report: Report | None = None, *, meaning: bool = True) -> None:
        """Rebuild the rows and the index of a workspace from Git. Sessions and their staged changes stay.

        Reads see the old rows until all new ones are committed; a search then waits for the index. The points of the
        old rows are deleted last, so that a search that has read the old rows still finds most of them. For ``meaning``
        see `reindex`.
        """
        info = await in_store_thread(self.repositories.describe, workspace_id)
        repository = await in_store_thread(self.repositories.get, workspace_id)
        async with self.locks.workspaces.of(workspace_id):
            # In a transaction of its own, since it may hold sessions, whose edits must not wait for the whole history.
            async with self.held(workspace_id) as conn:
                await self._follow(conn, workspace_id, repository)
            async with self.held(workspace_id) as conn:
                await projector.forget(conn, workspace_id)
                await registry.register(conn, info)
                with self.following(workspace_id):
                    await replay_in_transaction(conn, workspace_id, repository, report)
        self.forget_failures(workspace_id)
        self.forget_cached(workspace_id)  # the old rows may be wrong, since a rebuild was asked for
        self.maintenance.notice(workspace_id)
        await self.index_rows(workspace_id, report, meaning=meaning)

    async def reindex(self, workspace_id: str, report: Report | None = None, *, meaning: bool = True) -> None:
        """Rebuild the index of a workspace from the mirror and Git.

        Args:
            workspace_id: The workspace.
            report: Called with progress.
            meaning: Wait for the vectors too, even of a model on another machine; otherwise they follow later.
        """
        async with self.locks.workspaces.of(workspace_id), self.database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")
            await registry.lock_workspace(conn, workspace_id)
            await self.indexer.enqueue_all(conn, workspace_id)
        await self.index_rows(workspace_id, report, meaning=meaning)

    async def index_rows(self, workspace_id: str, report: Report | None = None, *, meaning: bool = True) -> None:
        """Wait until the index has what the mirror has, and delete its points of lines that the mirror has not."""
        total = await self.indexer.pending(workspace_id)

        def tell(done: int) -> None:
            if report is not None:
                report("index", done, total)

        tell(0)
        if meaning:
            await self.indexer.drain(workspace_id, tell)
        else:
            await self.indexer.current(workspace_id, meaning=False)
        tell(total)  # a waiting search may have indexed a part of it
        async with self.locks.workspaces.of(workspace_id), self.database.transaction() as conn:
            # No line can be opened meanwhile, so a point on none of these lines is on no line.
            await registry.lock_workspace(conn, workspace_id)
            gone = (await projector.gone_lines(conn, workspace_id)).get(workspace_id, [])
            lines = await projector.line_ids(conn, workspace_id)
            await self.indexes.settle(workspace_id)
            for points in self.indexes.points:
                await points.delete(workspace_id, keep_lines=lines)
        await self.indexer.flush()
        async with self.database.connection() as conn:
            await projector.forget_gone(conn, workspace_id, gone)
        self.indexer.notice(workspace_id)  # it sleeps again if nothing is left to do

    @asynccontextmanager
    async def held(self, workspace_id: str) -> AsyncIterator[Connection]:
        """A transaction that holds the row of a workspace, if it has one, with the lock that its removal needs.

        Upgrading a weaker lock later would wait for all who hold that.
        """
        async with self.database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")
            await conn.execute("select from mirror.workspace where workspace_id = %s for update", (workspace_id,))
            yield conn

    async def _follow(self, conn: Connection, workspace_id: str, repository: CommitStore) -> None:
        """Settle sessions with commits that are not mirrored yet, before the mirror forgets their base commits."""
        try:
            async with conn.transaction():
                if await is_behind(conn, workspace_id, repository):
                    await catch_up_in_transaction(conn, workspace_id, repository, self.entries)
        except UnavailableError:
            raise
        except (MemoTreeError, psycopg.IntegrityError, psycopg.DataError) as error:
            _log.warning(
                "the mirror of a workspace could not catch up before its rebuild",
                workspace=workspace_id,
                why=str(error),
            )

    async def admit(self, workspace_id: str) -> None:
        """Refuse changes of a workspace that is set aside; if somebody has mended it since, take it up again.

        Raises:
            WorkspaceSetAsideError: It could not be recovered.
        """
        if workspace_id not in self._not_recovered:
            return
        async with self._admission.of(workspace_id):
            if workspace_id in self._not_recovered and workspace_id not in self._incomplete:
                try:
                    info = await in_store_thread(self.repositories.describe, workspace_id)
                except MemoTreeError as error:
                    self._not_recovered[workspace_id] = error.message
                else:
                    if await self._alone(info, self._enter) and await self._alone(
                        info, lambda one: self.catch_up(one.workspace_id)
                    ):
                        self._not_recovered.pop(workspace_id, None)
        if workspace_id in self._not_recovered:
            raise WorkspaceSetAsideError(self._not_recovered[workspace_id])

    async def _alone(self, info: WorkspaceInfo, step: Callable[[WorkspaceInfo], Awaitable[object]]) -> bool:
        """Run one step of a workspace's recovery, and tell whether it succeeded; if not, the workspace is set aside."""
        try:
            await step(info)
        except (DatabaseUnavailableError, IndexUnavailableError):
            raise
        except MemoTreeError as error:
            if info.workspace_id not in self._not_followed or info.workspace_id in self._incomplete:
                self._set_aside(info, error.message)
            _log.error("a workspace could not be recovered; verify it", workspace=info.name, why=error.message)
        except Exception as error:  # noqa: BLE001 - damaged data may break any reader
            self._set_aside(info, f"It could not be recovered ({type(error).__name__}); see the log.")
            _log.exception("a workspace could not be recovered; verify it", workspace=info.name)
        else:
            return True
        return False

    def _set_aside(self, info: WorkspaceInfo, why: str) -> None:
        incomplete = " Its rows are incomplete; rebuild it." if info.workspace_id in self._incomplete else ""
        self._not_recovered[info.workspace_id] = why + incomplete

    async def _enter(self, info: WorkspaceInfo) -> None:
        async with self.locks.workspaces.of(info.workspace_id), self.database.transaction() as conn:
            await registry.register(conn, info)

    async def _recover(self, info: WorkspaceInfo) -> None:
        workspace_id = info.workspace_id
        repository = await in_store_thread(self.repositories.get, workspace_id)
        for sentence in await in_store_thread(repository.recover, exclusive=True):
            _log.warning("recovered", workspace=info.name, what=sentence)
        await self._follow_erasure(info, repository)
        await self._forget_lost(info, repository)
        await self.maintenance.release_ownerless(workspace_id)
        if not await self._counts_agree(workspace_id):
            self._incomplete.add(workspace_id)
            _log.warning("the mirror of a workspace has lost rows and is rebuilt", workspace=info.name)
            await self.rebuild(workspace_id, meaning=False)  # all workspaces and calls wait for this
            return
        await self.catch_up(workspace_id)
        await remove_gone_points(self.database, self.indexes.points, workspace_id)
        if await self.current.agrees(workspace_id):
            return
        _log.warning("the index of a workspace has missing or extra points and is rebuilt", workspace=info.name)
        await self.reindex(workspace_id, meaning=False)
        if not await self.current.agrees(workspace_id):
            # Points on a line of the mirror that belong to no version there: a rebuild opens new lines and drops them.
            await self.rebuild(workspace_id, meaning=False)

    async def _forget_lost(self, info: WorkspaceInfo, repository: GitRepository) -> None:
        """After a restore: PostgreSQL goes back to the backup, too. A kill repeats this."""
        taken_at = await in_store_thread(restored.backup_time, repository.path)
        if taken_at is None:
            return
        workspace_id, rows = info.workspace_id, await in_store_thread(restored.restored_rows, repository.path)
        async with self.locks.workspaces.of(workspace_id), self.held(workspace_id) as conn:
            forgotten = await forget_lost(conn, workspace_id, repository, taken_at, rows)
            if forgotten.mirror_is_ahead:
                await self._follow(conn, workspace_id, repository)
                # Rows of lost commits would answer repeated calls, as the commits' own trailers do.
                await projector.forget(conn, workspace_id)
                await registry.register(conn, info)
        faults.point("restore.forgotten")
        await in_store_thread(restored.remove_mark, repository.path)
        _log.info("a workspace was restored from a backup", workspace=info.name, taken_at=taken_at, **asdict(forgotten))

    async def _follow_erasure(self, info: WorkspaceInfo, repository: GitRepository) -> None:
        """After a kill between the new generation of a repository and its rows. A kill repeats this."""
        mark = await in_store_thread(read_mark, repository.path)
        if mark is None:
            return
        workspace_id = info.workspace_id
        async with self.locks.workspaces.of(workspace_id), self.held(workspace_id) as conn:
            await follow_generation(conn, info, repository, mark)
        await in_store_thread(remove_erased_mark, repository.path)
        self.forget_cached(workspace_id)
        _log.info("the rows of a workspace follow its rewritten history", workspace=info.name)

    async def _counts_agree(self, workspace_id: str) -> bool:
        async with self.database.connection() as conn:
            return all(one.noted == one.there for one in await projector.row_counts(conn, workspace_id))

    async def _registered_names(self) -> dict[str, str]:
        """The names of the workspaces that PostgreSQL has, by id."""
        async with self.database.connection() as conn:
            return {each.workspace_id: each.name for each in await registry.list_workspaces(conn)}

    async def _forget_missing(self) -> None:
        """Delete the mirror of workspaces whose repository no longer exists."""
        present = set(await in_store_thread(self.repositories.ids))
        async with self.database.transaction() as conn:
            for workspace in await registry.list_workspaces(conn):
                if workspace.workspace_id not in present:
                    _log.warning("a workspace no longer has a repository", workspace=workspace.name)
                    await projector.forget(conn, workspace.workspace_id)
