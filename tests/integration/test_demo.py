"""The demo shows what it promises, and its last commands work as they are printed."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from forked import command_folder, forked_servers

from memotree.local.server_process import ServerProcess

_README: Final = Path(__file__).parents[2] / "README.md"


@pytest.fixture(name="environment", scope="module")
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a user who has never used MemoTree; any ports, since tests run next to each other."""
    home = tmp_path_factory.mktemp("home")
    given = {name: value for name, value in os.environ.items() if not name.startswith(("MEMOTREE_", "XDG_"))}
    with command_folder(tmp_path_factory.mktemp("programs") / "bin") as commands, forked_servers():
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        yield {**given, "HOME": str(home), "PATH": path, "MEMOTREE_PORT": "0", "MEMOTREE_HTTP_PORT": "0"}


def _run(command: str, environment: Mapping[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(  # noqa: S602 - lines for a shell
        command, shell=True, capture_output=True, text=True, check=False, timeout=500, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(name="shown", scope="module")
def _shown(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the demo reports, run for the second time."""
    folder = tmp_path_factory.mktemp("elsewhere")
    _run("memotree demo", environment, folder)
    done = _run("memotree demo --json", environment, folder)
    assert list(folder.iterdir()) == []
    return dict(json.loads(done.stdout))


@pytest.mark.requirement("SERVE-4")
def test_the_demo_shows_a_correction_the_past_a_branch_a_merge_and_a_citation(shown: dict[str, Any]) -> None:
    facts = [step["facts"] for step in shown["steps"]]
    _, _, recalled, unknown, not_said, corrected, before, past, branch, *rest = facts
    merged, undone, reviewed, ingested, cited, audited, _ = rest
    assert (recalled["confidence"], unknown["confidence"]) == ("strong", "none")
    assert not_said["confidence"] != "strong"
    assert "a mail address" in not_said["warnings"][0]
    assert recalled["answer"] in before["answer"]
    assert recalled["answer"] == past["answer"]
    assert "three times" in corrected["answer"]
    assert "Paylane" in branch["on_branch"]
    assert branch["hits_on_main"] == undone["hits_on_main"] == 0
    assert (merged["parents"], undone["changes"]) == (2, 2)
    assert "Mondays" in merged["merged"]
    assert "cannot approve" in reviewed["refused"]
    assert reviewed["approved_by"] == ["reviewer"]
    assert ingested["leaves"] > ingested["documents"] > 1
    assert (cited["confidence"], cited["is_same"]) == ("strong", True)
    assert audited["exit_code"] == 0
    assert all(step["commands"] for step in shown["steps"][:-1])


@pytest.mark.requirement("SERVE-4")
def test_the_last_commands_of_the_demo_work_as_they_are_printed(
    shown: dict[str, Any], environment: dict[str, str], tmp_path: Path
) -> None:
    facts = shown["steps"][-1]["facts"]
    start, export, *tried = facts["commands"]
    server = ServerProcess.start(
        [sys.executable, "-m", "memotree.cli", *shlex.split(start)[1:]],
        folder=Path(facts["data"]),
        log=tmp_path / "server.log",
        environment=environment,
        working_folder=tmp_path,
    )
    user = {name: value for name, value in environment.items() if not name.startswith("MEMOTREE_")}
    try:
        server.address()
        now, before, _, document, log = [_run(f"{export}\n{line}", user, tmp_path).stdout for line in tried]
    finally:
        server.stop()
    assert "at most three times" in now
    assert "at most five times" in before
    assert "progress" in document
    assert "Refunds" in log
    assert shlex.split(start)[3] == facts["data"]


def test_the_readme_shows_steps_of_the_demo(shown: dict[str, Any]) -> None:
    tour = _README.read_text(encoding="utf-8").partition("## A tour")[2].partition("\n## ")[0]
    steps = {f"{number}. {step['title']}": step["commands"] for number, step in enumerate(shown["steps"], 1)}
    blocks = [block.splitlines() for block in tour.split("```text\n")[1].partition("```")[0].strip().split("\n\n")]
    assert blocks
    for title, *lines in blocks:
        assert [line.removeprefix("   $ ") for line in lines if line.startswith("   $ ")] == steps[title]
    git = next(line for line in tour.splitlines() if line.startswith("$ git "))
    audited = shlex.split(shown["steps"][-2]["commands"][0])
    assert shlex.split(git[2:])[1:] == audited[3:]
