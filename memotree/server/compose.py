"""The composition root: builds the stores and operations from the settings. No other module does."""

import asyncio
import gc
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from memotree_storage.embedded.lock import DataFolderLock
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.embedded.privacy import close_folders_in
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.model.validation import Limits
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.ownership import DatabaseOwnership
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.store import Store

from memotree.canvas import NodeOperations, ViewOperations
from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.documents.reader import DocumentReader, ReadingLimits
from memotree.forest.ingestion.batch_job import IngestDocuments
from memotree.forest.ingestion.job import IngestDocument
from memotree.forest.joining.join import ArchiveJoin
from memotree.forest.operations import ForestOperations
from memotree.forest.recall.recall import Recall
from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.history import HistoryOperations
from memotree.jobs import JobOperations, JobRunner, rebuilds
from memotree.maintenance import MaintenanceOperations
from memotree.memory import MemoryOperations
from memotree.models.gateway import Models
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.server.app import MakeSideServer, Operations, Server
from memotree.server.app import serve as run
from memotree.server.preflight import check_stores
from memotree.sessions import SessionOperations
from memotree.settings import Settings
from memotree.workspaces import WorkspaceOperations

_MOST_FILES: Final = 65_536
"""How many files the server asks for where the system permits more."""


def serve(
    settings: Settings, on_ready: Callable[[Server], None] | None = None, side_server: MakeSideServer | None = None
) -> None:
    """Run a server with all its stores until SIGTERM, SIGINT or SIGHUP."""
    collect_rarely()
    allow_many_files()
    os.umask(0o077)  # what the server writes is for its user only
    run(settings, compose, on_ready, side_server)


def collect_rarely() -> None:
    """Make Python's garbage collector run less often, as suits a server.

    A full collection blocks the event loop for some 90 ms once thousands of nodes were staged. Objects that are loaded
    at the start are never freed, and calls leave few reference cycles behind.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def allow_many_files() -> None:
    """Let this process open as many files as it may, up to 65,536.

    That is enough, while containers often permit over a million, and programs that try every number that a file may
    have would take long. A higher limit that the process began with stays.

    Each connection is a file. Systems begin a process with a limit of about a thousand, for programs that wait for
    files with ``select``; idle clients would soon use it up. The server and those that it starts do not do that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # some kernels permit less than they say; then the limit stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@asynccontextmanager
async def compose(settings: Settings) -> AsyncIterator[Operations]:
    """Open the stores and yield the operations by service; everything is closed on exit, in reverse order.

    Raises:
        DataFolderInUseError: Another server uses the data folder.
        DataFolderUnusableError: The data folder cannot be locked.
        DatabaseInUseError: The database belongs to another data folder.
        DatabaseUnavailableError: PostgreSQL does not answer.
        IndexUnavailableError: Qdrant does not answer.
    """
    async with AsyncExitStack() as stack:
        store, models = await open_store_and_models(settings, stack)
        pages = PageTokens()
        limits = service_limits(settings)
        runner = JobRunner(store.database, concurrency=settings.job_concurrency, retention=settings.job_retention)
        rebuilds.register(runner, store)
        summaries = SummaryRenewal(store, models, runner, limits, background=settings.renew_summaries)
        reader = DocumentReader(ReadingLimits(settings.document_time, settings.document_memory))
        stack.push_async_callback(reader.close)
        forest = forest_operations(store, models, runner, limits, summaries, reader, settings)
        sessions = SessionOperations(store, pages, limits, summaries)
        stack.push_async_callback(sessions.finish)
        maintenance = MaintenanceOperations(
            store,
            pages,
            limits,
            max_message_bytes=settings.max_message_bytes,
            embedded={
                name
                for name, url in (("postgres", settings.postgres_url), ("qdrant", settings.qdrant_url))
                if url is None
            },
        )
        stack.push_async_callback(maintenance.finish)
        stack.push_async_callback(runner.stop)
        await runner.start()
        stack.push_async_callback(summaries.stop)
        summaries.start()
        yield {
            "MemoryService": MemoryOperations(store, limits, summaries),
            "WorkspaceService": WorkspaceOperations(store, pages, limits, runner.forget_workspace),
            "SessionService": sessions,
            "NodeService": NodeOperations(store, pages, limits),
            "ViewService": ViewOperations(store, pages, limits),
            "HistoryService": HistoryOperations(store, pages, limits),
            "MaintenanceService": maintenance,
            "ForestService": forest,
            "JobService": JobOperations(store, pages, runner),
        }


def forest_operations(
    store: Store,
    models: Models,
    runner: JobRunner,
    limits: ServiceLimits,
    summaries: SummaryRenewal,
    reader: DocumentReader,
    settings: Settings,
) -> ForestOperations:
    """The operations of the forest; registers their jobs with the runner."""
    recalling = Recall(
        store,
        limits,
        models,
        cache_bytes=settings.recall_cache_bytes,
        scan_leaves=settings.recall_scan_leaves,
        saved=settings.data_folder / "recall",
    )
    store.background.start(recalling.leaf_indexes.clear_saved())
    drilling = DrillDown(store, models)
    return ForestOperations(
        IngestDocument(store, models, runner, limits, reader),
        IngestDocuments(store, models, runner, limits, reader),
        recalling,
        drilling,
        Ask(recalling, drilling, store, models),
        ArchiveJoin(store, models, limits),
        summaries,
    )


async def open_store(settings: Settings, stack: AsyncExitStack) -> Store:
    """Open the store as `open_store_and_models` does, without the models."""
    store, _ = await open_store_and_models(settings, stack)
    return store


async def open_store_and_models(settings: Settings, stack: AsyncExitStack) -> tuple[Store, Models]:
    """Open the store and its models, on the servers that the settings name or on embedded ones; the stack closes them.

    Only one process may use a data folder, even if PostgreSQL and Qdrant are external: the state of a repository in one
    process (who holds its lock, what is cached, when to repack, what a start may delete) is unknown to other processes.

    Raises:
        DataFolderInUseError: Another process uses the data folder.
        DataFolderUnusableError: The data folder cannot be locked.
        DatabaseUnavailableError: PostgreSQL does not answer.
        IndexUnavailableError: Qdrant does not answer.
        ModelUnavailableError: The embedding model does not answer, and the length of its vectors is not known.
        ModelRefusedError: The embedding model's endpoint refuses the call.
        LocalModelMissingError: The local embedding model is configured and not installed.
    """
    stack.enter_context(DataFolderLock(settings.data_folder))
    await asyncio.to_thread(close_folders_in, settings.data_folder)
    await check_stores(settings)
    postgres = await _postgres(settings, stack)
    ownership = DatabaseOwnership(postgres, settings.data_folder) if isinstance(postgres, str) else None
    if ownership is not None:  # an embedded PostgreSQL is a part of the folder
        stack.push_async_callback(ownership.release)
        await ownership.acquire()
    database = Database(
        postgres if isinstance(postgres, str) else postgres.url,
        min_size=settings.postgres_pool_min,
        max_size=settings.postgres_pool_max,
        statement_timeout=settings.postgres_statement_timeout,
        after_outage=None if ownership is None else ownership.hold_again,
    )
    models = Models.from_settings(settings, database)
    stack.push_async_callback(models.close)
    if settings.embedding_url is not None:
        stack.push_async_callback(database.close)
        await database.open()  # the earlier answers of the model are cached there; the store opens it once more
    await models.open()
    embedder = models.embedder
    if settings.qdrant_url is None:
        engine = EmbeddedQdrant(settings.data_folder / "qdrant")
        endpoint = await engine.start()
        stack.push_async_callback(engine.stop)
        client = connect(endpoint.url, endpoint.api_key)
        index = QdrantIndex(client, model=embedder.model, dimensions=embedder.dimensions, flush=engine.flush)
    else:
        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        client = connect(settings.qdrant_url, key)
        index = QdrantIndex(client, model=embedder.model, dimensions=embedder.dimensions)
    stack.push_async_callback(client.close)
    store = Store(
        settings.data_folder,
        database,
        index,
        embedder,
        request_retention=settings.request_retention,
        committer_email=settings.committer_email,
        after_push=(sys.executable, "-P", "-m", "memotree.local.after_push", str(settings.data_folder.absolute())),
        max_depth=settings.max_depth,
    )
    stack.push_async_callback(store.close)
    await store.open()
    if ownership is not None:
        await ownership.note()  # a new database has its tables only now
    await index.make_current()
    if isinstance(postgres, EmbeddedPostgres):
        postgres.supervisor.on_restart(database.renew_broken)
    if settings.qdrant_url is None:
        engine.supervisor.on_restart(store.indexer.forget_applied)
    return store, models


def service_limits(settings: Settings) -> ServiceLimits:
    """The service limits from the settings."""
    return ServiceLimits(
        node=Limits(content_bytes=settings.max_content_bytes),
        max_depth=settings.max_depth,
        session_ttl=settings.session_ttl,
        committer_name=settings.committer_name,
        committer_email=settings.committer_email,
        author_email=settings.author_email,
    )


async def _postgres(settings: Settings, stack: AsyncExitStack) -> EmbeddedPostgres | str:
    """Start the embedded PostgreSQL and return it, or return the URL of the configured server."""
    if settings.postgres_url is not None:
        return settings.postgres_url.get_secret_value()
    server = EmbeddedPostgres(settings.data_folder / "postgres")
    stack.push_async_callback(server.stop)
    await server.start()
    return server
