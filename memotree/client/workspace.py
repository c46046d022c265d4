"""A workspace: its state on the default branch, its sessions, and checks of its stores."""

from collections.abc import AsyncIterator, Generator, Iterable
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from google.protobuf.duration_pb2 import Duration

from memotree.client import changes
from memotree.client.default_agent import default_agent
from memotree.client.erasing import AsyncErasures
from memotree.client.file_ingestion import AsyncFileIngestion
from memotree.client.forest import AsyncForestChanges
from memotree.client.history_values import Author
from memotree.client.jobs import AsyncRebuilds
from memotree.client.markdown_values import MarkdownImport
from memotree.client.memory import AsyncMemory
from memotree.client.paging import pages
from memotree.client.queries import AsyncConversations
from memotree.client.refs import AsyncRefs
from memotree.client.review import AsyncReviews
from memotree.client.revision import MOST_PER_PAGE, AsyncRevision
from memotree.client.session import AsyncSession
from memotree.client.transport import Transport
from memotree.client.workspace_values import CommittedChanges, Difference, Fault, Progress, SessionInfo, WorkspaceInfo
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import workspace_service_pb2 as workspaces


class OpeningSession:
    """A session to be opened: ``await`` it, or use it with ``async with``."""

    def __init__(self, transport: Transport, request: sessions.OpenSessionRequest) -> None:
        self._transport = transport
        self._request = request
        self._opened: AsyncSession | None = None

    async def _open(self) -> AsyncSession:
        answer = await self._transport.call(self._request, sessions.OpenSessionResponse)
        return AsyncSession(self._transport, self._request.workspace, answer.session.id)

    def __await__(self) -> Generator[None, None, AsyncSession]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


class AsyncWorkspace(
    AsyncRevision,
    AsyncMemory,
    AsyncForestChanges,
    AsyncFileIngestion,
    AsyncRebuilds,
    AsyncRefs,
    AsyncReviews,
    AsyncErasures,
    AsyncConversations,
):
    """One workspace; its own reads see the current default branch. Creating the object makes no call to the server."""

    def __init__(self, transport: Transport, name: str) -> None:
        super().__init__(transport, name)

    @property
    def name(self) -> str:
        """The name or id that was given."""
        return self._workspace

    def at(self, revision: str) -> AsyncRevision:
        """The workspace at a branch, tag, commit or session."""
        return AsyncRevision(self._transport, self._workspace, revision)

    async def info(self) -> WorkspaceInfo:
        """The server's data about the workspace."""
        request = workspaces.GetWorkspaceRequest(workspace=self._workspace)
        return WorkspaceInfo.from_wire((await self._transport.call(request, workspaces.GetWorkspaceResponse)).workspace)

    async def change(self, *, name: str | None = None, description: str | None = None) -> WorkspaceInfo:
        """Changes its name or description; ``None`` leaves a field unchanged. This object then uses the new name."""
        request = workspaces.UpdateWorkspaceRequest(workspace=self._workspace, name=name, description=description)
        answer = await self._transport.call(request, workspaces.UpdateWorkspaceResponse)
        if name is not None:
            self._workspace = answer.workspace.name
        return WorkspaceInfo.from_wire(answer.workspace)

    async def remove(self, *, confirm_name: str) -> str:
        """Deletes the workspace; ``confirm_name`` must be its name. Returns where its repository was moved to."""
        request = workspaces.DeleteWorkspaceRequest(workspace=self._workspace, confirm_name=confirm_name)
        return (await self._transport.call(request, workspaces.DeleteWorkspaceResponse)).trash

    def session(
        self, *, agent: str = "", branch: str = "", ttl: timedelta | None = None, request_id: str = ""
    ) -> OpeningSession:
        """Opens a session at the head of ``branch`` (the default branch if empty).

        Args:
            agent: The agent that works in it, and the author of its commits; ``MEMOTREE_AGENT``, else your
                login name, if empty.
            branch: The branch it commits to.
            ttl: Idle time after which it expires; the server's setting (7 days) if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        lifetime = None
        if ttl is not None:
            lifetime = Duration()
            lifetime.FromTimedelta(ttl)
        request = sessions.OpenSessionRequest(
            workspace=self._workspace, branch=branch, agent=agent, ttl=lifetime, request_id=request_id
        )
        return OpeningSession(self._transport, request)

    async def commit(
        self,
        batch: Iterable[changes.Change],
        *,
        message: str = "",
        branch: str = "",
        agent: str = "",
        note: str = "",
        request_id: str = "",
    ) -> CommittedChanges:
        """Makes and commits up to 1000 changes by one call, all or none, without a session.

        They are made at the head of the branch, in the given order; a later one may use a node that an earlier one
        creates. Create them with ``memotree.client.changes``.

        Args:
            batch: The changes.
            message: The commit message; made from the titles of the nodes if empty.
            branch: The branch; the default branch if empty.
            agent: Who commits, the author of the commit; ``MEMOTREE_AGENT``, else your login name, if empty.
            note: The reason, for changes without one.
            request_id: Makes the call safe to repeat; the client chooses one for its own retries if empty.
        """
        request = nodes.BatchChangeNodesRequest(
            workspace=self._workspace,
            changes=[changes.in_batch(change) for change in batch],
            commit_message=note,
            request_id=request_id,
            commit=nodes.CommitAtOnce(branch=branch, agent=agent or default_agent(), message=message),
        )
        return CommittedChanges.from_wire(await self._transport.call(request, nodes.BatchChangeNodesResponse))

    async def import_markdown(
        self,
        folder: str | Path,
        *,
        branch: str = "",
        archive: str = "",
        file_format: str = "",
        delete: bool = False,
        overwrite: bool = False,
        preview: bool = False,
        keep_conflicts: bool = False,
        message: str = "",
        agent: str = "",
        author: Author | None = None,
        refresh: bool = True,
    ) -> MarkdownImport:
        """Imports a folder of Markdown files: an export that was edited, or notes of another program.

        Edits of an export are made at the commit that it shows and merged into the branch, so what was committed
        meanwhile stays. Files with an id are the nodes that they were; others are new ones.

        Args:
            folder: The folder, or an agent file of Letta.
            branch: The branch that gets the commit; the default branch if empty.
            archive: For notes of another program: the archive that gets them; named like the folder if empty.
            file_format: ``export``, ``plain``, ``basic-memory`` or ``letta``; detected if empty.
            delete: Whether nodes whose files are gone are deleted; they stay otherwise.
            overwrite: For notes of another program: whether a file replaces a node that was changed as well.
            preview: Tells only what would change; nothing is written.
            keep_conflicts: Whether a merge that ends in conflicts is kept in a session, to be resolved there.
            message: The commit message; one that names the folder if empty.
            agent: Who imports; ``MEMOTREE_AGENT``, else your login name, if empty.
            author: The author of the commit; the agent if ``None``.
            refresh: Whether an export is written again afterwards, at the new commit: new notes get their ids.

        Raises:
            MarkdownFolderError: Files cannot be read; ``violations`` has each with its line. Nothing was changed.
            AbortedError: The branch has changed the same since; ``conflicts`` lists it. Nothing was changed.
        """
        from memotree.client.markdown.importing import ImportOptions, import_from  # noqa: PLC0415 - few programs import

        options = ImportOptions(
            branch, archive, file_format, delete, overwrite, preview, keep_conflicts, message, agent, author, refresh
        )
        return await import_from(self, self._transport, Path(folder), options)

    def resume(self, session_id: str) -> AsyncSession:
        """Continues a session that is open already; makes no call to the server."""
        return AsyncSession(self._transport, self._workspace, session_id)

    def sessions(self, *, include_closed: bool = False) -> AsyncIterator[SessionInfo]:
        """The sessions, the most recently used first."""
        request = sessions.ListSessionsRequest(
            workspace=self._workspace, include_closed=include_closed, page_size=MOST_PER_PAGE
        )
        return pages(
            self._transport,
            request,
            sessions.ListSessionsResponse,
            lambda page: map(SessionInfo.from_wire, page.sessions),
        )

    async def verify(self) -> AsyncIterator[Progress | Difference]:
        """Compares Git, PostgreSQL and Qdrant; yields each difference as it is found, and progress in between."""
        request = maintenance.VerifyWorkspaceRequest(workspace=self._workspace)
        async for event in self._transport.stream(request, maintenance.VerifyWorkspaceResponse):
            if event.HasField("difference"):
                yield Difference.from_wire(event.difference)
            else:
                yield Progress.from_wire(event.progress)

    async def check_push(self, commit_id: str, *, old_commit_id: str = "") -> list[Fault]:
        """The faults that a branch would get by a commit that git has received; at most 100.

        Args:
            commit_id: The whole id of the commit.
            old_commit_id: The whole id of the commit at which the branch is; "" for a new branch.
        """
        request = maintenance.CheckPushRequest(
            workspace=self._workspace, commit_id=commit_id, old_commit_id=old_commit_id
        )
        answer = await self._transport.call(request, maintenance.CheckPushResponse)
        return list(map(Fault.from_wire, answer.faults))

    async def rebuild(self) -> AsyncIterator[Progress]:
        """Rebuilds the rows and vectors of the workspace from Git and yields progress; staged changes stay."""
        request = maintenance.RebuildWorkspaceRequest(workspace=self._workspace)
        async for event in self._transport.stream(request, maintenance.RebuildWorkspaceResponse):
            yield Progress.from_wire(event.progress)
