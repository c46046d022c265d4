"""Lists stale summaries and renews them: by a job, in the background after a commit, or in a session before it.

The background task waits a little, so that it checks several commits together. It checks only the nodes that they
changed and the ancestors of these nodes.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from memotree_storage.commit.direct_import import retry_if_raced
from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.errors import InvalidInputError, MemoTreeError, NotFoundError, UnavailableError
from memotree_storage.mirror.contents import read_nodes, read_nodes_at
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.postgres import archive_versions, history, registry, sessions, staging, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.forest.service_commit import Change, Changeset, branch_head, commit
from memotree.forest.summaries.renewal import ReadNodes, Renewed, nodes_at, renew
from memotree.forest.summaries.staleness import Reason, Scope, Stale, around, everywhere, stale, without
from memotree.forest.usage import meter_of, note
from memotree.jobs import JobContext, JobRunner
from memotree.jobs.operations import job_message
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import SUMMARY, node_message
from memotree.sessions.editing import SessionEditor
from memotree.sessions.operations import chosen_ids
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2

KIND: Final = "renew_summaries"
GATHER: Final = timedelta(seconds=2)
"""How long the background task waits for more commits."""

_NODES: Final = "nodes"
"""The input with the ids of the nodes to check; empty for all."""

_TOOL: Final = "RenewSummaries"
_NOTE: Final = "Renewed the summary, which was made from an earlier text."
_SHOWN: Final = 100
_MOST_SHOWN: Final = 1000
_REASONS: Final = {
    Reason.CONTENT: pb.STALE_REASON_CONTENT,
    Reason.CHILDREN: pb.STALE_REASON_CHILDREN,
    Reason.PENDING: pb.STALE_REASON_PENDING,
}
_log = structlog.get_logger(__name__)


class SummaryRenewal:
    """Finds and renews stale summaries.

    Args:
        store: The store.
        models: The gateway to the models.
        runner: Runs the jobs; `work` is registered with it for the kind `KIND`.
        limits: The limits of the service.
        background: Whether a background task checks new commits.
        gather: How long the background task waits for more commits.
    """

    def __init__(
        self,
        store: Store,
        models: Models,
        runner: JobRunner,
        limits: ServiceLimits,
        *,
        background: bool = True,
        gather: timedelta = GATHER,
    ) -> None:
        self._store = store
        self._models = models
        self._runner = runner
        self._limits = limits
        self._background = background
        self._gather = gather.total_seconds()
        self._noticed: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        runner.register(KIND, self.work)

    # --- Calls -------------------------------------------------------------------------------------------------------

    async def list_stale_summaries(self, request: pb.ListStaleSummariesRequest) -> pb.ListStaleSummariesResponse:
        """Returns the nodes with stale summaries."""
        limit = request.max_results or _SHOWN
        if not 0 < limit <= _MOST_SHOWN:
            raise InvalidInputError.at("max_results", f"must be from 1 to {_MOST_SHOWN}.")
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            snapshot = Snapshot(conn, place.state)
            scope = await everywhere(snapshot, await _archives(snapshot, request.archive))
            found = stale(scope, with_models=self._models.has_chat)
            shown = [await self._message(snapshot, item) for item in found[:limit]]
        return pb.ListStaleSummariesResponse(summaries=shown, total=len(found))

    @staticmethod
    async def _message(snapshot: Snapshot, item: Stale) -> pb.StaleSummary:
        placed = await tree.one(snapshot, item.version.entry_id)
        version, path, count = placed or (item.version, [], 0)
        node = node_message(version, SUMMARY, path=path, child_count=count)
        return pb.StaleSummary(node=node, reason=_REASONS[item.reason])

    async def renew_summaries(self, request: pb.RenewSummariesRequest) -> pb.RenewSummariesResponse:
        """Queues a job that renews stale summaries."""
        if request.max_model_tokens < 0:
            raise InvalidInputError.at("max_model_tokens", "must not be negative; leave it out for no limit.")
        order = pb.RenewSummariesRequest()
        order.CopyFrom(request)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            order.branch = request.branch or workspace.default_branch
            state = await branch_head(conn, workspace.workspace_id, order.branch)
            if request.archive:
                order.archive = (await lookup.archive(Snapshot(conn, state), request.archive)).entry_id
        job = await self._runner.submit(
            workspace.workspace_id,
            KIND,
            order,
            subject=order.branch,
            lane=f"{workspace.workspace_id}/{order.branch}",
            request_id=request.request_id,
            inputs={_NODES: b""},
        )
        return pb.RenewSummariesResponse(job=job_message(job))

    # --- The job -----------------------------------------------------------------------------------------------------

    async def work(self, context: JobContext) -> job_service_pb2.RenewalResult:
        """Renews the stale summaries of a branch in one commit; the work of a job."""
        request = context.request(pb.RenewSummariesRequest)
        meter = await meter_of(context, request.max_model_tokens)
        try:
            return await retry_if_raced(partial(self._renew, context, request, meter))
        finally:
            note(context, meter)

    async def _renew(
        self, context: JobContext, request: pb.RenewSummariesRequest, meter: Meter
    ) -> job_service_pb2.RenewalResult:
        workspace_id = context.job.workspace_id
        nodes = await context.input(_NODES)
        async with self._store.database.connection() as conn:
            state = await branch_head(conn, workspace_id, request.branch)
            if nodes:
                scope = await around(conn, state, json.loads(nodes))
            else:
                scope = await everywhere(Snapshot(conn, state), await _archives(Snapshot(conn, state), request.archive))

        async def tell(done: int) -> None:
            note(context, meter)
            await context.progress("renew", done)

        due = await renew(nodes_at(self._store, state), self._models, scope, meter, tell)
        made = [item for item in due if item.is_new]
        result = job_service_pb2.RenewalResult(renewed=len(made), pending=sum(item.pending for item in due))
        if made:
            changes = await self._changes(state, made)
            message = f"Renew {len(made)} summar{'y' if len(made) == 1 else 'ies'}"
            author = self._limits.service_author()
            changeset = Changeset(changes, message, _TOOL, context.job.id, author, is_derived=True)
            result.commit_id = await commit(self._store, workspace_id, request.branch, changeset, self._limits)
        return result

    async def _changes(self, state: State, made: Collection[Renewed]) -> Mapping[str, Change]:
        nodes = await read_nodes_at(state, self._store.database, self._store.entries, [item.before for item in made])
        return {
            node.id: Change(item.before, item.apply(node), node)
            for item in made
            if (node := nodes.get(item.before.entry_id)) is not None
        }

    # --- Within a session --------------------------------------------------------------------------------------------

    async def renew_for_commit(
        self, session: sessions.Session, choice: Collection[str] = (), *, with_models: bool
    ) -> list[Renewed]:
        """Makes new summaries for nodes that the changes of a session make stale; writes nothing.

        Args:
            session: The session.
            choice: The ids, or prefixes of ids, of the changed nodes that count; all if empty. Nodes whose changes are
                left out are not touched.
            with_models: Whether the chat model makes them, if there is one. Otherwise the built-in method does, and the
                background has the model make them again. Then nothing is done if the background is switched off.
        """
        if not (with_models or self._background):
            return []
        async with self._store.database.connection() as conn:
            scope = await _scope_of_changes(conn, session, choice, everything=with_models)
        if scope is None:
            return []
        return await self._renew_staged(nodes_at(self._store, session.tree), scope, with_models=with_models)

    async def follow(self, conn: Connection, session: sessions.Session) -> None:
        """Makes the built-in summaries that the changes of a session make stale, and stages them.

        It works in the transaction that holds the session and reads only through it. It does nothing if the background
        is switched off.
        """
        if not self._background:
            return
        scope = await _scope_of_changes(conn, session, (), everything=False)
        if scope is not None:
            read = partial(read_nodes, Snapshot(conn, session.tree), self._store.entries)
            await self.stage(conn, session, await self._renew_staged(read, scope, with_models=False))

    async def _renew_staged(self, read: ReadNodes, scope: Scope, *, with_models: bool) -> list[Renewed]:
        models = self._models if with_models else self._models.without_chat()
        due = await renew(read, models, scope, Meter())
        if models.has_chat != self._models.has_chat:
            due = [item.until_model() for item in due]
        return [item for item in due if item.is_new]

    async def stage(self, conn: Connection, session: sessions.Session, renewed: Sequence[Renewed]) -> list[str]:
        """Stages new summaries in a transaction that holds the session, so that they are gone if it fails.

        A node that was changed meanwhile is skipped until the next renewal.

        Returns:
            The ids of the nodes that have staged changes now.
        """
        staged = []
        editor = SessionEditor(conn, self._store, session, self._limits, _TOOL)
        now = await tree.versions(Snapshot(conn, session.tree), [item.before.entry_id for item in renewed])
        for item in renewed:
            version = now.get(item.before.entry_id)
            if version is not None and version.blob == item.before.blob:
                await editor.put(item.apply(await editor.load_node(version)), version, _NOTE)
                staged.append(item.before.entry_id)
        return [row.entry_id for row in await staging.staged(conn, session.session_id, ids=staged, data=False)]

    # --- The background ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the background task, if it is enabled."""
        if self._background:
            self._task = asyncio.create_task(self._watch(), name="memotree-summaries")

    async def stop(self) -> None:
        """Stops the background task; `RenewSummaries` finds what it has not checked yet."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait([task])

    def notice(self, workspace_id: str, branch: str, commit_id: str) -> None:
        """Notes that a branch has a new commit to check; does nothing without the background task."""
        if self._task is not None:
            self._noticed[workspace_id, branch].append(commit_id)
            self._wake.set()

    async def _watch(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._gather)
            self._wake.clear()
            noticed, self._noticed = self._noticed, defaultdict(list)
            for (workspace_id, branch), commits in noticed.items():
                try:
                    await self._look(workspace_id, branch, commits)
                except NotFoundError:  # the branch or the workspace is gone
                    continue
                except UnavailableError as error:  # a store is down for a while: try again
                    _log.warning("stale summaries will be checked later", workspace=workspace_id, why=error.message)
                    self._noticed[workspace_id, branch] += commits
                    self._wake.set()
                except MemoTreeError as error:
                    _log.warning("stale summaries were not checked", workspace=workspace_id, why=error.message)
                except Exception:  # noqa: BLE001 - the background task must survive any error of one check
                    _log.exception("stale summaries were not checked", workspace=workspace_id)

    async def _look(self, workspace_id: str, branch: str, commits: Sequence[str]) -> None:
        async with self._store.database.connection() as conn:
            state = await branch_head(conn, workspace_id, branch)
            steps = await history.touched_nodes(conn, workspace_id, commits)
            changed = {node_id for step in steps for node_id in step.node_ids}
            before = [
                (State(workspace_id, step.first_parent), step.displaced_ids)
                for step in steps
                if step.first_parent is not None
            ]
            found = stale(await around(conn, state, changed, before), with_models=self._models.has_chat)
        if found:
            await self._runner.submit(
                workspace_id,
                KIND,
                pb.RenewSummariesRequest(workspace=workspace_id, branch=branch),
                subject=branch,
                lane=f"{workspace_id}/{branch}",
                inputs={_NODES: json.dumps([item.version.entry_id for item in found]).encode()},
            )


async def _scope_of_changes(
    conn: Connection, session: sessions.Session, choice: Collection[str], *, everything: bool
) -> Scope | None:
    """The nodes whose summaries the (chosen) changes of a session may have made stale.

    Returns:
        ``None`` if no summary node is above the changes, unless ``everything`` asks for the changed nodes too.
    """
    rows = await staging.staged(conn, session.session_id, data=False)
    base = replace(session.tree, session_id=None)
    known = {row.entry_id: row for row in rows}
    chosen = set(chosen_ids(known, list(choice))) if choice else known.keys()
    if not everything and not await _is_summed_up(conn, session.tree, base, rows, chosen):
        return None
    scope = await around(conn, session.tree, chosen, [(base, chosen)])
    left_out = {row.entry_id for row in rows} - chosen
    return await without(Snapshot(conn, base), scope, left_out) if left_out else scope


async def _is_summed_up(
    conn: Connection, now: State, base: State, rows: Sequence[Staged], chosen: Collection[str]
) -> bool:
    """Whether the summary of a node above a change is made of the changed node's: now, or where it was before."""
    known = [row.entry_id for row in rows if row.entry_id in chosen and row.derived_blob is not None]
    before = await tree.versions(Snapshot(conn, base), known) if known else {}
    parents = {row.version.parent_id for row in rows if row.entry_id in chosen}
    parents |= {version.parent_id for version in before.values()}
    parents.discard("")
    above = await tree.versions(Snapshot(conn, now), parents) if parents else {}
    return any(version.type == SUMMARY_TYPE for version in (*above.values(), *before.values()))


async def _archives(snapshot: Snapshot, archive: str) -> list[str]:
    if archive:
        return [(await lookup.archive(snapshot, archive)).entry_id]
    return [version.entry_id for version in await archive_versions.archives(snapshot)]
