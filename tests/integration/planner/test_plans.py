"""Tools on plans: what they write, what they refuse, and that it is versioned like all other nodes."""

from dataclasses import replace

import pytest
from integration.planner.conftest import Clock, Plans
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Relation
from memotree_storage.postgres import sessions
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.canvas.edits import HasChildrenError
from memotree.planner.staging import TaskCompletedError
from memotree.request.lookup import NodeNotFoundError
from memotree.tools.signature import WrongArgumentsError

pytestmark = pytest.mark.requirement("TOOL-7")


async def test_a_plan_is_made_of_typed_nodes_and_relations(plans: Plans, clock: Clock) -> None:
    goal = await plans.goal(deadline="2026-12-31", description="Less sugar.")
    made = await plans.call("create_project", name="Bake", description="Bread.", goal_ids=[goal])
    project = made["project"]["id"]
    assert made["project"] == {
        "id": project,
        "name": "Bake",
        "status": "active",
        "goal_ids": [goal],
        "created_at": "2026-09-01T08:00:00Z",
    }
    assert (made["branch"], made["commit_id"]) == ("main", await plans.world.head())
    clock.pass_by(days=1)
    task = await plans.task(project_id="Bake", due_date="2026-09-05T17:00:00+02:00", priority="high")
    clock.pass_by(hours=6)
    done = await plans.call("complete_task", task_id="Buy flour", completion_note="Five kilos.")
    assert done["task"] == {
        "id": task,
        "title": "Buy flour",
        "status": "completed",
        "project_id": project,
        "due_date": "2026-09-05T15:00:00Z",
        "priority": "high",
        "created_at": "2026-09-02T08:00:00Z",
        "completed_at": "2026-09-02T14:00:00Z",
        "completion_note": "Five kilos.",
    }
    with pytest.raises(TaskCompletedError, match="since 2026-09-02T14:00:00Z"):
        await plans.call("complete_task", task_id=task)
    review = await plans.call(
        "write_review", content="Too wet.", type="daily", tags=["dough"], linked_project_ids=[project], mood=6.5
    )
    assert (review["review"]["title"], review["review"]["mood"]) == ("Daily review of 2026-09-02", 6.5)
    node = await plans.node(task)
    assert (node.type, node.relations) == ("task", (Relation("PART_OF", project, ""),))
    node = await plans.node(project)
    assert (node.type, node.content, node.relations) == ("project", "Bread.", (Relation("PART_OF", goal, ""),))
    node = await plans.node(review["review"]["id"])
    assert (node.type, node.content, node.relations) == ("review", "Too wet.", (Relation("ABOUT", project, ""),))
    goal_node = await plans.node(goal)
    assert goal_node.attributes["deadline"] == "2026-12-31"
    assert node.archive_id == goal_node.archive_id


async def test_the_commit_says_what_was_done_and_by_whom(plans: Plans) -> None:
    await plans.project()
    info = plans.world.repository.commit_info(await plans.world.head())
    assert info.message.splitlines()[0] == "Add: Bake"
    assert "MemoTree-Tool: create_project" in info.message
    assert info.author.name == "ada"
    await plans.call("update_project", project_id="Bake", updates={"status": "paused"}, message="Winter")
    assert plans.world.repository.commit_info(await plans.world.head()).message.splitlines()[0] == "Winter"


async def test_every_fault_is_told_with_its_path(plans: Plans) -> None:
    goal, task, project = await plans.goal(), await plans.task(), await plans.project()
    days = ("2026-02-30", "2026-01-01T25:00", "2026-13-01", "05/08/2026", "9999-12-31T23:59:00-14:00", "")
    calls: list[tuple[str, dict[str, object], set[str]]] = [
        ("create_project", {"name": "", "status": "on", "goal_ids": "x", "extra": 1}, {"name", "status", "extra"}),
        ("create_project", {"name": "a\nb", "goal_ids": [goal, task]}, {"name", "goal_ids[1]"}),
        ("create_task", {"title": "x", "due_date": "tomorrow", "priority": "top"}, {"due_date", "priority"}),
        *(("create_task", {"title": "x", "due_date": day}, {"due_date"}) for day in days),
        ("create_goal", {"title": "x", "stage": "soon", "deadline": "2026-02-30"}, {"stage", "deadline"}),
        ("write_review", {"content": "x", "type": "hourly", "mood": 11}, {"type", "mood"}),
        ("write_review", {"content": "x\x00", "type": "daily", "tags": ["a\tb"]}, {"content", "tags[0]"}),
        (
            "update_project",
            {"project_id": "x", "updates": {"name": "", "state": "on"}},
            {"updates.name", "updates.state"},
        ),
        ("update_project", {"project_id": project, "updates": {}}, {"updates"}),
        (
            "update_project",
            {"project_id": project, "updates": {"name": "a\nb", "goal_ids": [task]}},
            {"updates.name", "updates.goal_ids[0]"},
        ),
        ("link_goal_to_project", {"goal_id": project, "project_id": goal}, {"goal_id", "project_id"}),
        ("complete_task", {"task_id": project}, {"task_id"}),
        ("create_task", {"title": "x", "session_id": "0" * 16, "branch": "main"}, {"branch"}),
        ("create_task", {"title": "x", "archive": "a\nb"}, {"archive"}),
        (
            "analyze_patterns",
            {"time_range": "day", "categories": ["x"], "until": "now"},
            {"time_range", "categories[0]", "until"},
        ),
        ("analyze_patterns", {"time_range": "week", "until": "0001-01-01"}, {"until"}),
    ]
    for name, given, paths in calls:
        with pytest.raises((WrongArgumentsError, InvalidInputError)) as caught:
            await plans.call(name, **given)
        assert isinstance(caught.value, (WrongArgumentsError, InvalidInputError))
        assert {fault.field for fault in caught.value.violations} == paths, (name, given)


async def test_what_does_not_exist_is_not_found(plans: Plans) -> None:
    for name, given in (
        ("get_project", {"project_id": "0" * 16}),
        ("delete_project", {"project_id": "0" * 16}),
        ("complete_task", {"task_id": "0" * 16}),
        ("create_task", {"title": "x", "project_id": "0" * 16}),
        ("create_project", {"name": "x", "goal_ids": ["0" * 16]}),
    ):
        with pytest.raises(NodeNotFoundError):
            await plans.call(name, **given)
    with pytest.raises(BranchNotFoundError):
        await plans.call("create_task", title="x", branch="nowhere")


async def test_an_update_keeps_what_it_does_not_name(plans: Plans) -> None:
    goal, other = await plans.goal(), await plans.goal("Sleep")
    project = await plans.project(description="Bread.", goal_ids=[goal])
    note = await plans.task("A note")
    node = await plans.node(project)
    relations = tuple(sorted([*node.relations, Relation("PART_OF", note, "stays"), Relation("REFERENCES", note, "")]))
    await plans.world.put(replace(node, relations=relations, attributes={**node.attributes, "colour": "red"}))
    await plans.call("update_project", project_id=project, updates={"status": "completed"})
    await plans.call("update_project", project_id=project, updates={"goal_ids": [other], "name": "Bake bread"})
    changed = await plans.node(project)
    assert (changed.title, changed.content) == ("Bake bread", "Bread.")
    assert changed.attributes["colour"] == "red"
    assert changed.attributes["status"] == "completed"
    assert {(one.type, one.target_id) for one in changed.relations} == {
        ("PART_OF", other),
        ("PART_OF", note),
        ("REFERENCES", note),
    }
    answer = await plans.call("update_project", project_id=project, updates={"description": "", "goal_ids": []})
    assert answer["project"]["goal_ids"] == []
    assert (await plans.call("get_project", project_id=project))["project"]["description"] == ""
    with pytest.raises(NothingToCommitError):
        await plans.call("update_project", project_id=project, updates={"status": "completed"})


async def test_a_project_is_linked_to_several_goals_once_each(plans: Plans) -> None:
    goals = sorted([await plans.goal(f"Goal {number}") for number in range(3)])
    project = await plans.project(goal_ids=[goals[0], goals[0]])
    for goal in goals[1:]:
        linked = await plans.call("link_goal_to_project", goal_id=goal, project_id=project)
    assert linked["project"]["goal_ids"] == goals
    with pytest.raises(NothingToCommitError):
        await plans.call("link_goal_to_project", goal_id=goals[0], project_id=project)


async def test_a_deleted_project_leaves_its_tasks_without_it(plans: Plans) -> None:
    project = await plans.project()
    tasks = [await plans.task(f"Task {number}", project_id=project, description="Do.") for number in range(3)]
    review = await plans.call("write_review", content="Well.", type="weekly", linked_project_ids=[project])
    answer = await plans.call("delete_project", project_id=project)
    assert answer["deleted"] == {"id": project, "name": "Bake"}
    assert (answer["deleted_tasks"], answer["unlinked_tasks"], answer["deleted_nodes"]) == (0, 3, 1)
    assert answer["notes"] == [
        f"{review['review']['id']} ({review['review']['title']}) has an ABOUT relation to {project}, which is deleted."
    ]
    assert await plans.find(project) is None
    for task in tasks:
        node = await plans.node(task)
        assert (node.relations, node.content) == ((), "Do.")


async def test_a_cascade_deletes_the_tasks_but_those_of_other_projects(plans: Plans) -> None:
    project, other, gone = await plans.project(), await plans.project("Cook"), await plans.project("Gone")
    tasks = [await plans.task(f"Task {number}", project_id=project) for number in range(4)]
    for task, second in ((tasks[0], other), (tasks[1], gone)):
        node = await plans.node(task)
        await plans.world.put(
            replace(node, relations=tuple(sorted([*node.relations, Relation("PART_OF", second, "")])))
        )
    below = plans.world.node("Below a task", parent=tasks[2], archive_id=node.archive_id)
    under = plans.world.node("Below the project", parent=project, archive_id=node.archive_id)
    await plans.world.put(below, under)
    node = await plans.node(gone)
    await plans.world.put(delete=[node])
    with pytest.raises(HasChildrenError, match="pass cascade"):
        await plans.call("delete_project", project_id=project)
    answer = await plans.call("delete_project", project_id=project, cascade=True)
    assert (answer["deleted_tasks"], answer["unlinked_tasks"], answer["deleted_nodes"]) == (3, 1, 6)
    stays = await plans.node(tasks[0])
    assert stays.relations == (Relation("PART_OF", other, ""),)
    for each in (*tasks[1:], below.id, under.id, project):
        assert await plans.find(each) is None


async def test_plans_lie_in_one_archive_which_is_made_when_it_is_missing_unless_another_is_named(plans: Plans) -> None:
    opened = [await plans.world.open() for _ in range(2)]
    made = []
    for plans.session in opened:
        made.append(await plans.task(f"Task of {plans.session}"))
    for session in opened:
        await plans.world.commit(session)
    plans.session = ""
    first, second = [await plans.node(task) for task in made]
    assert first.archive_id == second.archive_id, "of two sessions that plan first, too"
    await plans.world.put(delete=[first.archive_id, first, second])
    again = await plans.node(await plans.task())
    assert again.archive_id != first.archive_id
    project = await plans.project(archive="work")
    tasks = await plans.task(project_id=project), await plans.task("Else", project_id=project, archive="home")
    archives = [(await plans.node(each)).archive_id for each in (project, *tasks)]
    assert archives[0] == archives[1] != archives[2]


async def test_a_request_id_takes_effect_once(plans: Plans) -> None:
    project = await plans.call("create_project", request_id="a", name="Bake")
    plans.clock.pass_by(hours=1)
    assert await plans.call("create_project", request_id="a", name="Bake") == project
    with pytest.raises(RequestIdReusedError):
        await plans.call("create_project", request_id="a", name="Cook")
    task = await plans.call("create_task", request_id="b", title="Buy", project_id=project["project"]["id"])
    done = await plans.call("complete_task", request_id="c", task_id=task["task"]["id"])
    assert await plans.call("complete_task", request_id="c", task_id=task["task"]["id"]) == done
    gone = await plans.call("delete_project", request_id="d", project_id="Bake", cascade=True)
    assert gone["deleted_tasks"] == 1
    assert await plans.call("delete_project", request_id="d", project_id="Bake", cascade=True) == gone


async def test_a_commit_whose_answer_was_lost_is_told_again(plans: Plans) -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("create_goal", {"title": "Eat better", "stage": "life"}),
        ("create_project", {"name": "Bake"}),
        ("create_task", {"title": "Buy", "project_id": "Bake"}),
        ("create_task", {"title": "Knead", "project_id": "Bake"}),
        ("link_goal_to_project", {"goal_id": "Eat better", "project_id": "Bake"}),
        ("update_project", {"project_id": "Bake", "updates": {"name": "Bake bread"}}),
        ("complete_task", {"task_id": "Buy", "completion_note": "Yes."}),
        ("write_review", {"content": "Well.", "type": "daily"}),
        ("delete_project", {"project_id": "Bake bread", "cascade": True}),
    ]
    for number, (name, given) in enumerate(calls):
        told = await plans.call(name, request_id=f"r{number}", **given)
        head = await plans.world.head()
        async with plans.world.store.database.transaction() as conn:
            await conn.execute("delete from work.request")
        assert await plans.call(name, request_id=f"r{number}", **given) == told
        assert await plans.world.head() == head


async def test_nothing_is_left_of_a_call_that_is_refused(plans: Plans) -> None:
    async def left() -> tuple[str, int]:
        async with plans.world.store.database.connection() as conn:
            return await plans.world.head(), len(await sessions.list_sessions(conn, plans.world.workspace, closed=True))

    goal, before = await plans.goal(), await left()
    with pytest.raises(InvalidInputError):
        await plans.call("create_project", name="Bake", goal_ids=[goal], archive="new", description="\x00")
    assert await left() == before
