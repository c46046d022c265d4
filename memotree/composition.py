"""The composition root: builds the stores and operations from the settings. No other module does."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.signing import Signer, SigningKeyError, load_signer
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.maintenance.remote_copies import RemoteCopies
from memotree_storage.model.validation import Limits
from memotree_storage.postgres import indexes
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.indexes import IndexRecord
from memotree_storage.postgres.ownership import DatabaseOwnership
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.store import Store

from memotree.canvas import NodeOperations, ViewOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.erasure import job as erase_job
from memotree.erasure.operations import EraseOperations
from memotree.extras import install, is_installed
from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.documents.reader import DocumentReader, ReadingLimits
from memotree.forest.ingestion.batch_job import IngestDocuments
from memotree.forest.ingestion.job import IngestDocument
from memotree.forest.joining.join import ArchiveJoin
from memotree.forest.operations import ForestOperations
from memotree.forest.recall.recall import Recall
from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.gateways.tool_operations import with_tools
from memotree.history import HistoryOperations
from memotree.jobs import JobOperations, JobRunner, rebuilds
from memotree.maintenance import MaintenanceOperations, embedding_job
from memotree.maintenance.index_operations import IndexOperations
from memotree.memory import MemoryOperations
from memotree.models.gateway import Models
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.review import ReviewOperations
from memotree.server.app import Operations
from memotree.server.embedded import EmbeddedServers
from memotree.sessions import SessionOperations
from memotree.settings import Settings
from memotree.workspaces import WorkspaceOperations


@asynccontextmanager
async def compose(settings: Settings, embedded: EmbeddedServers | None = None) -> AsyncIterator[Operations]:
    """Open the stores and yield the operations by service; everything is closed on exit, in reverse order.

    Args:
        settings: Where the data is, which stores and models to use, and limits.
        embedded: The data folder and its embedded servers, if whoever calls has them started already.

    Raises:
        DataFolderInUseError: Another server uses the data folder.
        DataFolderUnusableError: The data folder cannot be locked.
        DatabaseInUseError: The database belongs to another data folder.
        DatabaseUnavailableError: PostgreSQL does not answer.
        IndexUnavailableError: Qdrant does not answer.
    """
    async with AsyncExitStack() as stack:
        if embedded is None:
            embedded = await stack.enter_async_context(EmbeddedServers(settings))
        store, models = await open_store_and_models(settings, stack, embedded)
        engine, _ = await embedded.qdrant()
        optimise = None if engine is None else engine.write_anew
        pages = PageTokens()
        limits = service_limits(settings)
        runner = JobRunner(store.database, concurrency=settings.job_concurrency, retention=settings.job_retention)
        rebuilds.register(runner, store)
        embedding_job.register(runner, store, models.embeddings)
        erase_job.register(runner, store, settings.author_email, optimise, settings.git_remote_url)
        summaries = SummaryRenewal(store, models, runner, limits, background=settings.renew_summaries)
        reader = DocumentReader(ReadingLimits(settings.document_time, settings.document_memory))
        stack.push_async_callback(reader.close)
        forest = forest_operations(store, models, runner, limits, summaries, reader, settings)
        sessions = SessionOperations(store, pages, limits, summaries, resolver=ConflictResolution(store, limits))
        stack.push_async_callback(sessions.finish)
        copies = None
        if settings.git_remote_url is not None:
            copies = RemoteCopies(store.repositories, settings.git_remote_url)
            store.noticing.append(copies.notice)
            copies.start()
            stack.push_async_callback(copies.stop)
        maintenance = MaintenanceOperations(
            store,
            pages,
            limits,
            models.embeddings.notice,
            copies=copies,
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
        operations = {
            "MemoryService": MemoryOperations(store, limits, summaries),
            "WorkspaceService": WorkspaceOperations(store, pages, limits, runner.forget_workspace),
            "SessionService": sessions,
            "NodeService": NodeOperations(store, pages, limits, summaries),
            "ViewService": ViewOperations(store, pages, limits),
            "HistoryService": HistoryOperations(store, pages, limits, summaries),
            "MaintenanceService": maintenance,
            "ForestService": forest,
            "JobService": JobOperations(store, pages, runner),
            "IndexService": IndexOperations(runner, models.embeddings),
            "EraseService": EraseOperations(store, pages, runner),
            "ReviewService": ReviewOperations(store, pages, limits, sessions, forest, summaries),
        }
        yield with_tools(operations, settings.default_workspace, settings.max_message_bytes)


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


async def open_store_and_models(
    settings: Settings, stack: AsyncExitStack, embedded: EmbeddedServers | None = None
) -> tuple[Store, Models]:
    """Open the store and its models, on the servers that the settings name or on embedded ones; the stack closes them.

    Args:
        settings: Which servers and models to use.
        stack: Closes what was opened.
        embedded: The data folder and its embedded servers, if whoever calls has them started already.

    Raises:
        DataFolderInUseError: Another process uses the data folder.
        DataFolderUnusableError: The data folder cannot be locked.
        DatabaseUnavailableError: PostgreSQL does not answer.
        IndexUnavailableError: Qdrant does not answer.
        ModelUnavailableError: The embedding model does not answer, and the length of its vectors is not known.
        ModelRefusedError: The embedding model's endpoint refuses the call.
        LocalModelMissingError: The local embedding model is configured and not installed.
        SigningKeyError: The key that signs commits cannot be used.
    """
    if embedded is None:
        embedded = await stack.enter_async_context(EmbeddedServers(settings))
    postgres = await embedded.postgres()
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
    stack.push_async_callback(database.close)
    await database.open()  # which index answers is noted there, and vectors are cached; the store opens it once more
    answering = await _answering(settings, database)
    await models.open(*(() if answering is None else (answering.model, answering.dimensions)))
    engine, endpoint = await embedded.qdrant()
    client = connect(endpoint.url, endpoint.api_key)
    flush = None if engine is None else engine.flush

    def open_points(model: str, dimensions: int) -> QdrantIndex:
        return QdrantIndex(client, model=model, dimensions=dimensions, flush=flush)

    index = open_points(models.embedder.model, models.embedder.dimensions)
    stack.push_async_callback(client.close)
    python = (sys.executable, "-P", "-m")
    store = Store(
        settings.data_folder,
        database,
        index,
        models.embedder,
        request_retention=settings.request_retention,
        committer_email=settings.committer_email,
        after_push=(*python, "memotree.local.after_push", str(settings.data_folder.absolute())),
        before_push=(*python, "memotree.local.before_push"),
        before_branch=(*python, "memotree.local.before_branch", str(settings.data_folder.absolute())),
        max_depth=settings.max_depth,
        open_points=open_points,
        signer=None if settings.signing_key is None else await in_store_thread(signer_of, settings.signing_key),
    )

    async def follow(made: ModelIndex) -> None:
        models.embedder = made.embedder
        await open_points(made.embedder.model, made.embedder.dimensions).make_current()

    store.indexes.when_switched.append(follow)
    stack.push_async_callback(store.close)
    await store.open()
    if ownership is not None:
        await ownership.note()  # a new database has its tables only now
    await index.make_current()
    if not isinstance(postgres, str):
        postgres.supervisor.on_restart(database.renew_broken)
    if engine is not None:
        engine.supervisor.on_restart(store.indexes.forget_applied)
    return store, models


async def _answering(settings: Settings, database: Database) -> IndexRecord | None:
    """Which index answers; ``None`` if there is nothing yet that it could answer about."""
    if not any((settings.data_folder / "workspaces").glob("*.git")):
        return None
    async with database.connection() as conn:
        found = await indexes.read(conn)
    return None if found is None else found.current


def signer_of(key: Path) -> Signer:
    """Load the key that signs commits.

    Raises:
        SigningKeyError: It cannot be used, or the library is missing.
    """
    if not is_installed("signing"):
        raise SigningKeyError(key, f"a library is missing (install it with `{install('signing')}`)")
    return load_signer(key)


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
