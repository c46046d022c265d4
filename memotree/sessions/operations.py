"""Opens, lists, commits, rebases and discards working sessions."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol

import structlog
from memotree_storage import faults
from memotree_storage.commit.group_commit import commit_of_session
from memotree_storage.commit.rebase import read_bases, rebase_session
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.session_commit import (
    CommitOrder,
    check_chosen,
    commit_session_in_transaction,
)
from memotree_storage.commit.session_pins import pin_base
from memotree_storage.commit.transaction import (
    WorkspaceTransaction,
    session_transaction,
    transaction,
    workspace_transaction,
)
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_comparison_thread, in_store_thread
from memotree_storage.errors import InvalidInputError, MemoTreeError
from memotree_storage.model.changes import fields_changed
from memotree_storage.model.node import Entry, is_id, is_id_prefix, new_id
from memotree_storage.model.validation import check_author
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs, registry, sessions, staging
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.session_conflicts import (
    SessionConflict,
    by_entry,
    conflicts_of,
    end_conflicts_of,
    entries_in_conflict,
)
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.conflicts import conflict_message
from memotree.request.idempotency import request_mark, run_once
from memotree.request.limits import ServiceLimits
from memotree.request.messages import author_of, check_message, session_message
from memotree.request.naming import check_tag_name
from memotree.request.pages import PageTokens, page_size
from memotree.request.principal import principal
from memotree.sessions.discarding import check_discard
from memotree.sessions.editing import recheck_session
from memotree.sessions.listed_conflicts import told_conflicts
from memotree.sessions.merged_summaries import with_renewed_summary
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import session_service_pb2 as pb
from memotree.v1 import types_pb2

DEFAULT_AGENT: Final = "agent"
"""The agent of a call that names none."""

_log = structlog.get_logger(__name__)
_CONFLICT_CHARS: Final = 500
"""The most of a text of a conflict in ListChanges; ListConflicts has it whole."""

_MAX_TTL: Final = timedelta(days=366)


class SummaryRenewer(Protocol):
    """Renews the summaries that depend on nodes changed in sessions."""

    async def renew_for_commit(
        self, session: Session, choice: Collection[str] = (), *, with_models: bool
    ) -> Sequence[Any]:
        """Make new summaries where the (chosen) changes of a session make them stale; write nothing."""
        ...

    async def stage(self, conn: Connection, session: Session, renewed: Sequence[Any]) -> list[str]:
        """Stage them in a transaction that holds the session; return the ids of the nodes that are staged now."""
        ...

    def notice(self, workspace_id: str, branch: str, commit_id: str) -> None:
        """Note that a branch has a new commit."""
        ...


class ConflictResolver(Protocol):
    """Resolves conflicts of sessions by edits of nodes."""

    async def resolve(self, request: pb.ResolveConflictsRequest) -> pb.ResolveConflictsResponse:
        """Resolve conflicts; all of a call, or none."""
        ...


class SessionOperations:
    """Opens, reads, commits and closes working sessions.

    Args:
        store: The store.
        pages: Makes page tokens.
        limits: What the service allows.
        summaries: Renews stale summaries; without it they wait for the next RenewSummaries.
        resolver: Resolves conflicts by edits of nodes.
    """

    def __init__(
        self,
        store: Store,
        pages: PageTokens,
        limits: ServiceLimits,
        summaries: SummaryRenewer | None = None,
        *,
        resolver: ConflictResolver,
    ) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits
        self._summaries = summaries
        self._resolver = resolver

    async def open_session(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        """Open a session at the head of a branch."""
        agent = request.agent or DEFAULT_AGENT
        check_author(agent, "", name_field="agent")
        ttl = self._ttl(request)
        workspace = await self._workspace(request.workspace)
        order = _Opening(request, workspace, request.branch or workspace.default_branch, agent, ttl)
        await mirror_pushed(self._store, workspace.workspace_id)
        try:
            return await finish_past_commit_point(partial(self._open, order, locked=False))
        except BranchNotFoundError:  # or it is being deleted or mirrored again: with the lock this is certain
            async with self._store.locks.workspaces.of(workspace.workspace_id):
                return await finish_past_commit_point(partial(self._open, order, locked=True))

    async def _open(self, order: "_Opening", commit_point: CommitPoint, *, locked: bool) -> pb.OpenSessionResponse:
        workspace_id, session_id = order.workspace.workspace_id, new_id()
        repair = partial(self._release, workspace_id, session_id)
        what = f"a ref protects the base of {session_id}"
        async with transaction(self._store, commit_point, what, repair) as opened:
            conn = opened.conn
            if locked:
                await registry.lock_workspace(conn, workspace_id)

            async def make() -> pb.OpenSessionResponse:
                head = await _head(conn, workspace_id, order.branch, hold=True)
                session = await sessions.open_session(
                    Snapshot(conn, head),
                    session_id,
                    branch=order.branch,
                    agent=order.agent,
                    ttl=order.ttl,
                    principal=principal().owner,
                )
                await opened.past_commit_point(pin_base(self._store, workspace_id, session_id, None, head.commit_id))
                return pb.OpenSessionResponse(session=session_message(session))

            return await run_once(conn, workspace_id, order.request, pb.OpenSessionResponse, make)

    async def _release(self, workspace_id: str, session_id: str) -> None:
        """After a failed opening: delete the ref that protects the base, unless PostgreSQL has the session's row."""
        try:
            async with self._store.database.connection() as conn:
                await sessions.find_session(conn, workspace_id, session_id)
        except sessions.SessionNotFoundError:
            await pin_base(self._store, workspace_id, session_id, None, None)

    async def get_session(self, request: pb.GetSessionRequest) -> pb.GetSessionResponse:
        """Read one session."""
        async with self._store.database.connection() as conn:
            _, session = await self._find(conn, request.workspace, request.session_id)
            return pb.GetSessionResponse(session=session_message(session))

    async def list_sessions(self, request: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
        """List the sessions that the caller may see, the last used first."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"used": datetime, "id": str})
        before = (cursor["used"], cursor["id"]) if cursor else None
        who = principal()
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            listed = await sessions.list_sessions(
                conn,
                workspace.workspace_id,
                closed=request.include_closed,
                before=before,
                limit=size + 1,
                principal=None if who.administers(workspace.workspace_id) else who.owner,
            )
        last = listed[size - 1] if len(listed) > size else None
        return pb.ListSessionsResponse(
            sessions=[session_message(session) for session in listed[:size]],
            next_page_token=self._pages.write(request, {"used": last.used_at, "id": last.session_id} if last else None),
        )

    async def list_changes(self, request: pb.ListChangesRequest) -> pb.ListChangesResponse:
        """List the staged changes of a session."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"id": str})
        async with self._store.database.connection() as conn:
            workspace, session = await self._find(conn, request.workspace, request.session_id)
            rows = await staging.staged(conn, session.session_id, after=cursor["id"] if cursor else "", limit=size + 1)
            ids = [row.entry_id for row in rows[:size]]
            conflicts = by_entry(await conflicts_of(conn, session.session_id, ids=ids) if ids else [])
        more = len(rows) > size
        rows = rows[:size]

        def listed() -> list[pb.StagedChange]:
            bases = read_bases(self._store, workspace.workspace_id, rows, lost=session.state != "open")
            return [_change_message(row, bases.get(row.entry_id), conflicts.get(row.entry_id, ())) for row in rows]

        return pb.ListChangesResponse(
            changes=await in_store_thread(listed),
            next_page_token=self._pages.write(request, {"id": rows[-1].entry_id} if more else None),
        )

    async def list_conflicts(self, request: pb.ListConflictsRequest) -> pb.ListConflictsResponse:
        """List the conflicts of a session that are not resolved, each whole."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"id": str, "number": int})
        after = (cursor["id"], cursor["number"]) if cursor else ("", -1)
        async with self._store.database.connection() as conn:
            _, session = await self._find(conn, request.workspace, request.session_id)
            found = await conflicts_of(conn, session.session_id, after=after, limit=size + 1)
        listed = await in_comparison_thread(told_conflicts, [one.conflict for one in found[:size]])
        last = found[len(listed) - 1] if len(listed) < len(found) else None
        more = None if last is None else {"id": last.conflict.node_id, "number": last.number}
        return pb.ListConflictsResponse(conflicts=listed, next_page_token=self._pages.write(request, more))

    async def resolve_conflicts(self, request: pb.ResolveConflictsRequest) -> pb.ResolveConflictsResponse:
        """Resolve conflicts of a session."""
        return await self._resolver.resolve(request)

    async def discard_changes(self, request: pb.DiscardChangesRequest) -> pb.DiscardChangesResponse:
        """Drop some staged changes."""
        if not request.node_ids:
            raise InvalidInputError.at("node_ids", "is needed; to drop all changes, discard the session.")
        workspace = await self._workspace(request.workspace)
        session_id = lookup.needed("session_id", request.session_id)
        async with session_transaction(self._store, session_id) as conn:
            session = await sessions.hold_session(conn, workspace.workspace_id, session_id)
            rows = {row.entry_id: row for row in await staging.staged(conn, session.session_id)}
            ids = {_staged_id(rows, text, f"node_ids[{number}]") for number, text in enumerate(request.node_ids)}
            open_ones = await entries_in_conflict(conn, session_id, ids) & ids if session.has_conflicts else set[str]()
            check_chosen(ids - open_ones, rows)
            await check_discard(conn, session, rows, ids & rows.keys())
            await staging.unstage(conn, session.session_id, sorted(ids))
            if session.has_conflicts:
                await end_conflicts_of(conn, session.session_id, ids)
                await recheck_session(conn, self._store, session)
            session = await sessions.find_session(conn, workspace.workspace_id, session.session_id)
            return pb.DiscardChangesResponse(session=session_message(session))

    async def discard_session(self, request: pb.DiscardSessionRequest) -> pb.DiscardSessionResponse:
        """Drop all staged changes and close the session."""
        return await finish_past_commit_point(partial(self._discard, request))

    async def _discard(self, request: pb.DiscardSessionRequest, commit_point: CommitPoint) -> pb.DiscardSessionResponse:
        async with session_transaction(self._store, request.session_id, commit_point) as conn:
            workspace, session = await self._find(conn, request.workspace, request.session_id)
            await sessions.close_session(conn, session.session_id, "discarded")
            closed = await sessions.find_session(conn, workspace.workspace_id, session.session_id)
        await pin_base(self._store, workspace.workspace_id, session.session_id, session.base_commit, None)
        return pb.DiscardSessionResponse(session=session_message(closed))

    async def rebase_session(self, request: pb.RebaseSessionRequest) -> pb.RebaseSessionResponse:
        """Rebase a session's changes onto the head of its branch."""
        return await finish_past_commit_point(partial(self._rebase, request))

    async def _rebase(self, request: pb.RebaseSessionRequest, commit_point: CommitPoint) -> pb.RebaseSessionResponse:
        workspace_id = (await self._workspace(request.workspace)).workspace_id
        session_id = lookup.needed("session_id", request.session_id)
        async with workspace_transaction(self._store, workspace_id, commit_point, session_id=session_id) as held:
            session = await sessions.hold_session(held.conn, workspace_id, session_id)
            head = await _head(held.conn, workspace_id, session.branch)
            target, keep = Snapshot(held.conn, head), request.keep_conflicts
            await rebase_session(target, self._store, session, keep_conflicts=keep)
            rebased = await sessions.find_session(held.conn, workspace_id, session_id)
        await pin_base(self._store, workspace_id, session_id, session.base_commit, head.commit_id)
        return pb.RebaseSessionResponse(session=session_message(rebased))

    async def commit_changes(self, request: pb.CommitChangesRequest) -> pb.CommitChangesResponse:
        """Make one Git commit of a session's changes.

        Once its work has begun, which is when it no longer waits for others, a cancellation waits for the end.
        """
        order = self._order(request)
        session_id = lookup.needed("session_id", request.session_id)
        async with self._store.database.connection() as conn:
            # The session may have been lost after its commit, which a repeated call finds.
            workspace_id, session = await sessions.find_in_workspace(
                conn, lookup.needed("workspace", request.workspace), session_id
            )
        renewed = () if session is None else await self._renewed(request, session, order.choice)
        committing = _Committing(request, order, workspace_id, session, renewed)
        return await finish_past_commit_point(partial(self._commit, committing))

    async def _renewed(
        self, request: pb.CommitChangesRequest, session: Session, choice: Sequence[str]
    ) -> Sequence[Any]:
        """Make the summaries that follow the changes.

        A built-in one that cannot be made now does not stop the commit: the background renews it.
        """
        if self._summaries is None:
            return ()
        try:
            return await self._summaries.renew_for_commit(session, choice, with_models=request.renew_summaries)
        except MemoTreeError as error:
            if request.renew_summaries:
                raise
            _log.info("summaries do not follow in the same commit", session=session.session_id, why=error.message)
            return ()

    async def finish(self) -> None:
        """Wait a few seconds for background work; for a graceful stop."""
        await self._store.background.finish()

    async def _commit(self, committing: "_Committing", commit_point: CommitPoint) -> pb.CommitChangesResponse:
        request, order, renewed = committing.request, committing.order, committing.renewed
        workspace_id, session_id = committing.workspace_id, request.session_id

        async def work(held: WorkspaceTransaction) -> pb.CommitChangesResponse:
            async def prepare(session: Session) -> Collection[str]:
                return await self._summaries.stage(held.conn, session, renewed) if renewed and self._summaries else ()

            async def make() -> pb.CommitChangesResponse:
                faults.point("commit.claimed")
                result = await commit_session_in_transaction(held, session_id, order, chosen_ids, prepare)
                return pb.CommitChangesResponse(
                    commit_id=result.commit_id,
                    branch=result.branch,
                    tag_name=result.tag,
                    change_count=result.changes,
                    remaining_changes=result.remaining,
                    warnings=result.warnings,
                )

            return await run_once(held.conn, workspace_id, request, pb.CommitChangesResponse, make)

        response = await commit_of_session(
            self._store,
            workspace_id,
            session_id,
            commit_point,
            work,
            session=committing.session,
            writes_first=bool(request.request_id or renewed),
            alone=bool(order.tag),
        )
        faults.point("commit.recorded")
        self._store.notice_commit(workspace_id)
        if self._summaries is not None:
            self._summaries.notice(workspace_id, response.branch, response.commit_id)
        return response

    def _order(self, request: pb.CommitChangesRequest) -> CommitOrder:
        now = datetime.now(UTC).replace(microsecond=0)
        message = check_message(request.message)
        author = Signature(DEFAULT_AGENT, self._limits.author_email, now)
        author = author_of(request, author)
        if not request.author.name and not principal().is_known:
            author = replace(author, name="")  # the session's agent, which is not known yet
        if request.create_tag and not request.tag_name:
            raise InvalidInputError.at("tag_name", "is needed with create_tag.")
        if request.tag_name and not request.create_tag:
            raise InvalidInputError.at("create_tag", "must be true for the tag that tag_name names.")
        if request.tag_name:
            check_tag_name(request.tag_name, "tag_name")
        return CommitOrder(
            message=message,
            author=author,
            committer=Signature(self._limits.committer_name, self._limits.committer_email, now),
            choice=list(request.specific_nodes),
            tag=request.tag_name,
            renew=with_renewed_summary,
            request=request_mark(request),
        )

    def _ttl(self, request: pb.OpenSessionRequest) -> timedelta:
        if not request.HasField("ttl"):
            return self._limits.session_ttl
        with contextlib.suppress(OverflowError, ValueError):
            ttl = request.ttl.ToTimedelta()
            if timedelta(0) < ttl <= _MAX_TTL:
                return ttl
        raise InvalidInputError.at("ttl", "must be more than 0 and at most 366 days.")

    async def _find(self, conn: Connection, workspace: str, session_id: str) -> tuple[Workspace, Session]:
        found = await registry.find_workspace(conn, lookup.needed("workspace", workspace))
        return found, await sessions.find_session(conn, found.workspace_id, lookup.needed("session_id", session_id))

    async def _workspace(self, name: str) -> Workspace:
        async with self._store.database.connection() as conn:
            return await registry.find_workspace(conn, lookup.needed("workspace", name))


@dataclass(frozen=True, slots=True)
class _Opening:
    """A session to open."""

    request: pb.OpenSessionRequest
    workspace: Workspace
    branch: str
    agent: str
    ttl: timedelta


@dataclass(frozen=True, slots=True)
class _Committing:
    """A commit to make: the session as it was found, if it was, and the summaries that follow its changes."""

    request: pb.CommitChangesRequest
    order: CommitOrder
    workspace_id: str
    session: Session | None
    renewed: Sequence[Any]


async def _head(conn: Connection, workspace_id: str, branch: str, *, hold: bool = False) -> State:
    """The head of a branch in the mirror.

    With ``hold`` the branch can't be deleted before the transaction ends, so a deletion that waits finds the new
    session. A branch that another call is deleting counts as deleted, so that no call waits while it holds a
    connection.
    """
    head = await refs.branch_head(conn, workspace_id, branch, hold=hold)
    if head is None:
        raise BranchNotFoundError(branch)
    return head


def chosen_ids(rows: Mapping[str, Staged], texts: Sequence[str]) -> list[str]:
    """The staged entries that ids or unique prefixes name; unknown ones are left to the check of the commit."""
    return [_staged_id(rows, text, f"specific_nodes[{number}]") for number, text in enumerate(texts)]


def _staged_id(rows: Mapping[str, Staged], text: str, field: str) -> str:
    """The staged entry that an id or a unique prefix names; an unknown text is returned for the caller's check."""
    if is_id(text):
        return text
    if not is_id_prefix(text):
        raise lookup.InvalidIdError.of(field, text)
    found = [row.version for entry_id, row in sorted(rows.items()) if entry_id.startswith(text)]
    if len(found) > 1:
        raise lookup.AmbiguousIdError.among(field, text, found)
    return found[0].entry_id if found else text


def _shortened(text: str) -> str:
    return text if len(text) <= _CONFLICT_CHARS else f"{text[:_CONFLICT_CHARS]}…"


def _change_message(row: Staged, base: Entry | None, kept: Sequence[SessionConflict]) -> pb.StagedChange:
    if row.version.dead:
        kind = types_pb2.CHANGE_KIND_DELETED
    elif row.derived_blob is None:
        kind = types_pb2.CHANGE_KIND_CREATED
    else:
        kind = types_pb2.CHANGE_KIND_UPDATED
    return pb.StagedChange(
        node_id=row.entry_id,
        kind=kind,
        title=row.version.title,
        fields=fields_changed(base, row.entry),
        commit_messages=row.messages,
        is_archive=row.version.is_archive,
        tools=row.tools,
        conflicts=[conflict_message(each.conflict, _shortened) for each in kept],
    )
