"""Runs the calls of tools on plans: each passes the check of access, and stages in a session or commits at once.

A change is permitted as the batch of node changes that it is, and reading as reading a tree. A change that names no
session makes one commit; with a request id it takes effect once.
"""

import json
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import derived_id, new_id
from memotree_storage.postgres import history
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.planner import links, model, staging
from memotree.planner.deletion import delete_project, told
from memotree.planner.patterns import Category, TimeRange, Window, analyzed, read_plan
from memotree.planner.shown import shown
from memotree.planner.staging import New, ProjectChange, Staged, show_node
from memotree.planner.statistics import project_statistics
from memotree.request import lookup
from memotree.request.idempotency import kept_request_id
from memotree.request.limits import ServiceLimits
from memotree.request.principal import acting_as, principal
from memotree.server.checking import Admit
from memotree.sessions.editing import SessionEditor, SessionName, check_note, edit_named_session
from memotree.sessions.immediate import FollowingSummaries, ImmediateCall, ImmediateCommits, Made, Make, Target
from memotree.sessions.subjects import subject_of
from memotree.v1.node_service_pb2 import BatchChangeNodesRequest, CommitAtOnce, GetTreeRequest
from memotree.v1.tool_service_pb2 import ExecuteToolRequest, ExecuteToolResponse, ToolResult

Data = dict[str, Any]

Work = Callable[[SessionEditor, str], Awaitable[Staged]]
"""Stages a change in a session, given the id for a new node."""

Again = Callable[[Snapshot, Snapshot, str], Awaitable[Data]]
"""Returns what an earlier call did whose answer was lost, given the states before and after it and the id for a new
node."""

_CHANGES: Final = "NodeService.BatchChangeNodes"
_READS: Final = "NodeService.GetTree"
"""The calls as which those of tools are permitted."""

_NODE: Final = "nodes"


@dataclass(frozen=True, slots=True)
class Where:
    """Where a call changes a plan, and as whom.

    Attributes:
        workspace: The name or id of the workspace.
        session_id: The session that stages the change; empty to commit it at once.
        branch: The branch of the commit; the default branch if empty.
        message: The message of the commit, or the note of the staged change.
        agent: Who commits; the default agent if empty.
        request_id: Makes the call safe to repeat.
    """

    workspace: str
    session_id: str = ""
    branch: str = ""
    message: str = ""
    agent: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class _Call:
    """One change: the tool, what identifies its arguments, and what it does."""

    tool: str
    arguments: object
    work: Work
    again: Again
    is_long: bool = False


class Planner:
    """Changes and reads plans.

    Args:
        store: The store.
        limits: What the service allows.
        summaries: Renews the summaries above changed nodes.
        admit: The check of access; ``None`` on a server where everybody may do everything.
        clock: Tells the time.
    """

    def __init__(
        self,
        store: Store,
        limits: ServiceLimits,
        summaries: FollowingSummaries | None = None,
        admit: Admit | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._limits = limits
        self._commits = ImmediateCommits(store, limits, summaries)
        self._admit = admit
        self._clock = clock

    # --- changing ---

    async def create(self, where: Where, tool: str, new: New) -> Data:
        """Make a node of a plan."""

        async def work(editor: SessionEditor, node_id: str) -> Staged:
            return await staging.create(editor, self._made_now(new), node_id)

        async def again(_: Snapshot, after: Snapshot, node_id: str) -> Data:
            return await show_node(node_id, new.kind)(after)

        return await self._change(where, _Call(tool, asdict(new), work, again))

    async def update_project(self, where: Where, project_id: str, change: ProjectChange) -> Data:
        """Give a project new values."""

        async def work(editor: SessionEditor, _: str) -> Staged:
            return await staging.update_project(editor, project_id, change)

        arguments = [project_id, asdict(change)]
        return await self._change(where, _Call("update_project", arguments, work, _changed(project_id, model.PROJECT)))

    async def delete_project(self, where: Where, project_id: str, *, cascade: bool) -> Data:
        """Delete a project."""

        async def work(editor: SessionEditor, _: str) -> Staged:
            return await delete_project(editor, project_id, cascade=cascade)

        async def again(before: Snapshot, after: Snapshot, _: str) -> Data:
            project = await links.needed(before, project_id, model.PROJECT, "project_id")
            count = await history.count_touched(after.conn, after.state.workspace_id, after.state.commit_id)
            found = await history.touched(after.conn, after.state.workspace_id, after.state.commit_id, limit=count)
            gone = [version for version in found if version.dead]
            stay = [version for version in found if not version.dead and version.type == model.TASK]
            tasks = sum(version.type == model.TASK for version in gone)
            return told(project.entry_id, project.title, tasks, len(stay), len(gone))

        return await self._change(where, _Call("delete_project", [project_id, cascade], work, again, is_long=True))

    async def link_goal_to_project(self, where: Where, goal_id: str, project_id: str) -> Data:
        """Let a project be part of a goal."""

        async def work(editor: SessionEditor, _: str) -> Staged:
            return await staging.link_goal(editor, goal_id, project_id)

        again = _changed(project_id, model.PROJECT)
        return await self._change(where, _Call("link_goal_to_project", [goal_id, project_id], work, again))

    async def complete_task(self, where: Where, task_id: str, note: str) -> Data:
        """Complete a task."""

        async def work(editor: SessionEditor, _: str) -> Staged:
            return await staging.complete_task(editor, task_id, note, self._clock())

        return await self._change(where, _Call("complete_task", [task_id, note], work, _changed(task_id, model.TASK)))

    # --- reading ---

    async def get_project(self, workspace: str, revision: str, project_id: str, *, with_stats: bool) -> Data:
        """Read a project with its description, and with figures of its tasks and reviews."""
        with await self._permitted(_READS, request := GetTreeRequest(workspace=workspace, revision=revision)):
            state = await self._state(request)
            async with self._store.database.repeatable_read() as conn:
                snapshot = Snapshot(conn, state)
                version = await links.needed(snapshot, project_id, model.PROJECT, "project_id")
                nodes = await read_nodes(snapshot, self._store.entries, [version])
                goals = await links.goals_of(snapshot, version)
                project = shown(version.entry_id, model.PROJECT, version, goals)
                description = nodes[version.entry_id].content if version.entry_id in nodes else ""
                found = await project_statistics(snapshot, version.entry_id, self._clock()) if with_stats else {}
        return {"project": {**project, "description": description}, **found, "commit_id": state.commit_id}

    async def analyze_patterns(
        self,
        workspace: str,
        revision: str,
        archive: str,
        time_range: TimeRange,
        categories: Collection[Category],
        until: datetime | None,
    ) -> Data:
        """Compute what the tasks and reviews of the last weeks show."""
        window = Window.before(until or self._clock(), time_range)
        with await self._permitted(_READS, request := GetTreeRequest(workspace=workspace, revision=revision)):
            state = await self._state(request)
            async with self._store.database.repeatable_read() as conn:
                snapshot = Snapshot(conn, state)
                try:
                    archive_id = (await lookup.archive(snapshot, archive or model.DEFAULT_ARCHIVE)).entry_id
                except lookup.ArchiveNotFoundError:
                    if archive:
                        raise
                    archive_id = ""  # nothing has been planned yet
                plan = await read_plan(snapshot, archive_id, window)
        figures = await analyzed(plan, window, categories)
        return {"time_range": time_range, **window.to_json(), **figures, "commit_id": state.commit_id}

    async def _state(self, request: GetTreeRequest) -> State:
        async with self._store.database.connection() as conn:
            return (await lookup.read_revision(self._store, conn, request.workspace, request.revision)).state

    # --- each call ---

    async def _permitted(self, call: str, request: Any) -> AbstractContextManager[object]:
        """Check that a call may be made; then it is made in what this returns, with the roles of now."""
        lookup.needed("workspace", request.workspace)
        if self._admit is None:
            return nullcontext()
        return acting_as(await self._admit(call, request, principal()))

    async def _change(self, where: Where, call: _Call) -> Data:
        if where.session_id and where.branch:
            fault = "is that of the session when there is a session_id; leave it out."
            raise InvalidInputError.at("branch", fault)
        asked = BatchChangeNodesRequest(workspace=where.workspace, session_id=where.session_id)
        if not where.session_id:
            asked.commit.CopyFrom(CommitAtOnce(branch=where.branch))
        with await self._permitted(_CHANGES, asked):
            there = replace(where, workspace=asked.workspace)
            request = ExecuteToolRequest(
                name=call.tool,
                arguments_json=json.dumps([call.arguments, where.session_id, where.branch, where.message]),
                workspace=there.workspace,
                agent=where.agent,
                request_id=where.request_id,
            )
            if where.session_id:
                answer = await self._stage(there, request, call)
            else:
                answer = await self._commit(there, request, call)
        data: Data = json.loads(answer.result.data_json)
        return data

    async def _stage(self, where: Where, request: ExecuteToolRequest, call: _Call) -> ExecuteToolResponse:
        check_note(where.message)

        async def make(editor: SessionEditor) -> ExecuteToolResponse:
            staged = await call.work(editor, _fresh(editor.session.workspace_id, where))
            data = await staged.show(editor.snapshot)
            return _response(data, staged.notes, session_id=where.session_id)

        named = SessionName(where.workspace, where.session_id)
        return await edit_named_session(self._store, self._limits, named, request, ExecuteToolResponse, call.tool, make)

    async def _commit(self, where: Where, request: ExecuteToolRequest, call: _Call) -> ExecuteToolResponse:
        async def prepare(head: State, branch: str) -> Make:
            node_id = _fresh(head.workspace_id, where)

            async def make(editor: SessionEditor) -> Made:
                staged = await call.work(editor, node_id)

                async def respond(conn: Connection, state: State) -> ExecuteToolResponse:
                    data = await staged.show(Snapshot(conn, state))
                    return _response(data, staged.notes, commit_id=state.commit_id, branch=branch)

                return Made(subject_of(staged.verb, [staged.title], _NODE), respond)

            return make

        async def again(conn: Connection, state: State, branch: str) -> ExecuteToolResponse:
            parents = (await history.read_commit(conn, state.workspace_id, state.commit_id)).parents
            before = Snapshot(conn, State(state.workspace_id, parents[0]))
            data = await call.again(before, Snapshot(conn, state), _fresh(state.workspace_id, where))
            return _response(data, (), commit_id=state.commit_id, branch=branch)

        target = Target(where.workspace, where.branch, where.agent, where.message)
        return await self._commits.run(
            ImmediateCall(request, target, ExecuteToolResponse, call.tool, prepare, again, call.is_long)
        )

    def _made_now(self, new: New) -> New:
        """A new node with the time of its creation, which a repeated call does not have as an argument."""
        now = model.written_time(self._clock())
        title = new.title or f"{new.attributes.get(model.REVIEW_TYPE, '').capitalize()} review of {now[:10]}"
        return replace(new, title=title, attributes={**new.attributes, model.CREATED_AT: now})


def _changed(name: str, kind: str) -> Again:
    """What returns a node that was changed, given its name before the change."""

    async def again(before: Snapshot, after: Snapshot, _: str) -> Data:
        version = await links.needed(before, name, kind, f"{kind}_id")
        return await show_node(version.entry_id, kind)(after)

    return again


def _fresh(workspace_id: str, where: Where) -> str:
    """The id of a new node: the same again for the same request id."""
    return derived_id(workspace_id, kept_request_id(where.request_id), 0) if where.request_id else new_id()


def _response(data: Data, notes: Collection[str], **place: str) -> ExecuteToolResponse:
    told = {**data, **place, **({"notes": list(notes)} if notes else {})}
    return ExecuteToolResponse(result=ToolResult(success=True, data_json=json.dumps(told, ensure_ascii=False)))
