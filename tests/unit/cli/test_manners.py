"""How the command line behaves: exit codes, messages, JSON, choices, completion, colours, speed of start."""

import shlex
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import typer
from unit.cli.conftest import CommandLine
from unit.client.fake_state import RefusedError

from memotree import cli, client
from memotree.cli import app as app_module
from memotree.cli.app import commands
from memotree.cli.arguments import completion, options
from memotree.cli.errors import tell_client_error
from memotree.cli.target import read_choice
from memotree.cli.terminal import display
from memotree.cli.terminal.counting import counting
from memotree.cli.terminal.examples import EXAMPLES, PANELS
from memotree.cli.terminal.output import Output

pytestmark = pytest.mark.requirement("SERVE-4")


@pytest.mark.requirement("USE-10")
def test_every_command_takes_json_and_ends_its_help_with_an_example_that_parses(home: Path) -> None:
    (home / "docs").mkdir()
    (home / "memotree-backup.tar").touch()
    leaves = commands()
    assert set(leaves) == set(EXAMPLES)
    assert len(leaves) > 70
    for path, example in EXAMPLES.items():
        assert any("--json" in parameter.opts for parameter in leaves[path].params), path
        assert leaves[path].help, path
        assert leaves[path].epilog == f"Example: memotree {example}"
        words = shlex.split(example)
        assert " ".join(words).startswith(path)
        given = words[len(path.split()) :]
        leaves[path].make_context(path, given)  # fails if an option is unknown, or an argument is missing


@pytest.mark.requirement("USE-10")
def test_the_first_page_lists_the_commands_under_headings_in_order(memotree: CommandLine) -> None:
    shown = memotree("--help").out
    places = [shown.index(f" {heading} ") for heading in PANELS]
    assert places == sorted(places)
    named = [name for names in PANELS.values() for name in names]
    assert sorted(named) == sorted({path.partition(" ")[0] for path in EXAMPLES})


@pytest.mark.requirement("USE-10")
def test_help_shows_no_value_for_an_on_off_option(memotree: CommandLine) -> None:
    for words in ((), ("node",), ("serve",), ("node", "tree")):
        assert "bool" not in memotree(*words, "--help").out.lower()


def test_a_store_that_does_not_answer_is_not_a_missing_server(memotree: CommandLine) -> None:
    memotree.fake.fail("GetStatus", *[RefusedError(grpc.StatusCode.UNAVAILABLE, "PostgreSQL is away.", "PG")] * 5)
    ran = memotree("status")
    assert (ran.code, ran.err) == (1, "error: PostgreSQL is away.\n")


def test_without_a_workspace_or_session_a_command_says_what_to_do(memotree: CommandLine) -> None:
    assert "memotree ws use NAME" in memotree.refused("node", "create", "--title", "T", code=2)
    memotree("ws", "create", "demo")
    assert "memotree session open" in memotree.refused("node", "create", "--title", "T", code=2)


@pytest.mark.requirement("USE-10")
def test_violations_that_the_sentence_does_not_tell_are_a_list_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    faults = (client.Violation("archive_id", "Is needed."), client.Violation("tags[2]", "Is empty."))
    error = client.InvalidArgumentError("2 faults.", violations=faults)
    tell_client_error(Output(), error)
    assert capsys.readouterr().err == "error: 2 faults.\n  • --archive: Is needed.\n  • --tag[2]: Is empty.\n"


def test_an_error_is_one_sentence_a_table_or_a_list_and_with_json_one_document_on_stdout(ready: CommandLine) -> None:
    ran = ready("node", "create", "--title", "", "-a", "notes")
    assert (ran.code, ran.err, ran.out) == (1, "error: --title: give one line.\n", ""), "told once"
    stale = ("node", "update", "cccc", "-c", "x", "--etag", "stale")
    told = ready.refused(*stale)
    assert ("In the session" in told, "content" in told) == (True, True)
    assert "cccccccccccccccc  Child" in ready.refused("node", "delete", "rrrr")
    found = ready.json(*stale, code=1)["error"]
    assert (found["code"], found["reason"], found["conflicts"][0]["field"]) == ("ABORTED", "STALE_ETAG", "content")
    ran = ready("node", "get", "zzzz", "--json")
    assert ran.document["error"]["code"] == "NOT_FOUND"
    assert ran.err.startswith("error: There is no node zzzz")
    assert ready.json("node", "update", "cccc", "--attribute", "x", code=2)["error"]["reason"] == "BAD_PAIR"
    ran = ready("node", "create", "--title", "T", "-a", "notes", "--json")
    assert (ran.document["title"], "warning: The content is empty." in ran.err) == ("T", True)


def test_usage_errors_found_only_by_the_command_line_exit_with_2(ready: CommandLine) -> None:
    for words, reason in {
        "node update cccc -c a -f b": "TWO_SOURCES",
        "node split cccc": "NO_PARTS",
        "commit -m M --author Ada<ada": "BAD_AUTHOR",
        "ws delete demo": "NOT_CONFIRMED",
        "archive delete notes": "NOT_CONFIRMED",
    }.items():
        assert ready.json(*words.split(), code=2)["error"]["reason"] == reason


def test_a_file_that_cannot_be_read_and_an_editor_that_fails_are_named_and_change_nothing(
    ready: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "bad").write_bytes(b"\xff")
    assert "nothere cannot be read" in ready("node", "update", "cccc", "-f", "nothere").err
    assert "not UTF-8 text (byte 0)" in ready("node", "update", "cccc", "-f", "bad").err
    monkeypatch.setenv("VISUAL", "false")
    assert "ended with exit code 1; nothing was changed" in ready("node", "update", "cccc", "-e").err
    monkeypatch.setenv("VISUAL", "no-such-editor")
    assert "set $EDITOR" in ready("node", "update", "cccc", "-e").err
    assert ready.json("session", "changes")["changes"] == []


def test_the_environment_names_workspace_and_session_and_overrides_a_choice(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ready.json("session", "show")["id"]
    ready.json("ws", "create", "other")
    monkeypatch.setenv("MEMOTREE_WORKSPACE", "demo")
    monkeypatch.setenv("MEMOTREE_SESSION", chosen)
    assert ready.json("ws", "show")["name"] == "demo"
    assert ready.json("session", "show")["agent"] == "planner"
    assert ready.json("node", "update", "cccc", "-c", "env")["content"] == "env"
    assert "MEMOTREE_WORKSPACE is set to demo" in ready("ws", "create", "third").err
    assert "MEMOTREE_WORKSPACE" not in ready("ws", "use", "demo").err


@pytest.mark.requirement("USE-10")
def test_a_misspelled_variable_is_told_once_in_the_words_of_serve(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMOTREE_WORKSPCE", "other")
    monkeypatch.setenv("MEMOTREE_AGENT", "ada")
    monkeypatch.setenv("MEMOTREE_PAGER", "cat")
    monkeypatch.setenv("MEMOTREE_CHAT_MODEL", "")
    told = "MEMOTREE_WORKSPCE: there is no such setting; did you mean MEMOTREE_WORKSPACE?"
    assert ready("log").err == f"warning: {told}\n"
    assert ready.json("ws", "list")["chosen"] == "demo"
    served = ready("serve")
    assert served.code == 1
    assert served.err.count(told) == 1
    assert "warning" not in served.err
    assert ready("log", "--help").err == ""


def test_choices_are_kept_per_server_and_a_session_is_one_of_its_workspace(ready: CommandLine, home: Path) -> None:
    assert read_choice(ready.fake.address).workspace == "demo"
    assert read_choice("127.0.0.1:1").workspace == ""
    ready.json("ws", "create", "other", "--no-use")
    assert ready("node", "create", "--title", "T", "-w", "other").code == 2
    ready.fake.spaces["demo"].sessions.clear()
    assert "memotree session use --none" in ready.refused("session", "changes")
    (home / "config" / "memotree" / "state.json").write_text("{", encoding="utf-8")
    assert ready.json("ws", "list")["chosen"] == "", "a damaged file is ignored"
    assert ready("ws", "use", "demo").code == 0


@pytest.mark.requirement("USE-10")
def test_completion_offers_names_titles_and_paths_of_a_running_server_and_nothing_without_one(
    ready: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "PATIENCE_SECONDS", 300.0)
    context = typer.Context(typer.main.get_command(app_module.app))
    context.params = {"workspace": "demo", "address": ready.fake.address}
    assert completion.workspaces(context, "de") == [("demo", "a place")]
    assert [name for name, _ in completion.revisions(context, "")] == ["main", "v1"]
    assert [help_text for _, help_text in completion.sessions(context, "")] == ["planner on main"]
    assert completion.archives(context, "x") == []
    assert [name for name, _ in completion.nodes(context, "Ch")] == ["Child"]
    assert [name for name, _ in completion.nodes(context, "notes/Root/Ch")] == ["notes/Root/Child"]
    monkeypatch.setattr(completion, "PATIENCE_SECONDS", 0.2)
    context.params = {"address": "127.0.0.1:1"}
    assert completion.workspaces(context, "") == []


def test_words_of_the_command_line_are_those_of_the_contract() -> None:
    for choice, kind in (
        (options.LevelChoice, client.Level),
        (options.RelationChoice, client.RelationType),
        (options.SearchChoice, client.SearchType),
        (options.ModeChoice, client.UpdateMode),
    ):
        assert [options.word(each) for each in choice] == list(kind)


def test_colours_follow_the_terminal_and_no_color(ready: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = ready("log")
    assert "\x1b" not in ran.out + ran.err
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[33m" in ready("log").out
    assert "\x1b" not in ready("log", "--json").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in ready("log").out


@pytest.mark.requirement("USE-10")
def test_forced_colours_draw_no_spinner_or_bar_into_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    output = Output()
    with output.waiting("Committing"), output.progress() as steps:
        steps.at("reading", 1, 2)
    with counting(output, "documents") as bar:
        bar.at(1, 2, "reading")
    assert capsys.readouterr().err == ""


def _program(code: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    return done.returncode, done.stderr, done.stdout


@pytest.mark.requirement("USE-10")
@pytest.mark.usefixtures("memotree")
def test_the_start_collects_no_garbage_and_the_command_does() -> None:
    code = (
        "import gc, sys\nsys.argv = ['memotree', 'ws', 'list']\nfrom memotree.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit(0 if gc.isenabled() and gc.get_freeze_count() else 9)"
    )
    assert _program(code)[:2] == (0, "")


def test_an_unexpected_error_is_also_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app_module, "app", lambda: {}["missing"])
    monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "unexpected error (KeyError: 'missing')" in capsys.readouterr().err
    monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
    with pytest.raises(KeyError):
        cli.main()


def test_a_closed_output_pipe_is_no_error(ready: CommandLine) -> None:
    code = "from memotree.cli import main\nmain()"
    process = subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-c", code, "log"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    told = process.stderr.read().decode()
    process.stderr.close()
    assert (process.wait(), told) == (0, "")
    assert ready.fake.requests("ListCommits")


@pytest.mark.requirement("USE-7")
def test_the_version_needs_no_library_of_the_command_line() -> None:
    code = (
        "import sys\nsys.argv = ['memotree', '--version']\nsys.modules.update(dict.fromkeys(('rich', 'typer')))\n"
        "from memotree.cli import main\nmain()"
    )
    ended, err, out = _program(code)
    assert (ended, err, out.startswith("memotree ")) == (0, "", True)


def test_matched_terms_are_highlighted_and_asterisks_of_the_text_stay() -> None:
    text = display.marked("Title ***** A ***context** **managers*** is a **note**", ["context", "manager"])
    assert text.plain == "Title ***** A *context managers* is a **note**"
    assert [text.plain[span.start : span.end] for span in text.spans] == ["context", "managers"]
