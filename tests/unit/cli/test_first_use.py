"""Situations of a first use of the command line that are easy to get wrong."""

import json
from pathlib import Path

import grpc
import pytest
import typer
from memotree_storage.embedded.lock import DataFolderLock, DataFolderUnusableError
from memotree_storage.verify.report import REBUILD
from rich.console import Console
from unit.cli.conftest import CommandLine
from unit.client.fake_state import RefusedError

from memotree.cli.commands import refs, sessions
from memotree.cli.errors import OF_MERGE, conflict_table
from memotree.cli.target import DEFAULT_ADDRESS, data_folder, find_address
from memotree.cli.terminal import display
from memotree.client import Author, Commit, Conflict, Difference, EntryChange
from memotree.settings import Settings
from memotree.v1 import session_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("SERVE-4")
CHILD = "c" * 16
NOBODY = CommandLine(None)  # type: ignore[arg-type] # no fake is called


def shown(look: object, width: int) -> str:
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(look)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def test_the_default_address_is_that_of_the_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    assert f"{settings.host}:{settings.port}" == DEFAULT_ADDRESS
    monkeypatch.setenv("MEMOTREE_PORT", "7444")
    assert find_address("") == "127.0.0.1:7444"
    monkeypatch.setenv("MEMOTREE_HOST", "::1")
    assert find_address("") == "[::1]:7444"
    monkeypatch.delenv("MEMOTREE_PORT")
    (home / "memotree.toml").write_text('port = 7555\nhost = "127.0.0.2"\n', encoding="utf-8")
    assert find_address("") == "[::1]:7555"
    assert find_address("127.0.0.1:8") == "127.0.0.1:8"


@pytest.mark.requirement("TOOL-11")
def test_a_server_is_found_by_a_shell_that_lacks_the_secrets_of_its_file(home: Path) -> None:
    (home / "memotree.toml").write_text(
        'data_folder = "elsewhere"\nport = 7556\n[qdrant]\nurl = "http://h:1"\napi_key = "${NO_SUCH_SECRET}"\n',
        encoding="utf-8",
    )
    assert data_folder() == home / "elsewhere"
    assert find_address("") == "127.0.0.1:7556"


def test_wrong_settings_are_reported_and_no_other_server_is_called(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.exists()
    monkeypatch.setenv("MEMOTREE_PORT", "many")
    ran = NOBODY("status")
    assert (ran.code, "MEMOTREE_PORT" in ran.err, "--address" in ran.err) == (2, True, True)


def test_a_url_is_no_address(home: Path) -> None:
    assert home.exists()
    ran = NOBODY("status", "--address", "https://memory.example:443")
    assert (ran.code, "host and port of gRPC" in ran.err, "unexpected" in ran.err) == (2, True, False)


@pytest.mark.parametrize("arguments", [("search", "foo"), ("session", "list"), ("node", "create", "--title", "T")])
def test_a_missing_server_is_reported_before_a_missing_choice(
    home: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    assert home.exists()
    monkeypatch.setenv("MEMOTREE_PORT", "1")
    ran = NOBODY(*arguments)
    assert ran.code == 3
    assert ran.err.startswith("error: No MemoTree server answers at 127.0.0.1:1.")


def test_an_error_of_the_server_names_commands(ready: CommandLine) -> None:
    fault = RefusedError(grpc.StatusCode.NOT_FOUND, "There is no tag 'x'. List them with ListTags.", "TAG_NOT_FOUND")
    ready.fake.fail("DeleteTag", fault, fault)
    assert ready("tag", "delete", "x").err == "error: There is no tag 'x'. List them with `memotree tag list`.\n"
    assert "memotree tag list" in ready.json("tag", "delete", "x", code=1)["error"]["message"]


def test_a_branch_is_only_deleted_after_a_confirmation(ready: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.json("branch", "create", "trial", "v1")
    ready.json("session", "open", "--branch", "trial")
    ready.json("node", "update", "cccc", "-c", "stranded")
    refused = ready("branch", "delete", "trial")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert "1 session with 1 staged change can no longer commit to it" in refused.err
    assert "trial" in ready("branch", "list").out
    asked: list[str] = []
    monkeypatch.setattr(refs, "confirm", lambda _context, question, yes: asked.append(f"{question}{yes}"))
    assert ready("branch", "delete", "trial").code == 0
    assert len(asked) == 1


def test_a_branch_that_cannot_be_deleted_is_refused_without_a_question(ready: CommandLine) -> None:
    assert ready.json("branch", "delete", "nothere", code=1)["error"]["code"] == "NOT_FOUND"
    assert ready.json("branch", "delete", "main", code=1)["error"]["reason"] == "PROTECTED_BRANCH"


def test_a_detached_session_with_changes_stays_in_the_list_and_cannot_be_chosen(ready: CommandLine) -> None:
    chosen = ready.json("session", "show")["id"]
    other = ready.json("session", "open", "--no-use")["id"]
    ready.json("node", "update", "cccc", "-c", "stranded")
    for each in (chosen, other):
        ready.fake.spaces["demo"].sessions[each].message.state = session_service_pb2.SESSION_STATE_DETACHED
    assert [each["id"] for each in ready.json("session", "list")["sessions"]] == [chosen]
    assert len(ready.json("session", "list", "--all")["sessions"]) == 2
    found = ready.json("session", "use", chosen, code=1)["error"]
    assert found["reason"] == "SESSION_NOT_OPEN"
    assert f"memotree session changes {chosen}" in found["message"]


def test_a_discarded_session_cannot_be_chosen(ready: CommandLine) -> None:
    gone = ready.json("session", "discard")["id"]
    ran = ready("session", "use", gone)
    assert (ran.code, "is discarded" in ran.err, ran.out) == (1, True, "")


def test_ctrl_c_at_a_prompt_exits_with_130(ready: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_given: object, **_named: object) -> None:
        raise typer.Abort

    monkeypatch.setattr(sessions, "confirm", stop)
    ready.json("node", "update", "cccc", "-c", "kept")
    ran = ready("session", "discard")
    assert (ran.code, ran.err) == (130, "\nStopped; nothing was changed.\n")
    assert len(ready.json("session", "changes")["changes"]) == 1


def test_a_conflict_says_which_side_deleted() -> None:
    deleted, title = types_pb2.FieldValue(absence=types_pb2.ABSENCE_DELETED), types_pb2.Node(id=CHILD, title="Title 2")
    whole = types_pb2.Conflict(node_id=CHILD, our_value=deleted, their_value=types_pb2.FieldValue(node=title))
    empty = types_pb2.FieldValue(text="")
    text = types_pb2.Conflict(node_id=CHILD, field="content", base_value=empty, our_value=empty)
    found = tuple(Conflict.from_wire(message) for message in (whole, text))
    lines = shown(conflict_table(found, OF_MERGE), 100).splitlines()
    assert any(CHILD in line and "(all of it)" in line and "deleted" in line and "Title 2" in line for line in lines)
    assert any("content" in line and "empty" in line for line in lines)
    assert not any(line.startswith(("┏", "┃", "└")) for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "--json"),
        ("log", "-n", "-1", "--json"),
        ("nonsense", "--json"),
        ("node", "--json"),
        ("serve", "--json", "--data", ""),
    ],
)
def test_wrong_usage_is_one_json_document_too(home: Path, arguments: tuple[str, ...]) -> None:
    assert home.exists()
    ran = NOBODY(*arguments)
    assert ran.code == 2
    assert (ran.document["error"]["reason"], bool(ran.document["error"]["message"])) == ("USAGE", True)
    assert ran.err == f"error: {ran.document['error']['message']}\n"


def test_help_with_json_is_help(home: Path) -> None:
    assert home.exists()
    ran = NOBODY("log", "--json", "--help")
    assert (ran.code, "--oneline" in ran.out) == (0, True)


def test_an_empty_name_is_no_data_folder(home: Path) -> None:
    assert home.exists()
    ran = NOBODY("serve", "--data", "")
    assert (ran.code, "give the path of a folder" in ran.err) == (2, True)


@pytest.mark.parametrize("name", ["file", "file/below", "file/far/below"])
def test_a_file_in_place_of_the_data_folder_is_reported(home: Path, name: str) -> None:
    (home / "file").touch()
    with pytest.raises(DataFolderUnusableError, match="a file has that name"):
        DataFolderLock(home / name).acquire()


def test_ids_are_not_cut_in_a_narrow_table(ready: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    ready.json("node", "update", "cccc", "--title", "A title that is rather long " * 3, "-c", "x")
    for arguments in (("node", "children", "rrrr"), ("session", "changes")):
        assert CHILD in ready(*arguments).out
    chosen = ready.json("session", "show")["id"]
    assert chosen in ready("session", "list").out


def test_differences_are_blocks_where_a_table_has_no_room_and_name_the_repair_once(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Difference("postgres", "row", "a" * 40, CHILD, f"A row is missing. {REBUILD}")] * 2
    assert display.REBUILD == REBUILD
    narrow = shown(display.differences(found, narrow=True), 70)
    assert narrow == f"postgres row  commit {'a' * 10}  node {CHILD}\n      A row is missing.\n" * 2
    wide = shown(display.differences(found, narrow=False), 120)
    assert ("Description" in wide, REBUILD in wide) == (True, False)
    ready.json("ws", "create", "broken", "-d", "damaged")
    monkeypatch.setenv("COLUMNS", "60")
    ran = ready("verify")
    assert (ran.out, ran.err.count("rebuild")) == ("postgres row  node abcd\n      A row is missing; run rebuild.\n", 1)


def test_the_column_of_briefs_is_only_shown_if_there_are_briefs(ready: CommandLine) -> None:
    ready.json("node", "update", "cccc", "--brief", "short")
    with_briefs = "Brief" in ready("node", "children", "rrrr", "--level", "brief").out
    assert with_briefs == bool(ready.json("node", "children", "rrrr", "--level", "brief")["nodes"][0]["brief"])
    ready.json("node", "update", "cccc", "--brief", "")
    assert "Brief" not in ready("node", "children", "rrrr").out


def test_the_log_names_branches_and_tags(ready: CommandLine) -> None:
    ready.json("branch", "create", "trial", "v1")
    assert "(main, trial, tag: v1)" in ready("log").out
    assert " (main, trial, tag: v1) First (planner)\n" in ready("log", "--oneline").out
    assert "(main, trial, tag: v1)" in ready("show", "v1").out
    assert "branches" not in json.dumps(ready.json("log"))


def commit(message: str) -> Commit:
    return Commit("a" * 40, (), Author("ada"), None, message.partition("\n")[0], message)


def test_show_names_each_entry_once_and_keeps_the_reasons() -> None:
    message = (
        "Subject\n\nText.\n\nCreated:\n- A (new) node (aaaa)\n    because\n\n    of this\n- B (bbbb)\n  and 3 more\n\n"
        "Changed:\n- C (cccc): title, content\n\nMemoTree-Session: s\n"
    )
    changes = [EntryChange(each * 4, "CREATED", each.upper()) for each in "abc"]  # type: ignore[arg-type] # a word of the enum
    text = shown(display.commit_with_entries(commit(message), changes), 100)
    assert [text.count(each * 4) for each in "bc"] == [1, 1]
    assert "aaaa  A\n      because\n\n      of this\n" in text
    assert "    Text.\n\n    MemoTree-Session: s\n" in text


@pytest.mark.parametrize(
    "paragraph",
    ["Created:\n- A (elsewhere)", "Created:\n- A (aaaa)\nand a word of mine", "Mine:\n- A (aaaa)", "Created:"],
)
def test_show_keeps_the_text_that_a_person_wrote_in_a_message(paragraph: str) -> None:
    changes = [EntryChange("aaaa", "CREATED", "A")]  # type: ignore[arg-type] # a word of the enum
    text = shown(display.commit_with_entries(commit(f"Subject\n\n{paragraph}\n"), changes), 100)
    assert paragraph.splitlines()[-1] in text
