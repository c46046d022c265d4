"""Situations of a first use of the command line that are easy to get wrong."""

import json
from pathlib import Path

import grpc
import pytest
import typer
from memotree_storage.embedded.lock import DataFolderLock, DataFolderUnusableError
from memotree_storage.verify.report import REBUILD
from rich.console import Console
from unit.cli.conftest import WITHOUT_SERVER, CommandLine
from unit.client.fake_state import RefusedError

from memotree.cli.commands import refs, sessions
from memotree.cli.errors import OF_MERGE, conflict_table
from memotree.cli.target import DEFAULT_ADDRESS, data_folder, find_address
from memotree.cli.terminal import display
from memotree.client import DEFAULT_ADDRESS as CLIENTS_ADDRESS
from memotree.client import Author, Commit, Conflict, Difference, EntryChange
from memotree.settings import Settings
from memotree.v1 import session_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("SERVE-4")
CHILD = "c" * 16


def shown(look: object, width: int) -> str:
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(look)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@pytest.mark.requirement("TOOL-11")
def test_the_address_is_that_of_the_flag_or_the_settings_or_the_announcement_or_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings()
    assert find_address("") == f"{settings.host}:{settings.port}" == DEFAULT_ADDRESS == CLIENTS_ADDRESS
    announced = home / "data" / "memotree" / "server.json"
    announced.parent.mkdir(parents=True)
    announced.write_text(json.dumps({"address": "127.0.0.1:9", "pid": 1, "version": "x"}), "utf-8")
    assert find_address("") == "127.0.0.1:9"
    announced.unlink()
    monkeypatch.setenv("MEMOTREE_PORT", "7444")
    assert find_address("") == "127.0.0.1:7444"
    monkeypatch.setenv("MEMOTREE_HOST", "::1")
    assert find_address("") == "[::1]:7444"
    monkeypatch.delenv("MEMOTREE_PORT")
    (home / "memotree.toml").write_text('port = 7555\nhost = "127.0.0.2"\n', encoding="utf-8")
    assert find_address("") == "[::1]:7555"
    assert find_address("127.0.0.1:8") == "127.0.0.1:8"
    monkeypatch.delenv("MEMOTREE_HOST")
    lacking = 'data_folder = "elsewhere"\nport = 7556\n[qdrant]\nurl = "http://h:1"\napi_key = "${NO_SUCH_SECRET}"\n'
    (home / "memotree.toml").write_text(lacking, encoding="utf-8")
    assert (data_folder(), find_address("")) == (home / "elsewhere", "127.0.0.1:7556"), "a shell lacks the secret"


def test_wrong_settings_and_addresses_are_reported_and_no_other_server_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = WITHOUT_SERVER.refused("status", "--address", "https://memory.example:443", code=2)
    assert ("host and port of gRPC" in told, "unexpected" in told) == (True, False)
    assert "give the path of a folder" in WITHOUT_SERVER.refused("serve", "--data", "", code=2)
    monkeypatch.setenv("MEMOTREE_PORT", "many")
    told = WITHOUT_SERVER.refused("status", code=2)
    assert ("MEMOTREE_PORT" in told, "--address" in told) == (True, True)


def test_a_missing_server_is_reported_before_a_missing_choice_with_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMOTREE_PORT", "1")
    for words in ("status", "search foo", "session list", "node create --title T"):
        ran = WITHOUT_SERVER(*words.split())
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("error: No MemoTree server answers at 127.0.0.1:1. Start one with `memotree serve`")


def test_an_error_of_the_server_names_commands(ready: CommandLine) -> None:
    fault = RefusedError(grpc.StatusCode.NOT_FOUND, "There is no tag 'x'. List them with ListTags.", "TAG_NOT_FOUND")
    ready.fake.fail("DeleteTag", fault, fault)
    assert ready("tag", "delete", "x").err == "error: There is no tag 'x'. List them with `memotree tag list`.\n"
    assert "memotree tag list" in ready.json("tag", "delete", "x", code=1)["error"]["message"]


def test_a_branch_that_can_be_deleted_is_so_only_after_a_confirmation(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ready.json("branch", "delete", "nothere", code=1)["error"]["code"] == "NOT_FOUND"
    assert ready.json("branch", "delete", "main", code=1)["error"]["reason"] == "PROTECTED_BRANCH"
    ready.json("branch", "create", "trial", "v1")
    ready.json("session", "open", "--branch", "trial")
    ready.json("node", "update", "cccc", "-c", "stranded")
    told = ready.refused("branch", "delete", "trial", code=2)
    assert "--yes" in told
    assert "1 session with 1 staged change can no longer commit to it" in told
    assert "trial" in ready("branch", "list").out
    asked: list[str] = []
    monkeypatch.setattr(refs, "confirm", lambda _context, question, yes: asked.append(f"{question}{yes}"))
    assert ready("branch", "delete", "trial").code == 0
    assert len(asked) == 1


def test_a_detached_or_discarded_session_cannot_be_chosen_and_one_with_changes_stays_in_the_list(
    ready: CommandLine,
) -> None:
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
    gone = ready.json("session", "discard", "--yes")["id"]
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


def test_wrong_usage_is_a_sentence_and_one_json_document() -> None:
    for arguments in (
        *(("search",), ("node", "get"), ("log", "-n", "-1"), ("nonsense",), ("node",), ("serve", "--data", "")),
        ("node", "get", "abcd", "--level", "everything"),
    ):
        ran = WITHOUT_SERVER(*arguments, "--json")
        error = ran.document["error"]
        assert (ran.code, error["reason"], bool(error["message"])) == (2, "USAGE", True), arguments
        assert ran.err == f"error: {error['message']}\n"
    assert "--oneline" in WITHOUT_SERVER("log", "--json", "--help").out


def test_a_file_in_place_of_the_data_folder_is_reported(home: Path) -> None:
    (home / "file").touch()
    for name in ("file", "file/below", "file/far/below"):
        with pytest.raises(DataFolderUnusableError, match="a file has that name"):
            DataFolderLock(home / name).acquire()


def test_ids_are_not_cut_in_a_narrow_table_which_has_a_column_of_briefs_only_if_there_are_any(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Brief" not in ready("node", "children", "rrrr", "--level", "brief").out
    ready.json("node", "update", "cccc", "--brief", "short")
    assert "Brief" in ready("node", "children", "rrrr", "--level", "brief").out
    monkeypatch.setenv("COLUMNS", "50")
    ready.json("node", "update", "cccc", "--title", "A title that is rather long " * 3, "-c", "x")
    for arguments in (("node", "children", "rrrr"), ("session", "changes")):
        assert CHILD in ready(*arguments).out
    assert ready.json("session", "show")["id"] in ready("session", "list").out


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


def test_show_keeps_the_text_that_a_person_wrote_in_a_message() -> None:
    changes = [EntryChange("aaaa", "CREATED", "A")]  # type: ignore[arg-type] # a word of the enum
    for text in ("Created:\n- A (elsewhere)", "Created:\n- A (aaaa)\nMy word", "Mine:\n- A (aaaa)", "Created:"):
        told = shown(display.commit_with_entries(commit(f"Subject\n\n{text}\n"), changes), 100)
        assert text.splitlines()[-1] in told
