"""The operations of AuditService."""

import json
from collections.abc import Collection
from typing import Final

from memotree_storage.errors import FailedPreconditionError, InvalidInputError, NotFoundError
from memotree_storage.postgres import audit, registry
from memotree_storage.postgres.audit import AuditFilter, AuditRow
from memotree_storage.postgres.database import Connection, Database

from memotree.audit.log import AuditLog
from memotree.error_mapping import Code
from memotree.request.messages import read_time, timestamp
from memotree.request.pages import PageTokens, page_size
from memotree.v1 import audit_service_pb2 as pb

_CODES: Final = frozenset(code.name for code in Code)
_MOST_CHARS: Final = 200


class AuditLogOffError(FailedPreconditionError):
    """The server keeps no audit log."""

    reason = "AUDIT_LOG_OFF"

    def __init__(self) -> None:
        super().__init__("This server keeps no audit log; start it with the setting audit_log.")


class AuditOperations:
    """Reads the audit log.

    Args:
        database: Has the records.
        pages: Makes page tokens.
        log: The log; ``None`` if it is off.
        methods: The methods that records have, such as ``memotree.v1.NodeService/CreateNode``.
    """

    def __init__(self, database: Database, pages: PageTokens, log: AuditLog | None, methods: Collection[str]) -> None:
        self._database = database
        self._pages = pages
        self._log = log
        self._methods = methods

    async def list_audit_records(self, request: pb.ListAuditRecordsRequest) -> pb.ListAuditRecordsResponse:
        """Lists records, the newest first."""
        if self._log is None:
            raise AuditLogOffError
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"before": int})
        wanted = _filter_of(request, self._methods)
        if cursor is None:
            await self._log.flush()
        async with self._database.connection() as conn:
            workspace = await _workspace(conn, wanted.workspace)
            found = await audit.page(
                conn,
                wanted,
                workspace=workspace,
                before=None if cursor is None else cursor["before"],
                limit=size + 1,
            )
        last = {"before": found[size - 1].number} if len(found) > size else None
        return pb.ListAuditRecordsResponse(
            records=map(_message, found[:size]), next_page_token=self._pages.write(request, last)
        )


def _filter_of(request: pb.ListAuditRecordsRequest, methods: Collection[str]) -> AuditFilter:
    """What is wanted; a method may be given without its service.

    Errors: ``InvalidInputError`` for a value that no record can have.
    """
    for name in ("principal", "method", "workspace"):
        value = getattr(request, name)
        if len(value) > _MOST_CHARS or "\0" in value:
            raise InvalidInputError.at(name, f"must have at most {_MOST_CHARS} characters, and no NUL.")
    if request.code and request.code not in _CODES:
        raise InvalidInputError.at(
            "code", f"{request.code[:_MOST_CHARS]!r} is no status; give one of {', '.join(sorted(_CODES))}."
        )
    return AuditFilter(
        principal=request.principal,
        methods=_whole(request.method, methods),
        tool=request.method,
        workspace=request.workspace,
        code=request.code,
        since=read_time("since", request.since) if request.HasField("since") else None,
        until=read_time("until", request.until) if request.HasField("until") else None,
    )


def _whole(name: str, methods: Collection[str]) -> list[str]:
    """The whole names of what a method may be called."""
    return [name, *(each for each in methods if each.endswith(f"/{name}"))] if name else []


async def _workspace(conn: Connection, name: str) -> str:
    """The id of a workspace; the name itself if there is none any more."""
    if not name:
        return ""
    try:
        return (await registry.find_workspace(conn, name)).workspace_id
    except NotFoundError:
        return name


def _message(row: AuditRow) -> pb.AuditRecord:
    return pb.AuditRecord(
        time=timestamp(row.happened_at),
        principal=row.principal,
        interface=row.interface,
        call_id=row.call_id,
        request_id=row.request_id,
        method=row.method,
        tool=row.tool,
        workspace=row.workspace,
        arguments_json=json.dumps(row.arguments, ensure_ascii=False),
        code=row.code,
        reason=row.reason,
        elapsed_ms=row.elapsed_ms,
    )
