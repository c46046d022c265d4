"""Every command does its job, for a person and as one JSON document."""

import re

import pytest
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.model.node import Node
from unit.cli.conftest import CommandLine

from memotree.cli.terminal import display
from memotree.cli.terminal.listed_entries import counts
from memotree.client import Author, Commit

pytestmark = pytest.mark.requirement("SERVE-4")
ROOT, CHILD = "r" * 16, "c" * 16


def test_workspaces_are_created_listed_shown_used_renamed_and_deleted(memotree: CommandLine) -> None:
    created = memotree.json("ws", "create", "demo", "-d", "a place")
    assert (created["name"], created["repository"]) == ("demo", "repositories/demo.git")
    memotree.json("ws", "create", "other", "--no-use")
    listed = memotree.json("ws", "list")
    assert ([each["name"] for each in listed["workspaces"]], listed["chosen"]) == (["demo", "other"], "demo")
    assert memotree.json("ws", "use", "other") == {"workspace": "other"}
    assert memotree.json("ws", "show")["name"] == "other"
    assert memotree.json("ws", "rename", "other", "second", "-d", "new")["description"] == "new"
    assert memotree.json("ws", "list")["chosen"] == "second"
    assert memotree.json("ws", "delete", "second", "--yes")["trash"] == "trash/second.git"
    assert memotree.json("ws", "list")["chosen"] == ""
    assert "demo" in memotree("ws", "list").out


def test_archives_are_created_listed_shown_renamed_and_deleted(ready: CommandLine) -> None:
    assert [each["name"] for each in ready.json("archive", "list")["archives"]] == ["notes"]
    assert ready.json("archive", "show", "notes", "--at", "v1")["model_id"] == "m1"
    assert ready.json("archive", "rename", "notes", "papers")["name"] == "papers"
    assert ready.json("archive", "delete", "papers", "--yes")["deleted_nodes"] == 2
    assert "memotree archive create" in ready("archive", "list").out
    assert "notes" in ready("archive", "list", "--at", "main").out


def test_sessions_are_opened_listed_shown_used_rebased_and_discarded(ready: CommandLine) -> None:
    first = ready.json("session", "show")["id"]
    second = ready.json("session", "open", "--agent", "editor", "--no-use", "--idle-hours", "2")["id"]
    listed = ready.json("session", "list")
    assert ({each["id"] for each in listed["sessions"]}, listed["chosen"]) == ({first, second}, first)
    assert ready.json("session", "use", second)["session"] == second
    assert ready.json("session", "rebase")["state"] == "OPEN"
    assert ready.json("session", "discard")["state"] == "DISCARDED"
    assert ready.json("session", "list")["chosen"] == ""
    assert len(ready.json("session", "list", "--all")["sessions"]) == 2
    ready.json("session", "use", first)
    assert ready.json("session", "use", "--none")["session"] == ""
    assert "planner" in ready("session", "list").out


def test_staged_changes_are_listed_and_can_be_discarded_one_by_one(ready: CommandLine) -> None:
    ready.json("node", "update", "cccc", "-c", "new", "-m", "because")
    ready.json("node", "create", "--title", "Third", "-c", "x", "-p", "rrrr", "--id", "t" * 16)
    changes = ready.json("session", "changes")["changes"]
    assert [(each["node_id"], each["kind"]) for each in changes] == [(CHILD, "UPDATED"), ("t" * 16, "CREATED")]
    assert changes[0]["commit_messages"] == ["because"]
    assert "~ updated" in ready("session", "changes").out
    assert ready.json("session", "discard", "-n", "tttt")["change_count"] == 1
    assert ready.json("session", "discard", "--yes")["state"] == "DISCARDED"


def test_a_node_is_shown_with_its_fields_and_unchanged_text(ready: CommandLine) -> None:
    assert ready.json("node", "get", "rrrr")["content"] == "All [bold]of[/bold] it"
    assert ready.json("node", "get", "rrrr", "-l", "title")["content"] == ""
    ready.json("node", "update", "cccc", "-c", "- long " * 99 + " \n  [x] ")
    assert ready("node", "get", "cccc", "--raw").out == "- long " * 99 + " \n  [x] "
    shown = ready("node", "get", "rrrr").out
    assert "All [bold]of[/bold] it" in shown
    assert ROOT in shown


def test_content_comes_from_option_file_stdin_or_editor(
    ready: CommandLine, tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "text.md"  # type: ignore[operator] # a path, whatever its fixture is typed as
    path.write_bytes("from a file\r\nß".encode())
    assert ready.json("node", "update", "cccc", "-f", str(path))["content"] == "from a file\r\nß"
    assert ready.json("node", "update", "cccc", "-f", "-", stdin="from stdin\n")["content"] == "from stdin\n"
    assert ready.json("node", "update", "cccc", "-c", "-", stdin="dash")["content"] == "dash"
    assert ready.json("node", "append", "cccc", stdin="more")["content"] == "dash\n\nmore"
    monkeypatch.setenv("EDITOR", "sed -i s/more/edited/")
    assert ready.json("node", "update", "cccc", "--edit")["content"] == "dash\n\nedited"
    assert ready.fake.requests("UpdateNode")[-1].etag
    assert ready.json("node", "create", "--title", "E", "-a", "notes", "-c", "more", "-e")["content"] == "edited"


def test_update_says_exactly_what_is_given(ready: CommandLine) -> None:
    words = "node update cccc --title T --brief b --summary s -t y --attribute k=v=w --type concept --mode replace"
    changed = ready.json(*words.split())
    assert (changed["title"], changed["tags"], changed["attributes"]) == ("T", ["y"], {"k": "v=w"})
    assert sorted(ready.fake.requests("UpdateNode")[-1].update_mask.paths) == [
        *("attributes", "brief", "summary", "tags", "title", "type")
    ]


def test_nodes_are_deleted_moved_split_and_merged(ready: CommandLine) -> None:
    assert ready.json("node", "move", "cccc", "--root", "--position", "0")["parent_id"] is None
    assert ready.json("node", "move", "cccc", "-p", "rrrr")["parent_id"] == ROOT
    ready.json("node", "update", "cccc", "-c", "before\n# One\nfirst\n\n# Two\nsecond\n")
    parts = ready.json("node", "split", "cccc", "--as-children")["nodes"]
    texts = [(each["title"], each["content"]) for each in parts]
    assert texts == [("Child", "before"), ("One", "first"), ("Two", "second")]
    merged = ready.json("node", "merge", parts[1]["id"], parts[2]["id"], "--title", "Both")
    assert (merged["node"]["title"], merged["deleted_ids"]) == ("Both", [parts[2]["id"]])
    assert ready.json("node", "delete", "cccc", "-r")["deleted_ids"] == [CHILD, parts[1]["id"]]


def test_relations_are_added_and_removed(ready: CommandLine) -> None:
    related = ready.json("node", "relate", "cccc", "depends_on", "rrrr", "-d", "it must")
    assert related["relations"] == [{"type": "DEPENDS_ON", "target_id": ROOT, "description": "it must"}]
    assert "DEPENDS_ON" in ready("node", "get", "cccc").out
    assert ready.json("node", "unrelate", "cccc", "DEPENDS_ON", "rrrr")["relations"] == []


def test_children_and_tree_show_the_structure_with_ids(ready: CommandLine) -> None:
    assert [each["id"] for each in ready.json("node", "children", "rrrr")["nodes"]] == [CHILD]
    assert [each["id"] for each in ready.json("node", "children", "-a", "notes")["nodes"]] == [ROOT]
    assert [each["id"] for each in ready.json("node", "children")["nodes"]] == [ROOT]
    tree = ready.json("node", "tree")
    assert [(each["depth"], each["node"]["title"]) for each in tree["nodes"]] == [(0, "Root"), (1, "Child")]
    assert ready.json("node", "tree", "-a", "notes", "--max-nodes", "1")["truncated"] == 1
    shown = ready("node", "tree", "rrrr").out
    assert re.search(rf"Root +{ROOT}", shown)
    assert "└── Child" in shown


def test_commit_makes_a_commit_and_says_which(ready: CommandLine) -> None:
    ready.json("node", "update", "cccc", "-c", "new")
    made = ready.json("commit", "-m", "Second\n\nbody", "-t", "v2", "--author", "Ada <ada@example.org>")
    assert (made["branch"], made["tag_name"], made["change_count"]) == ("main", "v2", 1)
    ready.json("node", "update", "cccc", "-c", "newer")
    shown = ready("commit", "-m", "Third\n\nbody", "cccc").out
    assert re.match(r"\[main [0-9a-f]{10}\] Third\n 1 changed\n", shown)


def test_log_looks_like_git_log(ready: CommandLine) -> None:
    log = ready.json("log")
    assert ([each["subject"] for each in log["commits"]], log["more"]) == (["First", "Begin"], False)
    assert ready.json("log", "-n", "1")["more"] is True
    assert ready.json("log", "--author", "PLAN", "--node", "cccc")["commits"][0]["tags"] == ["v1"]
    shown = ready("log", "--at", "v1").out
    assert re.match(r"commit [0-9a-f]{40} \(main, tag: v1\)\nAuthor: planner\nDate:   \w{3} ", shown)
    assert "\n    First\n" in shown
    assert re.match(r"[0-9a-f]{10} \(main, tag: v1\) First \(planner\)\n", ready("log", "--oneline").out)


@pytest.mark.requirement("USE-10")
def test_log_and_revisions_take_a_node_as_their_argument(ready: CommandLine) -> None:
    ready.json("node", "update", "cccc", "-c", "new")
    ready.json("commit", "-m", "Second")
    assert [each["subject"] for each in ready.json("log", "Root")["commits"]] == ["First"]
    assert [each["subject"] for each in ready.json("log", "Child")["commits"]] == ["Second", "First"]
    assert ready.json("log", "Child", "--node", "Root", code=2)["error"]["reason"] == "NODE_GIVEN_TWICE"
    found = [(each["kind"], each["commit"]["subject"]) for each in ready.json("revisions", "cccc")["revisions"]]
    assert found == [("UPDATED", "Second"), ("CREATED", "First")]
    assert "Second" in ready("revisions", "cccc", "-n", "1").out


@pytest.mark.requirement("USE-10")
def test_a_commit_on_one_line_says_how_many_entries_it_changed_and_who_made_it() -> None:
    changes = [
        *(ListedChange(None, Node(letter * 16, "n" * 16, None, "a", title="New"), ["Why"]) for letter in "abc"),
        ListedChange(Node("d" * 16, "n" * 16, None, "a", title="Old"), None),
    ]
    message = compose("Begin\n\nCreated: no list", changes, {})
    line = display.commit_line(Commit("f" * 40, (), Author("Ada"), None, "Begin", message)).plain
    assert line == f"{'f' * 10} Begin +3 -1 (Ada)"
    many = "Changed:\n- Title (aaaa): content\n  and 1204 more\n\nMoved:\n- T (bbbb): parent"
    assert counts(many) == "~1,206"


def test_show_shows_a_commit_with_its_changes(ready: CommandLine) -> None:
    shown = ready.json("show", "v1")
    assert (shown["commit"]["subject"], shown["change_count"]) == ("First", 3)
    patch = ready.json("show", "-p")["changes"]
    assert [field["field"] for field in patch[0]["fields"]] == ["title", "content"]
    text = ready("show", "-p").out
    assert "+ created node" in text
    assert "+alpha beta" in text


def test_diff_shows_staged_changes_or_the_difference_between_two_states(ready: CommandLine) -> None:
    ready.json("node", "update", "cccc", "-c", "alpha gamma", "--title", "Renamed")
    staged = ready.json("diff")
    assert [each["node_id"] for each in staged["changes"]] == [CHILD]
    shown = ready("diff").out
    assert "-alpha beta\n+alpha gamma" in shown
    assert "-Child\n+Renamed" in shown
    assert ready.json("diff", "--stat", "--node", "cccc")["changes"][0]["fields"] == []
    ready.json("commit", "-m", "Second")
    assert [each["kind"] for each in ready.json("diff", "v1", "main")["changes"]] == ["UPDATED"]
    assert "No difference" in ready("diff").out


def test_search_shows_score_title_id_preview_and_why_and_sees_what_is_staged(ready: CommandLine) -> None:
    found = ready.json("search", "alpha", "--by", "full_text", "-t", "x", "-a", "notes", "--under", "rrrr")
    assert found["hits"][0]["node"]["id"] == CHILD
    request = ready.fake.requests("SearchNodes")[-1]
    assert (request.scope_node_id, list(request.tags), list(request.archives)) == ("r" * 16, ["x"], ["notes"])
    shown = ready("search", "alpha").out
    assert re.match(rf"0\.75  Child  {CHILD}\n      alpha beta\n      It holds alpha\.", shown)
    assert "Nothing was found" in ready("search", "gamma").out
    ready.json("node", "update", "cccc", "-c", "gamma")
    assert len(ready.json("search", "gamma")["hits"]) == 1
    assert ready.json("search", "gamma", "--at", "v1")["hits"] == []
    assert ready.json("node", "get", "cccc", "--at", "main")["content"] == "alpha beta"


def test_views_are_expanded_rendered_collapsed_listed_and_deleted(ready: CommandLine) -> None:
    expanded = ready.json("view", "expand", "rrrr", "-v", "v", "-l", "summary", "--children", "--relations")
    assert (expanded["node"]["level"], expanded["children"][0]["id"]) == ("SUMMARY", CHILD)
    assert ready.json("view", "list")["views"][0]["name"] == "v"
    rendered = ready("view", "render", "-v", "v", "-b", "100")
    assert rendered.out.startswith(f"# Root `{ROOT}`")
    assert "9 of 100 tokens" in rendered.err
    assert ready.json("view", "render", "-v", "v")["usage"]["tokens_used"] == 9
    assert ready.json("view", "collapse", "rrrr", "-v", "v", "-r")["node"]["level"] == "TITLE"
    assert ready.json("view", "delete", "v") == {"deleted": "v"}
    assert "memotree view expand" in ready("view", "list").out


def test_branches_and_tags_are_created_listed_and_after_a_question_or_with_yes_deleted(ready: CommandLine) -> None:
    assert ready.json("branch", "create", "trial", "v1")["name"] == "trial"
    assert [each["name"] for each in ready.json("branch", "list")["branches"]] == ["main", "trial"]
    assert "protected" in ready("branch", "list").out
    assert ready.json("branch", "delete", "trial", "--yes") == {"deleted": "trial", "detached_sessions": 1}
    assert ready.json("tag", "create", "v2", "main", "-m", "two")["message"] == "two"
    assert [each["name"] for each in ready.json("tag", "list")["tags"]] == ["v1", "v2"]
    assert "two" in ready("tag", "list").out
    assert "--yes" in ready.refused("tag", "delete", "v2", code=2)
    assert ready.json("tag", "delete", "v2", "--yes") == {"deleted": "v2"}


def test_status_shows_the_stores_and_fails_when_one_does_not_answer(ready: CommandLine) -> None:
    found = ready.json("status", code=1)
    told = {"name": "postgres", "healthy": False, "embedded": True, "detail": "does not answer"}
    assert found["server"]["stores"][1] == told
    assert found["chosen"]["workspace"] == "demo"
    shown = ready("status").out
    assert "does not answer" in shown
    assert "vectors to flush  unknown" in shown


def test_verify_lists_differences_and_fails_and_rebuild_shows_its_steps(memotree: CommandLine) -> None:
    memotree.json("ws", "create", "sound")
    assert memotree.json("verify") == {"differences": []}
    assert "agree" in memotree("verify").out
    assert memotree.json("rebuild")["steps"] == [{"step": "writing rows", "done": 2}]
    assert "writing rows" in memotree("rebuild").out
    memotree.json("ws", "create", "broken", "-d", "damaged")
    assert memotree.json("verify", code=1)["differences"][0]["store"] == "postgres"
    assert "memotree rebuild" in memotree("verify").err


@pytest.mark.requirement("USE-10")
def test_verify_without_a_chosen_workspace_checks_all_there_are(memotree: CommandLine) -> None:
    assert memotree.json("verify", code=2)["error"]["reason"] == "NO_WORKSPACE_CHOSEN"
    memotree.json("ws", "create", "broken", "-d", "damaged", "--no-use")
    assert "memotree rebuild --workspace broken" in memotree.refused("verify")
    memotree.json("ws", "create", "sound", "--no-use")
    found = memotree.json("verify", code=1)
    assert [len(found["workspaces"][name]) for name in ("broken", "sound")] == [1, 0]
    assert found["workspaces"]["broken"] == found["differences"]
    shown = memotree("verify").out
    assert shown.index("broken") < shown.index("sound") < shown.index("agree")
