"""Any calls of the tools on plans, in sessions and in commits of their own, do what dictionaries do.

The model has all nodes of the plan with their attributes and links. The figures of projects and of the last weeks are
counted from it in the plainest way.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from statistics import fmean, median
from typing import Any

import pytest
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.errors import MemoTreeError
from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State
from property.store_harness import StoreHarness, WorkspaceMachine

from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.planner import Planner, PlannerTools
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.sessions import SessionOperations
from memotree.tools.function_tool import CallContext, tools_of
from memotree.v1 import session_service_pb2 as pb

Model = dict[str, dict[str, Any]]

choices = st.integers(0, 1000)
titles = st.sampled_from(["Bake", "Read", "Run", "Write a letter", "Die Tür streichen", "茶"])
texts = st.sampled_from(["", "Bread without a machine.", "# Head\n\nAnd a text."])
days = st.integers(-20, 20)
priorities = st.sampled_from([None, "low", "high"])
statuses = st.sampled_from(["active", "paused", "completed"])
BEGIN = datetime(2026, 9, 1, 8, tzinfo=UTC)


def written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def read(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


class Unused:
    """Operations that no call needs: the workspace is there."""

    async def call(self, method: Any, request: Any) -> Any:
        raise AssertionError(method, request)


class Plans(WorkspaceMachine):
    """Random calls on one branch, and in one session at a time."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        self.now = BEGIN
        limits = ServiceLimits()
        planner = Planner(harness.store, limits, clock=lambda: self.now)
        self.tools = {tool.name: tool for tool in tools_of(PlannerTools(planner))}
        resolver = ConflictResolution(harness.store, limits)
        self.sessions = SessionOperations(harness.store, PageTokens(), limits, resolver=resolver)
        self.committed: Model = {}
        self.staged: Model | None = None
        self.meanwhile: Model = {}
        self.session = ""
        self.last = ""
        """The commit that the last call made."""
        self.states: list[tuple[str, Model]] = []

    # --- time and sessions ---

    @rule(hours=st.sampled_from([1, 5, 30, 24 * 7]))
    def time_passes(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    @precondition(lambda self: not self.session)
    @rule()
    def open(self) -> None:
        request = pb.OpenSessionRequest(workspace=self.workspace, agent="ada")
        self.session = self.harness.run(self.sessions.open_session(request)).session.id
        self.staged, self.meanwhile = deepcopy(self.committed), {}

    @precondition(lambda self: self.session)
    @rule(title=titles)
    def somebody_else_commits(self, title: str) -> None:
        session, self.session = self.session, ""
        node = self._made("create_goal", "goal", title=title, stage="life")
        self.session = session
        self.meanwhile |= node
        self.committed |= node

    @precondition(lambda self: self.session)
    @rule(keeps=st.booleans())
    def close(self, keeps: bool) -> None:
        place = {"workspace": self.workspace, "session_id": self.session}
        assert self.staged is not None
        if keeps:
            request = pb.CommitChangesRequest(**place, message="Plan")
            is_same = {key: node for key, node in self.committed.items() if key not in self.meanwhile} == self.staged
            if is_same and (self.states or self.committed):
                with pytest.raises(NothingToCommitError):
                    self.harness.run(self.sessions.commit_changes(request))
            elif is_same:  # the archive, which the first plan needed, may be left
                with suppress(NothingToCommitError):
                    self.harness.run(self.sessions.commit_changes(request))
            else:
                commit_id = self.harness.run(self.sessions.commit_changes(request)).commit_id
                self.committed = self.staged | self.meanwhile
                self.states.append((commit_id, deepcopy(self.committed)))
        self.harness.run(self.sessions.discard_session(pb.DiscardSessionRequest(**place)))
        self.session, self.staged = "", None

    # --- changes ---

    @rule(title=titles, day=st.none() | days)
    def goal(self, title: str, day: int | None) -> None:
        deadline = None if day is None else (BEGIN + timedelta(days=day)).date().isoformat()
        self.model.update(self._made("create_goal", "goal", title=title, stage="yearly", deadline=deadline))

    @rule(name=titles, text=texts, status=statuses, goals=st.lists(choices, max_size=2))
    def project(self, name: str, text: str, status: str, goals: list[int]) -> None:
        chosen = [each for each in (self._some("goal", choice) for choice in goals) if each]
        given = {"name": name, "description": text, "status": status, "goal_ids": chosen}
        self.model.update(self._made("create_project", "project", **given))

    @rule(title=titles, text=texts, project=st.none() | choices, day=st.none() | days, priority=priorities)
    def task(self, title: str, text: str, project: int | None, day: int | None, priority: str | None) -> None:
        part = "" if project is None else self._some("project", project)
        due = None if day is None else written(BEGIN + timedelta(days=day))
        given = {"title": title, "description": text, "project_id": part, "due_date": due, "priority": priority}
        self.model.update(self._made("create_task", "task", **given))

    @rule(text=titles, kind=st.sampled_from(["daily", "weekly"]), project=st.none() | choices, mood=st.integers(1, 10))
    def review(self, text: str, kind: str, project: int | None, mood: int) -> None:
        part = "" if project is None else self._some("project", project)
        given = {"content": text, "type": kind, "mood": mood, "linked_project_ids": [part] if part else []}
        self.model.update(self._made("write_review", "review", **given, tags=[kind, "all"]))

    @rule(choice=choices, note=st.sampled_from(["", "Done."]))
    def complete(self, choice: int, note: str) -> None:
        task = self._some("task", choice)
        if not task:
            return
        known = self.model[task]
        answer = self._called("complete_task", allowed=known["status"] == "open", task_id=task, completion_note=note)
        if answer is not None:
            known |= {"status": "completed", "completed_at": written(self.now), "completion_note": note}

    @rule(
        choice=choices,
        name=st.none() | titles,
        status=st.none() | statuses,
        goals=st.none() | st.lists(choices, max_size=2),
    )
    def update(self, choice: int, name: str | None, status: str | None, goals: list[int] | None) -> None:
        project = self._some("project", choice)
        if not project:
            return
        chosen = None if goals is None else sorted({each for goal in goals if (each := self._some("goal", goal))})
        given = {"name": name, "status": status, "goal_ids": chosen}
        known = self.model[project]
        changed = {"title": name, "status": status, "links": chosen}
        new = known | {key: value for key, value in changed.items() if value is not None}
        allowed = new != known or (bool(self.session) and new == known and given != dict.fromkeys(given))
        if self._called("update_project", allowed=allowed, project_id=project, updates=given) is not None:
            self.model[project] = new

    @rule(first=choices, second=choices)
    def link(self, first: int, second: int) -> None:
        goal, project = self._some("goal", first), self._some("project", second)
        if goal and project:
            known = self.model[project]
            new = sorted({*known["links"], goal})
            allowed = bool(self.session) or new != known["links"]
            if self._called("link_goal_to_project", allowed=allowed, goal_id=goal, project_id=project) is not None:
                known["links"] = new

    @rule(choice=choices, cascade=st.booleans())
    def delete(self, choice: int, cascade: bool) -> None:
        project = self._some("project", choice)
        if not project:
            return
        tasks = [each for each, node in self.model.items() if node["kind"] == "task" and project in node["links"]]
        answer = self._called("delete_project", project_id=project, cascade=cascade)
        assert (answer["deleted_tasks"], answer["unlinked_tasks"]) == ((len(tasks), 0) if cascade else (0, len(tasks)))
        del self.model[project]
        for task in tasks:
            if cascade:
                del self.model[task]
            else:
                self.model[task]["links"] = []

    # --- checks ---

    @invariant()
    def the_tree_is_what_the_model_is(self) -> None:
        assert self.harness.run(self._nodes(self.session)) == self.model
        if self.last and not self.session:
            self.states.append((self.last, deepcopy(self.model)))
        self.last = ""

    @rule(choice=choices)
    def an_old_commit_is_as_it_was(self, choice: int) -> None:
        if self.states:
            commit_id, model = self.states[choice % len(self.states)]
            assert self.harness.run(self._nodes(commit_id)) == model

    @rule(choice=choices)
    def the_figures_of_a_project_are_those_of_the_model(self, choice: int) -> None:
        project = self._some("project", choice)
        if not project:
            return
        found = self._read("get_project", project_id=project)
        tasks = [node for node in self.model.values() if node["kind"] == "task" and project in node["links"]]
        done = [node for node in tasks if node["status"] == "completed"]
        hours = [_hours(node) for node in done]
        moods = [n["mood"] for n in self.model.values() if n["kind"] == "review" and project in n["links"]]
        assert found["stats"] == {
            "tasks": len(tasks),
            "open": len(tasks) - len(done),
            "completed": len(done),
            "overdue": sum(n["status"] == "open" and bool(n["due"]) and read(n["due"]) <= self.now for n in tasks),
            "completed_late": sum(bool(n["due"]) and n["completed_at"] > n["due"] for n in done),
            "completion_rate": round(len(done) / len(tasks), 3) if tasks else None,
            "last_completed_at": max((n["completed_at"] for n in done), default=""),
            "reviews": len(moods),
            "mean_mood": round(fmean(moods), 3) if moods else None,
            "mean_hours_to_completion": round(fmean(hours), 3) if hours else None,
            "median_hours_to_completion": round(median(hours), 3) if hours else None,
        }
        assert found["project"]["goal_ids"] == self.model[project]["links"]
        assert {each["id"] for each in found["open_tasks"]} <= self.model.keys()

    @invariant()
    def the_figures_of_the_last_weeks_are_those_of_the_model(self) -> None:
        name, count = [("week", 1), ("month", 4), ("quarter", 13)][len(self.model) % 3]
        self.now += timedelta(hours=3)
        found = self._read("analyze_patterns", time_range=name)
        since = self.now - timedelta(weeks=count)
        tasks = {key: node for key, node in self.model.items() if node["kind"] == "task"}
        completion = found["completion"]
        assert len(completion["weeks"]) == count
        for part in (completion | {"since": written(since), "until": written(self.now)}, *completion["weeks"]):
            ends = (read(part["since"]), read(part["until"]))
            there, completed = _counted(tasks.values(), *ends)
            assert part["completed"] == completed
            assert part["completion_rate"] == (round(completed / there, 3) if there else None)
            assert part["created"] == sum(ends[0] <= read(n["created_at"]) < ends[1] for n in tasks.values())
        for group, groups_of in (("projects", self._projects_of), ("goals", self._goals_of)):
            counts: dict[str, int] = {}
            for node in tasks.values():
                if _counted([node], since, self.now)[0]:
                    for each in groups_of(node):
                        counts[each] = counts.get(each, 0) + 1
            assert found[group]["count"] == len(counts)
            for shown in found[group]["groups"]:
                some = [node for node in tasks.values() if shown["id"] in groups_of(node)]
                there, completed = _counted(some, since, self.now)
                assert shown["completed"] == completed
                assert shown["completion_rate"] == round(completed / there, 3)
        overdue = {
            key
            for key, n in tasks.items()
            if n["status"] == "open" and n["due"] and read(n["due"]) <= self.now and read(n["created_at"]) < self.now
        }
        assert found["overdue"]["count"] == len(overdue)
        assert {each["id"] for each in found["overdue"]["tasks"]} <= overdue
        recent = [n for n in self.model.values() if n["kind"] == "review" and since <= read(n["created_at"]) < self.now]
        assert found["reviews"]["count"] == len(recent)
        assert found["reviews"]["mean_mood"] == (round(fmean(n["mood"] for n in recent), 3) if recent else None)

    # --- the model ---

    @property
    def model(self) -> Model:
        return self.committed if self.staged is None else self.staged

    def _some(self, kind: str, choice: int) -> str:
        known = [each for each, node in self.model.items() if node["kind"] == kind]
        return known[choice % len(known)] if known else ""

    def _projects_of(self, task: dict[str, Any]) -> list[str]:
        return [each for each in task["links"] if self.model.get(each, {}).get("kind") == "project"]

    def _goals_of(self, task: dict[str, Any]) -> set[str]:
        return {goal for each in self._projects_of(task) for goal in self.model[each]["links"]}

    def _made(self, tool: str, kind: str, **given: Any) -> Model:
        answer = self._called(tool, **given)
        links = [*given.get("goal_ids", ()), *given.get("linked_project_ids", ()), given.get("project_id", "")]
        node = {
            "kind": kind,
            "title": given.get("title") or given.get("name") or answer[kind]["title"],
            "content": given.get("description", "") or given.get("content", ""),
            "links": sorted({each for each in links if each}),
            "created_at": written(self.now),
            "status": given.get("status", "open" if kind == "task" else ""),
            "due": given.get("due_date") or "",
            "mood": float(given["mood"]) if "mood" in given else None,
            "completed_at": "",
            "completion_note": "",
        }
        return {answer[kind]["id"]: node}

    def _called(self, tool: str, /, *, allowed: bool = True, **given: Any) -> Any:
        place = {"session_id": self.session} if self.session else {}
        call = self._call(tool, **given, **place)
        if not allowed:
            with pytest.raises(MemoTreeError):
                self.harness.run(call)
            return None
        answer = self.harness.run(call)
        self.last = answer.get("commit_id", "")
        return answer

    def _read(self, tool: str, **given: Any) -> Any:
        return self.harness.run(self._call(tool, **given, revision=self.session))

    def _call(self, name: str, /, **given: Any) -> Coroutine[Any, Any, Any]:
        tool = self.tools[name]
        values, faults = tool.signature.read(given)
        assert faults == []
        function: Callable[..., Coroutine[Any, Any, Any]] = tool.function
        return function(**values, context=CallContext(Unused(), self.workspace, "ada"))

    async def _nodes(self, revision: str) -> Model:
        """The nodes of the plan at a session, a commit or, for "", at the head."""
        async with self.harness.store.database.connection() as conn:
            place = await lookup.find_revision(conn, self.workspace, revision)
            state: State = place.state
            snapshot = Snapshot(conn, state)
            versions = [each for each in await tree.everything(snapshot) if not each.is_archive]
        found: Model = {}
        nodes = await read_nodes_at(state, self.harness.store.database, self.harness.store.entries, versions)
        for version in versions:
            attributes = version.attributes
            found[version.entry_id] = {
                "kind": version.type,
                "title": version.title,
                "content": nodes[version.entry_id].content,
                "links": sorted(target for _, target, _ in version.relations),
                "created_at": attributes["created_at"],
                "status": attributes.get("status", ""),
                "due": attributes.get("due_date", ""),
                "mood": float(attributes["mood"]) if "mood" in attributes else None,
                "completed_at": attributes.get("completed_at", ""),
                "completion_note": attributes.get("completion_note", ""),
            }
        return found


def _hours(task: dict[str, Any]) -> float:
    return (read(task["completed_at"]) - read(task["created_at"])).total_seconds() / 3600


def _counted(tasks: Any, since: datetime, until: datetime) -> tuple[int, int]:
    """How many tasks were there and open at some time, and how many were completed in it."""
    there = completed = 0
    for node in tasks:
        end = read(node["completed_at"]) if node["completed_at"] else None
        there += read(node["created_at"]) < until and (end is None or end >= since)
        completed += end is not None and since <= end < until
    return there, completed


@pytest.mark.requirement("TOOL-7")
def test_any_calls_on_plans_do_what_dictionaries_do(harness: StoreHarness) -> None:
    run_machine(lambda: Plans(harness), settings=effort(4, steps=30, shrink=False))
