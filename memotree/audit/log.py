"""Keeps a record of each call that changes something or is refused, and of each call of a tool.

The record is written to the journal before the call is answered, and brought from there to PostgreSQL together with
others a moment later. So a call waits for no transaction of the log, and an answered call has its record whatever is
killed. While a record cannot be written, such calls are refused before they begin.

Whoever has no key can make refused calls without end. So only some of the calls whose caller is not known have records
of their own in each minute; the others are counted, and one record at the end of the minute tells how many they were.
"""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import structlog
from memotree_storage import faults
from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError, UnavailableError
from memotree_storage.postgres import audit
from memotree_storage.postgres.database import Database

from memotree.audit.journal import Journal
from memotree.audit.redaction import redacted, redacted_arguments
from memotree.request.observed_calls import TOOL, ObservedCall

REFUSED: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
"""The codes of a refused call, which is kept even if it would only have read."""

_BY_NAME: Final = "memotree.v1.ToolService/"
"""The RPCs that call tools; the call of the tool has the record."""

MOST_OF_UNKNOWN: Final = 60
"""How many calls have records of their own in each minute of which it is not known who made them."""

_MINUTE: Final = 60.0
_GATHER_SECONDS: Final = 0.5
"""How long records are gathered for one transaction."""

_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY: Final = 30.0
_CLEAN_SECONDS: Final = 3600.0
_SHOWN: Final = 200
"""The most characters of a name in a record."""

_UNFIT: Final = (psycopg.DataError, psycopg.IntegrityError)
"""The errors for a record that PostgreSQL cannot hold; it must not hold up the others."""

_log = structlog.get_logger(__name__)


class AuditLogUnavailableError(UnavailableError):
    """The record of the call cannot be kept."""

    reason = "AUDIT_LOG_UNAVAILABLE"


class AuditLog:
    """Observes calls; `start` and `stop` belong to one event loop.

    Args:
        database: Gets the records.
        journal: Has them until then.
        changing: The RPCs that change something, such as ``memotree.v1.NodeService/CreateNode``.
        retention: How long a record is kept.
    """

    def __init__(self, database: Database, journal: Journal, changing: Collection[str], retention: timedelta) -> None:
        self._database = database
        self._journal = journal
        self._changing = frozenset(changing)
        self._retention = retention
        self._wake = asyncio.Event()
        self._moving = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure = ""
        self._of_unknown = 0  # records in this minute of calls whose caller is not known
        self._not_kept: Counter[tuple[str, str]] = Counter()  # such calls without a record, by interface and code
        self.records = 0
        """Records that were kept since the start."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that PostgreSQL does not have yet."""
        return self._journal.end - self._journal.taken

    def began(self, call: ObservedCall) -> None:
        """Refuse a call whose record could not be kept.

        Raises:
            AuditLogUnavailableError: The journal cannot be written.
        """
        if self._failure and self._is_kept(call):
            with self._writing("it was not begun"):
                self._journal.check()

    def settle(self, call: ObservedCall) -> None:
        """Keep the record of a call.

        Raises:
            AuditLogUnavailableError: The journal cannot be written; the call may have been carried out.
        """
        if not self._is_kept(call):
            return
        if not call.principal:
            if self._of_unknown == MOST_OF_UNKNOWN:
                self._not_kept[call.interface, call.code] += 1
                return
            self._of_unknown += 1
        self._keep(_line(call))

    def _keep(self, line: bytes) -> None:
        with self._writing("it may have been carried out"):
            self._journal.append(line)
        self.records += 1
        faults.point("audit.kept")
        self._wake.set()

    def ended(self, call: ObservedCall) -> None:
        """Do nothing: the record is kept already."""

    def _is_kept(self, call: ObservedCall) -> bool:
        if call.interface == TOOL:
            return False  # the call of the tool has the record
        if call.tool or call.code in REFUSED:
            return True
        return call.method in self._changing and not call.method.startswith(_BY_NAME)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Context manager around what writes the journal; a failure is told to the log once."""
        try:
            yield
        except OSError as error:
            if not self._failure:
                _log.error("the audit log cannot be written; calls that change something fail", why=str(error))
            self._failure = str(error)
            raise AuditLogUnavailableError(
                f"The audit log cannot be written, so this call does not succeed; {what}. Make room on the disk of the "
                "server, then send the same call again; with a request_id it takes effect only once."
            ) from error
        if self._failure:
            _log.info("the audit log can be written again")
            self._failure = ""

    def start(self) -> None:
        """Begin to bring records to PostgreSQL, those of an earlier process first, and to delete old ones."""
        self._wake.set()
        work = (self._move_all(), self._end_minutes(), self._clean())
        self._tasks = [asyncio.create_task(each, name="audit") for each in work]

    async def stop(self) -> None:
        """Bring what is left to PostgreSQL, if it answers; the next start does the rest."""
        await cancel_and_wait(self._tasks)
        self._end_minute()
        with suppress(MemoTreeError, psycopg.Error):
            await self.flush()
        await in_store_thread(self._journal.sync)
        self._journal.close()

    async def flush(self) -> None:
        """Return when PostgreSQL has the record of every call that was answered before.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
        """
        end = self._journal.end
        async with self._moving:
            while self._journal.taken < end:
                await self._move()

    async def _end_minutes(self) -> None:
        while True:
            await asyncio.sleep(_MINUTE)
            self._end_minute()

    def _end_minute(self) -> None:
        """Write how many calls had no record, and let further ones have some; if that fails, a later minute tells."""
        self._of_unknown = 0
        with suppress(AuditLogUnavailableError):
            for (interface, code), count in list(self._not_kept.items()):
                more = ObservedCall("", interface=interface, who="")
                more.code, more.reason = code, f"AND_{count}_MORE"
                self._keep(_line(more, {"calls": count}))
                del self._not_kept[interface, code]

    async def _move_all(self) -> None:
        pause = _RETRY_SECONDS
        while True:
            await self._wake.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._wake.clear()
            try:
                await self.flush()
                pause = _RETRY_SECONDS
            except (MemoTreeError, psycopg.Error, OSError) as error:
                _log.warning("the audit log waits for PostgreSQL", why=str(error), bytes=self.waiting_bytes)
                with suppress(OSError):
                    await in_store_thread(self._journal.sync)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
                self._wake.set()

    async def _move(self) -> None:
        """Bring some records to PostgreSQL, in one transaction."""
        lines, end = await in_store_thread(self._journal.next_lines)
        readable = await in_store_thread(_readable, lines)
        try:
            await self._add(readable)
        except _UNFIT:
            for line in readable:
                try:
                    await self._add([line])
                except _UNFIT as error:
                    _log.error("a record of the audit log cannot be kept", why=str(error), record=line)
        faults.point("audit.moved")
        self._journal.took(end)

    async def _add(self, lines: Collection[str]) -> None:
        async with self._database.transaction() as conn:
            await audit.add(conn, f"[{','.join(lines)}]")

    async def _clean(self) -> None:
        while True:
            try:
                deleted = 1
                while deleted:
                    async with self._database.transaction() as conn:
                        deleted = await audit.delete_old(conn, self._retention)
            except (MemoTreeError, psycopg.Error) as error:
                _log.warning("old records of the audit log were not deleted", why=str(error))
            await asyncio.sleep(_CLEAN_SECONDS)


def _line(call: ObservedCall, arguments: Mapping[str, Any] | None = None) -> bytes:
    """The record of a call; ``arguments`` stand in place of those of its request."""
    request = call.request
    if arguments is None:
        arguments = _arguments(call)
    record: dict[str, Any] = {
        "record_id": f"{call.call_id}{secrets.token_hex(4)}",
        "happened_at": datetime.now(UTC).isoformat(),
        "principal": _name(call.principal),
        "interface": call.interface,
        "call_id": call.call_id,
        "request_id": _name(getattr(request, "request_id", "")),
        "method": _name(call.method),
        "tool": _name(call.tool),
        "workspace": _name(getattr(request, "workspace", "")),
        "arguments": arguments,
        "code": call.code,
        "reason": _name(call.reason),
        "elapsed_ms": round(1000 * call.seconds, 3),
    }
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _arguments(call: ObservedCall) -> dict[str, Any]:
    kept = {} if call.request is None else redacted(call.request)
    return kept if call.function is None else kept | redacted_arguments(call.function)


def _name(text: str) -> str:
    """A name that PostgreSQL takes."""
    return text[:_SHOWN].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _readable(lines: Collection[bytes]) -> list[str]:
    """The lines that are records; after a power cut, one may be damaged."""
    found = []
    for line in lines:
        try:
            if isinstance(json.loads(line), dict):
                found.append(line.decode())
        except ValueError:
            if line.strip(b"\0 "):
                _log.warning("a damaged line of the audit log's journal was left out", bytes=len(line))
    return found
