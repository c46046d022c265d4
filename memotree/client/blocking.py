"""The client for programs without an event loop: the same classes, whose calls block until the answer arrives.

No code is written twice: a blocking object wraps its asynchronous twin over a ``BlockingTransport``, whose coroutines
never suspend, and each method runs the twin's coroutine to its end. Signatures and docstrings come from the twin.
"""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import grpc

from memotree.client.aio import Calls
from memotree.client.errors import MemoTreeClientError, without_library_frames
from memotree.client.keys import File, api_key, credentials
from memotree.client.revision import AsyncRevision
from memotree.client.session import AsyncSession
from memotree.client.signatures import described, name_methods
from memotree.client.transport import DEFAULT_ADDRESS, BlockingTransport, TransportSettings, log_warning
from memotree.client.typed import refused
from memotree.client.view import AsyncView
from memotree.client.workspace import AsyncWorkspace, OpeningSession
from memotree.v1 import (
    access_service_pb2_grpc,
    audit_service_pb2_grpc,
    erase_service_pb2_grpc,
    forest_service_pb2_grpc,
    history_service_pb2_grpc,
    index_service_pb2_grpc,
    job_service_pb2_grpc,
    maintenance_service_pb2_grpc,
    memory_service_pb2_grpc,
    node_service_pb2_grpc,
    query_service_pb2_grpc,
    review_service_pb2_grpc,
    session_service_pb2_grpc,
    settings_service_pb2_grpc,
    tool_service_pb2_grpc,
    view_service_pb2_grpc,
    workspace_service_pb2_grpc,
)

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends to its end and returns its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("A blocking call tried to suspend: its transport needs an event loop.")


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that runs the twin's ``method`` to its end."""

    @wraps(method)
    def call(self: "_Twin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            coroutine = method(self._twin, *args, **kwargs)
        except TypeError as error:
            raise refused(error, method) from None
        try:
            return run(coroutine)
        except MemoTreeClientError as error:
            raise without_library_frames(error) from None

    return described(call, method)


def _iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """A method that iterates over the items of the twin's ``method``, which are fetched on demand."""

    @wraps(method)
    def iterate(self: "_Twin", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            items: Any = method(self._twin, *args, **kwargs)
        except TypeError as error:
            raise refused(error, method) from None
        try:
            while True:
                try:
                    item: T = run(items.__anext__())
                except StopAsyncIteration:
                    return
                except MemoTreeClientError as error:
                    raise without_library_frames(error) from None
                yield item
        finally:
            run(items.aclose())

    return described(iterate, method)


def _wrapped(
    method: Callable[Concatenate[Any, P], Any], blocking: Callable[[Any], T]
) -> Callable[Concatenate[Any, P], T]:
    """A method that returns the blocking form of the object that the twin's ``method`` returns."""

    @wraps(method)
    def wrap(self: "_Twin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return blocking(method(self._twin, *args, **kwargs))
        except MemoTreeClientError as error:
            raise without_library_frames(error) from None
        except TypeError as error:
            raise refused(error, method) from None

    return described(wrap, method)


class _Twin:
    """Holds the asynchronous twin."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name_methods(cls)

    def __init__(self, twin: Any) -> None:
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("<Async", "<", 1)


class View(_Twin):
    """A named map from nodes to levels of detail, belonging to a session or branch."""

    @property
    def name(self) -> str:
        """The name, unique within its session or branch."""
        return str(self._twin.name)

    expand = _blocking(AsyncView.expand)
    collapse = _blocking(AsyncView.collapse)
    render = _blocking(AsyncView.render)
    delete = _blocking(AsyncView.delete)


class Revision(_Twin):
    """A workspace at one revision: a branch, tag, commit or session; an empty revision is the default branch."""

    @property
    def revision(self) -> str:
        """The revision that names this state; empty for the default branch."""
        return str(self._twin.revision)

    node = _blocking(AsyncRevision.node)
    children = _iterating(AsyncRevision.children)
    tree = _blocking(AsyncRevision.tree)
    walk = _iterating(AsyncRevision.walk)
    named = _blocking(AsyncRevision.named)
    search = _blocking(AsyncRevision.search)
    archive = _blocking(AsyncRevision.archive)
    archives = _iterating(AsyncRevision.archives)
    faults = _iterating(AsyncRevision.faults)
    log = _iterating(AsyncRevision.log)
    revisions = _iterating(AsyncRevision.revisions)
    bisect = _iterating(AsyncRevision.bisect)
    bisect_answer = _blocking(AsyncRevision.bisect_answer)
    blame = _blocking(AsyncRevision.blame)
    show = _blocking(AsyncRevision.show)
    diff = _blocking(AsyncRevision.diff)
    view = _wrapped(AsyncRevision.view, View)
    views = _iterating(AsyncRevision.views)
    recall = _blocking(AsyncRevision.recall)
    drill_down = _blocking(AsyncRevision.drill_down)
    ask = _iterating(AsyncRevision.ask)
    query = _blocking(AsyncRevision.query)
    stream_query = _iterating(AsyncRevision.stream_query)
    plan_query = _blocking(AsyncRevision.plan_query)
    suggest_archive_merges = _blocking(AsyncRevision.suggest_archive_merges)
    stale_summaries = _blocking(AsyncRevision.stale_summaries)
    export_markdown = _blocking(AsyncRevision.export_markdown)


class Session(Revision):
    """An open working session: its reads see its staged changes; nobody else does before ``commit``.

    As a context manager it is discarded at the end if nothing is staged. Staged changes are never dropped silently:
    continue such a session with ``workspace.resume(session.id)``.
    """

    @property
    def id(self) -> str:
        """The id of the session."""
        return str(self._twin.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))

    create = _blocking(AsyncSession.create)
    update = _blocking(AsyncSession.update)
    move = _blocking(AsyncSession.move)
    # `delete` overrides nothing: a revision has no such method
    delete = _blocking(AsyncSession.delete)
    relate = _blocking(AsyncSession.relate)
    unrelate = _blocking(AsyncSession.unrelate)
    split = _blocking(AsyncSession.split)
    merge = _blocking(AsyncSession.merge)
    apply = _blocking(AsyncSession.apply)
    create_archive = _blocking(AsyncSession.create_archive)
    update_archive = _blocking(AsyncSession.update_archive)
    delete_archive = _blocking(AsyncSession.delete_archive)
    info = _blocking(AsyncSession.info)
    changes = _iterating(AsyncSession.changes)
    discard_changes = _blocking(AsyncSession.discard_changes)
    discard = _blocking(AsyncSession.discard)
    rebase = _blocking(AsyncSession.rebase)
    conflicts = _iterating(AsyncSession.conflicts)
    resolve = _blocking(AsyncSession.resolve)
    merge_branch = _blocking(AsyncSession.merge_branch)
    revert = _blocking(AsyncSession.revert)
    cherry_pick = _blocking(AsyncSession.cherry_pick)
    restore_nodes = _blocking(AsyncSession.restore_nodes)
    commit = _blocking(AsyncSession.commit)


def _opened(opening: OpeningSession) -> Session:
    return Session(run(opening._open()))  # noqa: SLF001 - the blocking form of awaiting it


class Workspace(Revision):
    """One workspace; its own reads see the current default branch. Creating the object makes no call to the server."""

    @property
    def name(self) -> str:
        """The name or id that was given."""
        return str(self._twin.name)

    at = _wrapped(AsyncWorkspace.at, Revision)
    remember = _blocking(AsyncWorkspace.remember)
    revise = _blocking(AsyncWorkspace.revise)
    forget = _blocking(AsyncWorkspace.forget)
    restore = _blocking(AsyncWorkspace.restore)
    apply = _blocking(AsyncWorkspace.apply)
    commit = _blocking(AsyncWorkspace.commit)
    import_markdown = _blocking(AsyncWorkspace.import_markdown)
    info = _blocking(AsyncWorkspace.info)
    change = _blocking(AsyncWorkspace.change)
    remove = _blocking(AsyncWorkspace.remove)
    session = _wrapped(AsyncWorkspace.session, _opened)
    resume = _wrapped(AsyncWorkspace.resume, Session)
    sessions = _iterating(AsyncWorkspace.sessions)
    branches = _iterating(AsyncWorkspace.branches)
    branch = _blocking(AsyncWorkspace.branch)
    delete_branch = _blocking(AsyncWorkspace.delete_branch)
    merge = _blocking(AsyncWorkspace.merge)
    preview_merge = _blocking(AsyncWorkspace.preview_merge)
    revert = _blocking(AsyncWorkspace.revert)
    cherry_pick = _blocking(AsyncWorkspace.cherry_pick)
    restore_nodes = _blocking(AsyncWorkspace.restore_nodes)
    tags = _iterating(AsyncWorkspace.tags)
    tag = _blocking(AsyncWorkspace.tag)
    delete_tag = _blocking(AsyncWorkspace.delete_tag)
    propose = _blocking(AsyncWorkspace.propose)
    proposal = _blocking(AsyncWorkspace.proposal)
    proposals = _iterating(AsyncWorkspace.proposals)
    change_proposal = _blocking(AsyncWorkspace.change_proposal)
    comment = _blocking(AsyncWorkspace.comment)
    approve = _blocking(AsyncWorkspace.approve)
    reject = _blocking(AsyncWorkspace.reject)
    merge_proposal = _blocking(AsyncWorkspace.merge_proposal)
    protect = _blocking(AsyncWorkspace.protect)
    unprotect = _blocking(AsyncWorkspace.unprotect)
    protections = _blocking(AsyncWorkspace.protections)
    set_push_policy = _blocking(AsyncWorkspace.set_push_policy)
    push_policy = _blocking(AsyncWorkspace.push_policy)
    check_push = _blocking(AsyncWorkspace.check_push)
    put_memory_tests = _blocking(AsyncWorkspace.put_memory_tests)
    check_memory = _iterating(AsyncWorkspace.check_memory)
    preview_erasure = _blocking(AsyncWorkspace.preview_erasure)
    erase = _blocking(AsyncWorkspace.erase)
    erasures = _iterating(AsyncWorkspace.erasures)
    erasure = _blocking(AsyncWorkspace.erasure)
    conversations = _blocking(AsyncWorkspace.conversations)
    conversation = _blocking(AsyncWorkspace.conversation)
    delete_conversation = _blocking(AsyncWorkspace.delete_conversation)
    verify = _iterating(AsyncWorkspace.verify)
    rebuild = _iterating(AsyncWorkspace.rebuild)
    start_rebuild = _blocking(AsyncWorkspace.start_rebuild)
    start_reindex = _blocking(AsyncWorkspace.start_reindex)
    jobs = _iterating(AsyncWorkspace.jobs)
    ingest = _iterating(AsyncWorkspace.ingest)
    ingest_files = _iterating(AsyncWorkspace.ingest_files)
    merge_archives = _blocking(AsyncWorkspace.merge_archives)
    renew_summaries = _blocking(AsyncWorkspace.renew_summaries)


def coroutines_of(workspace: Workspace) -> AsyncWorkspace:
    """The same workspace with coroutines that never suspend: `run` finishes them without an event loop.

    For code that is written once for both clients.
    """
    twin: AsyncWorkspace = workspace._twin  # noqa: SLF001 - the blocking form of it, in this module
    return twin


@dataclass(frozen=True, slots=True)
class RawStubs:
    """The generated stubs of all services, for calls that the client does not wrap; without retries or deadlines."""

    workspaces: workspace_service_pb2_grpc.WorkspaceServiceStub
    sessions: session_service_pb2_grpc.SessionServiceStub
    nodes: node_service_pb2_grpc.NodeServiceStub
    memory: memory_service_pb2_grpc.MemoryServiceStub
    views: view_service_pb2_grpc.ViewServiceStub
    history: history_service_pb2_grpc.HistoryServiceStub
    maintenance: maintenance_service_pb2_grpc.MaintenanceServiceStub
    jobs: job_service_pb2_grpc.JobServiceStub
    forest: forest_service_pb2_grpc.ForestServiceStub
    reviews: review_service_pb2_grpc.ReviewServiceStub
    erasures: erase_service_pb2_grpc.EraseServiceStub
    indexes: index_service_pb2_grpc.IndexServiceStub
    settings: settings_service_pb2_grpc.SettingsServiceStub
    tools: tool_service_pb2_grpc.ToolServiceStub
    queries: query_service_pb2_grpc.QueryServiceStub
    access: access_service_pb2_grpc.AccessServiceStub
    audit: audit_service_pb2_grpc.AuditServiceStub

    @classmethod
    def over(cls, channel: grpc.Channel) -> Self:
        """The stubs over one channel."""
        return cls(
            workspace_service_pb2_grpc.WorkspaceServiceStub(channel),
            session_service_pb2_grpc.SessionServiceStub(channel),
            node_service_pb2_grpc.NodeServiceStub(channel),
            memory_service_pb2_grpc.MemoryServiceStub(channel),
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


class Client(_Twin):
    """A client of one server whose calls block until the answer arrives; threads may share it.

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
        self._transport = BlockingTransport(address, settings)
        super().__init__(Calls(self._transport))

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._transport.address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    @cached_property
    def raw(self) -> RawStubs:
        """The generated stubs of all services, for calls that the client does not wrap."""
        return RawStubs.over(self._transport.raw_channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        self.close()

    workspace = _wrapped(Calls.workspace, Workspace)
    create_workspace = _blocking(Calls.create_workspace)
    workspaces = _iterating(Calls.workspaces)
    status = _blocking(Calls.status)
    back_up = _iterating(Calls.back_up)
    jobs = _iterating(Calls.jobs)
    job = _blocking(Calls.job)
    watch_job = _iterating(Calls.watch_job)
    cancel_job = _blocking(Calls.cancel_job)
    resume_job = _blocking(Calls.resume_job)
    change_embedding = _blocking(Calls.change_embedding)
    reload_settings = _blocking(Calls.reload_settings)
    tools = _blocking(Calls.tools)
    tool = _blocking(Calls.tool)
    run_tool = _blocking(Calls.run_tool)
    run_tools = _blocking(Calls.run_tools)
    principal = _blocking(Calls.principal)
    principals = _iterating(Calls.principals)
    put_principal = _blocking(Calls.put_principal)
    delete_principal = _blocking(Calls.delete_principal)
    create_key = _blocking(Calls.create_key)
    keys = _iterating(Calls.keys)
    delete_key = _blocking(Calls.delete_key)
    grant_role = _blocking(Calls.grant_role)
    revoke_role = _blocking(Calls.revoke_role)
    audit_records = _iterating(Calls.audit_records)
    close = _blocking(Calls.close)
