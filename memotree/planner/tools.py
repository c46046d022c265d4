"""The tools on plans, as agents call them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import date, timedelta
from typing import Annotated, Any, Final, cast

from memotree_storage.errors import InvalidInputError
from memotree_storage.model.workspace import WorkspaceNotFoundError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from memotree.planner import model
from memotree.planner.model import GoalStage, Priority, ProjectStatus, ReviewType
from memotree.planner.patterns import Category, TimeRange
from memotree.planner.planner import Planner, Where
from memotree.planner.staging import Link, New, ProjectChange
from memotree.tools.declaration import Permission
from memotree.tools.function_tool import CallContext, FunctionTool, tool, tools_of
from memotree.v1 import workspace_service_pb2

CATEGORY: Final = "planner"

_LONGEST: Final = 1000
_MOST_LINKS: Final = 100
_MOST_TEXT: Final = 1 << 20
_EARLIEST_YEAR: Final = 1970

Title = Annotated[str, Field(min_length=1, max_length=500)]
Text = Annotated[str, Field(max_length=_MOST_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=_LONGEST)]
"""Of a node: its id, the beginning of one, its title or its path."""

Names = Annotated[tuple[Name, ...], Field(max_length=_MOST_LINKS)]
Mood = Annotated[float, Field(ge=1, le=10)]
Moment = Annotated[str, Field(max_length=64), AfterValidator(model.checked_due_date)]

Workspace = Annotated[str, Field(max_length=_LONGEST, description="The default workspace when not given.")]
Revision = Annotated[
    str, Field(max_length=_LONGEST, description="A session, branch, tag or commit to read; the default branch else.")
]
Session = Annotated[
    str,
    Field(max_length=_LONGEST, description="The session that stages the change; without one it is committed at once."),
]
Branch = Annotated[
    str, Field(max_length=_LONGEST, description="The branch of the commit, without a session; the default branch else.")
]
Message = Annotated[str, Field(max_length=2000, description="Why, for the commit.")]
Archive = Annotated[
    str,
    Field(max_length=_LONGEST, description=f"The archive, made if there is none; {model.DEFAULT_ARCHIVE} else."),
]

_WRITES: Final = (Permission("write", "workspace"),)
_DELETES: Final = (Permission("delete", "workspace"),)
_READS: Final = (Permission("read", "workspace"),)

_CASCADE_SECONDS: Final = 300
"""How long a deletion may take: one of many thousand tasks is one commit."""


class ProjectUpdates(BaseModel):
    """New values of a project."""

    model_config = ConfigDict(extra="forbid")

    name: Title | None = Field(None, description="The new name.")
    description: Text | None = Field(None, description="The new description.")
    status: ProjectStatus | None = Field(None, description="The new status.")
    goal_ids: Names | None = Field(None, description="Exactly the goals that it serves from now on.")


class PlannerTools:
    """Goals, projects, tasks and reviews.

    Args:
        planner: Makes the changes and reads.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    @tool(
        category=CATEGORY,
        title="Create a project",
        permissions=_WRITES,
        examples=({"name": "Learn to bake", "description": "Bread without a machine.", "status": "active"},),
    )
    async def create_project(
        self,
        context: CallContext,
        name: Annotated[Title, Field(description="Its name.")],
        description: Annotated[Text, Field(description="What it is about.")] = "",
        goal_ids: Annotated[Names, Field(description="The goals that it serves, by id or title.")] = (),
        status: Annotated[ProjectStatus, Field(description="How far it is.")] = "active",
        archive: Archive = "",
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Create a project: something that has tasks and ends."""
        new = New(
            model.PROJECT,
            name,
            description,
            archive,
            {model.STATUS: status},
            links=[Link("goal_ids", goal_ids, model.GOAL, model.PART_OF)],
            names={"title": "name", "content": "description", "relations": "goal_ids"},
        )
        return await self._create(context, "create_project", new, Where(workspace, session_id, branch, message))

    @tool(
        category=CATEGORY,
        title="Update a project",
        destructive=True,
        permissions=_WRITES,
        examples=({"project_id": "Learn to bake", "updates": {"status": "paused"}},),
    )
    async def update_project(
        self,
        context: CallContext,
        project_id: Annotated[Name, Field(description="The project, by its id or name.")],
        updates: Annotated[ProjectUpdates, Field(description="What changes; all else stays as it is.")],
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Change the name, description, status or goals of a project."""
        change = ProjectChange(updates.name, updates.description, updates.status, updates.goal_ids)
        if change == ProjectChange():
            raise InvalidInputError.at("updates", "has nothing to change; give name, description, status or goal_ids.")
        where = Where(workspace, session_id, branch, message)
        return await self._change(context, where, lambda there: self._planner.update_project(there, project_id, change))

    @tool(
        category=CATEGORY,
        title="Delete a project",
        destructive=True,
        permissions=_DELETES,
        examples=({"project_id": "Learn to bake", "cascade": True},),
        timeout=timedelta(seconds=_CASCADE_SECONDS),
    )
    async def delete_project(
        self,
        context: CallContext,
        project_id: Annotated[Name, Field(description="The project, by its id or name.")],
        cascade: Annotated[
            bool, Field(description="Whether its tasks are deleted, too; else they stay, and are of no project.")
        ] = False,
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Delete a project. It stays in the history, from where it can be restored."""
        where = Where(workspace, session_id, branch, message)
        return await self._change(
            context, where, lambda there: self._planner.delete_project(there, project_id, cascade=cascade)
        )

    @tool(
        category=CATEGORY,
        title="Read a project",
        read_only=True,
        permissions=_READS,
        examples=({"project_id": "Learn to bake"},),
    )
    async def get_project(
        self,
        context: CallContext,
        project_id: Annotated[Name, Field(description="The project, by its id or name.")],
        include_stats: Annotated[
            bool, Field(description="Whether its tasks are counted, and the open ones told that are due first.")
        ] = True,
        workspace: Workspace = "",
        revision: Revision = "",
    ) -> dict[str, Any]:
        """Read a project: its status and goals, how its tasks stand, and which of them are next."""
        return await self._in_workspace(
            context,
            workspace,
            lambda there: self._planner.get_project(there, revision, project_id, with_stats=include_stats),
        )

    @tool(
        category=CATEGORY,
        title="Create a goal",
        permissions=_WRITES,
        examples=({"title": "Eat better", "stage": "yearly", "deadline": "2026-12-31"},),
    )
    async def create_goal(
        self,
        context: CallContext,
        title: Annotated[Title, Field(description="What is to be reached, in a line.")],
        stage: Annotated[GoalStage, Field(description="How far it looks ahead: the whole life, a year or a quarter.")],
        description: Annotated[Text, Field(description="What there is to say about it.")] = "",
        deadline: Annotated[date | None, Field(description="The day by which it should be reached.")] = None,
        archive: Archive = "",
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Create a goal, which projects can serve."""
        attributes = {model.STAGE: stage, model.DEADLINE: "" if deadline is None else deadline.isoformat()}
        new = New(model.GOAL, title, description, archive, attributes, names={"content": "description"})
        return await self._create(context, "create_goal", new, Where(workspace, session_id, branch, message))

    @tool(
        category=CATEGORY,
        title="Link a goal to a project",
        idempotent=True,
        permissions=_WRITES,
        examples=({"goal_id": "Eat better", "project_id": "Learn to bake"},),
    )
    async def link_goal_to_project(
        self,
        context: CallContext,
        goal_id: Annotated[Name, Field(description="The goal, by its id or title.")],
        project_id: Annotated[Name, Field(description="The project, by its id or name.")],
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Say that a project serves a goal: a PART_OF relation from the project to the goal."""
        where = Where(workspace, session_id, branch, message)
        return await self._change(
            context, where, lambda there: self._planner.link_goal_to_project(there, goal_id, project_id)
        )

    @tool(
        category=CATEGORY,
        title="Create a task",
        permissions=_WRITES,
        examples=({"title": "Buy flour", "project_id": "Learn to bake", "due_date": "2026-12-01", "priority": "high"},),
    )
    async def create_task(
        self,
        context: CallContext,
        title: Annotated[Title, Field(description="What to do, in a line.")],
        description: Annotated[Text, Field(description="What there is to say about it.")] = "",
        project_id: Annotated[
            str, Field(max_length=_LONGEST, description="The project that it is part of, by its id or name.")
        ] = "",
        due_date: Annotated[
            Moment | None,
            Field(description="A day, or a time such as 2026-12-01T17:00:00+01:00; UTC without a zone."),
        ] = None,
        priority: Annotated[Priority | None, Field(description="How urgent it is.")] = None,
        archive: Annotated[
            str, Field(max_length=_LONGEST, description="The archive; that of its project, or planner, else.")
        ] = "",
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Create a task: something to do that can be completed."""
        given = [project_id] if project_id else []
        new = New(
            model.TASK,
            title,
            description,
            archive,
            {model.STATUS: model.OPEN, model.DUE_DATE: due_date or "", model.PRIORITY: priority or ""},
            links=[Link("project_id", given, model.PROJECT, model.PART_OF, is_list=False, gives_archive=True)],
            names={"content": "description"},
        )
        return await self._create(context, "create_task", new, Where(workspace, session_id, branch, message))

    @tool(
        category=CATEGORY,
        title="Complete a task",
        permissions=_WRITES,
        examples=({"task_id": "Buy flour", "completion_note": "Five kilos."},),
    )
    async def complete_task(
        self,
        context: CallContext,
        task_id: Annotated[Name, Field(description="The task, by its id or title.")],
        completion_note: Annotated[str, Field(max_length=4000, description="What there is to say about it.")] = "",
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Mark a task as completed, now."""
        where = Where(workspace, session_id, branch, message)
        return await self._change(
            context, where, lambda there: self._planner.complete_task(there, task_id, completion_note)
        )

    @tool(
        category=CATEGORY,
        title="Write a review",
        permissions=_WRITES,
        examples=({"content": "The dough was too wet.", "type": "daily", "tags": ["baking"], "mood": 6},),
    )
    async def write_review(
        self,
        context: CallContext,
        content: Annotated[str, Field(min_length=1, max_length=_MOST_TEXT, description="What you think about it.")],
        type: Annotated[ReviewType, Field(description="How much time it looks back on.")],  # noqa: A002 - S4's name
        tags: Annotated[tuple[str, ...], Field(max_length=64, description="What it is about.")] = (),
        linked_project_ids: Annotated[Names, Field(description="The projects that it is about, by id or name.")] = (),
        mood: Annotated[Mood | None, Field(description="From 1, bad, to 10.")] = None,
        archive: Archive = "",
        session_id: Session = "",
        branch: Branch = "",
        message: Message = "",
        workspace: Workspace = "",
    ) -> dict[str, Any]:
        """Write down how a day, week or month went. Reviews are searched and recalled like all notes."""
        new = New(
            model.REVIEW,
            "",
            content,
            archive,
            {model.REVIEW_TYPE: type, model.MOOD: "" if mood is None else f"{mood:g}"},
            tags,
            links=[Link("linked_project_ids", linked_project_ids, model.PROJECT, model.ABOUT)],
            names={"relations": "linked_project_ids"},
        )
        return await self._create(context, "write_review", new, Where(workspace, session_id, branch, message))

    @tool(
        category=CATEGORY,
        title="Analyze patterns",
        read_only=True,
        permissions=_READS,
        examples=({"time_range": "month"}, {"time_range": "week", "categories": ["overdue", "reviews"]}),
    )
    async def analyze_patterns(
        self,
        context: CallContext,
        time_range: Annotated[
            TimeRange, Field(description="The weeks that are looked at: 1, 4 (month) or 13 (quarter).")
        ],
        categories: Annotated[
            tuple[Category, ...], Field(max_length=20, description="What is computed; all when not given.")
        ] = (),
        until: Annotated[
            Moment | None, Field(description="The end of these weeks, a day or a time; now when not given.")
        ] = None,
        archive: Annotated[
            str, Field(max_length=_LONGEST, description="The archive of the plan; planner when not given.")
        ] = "",
        workspace: Workspace = "",
        revision: Revision = "",
    ) -> dict[str, Any]:
        """Compute what tasks and reviews show: completion by week, what is overdue, how long tasks take, moods, tags.

        The figures are also given by project and by goal. Put them into words yourself.
        """
        end = None if until is None else model.end_of(until)
        if end is not None and end.year < _EARLIEST_YEAR:
            raise InvalidInputError.at("until", f"must be in {_EARLIEST_YEAR} or later.")

        async def analyze(there: str) -> dict[str, Any]:
            return await self._planner.analyze_patterns(there, revision, archive, time_range, categories, end)

        return await self._in_workspace(context, workspace, analyze)

    async def _create(self, context: CallContext, name: str, new: New, where: Where) -> dict[str, Any]:
        return await self._change(context, where, lambda there: self._planner.create(there, name, new))

    async def _change(
        self, context: CallContext, where: Where, make: Callable[[Where], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        async def change(workspace: str) -> dict[str, Any]:
            place = (where.session_id, where.branch, where.message)
            return await make(Where(workspace, *place, context.agent, context.request_id))

        return await self._in_workspace(context, where.workspace, change)

    @staticmethod
    async def _in_workspace(
        context: CallContext, workspace: str, call: Callable[[str], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Make a call; if the default workspace is meant and does not exist, it is made first."""
        try:
            return await call(workspace or context.workspace)
        except WorkspaceNotFoundError:
            if workspace:
                raise
        service = workspace_service_pb2.DESCRIPTOR.services_by_name["WorkspaceService"]
        request = workspace_service_pb2.GetWorkspaceRequest(workspace=context.workspace)
        await context.operations.call(service.methods_by_name["GetWorkspace"], request)
        return await call(context.workspace)


def declared_tools() -> Sequence[FunctionTool]:
    """The tools on plans for whoever reads only what they declare: they have no plans to work on."""
    return tools_of(PlannerTools(cast("Planner", None)))
