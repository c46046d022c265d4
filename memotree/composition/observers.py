"""Those who are told of each call: the audit log, the metrics and the traces."""

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.postgres.figures import Figures, read_figures
from memotree_storage.store import Store

from memotree.audit import AuditLog
from memotree.audit.journal import Journal
from memotree.client.contract import is_read
from memotree.environment import variable
from memotree.extras import install
from memotree.forest.operations import ForestOperations
from memotree.maintenance import MaintenanceOperations
from memotree.models.gateway import Models
from memotree.request.observed_calls import GIT_PUSH, CallObserver
from memotree.server.binding import contract
from memotree.server.listen import address, listening
from memotree.settings import Settings

log = structlog.get_logger("memotree.server")

if TYPE_CHECKING:
    from memotree.tracing.provider import Tracing


class TracingLibraryMissingError(FailedPreconditionError):
    """The settings say where to send traces, and the library that makes them is not installed."""

    reason = "TRACING_LIBRARY_MISSING"

    def __init__(self) -> None:
        super().__init__(
            f"The setting trace_url is given, and OpenTelemetry is not installed: {install('tracing')}, or remove the "
            "setting."
        )


async def open_audit_log(store: Store, settings: Settings, stack: AsyncExitStack) -> AuditLog:
    """The audit log, which brings records of an earlier process to PostgreSQL; the stack stops it."""
    journal = await in_store_thread(Journal, settings.data_folder / "audit" / "journal.jsonl")
    made = AuditLog(store.database, journal, changing_methods(), settings.audit_retention)
    stack.push_async_callback(made.stop)
    made.start()
    return made


def changing_methods() -> frozenset[str]:
    """What changes something: RPCs such as ``memotree.v1.NodeService/CreateNode``, and the push of git."""
    return frozenset(
        {
            f"{service.full_name}/{method.name}"
            for service in contract().values()
            for method in service.methods
            if not is_read(method)
        }
        | {GIT_PUSH}
    )


def observed_methods() -> frozenset[str]:
    """What is observed: RPCs such as ``memotree.v1.NodeService/GetNode``, and the push of git."""
    return frozenset(
        {f"{service.full_name}/{each.name}" for service in contract().values() for each in service.methods} | {GIT_PUSH}
    )


async def start_metrics(
    settings: Settings,
    stack: AsyncExitStack,
    store: Store,
    models: Models,
    forest: ForestOperations,
    maintenance: MaintenanceOperations,
    audit_log: AuditLog,
    job_kinds: Collection[str],
) -> CallObserver:
    """Measure, and tell it on the port of the settings; the stack ends it.

    Raises:
        PortTakenError: Another program has the port.
    """
    from memotree.metrics.server_metrics import ServerMetrics  # noqa: PLC0415 - most servers start without it
    from memotree.metrics.store_figures import Sources  # noqa: PLC0415 - the same

    async def count_rows() -> Figures:
        async with store.database.connection() as conn:
            return await read_figures(conn)

    sources = Sources(
        count_rows=count_rows,
        silent_stores=maintenance.silent_stores,
        pool_use=lambda: store.database.pool_use,
        recall_bytes=lambda: forest.cached_bytes,
        recall_limit=settings.recall_cache_bytes,
        models=lambda: [(each.kind, each.totals) for each in models.endpoints],
        audit=lambda: (audit_log.records, audit_log.waiting_bytes),
        job_kinds=job_kinds,
    )
    place = listening(settings.metrics_host, settings.metrics_port or 0, variable("metrics_port"))
    metrics = ServerMetrics(observed_methods(), sources, place)
    stack.push_async_callback(metrics.stop)
    metrics.start()
    store.noticing.append(metrics.notice)
    host, port = place.getsockname()[:2]
    log.info("metrics", url=f"http://{address(host, port)}/metrics")
    return metrics.calls


async def open_tracing(settings: Settings, stack: AsyncExitStack) -> "Tracing | None":
    """What makes spans, if the settings say where to send them; the stack closes it.

    Raises:
        TracingLibraryMissingError: The library is not installed.
    """
    if settings.trace_url is None:
        return None
    try:
        from memotree.tracing.provider import Tracing  # noqa: PLC0415 - most servers start without it
    except ModuleNotFoundError as error:
        raise TracingLibraryMissingError from error
    tracing = await asyncio.to_thread(Tracing.to, settings.trace_url, settings.trace_share)
    stack.push_async_callback(asyncio.to_thread, tracing.close)
    return tracing
