"""Builds the operations of a server from its settings; everything is closed in reverse order."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from memotree_storage.maintenance.remote_copies import RemoteCopies
from memotree_storage.model.validation import Limits
from memotree_storage.ports import unwatched
from memotree_storage.store import Store

from memotree.audit import AuditOperations
from memotree.canvas import NodeOperations, ViewOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.composition.access import certificates_of, guard_of, open_access, tokens_of
from memotree.composition.observers import observed_methods, open_audit_log, open_tracing, start_metrics
from memotree.composition.page_tokens import open_page_tokens
from memotree.composition.stores import open_store_and_models
from memotree.composition.tools import disabled_tools, follow_settings, names_of_tools, offered_functions, open_tools
from memotree.erasure import job as erase_job
from memotree.erasure.operations import EraseOperations
from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.documents.reader import DocumentReader, ReadingLimits
from memotree.forest.ingestion.batch_job import IngestDocuments
from memotree.forest.ingestion.job import IngestDocument
from memotree.forest.joining.join import ArchiveJoin
from memotree.forest.operations import ForestOperations
from memotree.forest.recall.recall import Recall
from memotree.forest.summaries.renewal_job import SummaryRenewal
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.tool_operations import with_tools
from memotree.gateways.tool_settings import resource_fault
from memotree.history import HistoryOperations
from memotree.identity.access import Access
from memotree.identity.operations import AccessOperations
from memotree.jobs import JobOperations, JobRunner, rebuilds
from memotree.maintenance import MaintenanceOperations, embedding_job
from memotree.maintenance.index_operations import IndexOperations
from memotree.maintenance.running_settings import RunningSettings, SettingsOperations
from memotree.memory import MemoryOperations
from memotree.models.gateway import Models
from memotree.planner import Planner
from memotree.query.service import QueryOperations
from memotree.request.limits import ServiceLimits
from memotree.request.observed_calls import CallObserver, CallObservers
from memotree.review import ReviewOperations
from memotree.server.app import Operations
from memotree.server.checking import checked
from memotree.server.embedded import EmbeddedServers
from memotree.server.logs import configure_logging
from memotree.sessions import SessionOperations
from memotree.settings import LoadedSettings, Settings
from memotree.workspaces import WorkspaceOperations


@asynccontextmanager
async def compose(
    settings: Settings,
    embedded: EmbeddedServers | None = None,
    reread: Callable[[], LoadedSettings] | None = None,
) -> AsyncIterator[Operations]:
    """Open the stores and yield the operations by service; everything is closed on exit, in reverse order.

    Args:
        settings: Where the data is, which stores and models to use, and limits.
        embedded: The data folder and its embedded servers, if whoever calls has them started already.
        reread: Reads the settings again when a reload is asked for; without it they do not change.

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
        tracing = await open_tracing(settings, stack)
        store, models = await open_store_and_models(
            settings, stack, embedded, unwatched if tracing is None else tracing.stores
        )
        engine, _ = await embedded.qdrant()
        optimise = None if engine is None else engine.write_anew
        pages = await open_page_tokens(settings.data_folder)
        access = await open_access(store, settings, stack)
        limits = service_limits(settings)
        runner = JobRunner(store.database, concurrency=settings.job_concurrency, retention=settings.job_retention)
        runner.principal_of = access.acting
        rebuilds.register(runner, store)
        embedding_job.register(runner, store, models.embeddings)
        erase_job.register(runner, store, settings.author_email, optimise, settings.git_remote_url)
        summaries = SummaryRenewal(store, models, runner, limits, background=settings.renew_summaries)
        reader = DocumentReader(ReadingLimits(settings.document_time, settings.document_memory))
        stack.push_async_callback(reader.close)
        forest = forest_operations(store, models, runner, limits, summaries, reader, settings)
        sessions = SessionOperations(store, pages, limits, summaries, resolver=ConflictResolution(store, limits))
        stack.push_async_callback(sessions.finish)
        executor, plugins = await open_tools(settings, stack)
        maintenance = MaintenanceOperations(
            store,
            pages,
            limits,
            models.embeddings.notice,
            copies=copies_of(store, settings, stack),
            plugin_faults=lambda: [] if plugins is None else [(each.plugin, each.reason) for each in plugins.faults],
            max_message_bytes=settings.max_message_bytes,
            embedded={
                name
                for name, url in (("postgres", settings.postgres_url), ("qdrant", settings.qdrant_url))
                if url is None
            },
        )
        stack.push_async_callback(maintenance.finish)
        review = ReviewOperations(store, pages, limits, sessions, forest, summaries)
        guard = guard_of(store, access, review, runner) if settings.authentication != "none" else None
        stack.push_async_callback(runner.stop)
        await runner.start()  # jobs go on from here, which the guard has to permit
        stack.push_async_callback(summaries.stop)
        summaries.start()
        operations: dict[str, object] = {
            "MemoryService": MemoryOperations(store, limits, summaries),
            "WorkspaceService": WorkspaceOperations(store, pages, limits, partial(forget_workspace, runner, access)),
            "SessionService": sessions,
            "NodeService": NodeOperations(store, pages, limits, summaries),
            "ViewService": ViewOperations(store, pages, limits),
            "HistoryService": HistoryOperations(store, pages, limits, summaries),
            "MaintenanceService": maintenance,
            "ForestService": forest,
            "JobService": JobOperations(store, pages, runner),
            "IndexService": IndexOperations(runner, models.embeddings),
            "EraseService": EraseOperations(store, pages, runner),
            "ReviewService": review,
            "AccessService": AccessOperations(
                access,
                store.database,
                pages,
                tokens_of(settings, stack),
                certificates_of(settings),
                names_of_tools,
                resource_fault,
            ),
        }
        running = RunningSettings(settings, reread)
        running.when_changed(
            "log_level", "log_format", apply=lambda new: configure_logging(new.log_level, new.log_format)
        )
        running.when_changed("model_requests_per_minute", apply=lambda new: models.limit(new.model_requests_per_minute))
        operations["SettingsService"] = SettingsOperations(running)

        audit_log = await open_audit_log(store, settings, stack)
        operations["AuditService"] = AuditOperations(
            store.database, pages, audit_log if settings.audit_log else None, observed_methods()
        )
        observers: list[CallObserver] = [] if tracing is None else [tracing.calls]
        if settings.audit_log:
            observers.append(audit_log)
        if settings.metrics_port is not None:
            observers.append(
                await start_metrics(settings, stack, store, models, forest, maintenance, audit_log, runner.kinds)
            )
        if guard is not None:
            operations = checked(operations, guard.admit, guard.changes)
        admission = follow_settings(running, settings)

        def over_tools(catalogue: Catalogue) -> dict[str, object]:
            found: dict[str, object] = {"QueryService": QueryOperations(catalogue, forest, models, store)}
            return found if guard is None else checked(found, guard.admit, guard.changes)

        yield with_tools(
            operations,
            settings.default_workspace,
            settings.max_message_bytes,
            CallObservers(observers),
            offered_functions(settings, Planner(store, limits, summaries, None if guard is None else guard.admit)),
            executor,
            disabled_tools(settings),
            plugins,
            admission,
            settings.tools_custom,
            over_tools,
            None if guard is None else access.renewed,
        )


def forget_workspace(runner: JobRunner, access: Access, workspace_id: str) -> None:
    """Forget the jobs and roles of a workspace that was deleted."""
    runner.forget_workspace(workspace_id)
    access.forget_workspace(workspace_id)


def copies_of(store: Store, settings: Settings, stack: AsyncExitStack) -> RemoteCopies | None:
    """What pushes the commits of the workspaces to their Git remotes; ``None`` if the settings name none."""
    if settings.git_remote_url is None:
        return None
    copies = RemoteCopies(store.repositories, settings.git_remote_url)
    store.noticing.append(copies.notice)
    copies.start()
    stack.push_async_callback(copies.stop)
    return copies


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
