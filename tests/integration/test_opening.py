"""``memotree.open``: a program opens a folder, and the server underneath lives exactly as long as a program uses it."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import ForkedProgram, forked_servers
from memotree_storage.embedded.lock import LOCK_FILE

import memotree
from memotree.server.announcement import read_announcement

pytestmark = pytest.mark.requirement("USE-7")

PROGRAM = """\
import sys
import memotree
with memotree.open(sys.argv[1]) as memory:
    memory.create_workspace("notes", exist_ok=True)
    print(memory.address, flush=True)
    sys.stdin.readline()
    print(memory.workspace("notes").info().name, flush=True)
"""


class Program:
    """Another program that opened the folder."""

    def __init__(self, folder: Path) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = ForkedProgram([sys.executable, "-c", PROGRAM, folder], **pipes, text=True)
        self.address = self.process.stdout.readline().strip()

    def go_on(self) -> str:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return str(self.process.stdout.readline().strip())

    def close(self) -> int:
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(60)


@pytest.fixture(autouse=True)
def _forks() -> Iterator[None]:
    with forked_servers():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one test after the other; a server is left in none of them."""
    return tmp_path_factory.mktemp("opening") / "memory"


@pytest.fixture
def program(folder: Path) -> Iterator[Program]:
    other = Program(folder)
    yield other
    if other.process.poll() is None:
        other.process.kill()
    other.close()
    wait_for_the_end_of_the_server(folder)


def wait_for_the_end_of_the_server(folder: Path) -> None:
    """Waits as long as any server holds the lock of the folder; the timeout of the test bounds it."""
    with (folder / LOCK_FILE).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


async def test_a_program_remembers_and_recalls_without_starting_a_server(folder: Path) -> None:
    with memotree.open(folder) as memory:
        memory.create_workspace("plans")
        plans = memory.workspace("plans")
        with plans.session(agent="planner") as session:
            ideas = session.create_archive("ideas")
            session.create("Budget", "The budget is 45k a year.", archive=ideas)
            session.commit("Note the budget")
    async with memotree.open_async(str(folder)) as again:  # a program with an event loop
        assert "45k a year" in str(await again.workspace("plans").recall("What is the budget?"))
        same = await memotree.open_async(folder)
        assert "plans" in [each.name async for each in same.workspaces()]
        await same.close()
        await same.close()
    wait_for_the_end_of_the_server(folder)
    assert read_announcement(folder) is None


def test_two_programs_share_one_server_which_ends_with_the_last(folder: Path, program: Program) -> None:
    with memotree.open(folder) as memory, memotree.open(folder) as again:
        assert memory.address == again.address == program.address
        assert program.go_on() == "notes"
        assert program.close() == 0
        assert memory.workspace("notes").info().name == "notes"  # though the other program had started the server
    wait_for_the_end_of_the_server(folder)


def test_the_server_ends_when_its_program_is_killed(folder: Path, program: Program) -> None:
    server = read_announcement(folder)
    assert server is not None
    program.process.send_signal(signal.SIGKILL)
    program.close()
    wait_for_the_end_of_the_server(folder)
    assert read_announcement(folder) is None
    with memotree.open(folder) as memory:  # and the next program finds everything
        assert "notes" in [each.name for each in memory.workspaces()]


def test_a_killed_server_is_replaced_at_the_next_opening(folder: Path, program: Program) -> None:
    server = read_announcement(folder)
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_for_the_end_of_the_server(folder)
    with memotree.open(folder) as memory:
        assert "notes" in [each.name for each in memory.workspaces()]
    program.process.kill()


def test_a_folder_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(memotree.ServerStartError, match="name a folder on a local disk") as refused:
        memotree.open(tmp_path / "file")
    assert refused.value.reason == "SERVER_NOT_STARTED"


def test_a_server_that_does_not_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOTREE_LOG_LEVEL", "loud")
    with pytest.raises(memotree.ServerStartError, match=r"(?s)ended with exit code 1.*log_level|LOG_LEVEL"):
        memotree.open(folder)
