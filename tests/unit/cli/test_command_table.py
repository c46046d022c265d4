"""The table of commands says what the modules have, and what an unknown command may have meant.

So a page or a command imports only what it needs.
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer import rich_utils
from unit.cli.conftest import CommandLine

from memotree.cli import commands as package
from memotree.cli import context as context_module
from memotree.cli.app import app, commands, load
from memotree.cli.terminal import first_page
from memotree.cli.terminal.command_names import ALIASES
from memotree.cli.terminal.command_table import COMMANDS, GROUPS

pytestmark = pytest.mark.requirement("USE-10")

_VALUES: tuple[Any, ...] = (
    *("", "a", " ", "0", "7", "07", "-3", "1e3", "9" * 30, "true", "no", "detail", "DETAIL", "hybrid", "2001-01-01"),
    *(None, 0, 3, True, False, [], (), ["a", "b"], ("7", "x"), Path("here"), "\udc80", "١"),  # noqa: RUF001 - a digit
)


def test_the_table_has_every_command_of_every_module() -> None:
    names = [path.stem for path in Path(package.__path__[0]).glob("*.py") if path.stem != "__init__"]
    for name in names:
        import_module(f"{package.__name__}.{name}")
    found = {path: function.__module__.rpartition(".")[2] for path, (function, _) in context_module._declared.items()}
    assert found == {path: entry.module for path, entry in COMMANDS.items()}


def test_the_table_says_of_each_command_what_its_help_says() -> None:
    for path, command in commands().items():
        assert command.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[path].line, path
    assert {path.split()[0] for path in COMMANDS if " " in path} == set(GROUPS)


@pytest.mark.parametrize("width", ["30", "50", "80", "100", "133", "200"])
@pytest.mark.parametrize("colour", [True, False])
def test_the_first_page_is_that_of_typer(
    width: str, colour: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", True if colour else None)
    first_page.show()
    ours = capsys.readouterr().out
    app(["--help"], prog_name="memotree", standalone_mode=False)
    assert ours == capsys.readouterr().out
    assert ("\x1b[" in ours) is colour


def test_the_first_page_is_left_to_typer_where_it_would_look_different(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_page.is_asked_for(["-h"])
    assert not first_page.is_asked_for(["--help", "node"])
    monkeypatch.setenv("TERMINAL_WIDTH", "60")
    assert not first_page.is_asked_for(["--help"])


def _imported(*arguments: str) -> set[str]:
    """The modules that a command line imports in a process of its own."""
    code = (
        f"import sys\nsys.argv = ['memotree', *{arguments!r}]\nfrom memotree.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "sys.stderr.write('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return set(done.stderr.splitlines()[-1].split())


def _commands_of(modules: set[str]) -> set[str]:
    return {name.removeprefix(f"{package.__name__}.") for name in modules if name.startswith(f"{package.__name__}.")}


def test_the_first_page_imports_nothing_but_what_draws_it() -> None:
    modules = _imported("--help")
    assert not modules & {
        *("typer", "grpc", "google", "pydantic", "asyncio", "tenacity", "rich.markdown", "rich.progress", "json")
    }
    assert {name for name in modules if name.startswith("memotree")} == {
        *("memotree", "memotree.cli", "memotree.extras", "memotree.cli.terminal"),
        *("memotree.cli.terminal.command_table", "memotree.cli.terminal.examples", "memotree.cli.terminal.first_page"),
    }


def test_the_page_of_a_group_imports_no_command() -> None:
    modules = _imported("node", "--help")
    assert not _commands_of(modules)
    assert not modules & {"grpc", "pydantic", "memotree.client"}


def test_a_command_imports_its_own_module_and_reads_plain_values_without_pydantic(ready: CommandLine) -> None:
    assert ready.fake.address
    heavy = {"pydantic", "typer.rich_utils", "rich.markdown", "rich.progress", "numpy", "memotree.settings"}
    for words, module in (
        (("node", "get", "Root", "--level", "brief"), "nodes"),
        (("recall", "Which", "one?", "--budget", "2000"), "recall"),
        (("node", "tree", "--depth", "2"), "structure"),
    ):
        modules = _imported(*words)
        assert not modules & heavy, words
        assert _commands_of(modules) - {"nodes"} == {module} - {"nodes"}, words


def _read(reading: Any, value: Any, parameter: Any, context: typer.Context) -> Any:
    try:
        return reading.coerce(value, param=parameter, ctx=context)
    except Exception as error:  # noqa: BLE001 - of any kind, it is to be the same
        return f"{type(error).__name__}: {error}"


def test_plain_values_are_read_as_typer_reads_them() -> None:
    for path in COMMANDS:
        command = load(path)
        context = typer.Context(command)
        for parameter in command.get_params(context):
            if parameter.type_descriptor.annotation is bool or parameter.name == "help":
                continue
            for value in _VALUES:
                ours = _read(parameter.get_runtime_param(), value, parameter, context)
                theirs = _read(type(parameter).get_runtime_param(parameter), value, parameter, context)
                assert (ours, type(ours)) == (theirs, type(theirs)), (path, parameter.name, value)


# --- Other names ----------------------------------------------------------------------------------------------------


def test_a_workspace_is_created_under_the_long_name_too(memotree: CommandLine) -> None:
    assert memotree("workspace", "create", "w").code == 0
    assert [each["name"] for each in memotree.json("workspaces", "ls")["workspaces"]] == ["w"]


def test_other_names_are_not_in_the_help(memotree: CommandLine) -> None:
    listed = {line.split()[1] for line in memotree("--help").out.splitlines() if len(line.split()) > 1}
    assert "ws" in listed
    assert not listed & set(ALIASES)


def test_an_unknown_command_says_what_it_may_have_meant(memotree: CommandLine) -> None:
    for words, meant in {
        "frgt": "`memotree forget`",
        "workspac": "`memotree ws`",
        "find": "`memotree search`",
        "history": "`memotree log`",
        "tree": "`memotree node tree`",
        "use": "`memotree ws use` or `memotree session use`",
        "Log": "`memotree log`",
        "node crate": "`memotree node create`",
        "node log": "`memotree log`",
        "workspace crate": "`memotree ws create`",
    }.items():
        error = memotree.json(*words.split(), code=2)["error"]["message"]
        assert error.startswith(f"No such command {words.split()[-1]!r}. Did you mean ")
        assert meant in error


def test_a_word_that_is_like_no_command_names_the_list_of_commands(memotree: CommandLine) -> None:
    assert memotree.json("qqqq", code=2)["error"]["message"] == (
        "No such command 'qqqq'. `memotree --help` lists the commands."
    )
    assert "`memotree node --help` lists" in memotree.json("node", "qqqq", code=2)["error"]["message"]
