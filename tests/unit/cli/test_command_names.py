"""Other names of commands, and what an unknown one may have meant."""

import pytest
from unit.cli.conftest import CommandLine

from memotree.cli.terminal.command_names import ALIASES

pytestmark = pytest.mark.requirement("USE-10")


def test_a_workspace_is_created_under_the_long_name_too(memotree: CommandLine) -> None:
    assert memotree("workspace", "create", "w").code == 0
    assert [each["name"] for each in memotree.json("workspaces", "ls")["workspaces"]] == ["w"]


def test_other_names_are_not_in_the_help(memotree: CommandLine) -> None:
    listed = {line.split()[1] for line in memotree("--help").out.splitlines() if len(line.split()) > 1}
    assert "ws" in listed
    assert not listed & set(ALIASES)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("frgt",), "`memotree forget`"),
        (("workspac",), "`memotree ws`"),
        (("find",), "`memotree search`"),
        (("history",), "`memotree log`"),
        (("tree",), "`memotree node tree`"),
        (("use",), "`memotree ws use` or `memotree session use`"),
        (("Log",), "`memotree log`"),
        (("node", "crate"), "`memotree node create`"),
        (("node", "log"), "`memotree log`"),
        (("workspace", "crate"), "`memotree ws create`"),
    ],
)
def test_an_unknown_command_says_what_it_may_have_meant(
    memotree: CommandLine, words: tuple[str, ...], meant: str
) -> None:
    error = memotree.json(*words, code=2)["error"]["message"]
    assert error.startswith(f"No such command {words[-1]!r}. Did you mean ")
    assert meant in error


def test_a_word_that_is_like_no_command_names_the_list_of_commands(memotree: CommandLine) -> None:
    assert memotree.json("qqqq", code=2)["error"]["message"] == (
        "No such command 'qqqq'. `memotree --help` lists the commands."
    )
    assert "`memotree node --help` lists" in memotree.json("node", "qqqq", code=2)["error"]["message"]
