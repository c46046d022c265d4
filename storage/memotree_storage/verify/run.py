"""The whole verification: a snapshot of the mirror is compared with the refs of the same moment, then the index."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.repository import GitRepository
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import registry
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store
from memotree_storage.verify.caches import check_caches
from memotree_storage.verify.commits import CommitCheck
from memotree_storage.verify.frequencies import FrequencyCheck
from memotree_storage.verify.leaf_features import check_leaf_features
from memotree_storage.verify.points import check_index
from memotree_storage.verify.records import check_records
from memotree_storage.verify.report import Difference, Step, in_git
from memotree_storage.verify.structure import check_structure
from memotree_storage.verify.trees import check_trees


async def verify(store: Store, workspace_id: str) -> AsyncGenerator[Difference | Step, None]:
    """Compare Git, the mirror and the index of a workspace; yield differences, with progress in between.

    If rows are wrong, or what the server remembers of them, everything that is cached of the workspace is forgotten: it
    may have been made of the wrong rows.

    Git is read with a repository of its own, since one that is open remembers objects that are lost by now.

    Commits made meanwhile are not compared and not delayed, except while points that seemed wrong are checked again.
    Few verifications run at once, and a few more wait. Memory grows with the number of commits (about 1 KB each), of
    entries in one commit (about 0.2 KB each) and of distinct terms (about 0.1 KB each).

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
        TooManyVerificationsError: Too many wait already.
        DatabaseUnavailableError: PostgreSQL does not answer.
        IndexUnavailableError: The index does not answer.
    """
    async with store.locks.verifications.turn(), aclosing(_verify(store, workspace_id)) as found:
        async for each in found:
            yield each


async def _verify(store: Store, workspace_id: str) -> AsyncGenerator[Difference | Step, None]:
    """Verify without waiting for other verifications."""
    opened = await in_store_thread(store.repositories.get, workspace_id)
    if workspace_id in store.set_aside:
        yield in_git("workspace", f"The workspace takes no changes. {store.set_aside[workspace_id]}")
    wrong = False
    with await in_store_thread(GitRepository.open, opened.path) as repository:
        async with _snapshot(store, workspace_id, repository) as (conn, refs):
            async for difference in check_records(conn, workspace_id, repository, refs):
                yield difference
            async for found in _check_rows(conn, store, workspace_id, repository, refs):
                wrong = wrong or (isinstance(found, Difference) and found.store in {"postgres", "cache"})
                yield found
    if wrong:
        store.forget_cached(workspace_id)
    async for found in check_index(store, workspace_id):
        yield found
    async for difference in check_leaf_features(store, workspace_id):
        yield difference


async def _check_rows(
    conn: Connection, store: Store, workspace_id: str, repository: CommitReader, refs: Mapping[str, str]
) -> AsyncIterator[Difference | Step]:
    """Compare the rows, and what the server remembers of them, with Git."""
    for difference in await check_caches(conn, store, workspace_id):
        yield difference
    async for found in check_structure(conn, store, workspace_id, repository, refs):
        yield found
    async for found in check_trees(conn, workspace_id, repository, refs):
        yield found
    frequencies = FrequencyCheck(conn, workspace_id)
    await frequencies.begin()
    whole = True
    async for found in CommitCheck(conn, workspace_id, repository, refs, frequencies.count).run():
        whole = whole and not (isinstance(found, Difference) and (found.store, found.what) == ("git", "object"))
        yield found
    if whole:  # otherwise, terms of texts that Git has lost would seem to be counted wrongly
        for difference in await frequencies.run():
            yield difference


@asynccontextmanager
async def _snapshot(
    store: Store, workspace_id: str, repository: CommitReader
) -> AsyncIterator[tuple[Connection, Mapping[str, str]]]:
    """A connection with a snapshot of the mirror, and the refs that the repository had at the same moment."""
    async with AsyncExitStack() as stack:
        async with store.locks.workspaces.of(workspace_id):
            conn = await stack.enter_async_context(store.database.repeatable_read())
            await conn.execute("set local statement_timeout = 0")  # it reads everything, however long that takes
            async with store.database.transaction() as holding:
                await registry.lock_workspace(holding, workspace_id)
                refs = await in_store_thread(repository.refs)
                await conn.execute("select 1")  # the first statement takes the snapshot
        yield conn, refs
