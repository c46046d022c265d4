"""The client for programs with an event loop."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from memotree.client.access import AsyncAccess
from memotree.client.auditing import AsyncAudit
from memotree.client.changed_settings import ChangedSetting
from memotree.client.errors import AlreadyExistsError
from memotree.client.jobs import AsyncJobs, Job
from memotree.client.keys import File, api_key, credentials
from memotree.client.paging import pages
from memotree.client.revision import MOST_PER_PAGE
from memotree.client.tools import AsyncTools
from memotree.client.transport import DEFAULT_ADDRESS, AioTransport, TransportSettings, log_warning
from memotree.client.workspace import AsyncWorkspace
from memotree.client.workspace_values import ServerStatus, WorkspaceInfo
from memotree.v1 import (
    access_service_pb2_grpc,
    audit_service_pb2_grpc,
    erase_service_pb2_grpc,
    forest_service_pb2_grpc,
    history_service_pb2_grpc,
    index_service_pb2_grpc,
    job_service_pb2_grpc,
    maintenance_service_pb2_grpc,
    node_service_pb2_grpc,
    query_service_pb2_grpc,
    review_service_pb2_grpc,
    session_service_pb2_grpc,
    settings_service_pb2_grpc,
    tool_service_pb2_grpc,
    view_service_pb2_grpc,
    workspace_service_pb2_grpc,
)
from memotree.v1 import index_service_pb2 as indexes
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import settings_service_pb2 as settings
from memotree.v1 import workspace_service_pb2 as workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from grpc import aio

from memotree.client.transport import Transport


@dataclass(frozen=True, slots=True)
class AsyncRawStubs:
    """The generated stubs of all services, for calls that the client does not wrap; without retries or deadlines."""

    workspaces: workspace_service_pb2_grpc.WorkspaceServiceAsyncStub
    sessions: session_service_pb2_grpc.SessionServiceAsyncStub
    nodes: node_service_pb2_grpc.NodeServiceAsyncStub
    views: view_service_pb2_grpc.ViewServiceAsyncStub
    history: history_service_pb2_grpc.HistoryServiceAsyncStub
    maintenance: maintenance_service_pb2_grpc.MaintenanceServiceAsyncStub
    jobs: job_service_pb2_grpc.JobServiceAsyncStub
    forest: forest_service_pb2_grpc.ForestServiceAsyncStub
    reviews: review_service_pb2_grpc.ReviewServiceAsyncStub
    erasures: erase_service_pb2_grpc.EraseServiceAsyncStub
    indexes: index_service_pb2_grpc.IndexServiceAsyncStub
    settings: settings_service_pb2_grpc.SettingsServiceAsyncStub
    tools: tool_service_pb2_grpc.ToolServiceAsyncStub
    queries: query_service_pb2_grpc.QueryServiceAsyncStub
    access: access_service_pb2_grpc.AccessServiceAsyncStub
    audit: audit_service_pb2_grpc.AuditServiceAsyncStub

    @classmethod
    def over(cls, channel: aio.Channel) -> Self:
        """The stubs over one channel."""
        stubs: tuple[Any, ...] = (
            workspace_service_pb2_grpc.WorkspaceServiceStub(channel),
            session_service_pb2_grpc.SessionServiceStub(channel),
            node_service_pb2_grpc.NodeServiceStub(channel),
            view_service_pb2_grpc.ViewServiceStub(channel),
            history_service_pb2_grpc.HistoryServiceStub(channel),
            maintenance_service_pb2_grpc.MaintenanceServiceStub(channel),
            job_service_pb2_grpc.JobServiceStub(channel),
            forest_service_pb2_grpc.ForestServiceStub(channel),
            review_service_pb2_grpc.ReviewServiceStub(channel),
            erase_service_pb2_grpc.EraseServiceStub(channel),
            index_service_pb2_grpc.IndexServiceStub(channel),
            settings_service_pb2_grpc.SettingsServiceStub(channel),
            tool_service_pb2_grpc.ToolServiceStub(channel),
            query_service_pb2_grpc.QueryServiceStub(channel),
            access_service_pb2_grpc.AccessServiceStub(channel),
            audit_service_pb2_grpc.AuditServiceStub(channel),
        )
        return cls(*stubs)


class Calls(AsyncJobs, AsyncTools, AsyncAccess, AsyncAudit):
    """Calls to the server as a whole, over any transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def workspace(self, name: str) -> AsyncWorkspace:
        """The workspace of that name or id; makes no call to the server."""
        return AsyncWorkspace(self._transport, name)

    async def create_workspace(
        self, name: str, description: str = "", *, exist_ok: bool = False, request_id: str = ""
    ) -> WorkspaceInfo:
        """Creates a workspace with an empty first commit on its branch ``main``.

        Args:
            name: Its name.
            description: What it is for.
            exist_ok: Whether a workspace of that name may exist already; then it is returned as it is.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = workspaces.CreateWorkspaceRequest(name=name, description=description, request_id=request_id)
        try:
            created = await self._transport.call(request, workspaces.CreateWorkspaceResponse)
        except AlreadyExistsError:
            if not exist_ok:
                raise
            return await self.workspace(name).info()
        return WorkspaceInfo.from_wire(created.workspace)

    def workspaces(self) -> AsyncIterator[WorkspaceInfo]:
        """The workspaces, ordered by name."""
        request = workspaces.ListWorkspacesRequest(page_size=MOST_PER_PAGE)
        return pages(
            self._transport,
            request,
            workspaces.ListWorkspacesResponse,
            lambda page: map(WorkspaceInfo.from_wire, page.workspaces),
        )

    async def status(self) -> ServerStatus:
        """Versions, stores, counts and limits of the server."""
        return ServerStatus.from_wire(
            await self._transport.call(maintenance.GetStatusRequest(), maintenance.GetStatusResponse)
        )

    async def reload_settings(self) -> tuple[ChangedSetting, ...]:
        """Makes the server read its settings file again; returns what differs from before.

        What can change while the server runs takes effect at once. If something is wrong with the settings, nothing
        changes, and the error has every fault with its place.
        """
        answer = await self._transport.call(settings.ReloadSettingsRequest(), settings.ReloadSettingsResponse)
        return tuple(map(ChangedSetting.from_wire, answer.changed))

    async def change_embedding(self, model: str, *, dimensions: int = 0, request_id: str = "") -> Job:
        """Makes an index with another embedding model beside the present one, as a job, and switches to it at its end.

        Args:
            model: ``wordllama-l2``, ``all-minilm-l6-v2``, ``use-multilingual-3``, or the model that the settings name
                with a URL.
            dimensions: The length of its vectors; its own if 0.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = indexes.ChangeEmbeddingRequest(model=model, dimensions=dimensions, request_id=request_id)
        return Job.from_wire((await self._transport.call(request, indexes.ChangeEmbeddingResponse)).job)

    async def back_up(self, *, since: bytes = b"") -> AsyncIterator[bytes]:
        """Yields a backup of all workspaces, in chunks of one file; ``memotree restore`` reads it.

        Args:
            since: The file ``backup.json`` of an earlier backup, to get only what has changed since; restoring needs
                that backup too.
        """
        request = maintenance.BackUpRequest(since=since)
        async for answer in self._transport.stream(request, maintenance.BackUpResponse):
            yield answer.chunk

    async def close(self) -> None:
        """Closes the connection; running calls are cancelled."""
        await self._transport.close()


class AsyncClient(Calls):
    """A client of one server; it connects at its first call and belongs to the event loop of that call.

    Args:
        address: Host and port of the server.
        timeout: Seconds for one call with all its attempts.
        stream_timeout: Seconds for a streaming call (verify, rebuild).
        attempts: How often a repeatable call is tried while the server does not answer.
        on_warning: Called with each warning in an answer; ``None`` logs those that are not about a question.
        contract_names: Whether messages name the RPCs and fields of the contract, as the server sends them, instead of
            methods and arguments of Python; for programs with words of their own.
        key: An API key, for a server that needs one; that of ``MEMOTREE_API_KEY`` if ``None``.
        tls: Whether to use TLS, with the certificates that the system trusts; or a PEM file with those to trust; what
            ``MEMOTREE_TLS`` says if ``None``.
        certificate: A PEM file with the certificate that proves who calls, over TLS and without a key, and the key of
            that certificate; or two files, the second with its key; those of ``MEMOTREE_CERTIFICATE`` and
            ``MEMOTREE_CERTIFICATE_KEY`` if ``None``.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout: float = 30.0,
        stream_timeout: float = 3600.0,
        attempts: int = 5,
        on_warning: Callable[[str], None] | None = None,
        contract_names: bool = False,
        key: str | None = None,
        tls: bool | str | os.PathLike[str] | None = None,
        certificate: File | tuple[File, File] | None = None,
    ) -> None:
        settings = TransportSettings(
            timeout,
            stream_timeout,
            attempts,
            on_warning or log_warning,
            contract_names,
            api_key(key),
            credentials(tls, certificate),
        )
        self._aio_transport = AioTransport(address, settings)
        super().__init__(self._aio_transport)

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._aio_transport.address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    @cached_property
    def raw(self) -> AsyncRawStubs:
        """The generated stubs of all services, for calls that the client does not wrap."""
        return AsyncRawStubs.over(self._aio_transport.raw_channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
