"""Revisions on the command line: times, and commits before a name."""

from datetime import UTC, datetime, timedelta

import pytest
from unit.cli.conftest import CommandLine

pytestmark = pytest.mark.requirement("USE-10")

NOON = datetime.now(UTC).astimezone().replace(hour=12, minute=0, second=0, microsecond=0)
TEXTS = ("one", "two", "three")


@pytest.fixture
def old(ready: CommandLine) -> list[str]:
    """The commits of main, the newest first: three days ago at noon each of three, with the texts of the child."""
    for text in TEXTS:
        ready.json("node", "update", "cccc", "-c", text, "--mode", "replace")
        ready.json("commit", "-m", text.capitalize())
    ready.json("session", "use", "--none")
    commits = ready.json("log")["commits"]
    for days, each in enumerate(commits, start=1):
        made = ready.fake.spaces["demo"].commits[each["id"]].message
        made.commit_time.FromDatetime((NOON - timedelta(days=days)).astimezone(UTC).replace(tzinfo=None))
    return [each["id"] for each in commits]


def text(memotree: CommandLine, at: str) -> str:
    return memotree("node", "get", "Child", "--raw", "--at", at).out.strip()


def test_a_time_is_the_newest_commit_of_the_default_branch_then(ready: CommandLine, old: list[str]) -> None:
    assert len(old) == len(TEXTS) + 2
    assert text(ready, "today") == "three"
    assert text(ready, "yesterday") == "two"
    assert text(ready, (NOON - timedelta(days=2)).isoformat()) == "two"
    assert text(ready, (NOON - timedelta(days=2, seconds=1)).isoformat()) == "one"
    assert text(ready, f"{NOON - timedelta(days=2):%Y-%m-%d}") == "one"


def test_a_name_with_a_tilde_is_that_many_commits_before(ready: CommandLine, old: list[str]) -> None:
    assert [ready.json("show", f"main{end}")["commit"]["id"] for end in ("~", "^", "~1", "~2", "~0", "~1~1")] == [
        *[old[1]] * 3,
        old[2],
        old[0],
        old[2],
    ]
    assert ready.json("show", "~2")["commit"]["id"] == old[2]
    assert ready.json("show", "yesterday~1")["commit"]["id"] == old[2]
    assert [ready.json("show", f"HEAD{end}")["commit"]["id"] for end in ("", "~1", "^")] == [old[0], old[1], old[1]]


def test_every_command_that_takes_a_revision_takes_these(ready: CommandLine, old: list[str]) -> None:
    assert [each["id"] for each in ready.json("log", "--at", "main~2")["commits"]] == old[2:]
    assert ready.json("diff", "main~2", "main~1")["changes"][0]["node_id"] == "c" * 16
    assert ready.json("branch", "create", "then", "yesterday")["commit_id"] == old[1]
    assert ready.json("tag", "create", "before", "main~2")["commit_id"] == old[2]
    assert ready.json("revisions", "Child", "--at", "main~2")["revisions"][0]["commit"]["id"] == old[2]
    assert ready.json("node", "tree", "--archive", "notes", "--at", "main~2")


def test_the_name_of_a_branch_or_tag_comes_before_a_time_and_a_branch_may_have_one(
    ready: CommandLine, old: list[str]
) -> None:
    ready.json("branch", "create", "today", "main~2")
    ready.json("tag", "create", "2026-11-03", "main~1")
    assert text(ready, "today") == "one"
    assert ready.json("show", "2026-11-03")["commit"]["id"] == old[1]
    assert ready.json("show", "today@{yesterday}")["commit"]["id"] == old[2]
    assert ready.json("show", "today@{soon}", code=2)["error"]["reason"] == "BAD_TIME"
    before = len(ready.fake.requests("ListBranches")) + len(ready.fake.requests("ListCommits"))
    ready.json("show", old[0][:8])
    ready.json("node", "get", "cccc", "--at", "v1")
    calls = len(ready.fake.requests("ListBranches")) + len(ready.fake.requests("ListCommits"))
    assert calls == before, "a plain name costs no further call"


def test_a_revision_before_the_first_commit_is_told(ready: CommandLine, old: list[str]) -> None:
    assert ready.json("show", "20261103", code=1)["error"]["code"] == "NOT_FOUND", "digits alone are no date"
    error = ready.json("show", "main~9", code=1)["error"]
    assert error["reason"] == "TOO_FEW_COMMITS"
    assert f"~{len(old) - 1} is the first" in error["message"]
    error = ready.json("log", "--at", "2019-01-31 12:30", code=1)["error"]
    assert (error["reason"], "2019-01-31 12:30" in error["message"]) == ("NO_COMMIT_THEN", True)


def test_a_branch_or_tag_in_the_place_of_a_node_says_how_to_give_it(ready: CommandLine, old: list[str]) -> None:
    ready.json("tag", "create", "before", old[1])
    for name, kind in {"main": "branch", "before": "tag"}.items():
        fault = ready.json("log", name, code=1)["error"]
        assert fault["reason"] == "REVISION_AS_NODE"
        assert fault["message"].endswith(f"but a {kind} has: give it as `--at {name}`.")
    assert ready.json("log", "nowhere", code=1)["error"]["reason"] == "NODE_NOT_NAMED"
    assert ready.json("forget", "main", code=1)["error"]["reason"] == "NODE_NOT_NAMED", "forget has no --at"
