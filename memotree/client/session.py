"""A working session: reads its own state, stages changes and commits them."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from google.protobuf.message import Message

from memotree.client import changes
from memotree.client.conflicts import Conflict, Resolution
from memotree.client.enums import ConflictSide, ConflictSideName, MergeStyle, to_wire
from memotree.client.errors import AlreadyExistsError
from memotree.client.history_values import Author, ChangeSelection, StagedMerge
from memotree.client.node_values import Archive, ArchiveRef, Node, NodeRef, archive_id, node_id
from memotree.client.paging import pages
from memotree.client.revision import MOST_PER_PAGE, AsyncRevision
from memotree.client.signatures import described, name_methods
from memotree.client.transport import Transport
from memotree.client.workspace_values import ChangeResult, CommitResult, MergeResult, SessionInfo, StagedChange
from memotree.v1 import history_service_pb2 as history
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import workspace_service_pb2 as workspaces

P = ParamSpec("P")
T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)


def _staged(
    describe: Callable[P, RequestT], answer: type[AnswerT], read: Callable[[AnswerT], T], returns: str = "Node"
) -> Callable[Concatenate["AsyncSession", P], Coroutine[None, None, T]]:
    """A method that stages the change from ``describe``; so single changes and batches share one signature."""

    @wraps(describe)
    async def stage(self: "AsyncSession", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return read(await self._stage(describe(*args, **kwargs), answer))

    return described(stage, describe, returns, adds_self=True)


class AsyncSession(AsyncRevision):
    """An open working session: its reads see its staged changes; nobody else does before ``commit``.

    As a context manager it is discarded at the end if nothing is staged. Staged changes are never dropped silently:
    continue such a session with ``workspace.resume(session.id)``.
    """

    def __init__(self, transport: Transport, workspace: str, session_id: str) -> None:
        super().__init__(transport, workspace, session_id)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._revision

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and (info := await self.info()).change_count == 0 and info.state == "OPEN":
            await self.discard()

    async def _stage(self, request: Message, answer: type[AnswerT]) -> AnswerT:
        """Sends a change after filling in its workspace and session."""
        request.workspace = self._workspace  # type: ignore[attr-defined] # every change of the contract has both
        request.session_id = self.id  # type: ignore[attr-defined]
        return await self._transport.call(request, answer)

    create = _staged(changes.create, nodes.CreateNodeResponse, lambda answer: Node.from_wire(answer.node))
    update = _staged(changes.update, nodes.UpdateNodeResponse, lambda answer: Node.from_wire(answer.node))
    move = _staged(changes.move, nodes.MoveNodeResponse, lambda answer: Node.from_wire(answer.node))
    delete = _staged(
        changes.delete, nodes.DeleteNodeResponse, lambda answer: tuple(answer.deleted_ids), "tuple[str, ...]"
    )
    relate = _staged(changes.relate, nodes.AddRelationResponse, lambda answer: Node.from_wire(answer.node))
    unrelate = _staged(changes.unrelate, nodes.RemoveRelationResponse, lambda answer: Node.from_wire(answer.node))

    async def split(
        self,
        node: NodeRef,
        parts: Iterable[tuple[str, str]],
        *,
        as_children: bool = False,
        etag: str = "",
        message: str = "",
    ) -> tuple[Node, ...]:
        """Stages the split of ``node`` into ``parts``, each a title and a content; the node keeps the first part.

        The others become its next siblings, or with ``as_children`` its children.
        """
        request = nodes.SplitNodeRequest(
            node_id=node_id(node),
            parts=[nodes.SplitPart(title=title, content=content) for title, content in parts],
            as_children=as_children,
            commit_message=message,
            etag=etag,
        )
        answer = await self._stage(request, nodes.SplitNodeResponse)
        return tuple(Node.from_wire(part) for part in answer.nodes)

    async def merge(self, merged: Iterable[NodeRef], *, title: str | None = None, message: str = "") -> MergeResult:
        """Stages the merge of two or more nodes into the first, in the given order."""
        request = nodes.MergeNodesRequest(
            node_ids=[node_id(node) for node in merged], title=title, commit_message=message
        )
        return MergeResult.from_wire(await self._stage(request, nodes.MergeNodesResponse))

    async def apply(
        self, batch: Iterable[changes.Change], *, message: str = "", request_id: str = ""
    ) -> tuple[ChangeResult, ...]:
        """Stages up to 1000 changes, all or none, in the given order; create them with ``memotree.client.changes``."""
        request = nodes.BatchChangeNodesRequest(
            changes=[changes.in_batch(change) for change in batch], commit_message=message, request_id=request_id
        )
        answer = await self._stage(request, nodes.BatchChangeNodesResponse)
        return tuple(ChangeResult.from_wire(result) for result in answer.results)

    async def create_archive(
        self, name: str, *, model_id: str = "", description: str = "", archive: str = "", exist_ok: bool = False
    ) -> Archive:
        """Stages a new archive.

        Args:
            name: Its name, unique in the workspace.
            model_id: The agent or model that it belongs to.
            description: What it is for.
            archive: An id of your choice, or empty for a new one.
            exist_ok: Whether an archive of that name may exist already; then it is returned as it is.
        """
        request = workspaces.CreateArchiveRequest(
            name=name, model_id=model_id, description=description, archive_id=archive
        )
        try:
            return Archive.from_wire((await self._stage(request, workspaces.CreateArchiveResponse)).archive)
        except AlreadyExistsError:
            if not exist_ok:
                raise
        return await self.archive(name)

    async def update_archive(
        self,
        archive: ArchiveRef,
        *,
        name: str | None = None,
        model_id: str | None = None,
        description: str | None = None,
        etag: str = "",
    ) -> Archive:
        """Stages a new name, model or description of an archive; ``None`` leaves a field unchanged."""
        request = workspaces.UpdateArchiveRequest(
            archive=archive_id(archive), name=name, model_id=model_id, description=description, etag=etag
        )
        return Archive.from_wire((await self._stage(request, workspaces.UpdateArchiveResponse)).archive)

    async def delete_archive(self, archive: ArchiveRef, *, etag: str = "") -> int:
        """Stages the deletion of an archive with all its nodes; returns how many nodes are deleted."""
        request = workspaces.DeleteArchiveRequest(archive=archive_id(archive), etag=etag)
        return (await self._stage(request, workspaces.DeleteArchiveResponse)).deleted_nodes

    async def info(self) -> SessionInfo:
        """The current state of the session."""
        request = sessions.GetSessionRequest(workspace=self._workspace, session_id=self.id)
        return SessionInfo.from_wire((await self._transport.call(request, sessions.GetSessionResponse)).session)

    def changes(self) -> AsyncIterator[StagedChange]:
        """The staged changes, ordered by node."""
        request = sessions.ListChangesRequest(workspace=self._workspace, session_id=self.id, page_size=MOST_PER_PAGE)
        return pages(
            self._transport,
            request,
            sessions.ListChangesResponse,
            lambda page: map(StagedChange.from_wire, page.changes),
        )

    async def discard_changes(self, forgotten: Iterable[NodeRef]) -> SessionInfo:
        """Discards the staged changes of these nodes (or archives) and keeps the session open."""
        request = sessions.DiscardChangesRequest(node_ids=[node_id(node) for node in forgotten])
        return SessionInfo.from_wire((await self._stage(request, sessions.DiscardChangesResponse)).session)

    async def discard(self) -> SessionInfo:
        """Discards all staged changes and closes the session."""
        answer = await self._stage(sessions.DiscardSessionRequest(), sessions.DiscardSessionResponse)
        return SessionInfo.from_wire(answer.session)

    async def rebase(self, *, keep_conflicts: bool = False) -> SessionInfo:
        """Moves the session's base to the head of its branch, merging each staged change per field.

        Args:
            keep_conflicts: Whether to do so also if there are conflicts: `conflicts` lists them, `resolve` ends them.

        Raises:
            AbortedError: Some changes cannot be merged; ``conflicts`` lists them, and nothing is changed.
        """
        request = sessions.RebaseSessionRequest(keep_conflicts=keep_conflicts)
        answer = await self._stage(request, sessions.RebaseSessionResponse)
        return SessionInfo.from_wire(answer.session)

    def conflicts(self) -> AsyncIterator[Conflict]:
        """The conflicts that are not resolved, ordered by node, each whole; "ours" is what the session has now."""
        request = sessions.ListConflictsRequest(workspace=self._workspace, session_id=self.id, page_size=MOST_PER_PAGE)
        return pages(
            self._transport,
            request,
            sessions.ListConflictsResponse,
            lambda page: map(Conflict.from_wire, page.conflicts),
        )

    async def resolve(
        self,
        resolutions: Iterable[Resolution] = (),
        *,
        others: ConflictSideName | None = None,
        message: str = "",
        request_id: str = "",
    ) -> SessionInfo:
        """Resolves conflicts; all of the call, or none. ``conflict_count`` of the result tells how many are left.

        Args:
            resolutions: What to choose for some conflicts, at most 1000.
            others: The side to take for all other conflicts; they stay if ``None``.
            message: The reason, for the body of the commit.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = sessions.ResolveConflictsRequest(
            resolutions=[resolution.to_wire() for resolution in resolutions],
            others=to_wire(ConflictSide, others),
            commit_message=message,
            request_id=request_id,
        )
        return SessionInfo.from_wire((await self._stage(request, sessions.ResolveConflictsResponse)).session)

    async def merge_branch(
        self, source: str, *, squash: bool = False, only: ChangeSelection | None = None, request_id: str = ""
    ) -> StagedMerge:
        """Stages the merge of a branch, tag or commit; ``commit`` then makes the merge commit.

        Conflicts wait in the session: `conflicts` lists them, and `resolve` ends them.

        Args:
            source: What is merged.
            squash: Whether the commit shall not have the other side as its second parent.
            only: Which changes are brought; then the commit has one parent. All if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = history.MergeBranchRequest(
            source=source,
            style=to_wire(MergeStyle, MergeStyle.SQUASH if squash or only else MergeStyle.COMMIT),
            only=only.to_wire() if only else None,
            request_id=request_id,
        )
        return StagedMerge.from_wire(await self._stage(request, history.MergeBranchResponse))

    async def revert(
        self, commit: str, *, parent_number: int = 0, only: ChangeSelection | None = None, request_id: str = ""
    ) -> StagedMerge:
        """Stages what takes back the changes of a commit; conflicts wait in the session.

        Args:
            commit: The commit, or what names it: a unique prefix, a tag or a branch.
            parent_number: For a merge: the parent that its changes are counted from.
            only: Which of its changes are meant; all if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = history.RevertCommitRequest(
            revision=commit,
            parent_number=parent_number,
            only=only.to_wire() if only else None,
            request_id=request_id,
        )
        return StagedMerge.from_wire(await self._stage(request, history.RevertCommitResponse))

    async def cherry_pick(
        self, commit: str, *, parent_number: int = 0, only: ChangeSelection | None = None, request_id: str = ""
    ) -> StagedMerge:
        """Stages what a commit changed elsewhere; conflicts wait in the session.

        Args:
            commit: The commit, or what names it: a unique prefix, a tag or a branch.
            parent_number: For a merge: the parent that its changes are counted from.
            only: Which of its changes are meant; all if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = history.CherryPickRequest(
            revision=commit,
            parent_number=parent_number,
            only=only.to_wire() if only else None,
            request_id=request_id,
        )
        return StagedMerge.from_wire(await self._stage(request, history.CherryPickResponse))

    async def restore_nodes(
        self,
        nodes: Iterable[NodeRef],
        revision: str,
        *,
        recursive: bool = False,
        delete_others: bool = False,
        request_id: str = "",
    ) -> StagedMerge:
        """Stages what sets nodes and archives to what they were at a revision; conflicts wait in the session.

        Args:
            nodes: The nodes or archives.
            revision: The commit (or what names it) at which they are as wanted.
            recursive: Whether all that stood below them there is restored, too.
            delete_others: Whether what stands below them now, but did not there, is deleted.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = history.RestoreNodesRequest(
            node_ids=[node_id(node) for node in nodes],
            revision=revision,
            recursive=recursive,
            delete_others=delete_others,
            request_id=request_id,
        )
        return StagedMerge.from_wire(await self._stage(request, history.RestoreNodesResponse))

    async def commit(
        self,
        message: str,
        *,
        tag: str | None = None,
        nodes: Iterable[NodeRef] = (),
        author: Author | None = None,
        renew_summaries: bool = False,
        request_id: str = "",
    ) -> CommitResult:
        """Makes one Git commit of the session's changes, and an annotated tag if ``tag`` is given.

        After an error other than ABORTED, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS and FAILED_PRECONDITION the
        commit may or may not exist. Repeat the call with the same ``request_id`` to find out; it never makes a second
        commit.

        Args:
            message: The commit message; its first line is the subject.
            tag: The name of the tag; no tag if ``None``.
            nodes: Only these nodes (or archives); all if empty. The rest stays staged.
            author: The author of the commit; the session's agent if ``None``.
            renew_summaries: Whether the chat model renews the summaries above these changes within the commit.
                Otherwise the built-in method does, and the model renews them in the background.
            request_id: An id of your choice for this commit; a new one if empty.
        """
        request = sessions.CommitChangesRequest(
            message=message,
            specific_nodes=[node_id(node) for node in nodes],
            create_tag=tag is not None,
            tag_name=tag or "",
            author=author.to_wire() if author else None,
            renew_summaries=renew_summaries,
            request_id=request_id,
        )
        return CommitResult.from_wire(await self._stage(request, sessions.CommitChangesResponse))


name_methods(AsyncSession)
