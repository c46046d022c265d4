"""The operations on sessions."""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from memotree_storage import faults
from memotree_storage.catchup import catch_up_within, is_behind
from memotree_storage.codec import archive_path, decode_entry, node_path
from memotree_storage.errors import InvalidInputError, UnavailableError
from memotree_storage.node import Entry, new_id
from memotree_storage.ports import Signature
from memotree_storage.postgres import registry, staging
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.staging import Session, Staged
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store
from memotree_storage.validation import check_author
from memotree_storage.workspaces import KEEP_PREFIX
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from memotree import lookup
from memotree.changes import fields_changed
from memotree.limits import ServiceLimits
from memotree.messages import read_author, session_message
from memotree.naming import BranchNotFoundError, check_tag_name
from memotree.pages import PageTokens, page_size
from memotree.requests import once
from memotree.sessions.commit import (
    Commit,
    CommitOrder,
    CommitResult,
    IncompleteChoiceError,
    check_chosen,
    check_message,
    earlier_result,
)
from memotree.sessions.rebase import ConflictError, merge_onto
from memotree.sessions.structure import Verdict, check_structure
from memotree.v1 import session_service_pb2 as pb
from memotree.v1 import types_pb2

_DEFAULT_AGENT: Final = "agent"
_MAX_TTL: Final = timedelta(days=366)
_log = structlog.get_logger(__name__)


class SessionOperations:
    """Opens, reads, commits and closes working sessions."""

    def __init__(self, store: Store, pages: PageTokens, limits: ServiceLimits) -> None:
        self._store = store
        self._pages = pages
        self._limits = limits
        self._background: set[asyncio.Task[None]] = set()

    async def open_session(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        """Open a session at the head of a branch."""
        agent = request.agent or _DEFAULT_AGENT
        check_author(agent, "", "agent")
        ttl = self._ttl(request)
        async with self._store.database.transaction() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            branch = request.branch or workspace.default_branch

            async def make() -> pb.OpenSessionResponse:
                head = await self._head(conn, workspace, branch)
                session = await staging.open_session(conn, new_id(), head, branch=branch, agent=agent, ttl=ttl)
                await self._keep(session.session_id, workspace.workspace_id, None, head.commit_id)
                return pb.OpenSessionResponse(session=session_message(session))

            return await once(conn, workspace.workspace_id, request, pb.OpenSessionResponse, make)

    async def get_session(self, request: pb.GetSessionRequest) -> pb.GetSessionResponse:
        """Read one session."""
        async with self._store.database.connection() as conn:
            _, session = await self._find(conn, request.workspace, request.session_id)
            return pb.GetSessionResponse(session=session_message(session))

    async def list_sessions(self, request: pb.ListSessionsRequest) -> pb.ListSessionsResponse:
        """List sessions, the last used first."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"used": str, "id": str})
        before = (datetime.fromisoformat(cursor["used"]), cursor["id"]) if cursor else None
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            sessions = await staging.list_sessions(
                conn, workspace.workspace_id, closed=request.include_closed, before=before, limit=size + 1
            )
        last = sessions[size - 1] if len(sessions) > size else None
        return pb.ListSessionsResponse(
            sessions=[session_message(session) for session in sessions[:size]],
            next_page_token=self._pages.write(
                request, {"used": last.used_at.isoformat(), "id": last.session_id} if last else None
            ),
        )

    async def list_changes(self, request: pb.ListChangesRequest) -> pb.ListChangesResponse:
        """List what a session has staged."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"id": str})
        async with self._store.database.connection() as conn:
            workspace, session = await self._find(conn, request.workspace, request.session_id)
            rows = await staging.staged(conn, session.session_id, after=cursor["id"] if cursor else "", limit=size + 1)
        more = len(rows) > size
        rows = rows[:size]
        bases = await asyncio.to_thread(self._bases, workspace.workspace_id, rows)
        return pb.ListChangesResponse(
            changes=[_change_message(row, bases.get(row.entry_id)) for row in rows],
            next_page_token=self._pages.write(request, {"id": rows[-1].entry_id} if more else None),
        )

    async def discard_changes(self, request: pb.DiscardChangesRequest) -> pb.DiscardChangesResponse:
        """Forget some staged changes."""
        if not request.node_ids:
            raise InvalidInputError.at("node_ids", "is needed; to forget all, discard the session.")
        async with self._store.database.transaction() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            session = await staging.hold_session(
                conn, workspace.workspace_id, lookup.needed("session_id", request.session_id)
            )
            rows = {row.entry_id: row for row in await staging.staged(conn, session.session_id)}
            ids = {_staged_id(set(rows), text) for text in request.node_ids}
            check_chosen(ids, rows)
            stay: dict[str, Entry | None] = {key: row.entry for key, row in rows.items() if key not in ids}
            verdict = await check_structure(conn, session.base, stay, ids)
            if verdict.missing or verdict.conflicts:
                raise _needed_by_others(verdict, rows)
            await staging.unstage(conn, session.session_id, sorted(ids))
            session = await staging.find_session(conn, workspace.workspace_id, session.session_id)
            return pb.DiscardChangesResponse(session=session_message(session))

    async def discard_session(self, request: pb.DiscardSessionRequest) -> pb.DiscardSessionResponse:
        """Forget all staged changes and close the session."""
        async with self._store.database.transaction() as conn:
            workspace, session = await self._find(conn, request.workspace, request.session_id)
            await staging.close_session(conn, session.session_id, "discarded")
            await self._keep(session.session_id, workspace.workspace_id, session.base_commit, None)
            session = await staging.find_session(conn, workspace.workspace_id, session.session_id)
            return pb.DiscardSessionResponse(session=session_message(session))

    async def rebase_session(self, request: pb.RebaseSessionRequest) -> pb.RebaseSessionResponse:
        """Lay a session's changes over the head of its branch."""
        async with self._store.database.transaction() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            await registry.lock_workspace(conn, workspace.workspace_id)
            session = await staging.hold_session(
                conn, workspace.workspace_id, lookup.needed("session_id", request.session_id)
            )
            head = await self._head(conn, workspace, session.branch)
            rows = await staging.staged(conn, session.session_id)
            merging = await merge_onto(conn, self._store, head, rows)
            entries: dict[str, Entry | None] = {item.row.entry_id: item.entry for item in merging.merged}
            verdict = await check_structure(conn, head, entries, set())
            conflicts = [*merging.conflicts, *verdict.conflicts]
            if conflicts:
                raise ConflictError.of(conflicts)
            for item in merging.merged:
                if item.theirs_blob != item.row.derived_blob:
                    await staging.restage(conn, session.session_id, item.row, item.entry, item.theirs_blob)
            await staging.set_base(conn, session.session_id, head.commit_id)
            await self._keep(session.session_id, workspace.workspace_id, session.base_commit, head.commit_id)
            session = await staging.find_session(conn, workspace.workspace_id, session.session_id)
            return pb.RebaseSessionResponse(session=session_message(session))

    async def commit_changes(self, request: pb.CommitChangesRequest) -> pb.CommitChangesResponse:
        """Make one Git commit of a session's changes.

        Once the ref may have moved, a cancellation waits for the end: the call has succeeded then, whoever listens.
        """
        order = self._order(request)
        under_way: list[Commit] = []
        task = asyncio.create_task(self._commit(request, order, under_way))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not any(commit.past_return for commit in under_way):
                task.cancel()
            await asyncio.wait([task])
            raise

    async def finish(self) -> None:
        """Wait for what goes on in the background; for a graceful stop."""
        if self._background:
            await asyncio.wait(self._background)

    async def _commit(
        self, request: pb.CommitChangesRequest, order: CommitOrder, under_way: list[Commit]
    ) -> pb.CommitChangesResponse:
        workspace: Workspace | None = None
        try:
            async with self._store.database.transaction() as conn:
                workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))

                async def make() -> pb.CommitChangesResponse:
                    result = await self._commit_held(conn, workspace, request, order, under_way)
                    return pb.CommitChangesResponse(
                        commit_id=result.commit_id,
                        branch=result.branch,
                        tag_name=result.tag,
                        change_count=result.changes,
                        remaining_changes=result.remaining,
                        warnings=result.warnings,
                    )

                response = await once(conn, workspace.workspace_id, request, pb.CommitChangesResponse, make)
        except Exception:  # whatever it was: Git may be ahead now
            if workspace is not None and any(commit.past_return for commit in under_way):
                self._catch_up_later(workspace.workspace_id)
            raise
        faults.point("commit.recorded")
        self._store.indexer.notice(workspace.workspace_id)
        self._store.upkeep.notice(workspace.workspace_id)
        return response

    async def _commit_held(
        self,
        conn: Connection,
        workspace: Workspace,
        request: pb.CommitChangesRequest,
        order: CommitOrder,
        under_way: list[Commit],
    ) -> CommitResult:
        faults.point("commit.claimed")
        await registry.lock_workspace(conn, workspace.workspace_id)
        session_id = lookup.needed("session_id", request.session_id)
        if order.request_id:
            repository = await asyncio.to_thread(self._store.repositories.get, workspace.workspace_id)
            if await is_behind(conn, workspace.workspace_id, repository):
                await catch_up_within(conn, workspace.workspace_id, repository)
            asked = await staging.find_session(conn, workspace.workspace_id, session_id)
            earlier = await earlier_result(conn, asked, order.request_id, order.tag)
            if earlier is not None:
                return earlier
        session = await staging.hold_session(conn, workspace.workspace_id, session_id)
        rows = await staging.staged(conn, session.session_id) if order.choice else []
        known = {row.entry_id for row in rows}
        commit = Commit(
            conn,
            self._store,
            workspace,
            session,
            CommitOrder(
                message=order.message,
                author=order.author if order.author.name else self._agent(session, order.author),
                committer=order.committer,
                choice=[_staged_id(known, text) for text in order.choice],
                tag=order.tag,
                request_id=order.request_id,
            ),
        )
        under_way.append(commit)
        result = await commit.run()
        self._later(self._keep(session.session_id, workspace.workspace_id, session.base_commit, result.commit_id))
        return result

    def _order(self, request: pb.CommitChangesRequest) -> CommitOrder:
        now = datetime.now(UTC).replace(microsecond=0)
        message = check_message(request.message)
        author = Signature("", "", now)
        if request.HasField("author"):
            author = read_author(request.author, "author", Signature(_DEFAULT_AGENT, self._limits.author_email, now))
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
            request_id=request.request_id,
        )

    def _agent(self, session: Session, author: Signature) -> Signature:
        return Signature(session.agent, self._limits.author_email, author.when)

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
        return found, await staging.find_session(conn, found.workspace_id, lookup.needed("session_id", session_id))

    async def _head(self, conn: Connection, workspace: Workspace, branch: str) -> State:
        """The head of a branch, with what people have pushed to it meanwhile."""
        repository = await asyncio.to_thread(self._store.repositories.get, workspace.workspace_id)
        if await is_behind(conn, workspace.workspace_id, repository):
            await registry.lock_workspace(conn, workspace.workspace_id)
            await catch_up_within(conn, workspace.workspace_id, repository)
            self._store.indexer.notice(workspace.workspace_id)
        cursor = await conn.execute(
            "select commit_id from mirror.ref where workspace_id = %s and name = %s",
            (workspace.workspace_id, f"refs/heads/{branch}"),
        )
        row = await cursor.fetchone()
        if row is None:
            raise BranchNotFoundError(branch)
        return State(workspace.workspace_id, row[0])

    async def _keep(self, session_id: str, workspace_id: str, old: str | None, new: str | None) -> None:
        """Hold the base commit of a session against maintenance by git; best effort, for the mirror holds it too."""
        repository = await asyncio.to_thread(self._store.repositories.get, workspace_id)
        ref = f"{KEEP_PREFIX}{session_id}"
        try:
            if not await asyncio.to_thread(repository.move_ref, ref, old, new):
                current = (await asyncio.to_thread(repository.refs)).get(ref)
                await asyncio.to_thread(repository.move_ref, ref, current, new)
        except UnavailableError as error:
            _log.warning("the base of a session is not held against git gc", session=session_id, why=error.message)

    def _bases(self, workspace_id: str, rows: list[Staged]) -> dict[str, Entry]:
        repository = self._store.repositories.get(workspace_id)
        found = {}
        for row in rows:
            if row.derived_blob:
                path = archive_path(row.entry_id) if row.version.is_archive else node_path(row.entry_id)
                found[row.entry_id] = decode_entry(path, repository.read_blob(row.derived_blob))
        return found

    def _catch_up_later(self, workspace_id: str) -> None:
        """The commit stands and PostgreSQL did not hear of it: tell it as soon as it answers."""
        self._later(self._catch_up(workspace_id))

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _catch_up(self, workspace_id: str) -> None:
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(UnavailableError),
                wait=wait_exponential_jitter(initial=0.2, max=10),
                stop=stop_after_delay(3600),
            ):
                with attempt:
                    await self._store.catch_up(workspace_id)
        except Exception:  # noqa: BLE001 - background work goes on, whatever a part of it met
            _log.exception("the mirror stays behind until the next start", workspace=workspace_id)


def _staged_id(known: set[str], text: str) -> str:
    """The staged entry that an id or a unique prefix names; an unknown text is left to the caller's check."""
    found = [entry_id for entry_id in known if entry_id.startswith(text)] if text else []
    if len(found) > 1:
        raise lookup.AmbiguousIdError.at("node_ids", f"{text!r} could be {' or '.join(sorted(found)[:5])}.")
    return found[0] if found else text


def _needed_by_others(verdict: Verdict, rows: Mapping[str, Staged]) -> IncompleteChoiceError:
    """The error for a discard that would leave the other changes of the session without what they need."""
    ids = sorted({item.entry_id for item in verdict.missing} | {item.node_id for item in verdict.conflicts})
    error = IncompleteChoiceError(
        f"Changes that would stay and those that would go need each other: {', '.join(ids[:10])}. Discard the others "
        "of these as well, or none."
    )
    error.nodes = [rows[entry_id].version for entry_id in ids if entry_id in rows]
    return error


def _change_message(row: Staged, base: Entry | None) -> pb.StagedChange:
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
    )
