"""The audit log of a server: who called what."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from memotree.client.node_values import moment, stamp
from memotree.client.paging import pages
from memotree.client.transport import Transport
from memotree.v1 import audit_service_pb2 as pb

_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One call that changed something or was refused, or the call of a tool.

    Attributes:
        time: When it ended.
        principal: The name of who called.
        interface: ``grpc``, ``http``, ``mcp`` or ``local``.
        call_id: Its id in the log of the server.
        request_id: The request id that the caller gave.
        method: The RPC, such as ``memotree.v1.NodeService/CreateNode``; of a tool, what it calls.
        tool: The tool; "" for an RPC.
        workspace: The id of the workspace, or the name that was called.
        arguments: What the call was about: ids and names as they are, the size of other texts.
        code: The gRPC status, such as ``OK``.
        reason: The error code of a failed call.
        elapsed_ms: How long it took, in milliseconds.
    """

    time: datetime | None
    principal: str
    interface: str
    call_id: str
    request_id: str
    method: str
    tool: str
    workspace: str
    arguments: Mapping[str, Any]
    code: str
    reason: str
    elapsed_ms: float

    @classmethod
    def from_wire(cls, message: pb.AuditRecord) -> Self:
        """Reads the message."""
        return cls(
            moment(message, "time"),
            message.principal,
            message.interface,
            message.call_id,
            message.request_id,
            message.method,
            message.tool,
            message.workspace,
            json.loads(message.arguments_json or "{}"),
            message.code,
            message.reason,
            message.elapsed_ms,
        )


class AsyncAudit:
    """Reads the audit log of the server."""

    _transport: Transport

    def audit_records(
        self,
        *,
        principal: str = "",
        method: str = "",
        workspace: str = "",
        code: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[AuditRecord]:
        """The calls that changed something or were refused, and those of tools, newest first.

        Args:
            principal: Only those of this caller.
            method: Only those of this RPC, such as ``CommitChanges``, or of this tool.
            workspace: Only those of this workspace, by its name or id; a deleted one too.
            code: Only those with this gRPC status, such as ``PERMISSION_DENIED``.
            since: Only those from this time on.
            until: Only those before this time.
        """
        request = pb.ListAuditRecordsRequest(
            principal=principal,
            method=method,
            workspace=workspace,
            code=code,
            since=stamp(since),
            until=stamp(until),
            page_size=_PER_PAGE,
        )
        return pages(
            self._transport,
            request,
            pb.ListAuditRecordsResponse,
            lambda page: map(AuditRecord.from_wire, page.records),
        )
