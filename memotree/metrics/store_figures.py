"""What the stores and the background work say at the moment of a scrape."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from memotree_storage.errors import MemoTreeError
from memotree_storage.postgres.database import PoolUse
from memotree_storage.postgres.figures import Figures
from memotree_storage.postgres.jobs import FAILED
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

STORES: Final = ("git", "postgres", "qdrant")

_PATIENCE: Final = 5.0
"""Seconds that a scrape waits for the stores; it then tells the rest."""

_FRESH: Final = 2.0
"""Seconds for which rows are not counted again, however many programs scrape."""

_log = structlog.get_logger(__name__)


class ModelTotals(Protocol):
    """What a model behind a URL was asked since the start."""

    answered: int
    failed: int
    read_tokens: int
    written_tokens: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from.

    Attributes:
        count_rows: Counts rows in PostgreSQL.
        silent_stores: The stores that do not answer, with the reason.
        pool_use: How the connections to PostgreSQL are used.
        recall_bytes: Bytes that recall caches now.
        recall_limit: The most bytes that it may cache.
        models: What the models behind URLs were asked, by kind.
        audit: Records of the audit log since the start, and bytes of records that PostgreSQL does not have yet.
        job_kinds: The kinds of jobs that there are.
    """

    count_rows: Callable[[], Coroutine[Any, Any, Figures]]
    silent_stores: Callable[[], Coroutine[Any, Any, Mapping[str, str]]]
    pool_use: Callable[[], PoolUse]
    recall_bytes: Callable[[], int]
    recall_limit: int
    models: Callable[[], Sequence[tuple[str, ModelTotals]]]
    audit: Callable[[], tuple[int, int]]
    job_kinds: Collection[str]


class StoreFigures(Collector):
    """Asks in the event loop of the server, for a scrape in a thread.

    Args:
        sources: Where the figures come from.
        loop: The event loop of the server.
    """

    def __init__(self, sources: Sources, loop: asyncio.AbstractEventLoop) -> None:
        self._sources = sources
        self._loop = loop
        self._asked_at = float("-inf")
        self._found: tuple[Mapping[str, str], Figures | None] = ({}, None)

    def collect(self) -> Iterator[Metric]:
        """The metrics now. Rows that cannot be counted are left out."""
        asking = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            silent, figures = asking.result(_PATIENCE + 1)
        except Exception:  # noqa: BLE001 - a scrape tells at least that nothing is known
            asking.cancel()
            silent, figures = dict.fromkeys(STORES, "unknown"), None
        yield from _about_stores(silent, self._sources.pool_use())
        if figures is not None:
            yield from _about_rows(figures, self._sources.job_kinds)
        cached = GaugeMetricFamily("memotree_recall_cache_bytes", "Bytes that recall caches now.")
        cached.add_metric((), self._sources.recall_bytes())
        limit = GaugeMetricFamily("memotree_recall_cache_limit_bytes", "The most bytes that recall may cache.")
        limit.add_metric((), self._sources.recall_limit)
        yield from (cached, limit)
        yield from _about_models(self._sources.models())
        yield from _about_audit(*self._sources.audit())

    async def _ask(self) -> tuple[Mapping[str, str], Figures | None]:
        if time.monotonic() - self._asked_at > _FRESH:
            self._asked_at = time.monotonic()
            silent = await self._sources.silent_stores()
            figures = None
            if "postgres" not in silent:
                try:
                    async with asyncio.timeout(_PATIENCE):
                        figures = await self._sources.count_rows()
                except (TimeoutError, MemoTreeError) as error:
                    _log.warning("the rows for the metrics could not be counted", why=str(error))
            self._found = silent, figures
        return self._found


def _about_stores(silent: Mapping[str, str], use: PoolUse) -> Iterator[Metric]:
    up = GaugeMetricFamily("memotree_store_up", "Whether a store answers (1) or not (0).", labels=("store",))
    for store in STORES:
        up.add_metric((store,), 0 if store in silent else 1)
    yield up
    connections = GaugeMetricFamily(
        "memotree_postgres_connections",
        "Connections to PostgreSQL: lent to calls, open, and the most that may be open.",
        labels=("state",),
    )
    for state, count in (("lent", use.lent), ("open", use.open), ("most", use.most)):
        connections.add_metric((state,), count)
    yield connections
    waiting = GaugeMetricFamily("memotree_postgres_waiting_calls", "Calls that wait for a connection to PostgreSQL.")
    waiting.add_metric((), use.waiting)
    waited = CounterMetricFamily(
        "memotree_postgres_waits", "How often a call had to wait for a connection to PostgreSQL."
    )
    waited.add_metric((), use.waited)
    seconds = CounterMetricFamily(
        "memotree_postgres_wait_seconds", "Seconds that calls have waited for a connection to PostgreSQL."
    )
    seconds.add_metric((), use.waited_seconds)
    yield from (waiting, waited, seconds)


def _about_rows(figures: Figures, job_kinds: Collection[str]) -> Iterator[Metric]:
    """Failed jobs are told with 0, too: Prometheus sees no change in a series that begins."""
    sessions = GaugeMetricFamily("memotree_open_sessions", "Sessions that are open.")
    sessions.add_metric((), figures.open_sessions)
    backlog = GaugeMetricFamily("memotree_index_backlog_rows", "Versions of nodes that the index does not have yet.")
    backlog.add_metric((), figures.outbox)
    jobs = GaugeMetricFamily("memotree_jobs", "Jobs by kind and state.", labels=("kind", "state"))
    counts = {(kind, FAILED): 0 for kind in job_kinds} | figures.jobs
    for (kind, state), count in sorted(counts.items()):
        jobs.add_metric((kind, state), count)
    yield from (sessions, backlog, jobs)


def _about_models(models: Sequence[tuple[str, ModelTotals]]) -> Iterator[Metric]:
    calls = CounterMetricFamily(
        "memotree_model_calls", "Calls of models behind URLs by kind and outcome.", labels=("kind", "outcome")
    )
    tokens = CounterMetricFamily(
        "memotree_model_tokens", "Tokens that models behind URLs have read and written.", labels=("kind", "direction")
    )
    for kind, totals in models:
        calls.add_metric((kind, "answered"), totals.answered)
        calls.add_metric((kind, "failed"), totals.failed)
        tokens.add_metric((kind, "read"), totals.read_tokens)
        tokens.add_metric((kind, "written"), totals.written_tokens)
    yield from (calls, tokens)


def _about_audit(records: int, waiting: int) -> Iterator[Metric]:
    kept = CounterMetricFamily("memotree_audit_records", "Records that the audit log has kept.")
    kept.add_metric((), records)
    left = GaugeMetricFamily("memotree_audit_waiting_bytes", "Bytes of records that PostgreSQL does not have yet.")
    left.add_metric((), waiting)
    yield from (kept, left)
