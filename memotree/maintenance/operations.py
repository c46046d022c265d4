"""The maintenance operations: status, verify, rebuild and backup."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import aclosing
from importlib.metadata import version
from typing import Final

import structlog
from memotree_storage.backup.writing import write_backup
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import AbortedError, FieldViolation, InvalidInputError, UnavailableError
from memotree_storage.git.backup_list import BackupDamagedError, BackupList, parse_list
from memotree_storage.maintenance.remote_copies import RemoteCopies
from memotree_storage.model.tokens import COUNTER_NAME
from memotree_storage.ports import Embedder
from memotree_storage.postgres import misplaced, registry
from memotree_storage.store import Store
from memotree_storage.verify import Difference, Step, verify

from memotree.maintenance.faults import check_push, list_faults
from memotree.maintenance.health import statuses
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import timestamp
from memotree.request.pages import PageTokens
from memotree.request.principal import Role, principal
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import maintenance_service_pb2 as pb

_CHECKS: Final = 2
"""Pushes that are checked at once, since each may change as much as a workspace has; others wait."""

_log = structlog.get_logger(__name__)


class RebuildRunningError(AbortedError):
    """A rebuild of the workspace is running already."""

    reason = "REBUILD_RUNNING"


class MaintenanceOperations:
    """Reports the state of the stores, compares them, and rebuilds the mirrors.

    Args:
        store: The store.
        pages: Makes and reads page tokens.
        limits: What the service allows.
        about_embedding: Returns what to do if the settings name another embedding model than the given one.
        max_message_bytes: The most bytes a message may have.
        embedded: Which of ``postgres`` and ``qdrant`` the server runs itself.
        copies: The copies on Git remotes, if there are any.
        plugin_faults: Returns what is wrong with plugins, by the name of each.
    """

    def __init__(
        self,
        store: Store,
        pages: PageTokens,
        limits: ServiceLimits,
        about_embedding: Callable[[Embedder], str] = lambda _: "",
        *,
        max_message_bytes: int = 0,
        embedded: Collection[str] = (),
        copies: RemoteCopies | None = None,
        plugin_faults: Callable[[], Iterable[tuple[str, str]]] = lambda: (),
    ) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits
        self._about_embedding = about_embedding
        self._max_message_bytes = max_message_bytes
        self._embedded = frozenset(embedded)
        self._copies = copies
        self._plugin_faults = plugin_faults
        self._checking = asyncio.Semaphore(_CHECKS)
        self._asking: asyncio.Task[list[pb.StoreStatus]] | None = None
        self._rebuilding: dict[str, asyncio.Task[None]] = {}
        self._taking_in: dict[str, asyncio.Task[None]] = {}

    async def get_status(self, request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        """Versions, stores, counts and limits; a store that does not answer is reported as unhealthy."""
        del request
        stores = await statuses(self._store, self._embedded)
        who = principal()
        ids = await in_store_thread(self._store.repositories.ids)  # Git knows them in an outage too
        workspaces = [workspace_id for workspace_id in ids if who.reads(workspace_id)]
        return pb.GetStatusResponse(
            version=version("memotree"),
            stores=stores,
            workspace_count=len(workspaces),
            embedding_model=self._store.embedder.model,
            embedding_dimensions=self._store.embedder.dimensions,
            embedding_notice=self._about_embedding(self._store.embedder),
            token_counter=COUNTER_NAME,
            max_content_bytes=self._limits.node.content_bytes,
            max_depth=self._limits.max_depth,
            max_message_bytes=self._max_message_bytes,
            set_aside=[
                pb.SetAsideWorkspace(workspace_id=workspace_id, reason=reason)
                for workspace_id, reason in sorted(self._store.set_aside.items())
                if workspace_id in workspaces
            ],
            index_backlog=await self._backlog() if stores[1].healthy else 0,
            faults=[each for each in await self._faults() if who.reads(each.workspace_id)] if stores[1].healthy else [],
            git_remote_url=self._copies.template if self._copies is not None and who.server_role >= Role.ADMIN else "",
            copies_behind=[each for each in self._behind() if who.reads(each.workspace_id)],
            signing_key="" if (signer := self._store.repositories.signer) is None else signer.fingerprint,
            plugin_faults=[pb.PluginFault(plugin=name, reason=reason) for name, reason in self._plugin_faults()],
        )

    def _behind(self) -> list[pb.BehindCopy]:
        found = self._copies.behind() if self._copies is not None else []
        return [
            pb.BehindCopy(workspace_id=each.workspace_id, since=timestamp(each.since), reason=each.why)
            for each in found
        ]

    async def silent_stores(self) -> dict[str, str]:
        """The stores that do not answer now, each with the reason. Callers that ask at once share one answer."""
        if self._asking is None:
            self._asking = asyncio.create_task(statuses(self._store, self._embedded))
            self._asking.add_done_callback(self._asked)
        found = await asyncio.shield(self._asking)
        return {store.name: store.detail for store in found if not store.healthy}

    def _asked(self, _task: object) -> None:
        self._asking = None

    async def verify_workspace(self, request: pb.VerifyWorkspaceRequest) -> AsyncIterator[pb.VerifyWorkspaceResponse]:
        """Stream every difference between the stores, with progress events in between."""
        workspace_id = await self._workspace(request.workspace)
        async with aclosing(verify(self._store, workspace_id)) as events:
            async for event in events:
                yield _event(event)

    async def list_faults(self, request: pb.ListFaultsRequest) -> pb.ListFaultsResponse:
        """What other programs committed that stands nowhere or cannot be read, at a revision.

        What was pushed meanwhile is mirrored first.
        """
        if not request.page_token:
            await self._take_in(await self._workspace(request.workspace))
        return await list_faults(self._store, self._pages, request)

    async def check_push(self, request: pb.CheckPushRequest) -> pb.CheckPushResponse:
        """The faults that a branch would get by a commit that git has received."""
        workspace_id = await self._workspace(request.workspace)
        await self._take_in(workspace_id)
        async with self._checking:
            return await check_push(self._store, workspace_id, request)

    async def _take_in(self, workspace_id: str) -> None:
        """Mirror what was pushed; it goes on if the caller leaves, so that a long push is taken in once."""
        task = self._taking_in.get(workspace_id)
        if task is None:
            task = asyncio.create_task(mirror_pushed(self._store, workspace_id), name=f"take in {workspace_id}")
            self._taking_in[workspace_id] = task
            task.add_done_callback(lambda done: self._taken_in(workspace_id, done))
        await asyncio.shield(task)

    def _taken_in(self, workspace_id: str, task: "asyncio.Task[None]") -> None:
        del self._taking_in[workspace_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("a push was not taken in", workspace=workspace_id, why=str(error))

    async def rebuild_workspace(
        self, request: pb.RebuildWorkspaceRequest
    ) -> AsyncIterator[pb.RebuildWorkspaceResponse]:
        """Rebuild the rows and points of a workspace, and stream the progress.

        The rebuild continues if the caller disconnects, so that the workspace is not left without its mirror.
        """
        workspace_id = await self._workspace(request.workspace)
        if workspace_id in self._rebuilding:
            raise RebuildRunningError("A rebuild of this workspace is running already. Wait until it ends.")
        reported: asyncio.Queue[pb.Progress] = asyncio.Queue()

        def report(step: str, done: int, total: int) -> None:
            reported.put_nowait(pb.Progress(step=step, done=done, total=total))

        task = asyncio.create_task(self._store.rebuild(workspace_id, report), name=f"rebuild {workspace_id}")
        self._rebuilding[workspace_id] = task
        task.add_done_callback(lambda done: self._rebuilt(workspace_id, done))
        while True:
            waiting = asyncio.create_task(reported.get())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                break
            yield pb.RebuildWorkspaceResponse(progress=waiting.result())
        await task

    async def back_up(self, request: pb.BackUpRequest) -> AsyncIterator[pb.BackUpResponse]:
        """Stream a backup of all workspaces; commits go on meanwhile."""
        since = await in_store_thread(_list_of_earlier, request.since) if request.since else None
        async with aclosing(write_backup(self._store, version("memotree"), since)) as chunks:
            async for chunk in chunks:
                if chunk:
                    yield pb.BackUpResponse(chunk=chunk)

    async def finish(self) -> None:
        """Wait for rebuilds that still run after their caller disconnected; part of a graceful stop."""
        if self._rebuilding:
            await asyncio.wait(list(self._rebuilding.values()))

    def _rebuilt(self, workspace_id: str, task: asyncio.Task[None]) -> None:
        del self._rebuilding[workspace_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a rebuild failed; the next start completes it", workspace=workspace_id, error=str(error))

    async def _workspace(self, name: str) -> str:
        async with self._store.database.connection() as conn:
            return (await registry.find_workspace(conn, lookup.needed("workspace", name))).workspace_id

    async def _backlog(self) -> int:
        try:
            return await self._store.indexer.backlog()
        except UnavailableError:
            return 0  # it stopped answering after the health check; the next status call reports it

    async def _faults(self) -> list[pb.WorkspaceFaults]:
        try:
            async with self._store.database.connection() as conn:
                counted = await misplaced.counts(conn)
        except UnavailableError:
            return []
        return [pb.WorkspaceFaults(workspace_id=each, count=count) for each, count in sorted(counted.items())]


def _list_of_earlier(text: bytes) -> BackupList:
    try:
        return parse_list(text)
    except BackupDamagedError as error:
        fault = "give the whole file backup.json of an earlier backup, byte for byte"
        raise InvalidInputError(f"since: {fault}.", [FieldViolation("since", fault)]) from error


def _event(event: Difference | Step) -> pb.VerifyWorkspaceResponse:
    if isinstance(event, Step):
        return pb.VerifyWorkspaceResponse(progress=pb.Progress(step=event.name, done=event.done, total=event.total))
    return pb.VerifyWorkspaceResponse(
        difference=pb.Difference(
            store=event.store,
            what=event.what,
            commit_id=event.commit_id,
            node_id=event.node_id,
            description=event.description,
        )
    )
