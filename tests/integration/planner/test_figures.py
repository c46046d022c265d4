"""Figures of projects and of the last weeks, also of nodes that no tool has written, and of many."""

from dataclasses import replace
from typing import Any

import pytest
from integration.planner.conftest import BEGIN, Clock, Plans
from integration.statements import recorded
from memotree_storage.model.node import Node, Relation, derived_id
from memotree_storage.model.position import many_between
from memotree_storage.postgres import typed_nodes
from memotree_storage.postgres.tree import State
from psycopg.types.json import Jsonb

from memotree.request.lookup import ArchiveNotFoundError

pytestmark = pytest.mark.requirement("TOOL-7")

MANY = 500
LARGE = 2000  # enough for PostgreSQL to prefer an index


def tasks_of(project: Node, count: int, **attributes: str) -> list[Node]:
    """That many tasks of a project, as a push may bring them."""
    places = many_between(None, None, count)
    relations = (Relation("PART_OF", project.id, ""),)
    return [
        Node(
            derived_id(project.id, number),
            project.archive_id,
            None,
            place,
            type="task",
            title=f"Task {number}",
            content=f"Do {number}.",
            relations=relations,
            attributes={"status": "open", "created_at": "2026-08-20T08:00:00Z", **attributes},
        )
        for number, place in enumerate(places)
    ]


async def a_project(plans: Plans, **given: Any) -> Node:
    return await plans.node(await plans.project(**given))


async def test_figures_are_of_weeks_projects_and_goals(plans: Plans, clock: Clock) -> None:
    goal = await plans.goal()
    bake, read = await plans.project(goal_ids=[goal]), await plans.project("Read")
    first = await plans.task("Flour", project_id=bake, due_date="2026-09-02")
    second = await plans.task("Oven", project_id=bake, due_date="2026-09-20")
    await plans.task("Novel", project_id=read, due_date="2026-09-03T12:00:00Z")
    await plans.task("Alone")
    clock.pass_by(days=2, hours=4)
    await plans.call("complete_task", task_id=first)
    clock.pass_by(days=4)
    await plans.call("write_review", content="Well.", type="weekly", tags=["bread"], mood=8, linked_project_ids=[bake])
    clock.pass_by(days=4)
    await plans.call("complete_task", task_id=second)
    await plans.call("write_review", content="Tired.", type="daily", tags=["bread", "sleep"], mood=3)
    clock.pass_by(days=3, hours=20)
    found = await plans.call("analyze_patterns", time_range="month")
    assert (found["since"], found["until"]) == ("2026-08-18T08:00:00Z", "2026-09-15T08:00:00Z")
    completion = found["completion"]
    told = [completion[name] for name in ("created", "completed", "open_at_end", "completion_rate")]
    assert told == [4, 2, 2, 0.5]
    assert [(week["completed"], week["open_at_end"], week["completion_rate"]) for week in completion["weeks"]] == [
        (0, 0, None),
        (0, 0, None),
        (1, 3, 0.25),
        (1, 2, 0.333),
    ]
    assert (found["overdue"]["count"], found["overdue"]["completed_late"]) == (1, 1)
    late = found["overdue"]["tasks"][0]
    assert (late["title"], late["days_overdue"]) == ("Novel", 11.833)
    hours = {"mean_hours_to_completion": 148.0, "median_hours_to_completion": 148.0}
    assert found["duration"] == {"completed": 2, **hours}
    assert [(group["name"], group["completed"], group["open"]) for group in found["projects"]["groups"]] == [
        ("Bake", 2, 0),
        ("Read", 0, 1),
    ]
    assert found["projects"]["without"]["open"] == 1
    assert [(group["id"], group["completion_rate"]) for group in found["goals"]["groups"]] == [(goal, 1.0)]
    assert found["goals"]["without"]["open"] == 2
    assert found["reviews"]["by_type"] == {"daily": 1, "weekly": 1}
    assert found["reviews"]["mean_mood"] == 5.5
    assert found["reviews"]["tags"] == [{"tag": "bread", "count": 2}, {"tag": "sleep", "count": 1}]
    assert [week["mean_mood"] for week in found["reviews"]["weeks"]] == [None, None, 8.0, 3.0]
    some = await plans.call("analyze_patterns", time_range="week", categories=["duration"], until="2026-09-07")
    assert some["duration"]["completed"] == 1
    assert set(some) == {"time_range", "since", "until", "duration", "commit_id"}
    assert (await plans.call("get_project", project_id=bake, include_stats=False)).keys() == {"project", "commit_id"}


async def test_a_workspace_without_a_plan_has_figures_of_nothing(plans: Plans) -> None:
    found = await plans.call("analyze_patterns", time_range="quarter")
    assert found["completion"]["completion_rate"] is None
    assert found["reviews"]["count"] == found["overdue"]["count"] == 0
    with pytest.raises(ArchiveNotFoundError):
        await plans.call("analyze_patterns", time_range="week", archive="nowhere")


async def test_attributes_that_no_tool_writes_count_as_not_given(plans: Plans, clock: Clock) -> None:
    project = await a_project(plans)
    odd: list[dict[str, str]] = [
        {"status": "done", "created_at": "yesterday", "due_date": "soon", "priority": "\u2603"},
        {"status": "completed", "created_at": "", "completed_at": ""},
        {"status": "completed", "created_at": "2026-09-05T00:00:00Z", "completed_at": "2026-09-01T09:00:00Z"},
        {"status": "completed", "completed_at": "1 September 2026 9:00", "created_at": "2026-09-01T08:00:00+14:00"},
        {"status": "open", "due_date": "9999-12-31", "completed_at": "2026-09-01T09:00:00Z"},
        {"status": "open", "due_date": "0001-01-01T00:00:00+14:00"},
    ]
    made = tasks_of(project, len(odd) + 2)
    tasks = [replace(task, attributes=own) for task, own in zip(made, odd, strict=False)]
    feeling = {"mood": "nan", "review_type": "hourly", "created_at": "2026-09-01T08:30:00Z"}
    about = (Relation("ABOUT", project.id, ""),)
    review = replace(made[-2], type="review", relations=about, attributes=feeling)
    other = replace(made[-1], type="note", attributes={})
    await plans.world.put(*tasks, review, other)
    clock.pass_by(days=1)
    found = await plans.call("get_project", project_id=project.id)
    assert (found["stats"]["tasks"], found["stats"]["completed"], found["stats"]["open"]) == (6, 3, 3)
    assert (found["stats"]["reviews"], found["stats"]["mean_mood"]) == (1, None)
    assert found["stats"]["mean_hours_to_completion"] == 15.0
    figures = await plans.call("analyze_patterns", time_range="week")
    assert figures["completion"]["completed"] == 1, (
        "one was made after these weeks, and one does not tell when it ended"
    )
    assert figures["reviews"]["by_type"] == {"hourly": 1}


@pytest.mark.parametrize("cascade", [True, False])
async def test_many_tasks_are_deleted_or_unlinked_in_one_commit_with_few_statements(
    plans: Plans, cascade: bool
) -> None:
    project = await a_project(plans)
    tasks = tasks_of(project, MANY)
    await plans.world.put(*tasks)
    before = await plans.world.head()
    with recorded() as sent:
        answer = await plans.call("delete_project", project_id=project.id, cascade=cascade)
    assert (answer["deleted_tasks"], answer["unlinked_tasks"]) == ((MANY, 0) if cascade else (0, MANY))
    assert len(sent) < MANY / 10, "a statement for many tasks"
    assert plans.world.repository.commit_info(answer["commit_id"]).parents == (before,)
    node = await plans.find(tasks[-1].id)
    if cascade:
        assert node is None
    else:
        assert node is not None
        assert (node.relations, node.content) == ((), tasks[-1].content)


async def test_reading_a_project_costs_as_many_statements_for_many_tasks_as_for_few(plans: Plans) -> None:
    few, many = await a_project(plans), await a_project(plans, name="Many")
    await plans.world.put(*tasks_of(few, 2), *tasks_of(many, MANY, due_date="2026-08-30"))
    counts, answers = [], []
    for project in (few, many):
        await plans.call("get_project", project_id=project.id)
        with recorded() as sent:
            answers.append(await plans.call("get_project", project_id=project.id))
        counts.append(len(sent))
    assert counts[0] == counts[1]
    assert answers[1]["stats"]["overdue"] == MANY
    assert len(answers[1]["open_tasks"]) == 20
    found = await plans.call("analyze_patterns", time_range="week", until=BEGIN.isoformat())
    assert found["overdue"]["count"] == MANY
    assert len(found["overdue"]["tasks"]) == 20


@pytest.mark.own_store
async def test_figures_are_read_by_indexes_in_a_large_tree(plans: Plans) -> None:
    project = await a_project(plans)
    await plans.world.put(*tasks_of(project, 30))
    first, *others = plans.world.nodes(LARGE)
    links = (Relation("REFERENCES", first.id, ""),)
    await plans.world.put(first, *(replace(node, relations=links) for node in others[::3]), *others[1::3])
    arguments = State(plans.world.workspace, await plans.world.head()).arguments(
        ids=[project.id],
        archive=project.archive_id,
        types=["task"],
        attributes=Jsonb({"task": "completed_at"}),
        since="2026-01-01",
    )
    async with plans.world.store.database.connection() as conn:
        await conn.execute("analyze mirror.version")
        for statement, index in (
            (typed_nodes._POINTING_STATEMENT, "version_targets"),
            (typed_nodes._RECENT_STATEMENT, "version_by_archive"),
        ):
            plan = [row[0] for row in await (await conn.execute(f"explain {statement}", arguments)).fetchall()]
            assert any(f"Scan on {index}" in line or f"using {index}" in line for line in plan), plan
            assert not any("Seq Scan on version" in line for line in plan), plan
