"""`memotree setup` writes one entry into a program's configuration, shows it first, and takes it out again."""

import json
import tomllib
from pathlib import Path

import pytest
from unit.cli.conftest import WITHOUT_SERVER

from memotree.cli.commands.agent_hosts import HostChoice, host

pytestmark = pytest.mark.requirement("USE-5")


def run(*arguments: str, answer: str | None = None) -> tuple[int, str, str]:
    ran = WITHOUT_SERVER("setup", *arguments, stdin=answer)
    return ran.code, ran.out, ran.err


def entry_of(path: Path, table: str) -> dict[str, object]:
    text = path.read_text(encoding="utf-8")
    document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    found: dict[str, object] = document[table]["memotree"]
    return found


@pytest.mark.parametrize("program", HostChoice)
def test_each_program_gets_an_entry_with_a_memory_of_its_own_and_loses_it_again(program: HostChoice) -> None:
    chosen = host(program)
    code, _, err = run(program.value, "--yes")
    assert code == 0, err
    entry = entry_of(chosen.user_file, chosen.table)
    assert entry["args"][-3:] == ["mcp", "--workspace", program.value]  # type: ignore[index]
    assert Path(str(entry["command"])).is_absolute()
    assert "Nothing to change" in run(program.value, "--yes")[2]
    assert run(program.value, "--shared", "--yes")[0] == 0
    assert entry_of(chosen.user_file, chosen.table)["args"][-1] == "main"  # type: ignore[index]
    assert run(program.value, "--remove", "--yes")[0] == 0
    assert not chosen.user_file.exists(), "the file that it made has nothing in it"


def test_what_a_removal_deletes_and_whose_path_a_project_gets_is_said() -> None:
    told = run("claude-code", "--project", "--yes")[2]
    assert "in a file that others use, take --start uvx" in told
    assert "take --start uvx" not in run("claude-code", "--yes")[2]
    removed = run("claude-code", "--project", "--remove", "--yes")[2]
    assert not [line for line in removed.splitlines() if line.startswith("+") and not line.startswith("+++")], removed


def test_a_link_to_a_file_in_which_nothing_is_left_stays(home: Path) -> None:
    codex = host(HostChoice.CODEX).user_file
    codex.parent.mkdir(parents=True)
    (home / "mine.toml").touch()
    codex.symlink_to(home / "mine.toml")
    run("codex", "--yes")
    run("codex", "--remove", "--yes")
    assert codex.is_symlink()
    assert not (home / "mine.toml").read_text(encoding="utf-8").strip()


def test_other_entries_comments_and_indentation_stay() -> None:
    cursor = host(HostChoice.CURSOR).user_file
    cursor.parent.mkdir(parents=True)
    own = {"mcpServers": {"other": {"command": "ö"}}, "theme": "dark"}
    mine = json.dumps(own, ensure_ascii=False, indent=4) + "\n"
    cursor.write_text(mine, encoding="utf-8")
    cursor.chmod(0o600)
    run("cursor", "--yes")
    assert json.loads(cursor.read_text(encoding="utf-8"))["mcpServers"]["other"] == {"command": "ö"}
    assert cursor.stat().st_mode & 0o777 == 0o600
    run("cursor", "--remove", "--yes")
    assert cursor.read_text(encoding="utf-8") == mine
    codex = host(HostChoice.CODEX).user_file
    codex.parent.mkdir(parents=True)
    mine = '# mine\nmodel = "x"  # fast\n\n[mcp_servers.other]\ncommand = "o"\n'
    codex.write_text(mine, encoding="utf-8")
    run("codex", "--yes")
    assert codex.read_text(encoding="utf-8").startswith(mine.rstrip())
    run("codex", "--remove", "--yes")
    assert codex.read_text(encoding="utf-8") == mine


def test_the_change_is_shown_and_waits_for_a_yes_and_printing_changes_nothing(home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    code, _, err = run("cursor", answer="n\n")
    assert (code, '+    "memotree": {' in err) == (130, True)
    code, out, _ = run("vscode", "--print")
    assert (code, json.loads(out)["servers"]["memotree"]["type"]) == (0, "stdio")
    assert not list(home.rglob("mcp.json"))
    assert run("cursor", answer="y\n")[0] == 0
    assert path.exists()


def test_a_file_that_is_not_valid_is_left_alone() -> None:
    for program, text in (("cursor", "{ // mine\n}"), ("codex", "[broken"), ("cursor", '{"mcpServers": []}')):
        path = host(HostChoice(program)).user_file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        code, _, err = run(program, "--yes")
        assert (code, "--print" in err) == (2, True)
        assert path.read_text(encoding="utf-8") == text


def test_a_project_and_uvx_and_tools_can_be_chosen(home: Path) -> None:
    assert run("claude-code", "--project", "--start", "uvx", "--tools", "all", "-w", "team", "--yes")[0] == 0
    entry = entry_of(home / ".mcp.json", "mcpServers")
    assert entry["command"] == "uvx"
    assert entry["args"] == ["memotree[mcp]", "mcp", "--workspace", "team", "--tools", "all"]
    code, _, err = run("windsurf", "--project", "--yes")
    assert (code, "--project" in err) == (2, True)
