"""The supervision of a child process."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from integration.embedded.programs import DEADLINE, until
from memotree_storage.embedded.child import ChildCommand, ChildStartError, run_to_end
from memotree_storage.embedded.lock import DataFolderInUseError, DataFolderLock
from memotree_storage.embedded.supervisor import ChildState, Supervisor

pytestmark = pytest.mark.requirement("STORE-6")

Watch = Callable[..., Supervisor]

TOUCH_AND_WAIT = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).touch(); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + TOUCH_AND_WAIT


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    """Supervisors of small programs that touch a file when they are ready."""
    watches: list[Supervisor] = []

    def build(source: str = TOUCH_AND_WAIT, *, grace: float = 5.0, timeout: float = DEADLINE) -> Supervisor:
        sign = tmp_path / "ready"

        async def ready() -> None:
            while not sign.exists():  # noqa: ASYNC110 - a file of another process cannot set an event
                await asyncio.sleep(0.005)

        watches.append(
            Supervisor(
                ChildCommand(
                    name="a small program",
                    command=[sys.executable, "-c", source, str(sign)],
                    log=tmp_path / "log",
                    stop_signals=((signal.SIGTERM, grace),),
                ),
                ready=ready,
                prepare=lambda: sign.unlink(missing_ok=True),
                start_timeout=timeout,
            )
        )
        return watches[-1]

    yield build
    for one in watches:
        await one.stop()


def runs(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


async def test_a_child_runs_between_start_and_stop(watch: Watch) -> None:
    one = watch()
    await one.start()
    pid = one.pid
    assert one.state is ChildState.RUNNING
    assert runs(pid)
    await one.stop()
    assert one.state is ChildState.STOPPED
    assert not runs(pid)
    await one.stop()


async def test_a_killed_child_is_restarted_and_listeners_are_notified_although_one_fails(watch: Watch) -> None:
    async def broken() -> None:
        raise RuntimeError("a listener's own fault")

    one = watch()
    await one.start()
    one.on_restart(broken)
    for number in (1, 2, 3):
        back = asyncio.Event()
        one.on_restart(back.set)
        before = one.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await asyncio.wait_for(back.wait(), DEADLINE)
        assert (one.restarts, one.state) == (number, ChildState.RUNNING)
        assert one.pid != before


async def test_a_child_that_ends_at_once_is_reported_with_the_end_of_its_output(watch: Watch) -> None:
    one = watch("import sys; sys.exit('no room left')")
    with pytest.raises(ChildStartError, match="no room left"):
        await one.start()
    assert one.state is ChildState.STOPPED


async def test_a_child_that_never_becomes_ready_is_ended(watch: Watch) -> None:
    one = watch("import signal; signal.pause()", timeout=0.05)
    with pytest.raises(ChildStartError, match="did not answer within"):
        await one.start()
    assert one.pid is None


async def test_a_program_that_is_not_there_is_reported(tmp_path: Path) -> None:
    child = ChildCommand(name="nothing", command=[str(tmp_path / "missing")], log=tmp_path / "log")
    with pytest.raises(ChildStartError, match="No such file"):
        await asyncio.to_thread(run_to_end, child)


async def test_a_child_that_ignores_the_stop_signal_is_killed(watch: Watch) -> None:
    one = watch(DEAF, grace=0.05)
    await one.start()
    pid = one.pid
    await one.stop()
    assert not runs(pid)


async def test_stopping_during_a_restart_leaves_no_process(watch: Watch) -> None:
    one = watch()
    await one.start()
    assert one.pid is not None
    os.kill(one.pid, signal.SIGKILL)
    await until(lambda: one.state is ChildState.RESTARTING, "the end is seen")
    await one.stop()
    assert one.pid is None
    assert one.state is ChildState.STOPPED


async def test_cancelling_a_start_leaves_no_process(watch: Watch) -> None:
    one = watch("import signal; signal.pause()")
    start = asyncio.create_task(one.start())
    await until(lambda: one.pid is not None, "the child is made")
    pid = one.pid
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not runs(pid)


def test_a_data_folder_has_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = DataFolderLock(tmp_path), DataFolderLock(tmp_path)
    with first:
        first.acquire()
        with pytest.raises(DataFolderInUseError, match=f"{tmp_path} is in use by process {os.getpid()}"):
            second.acquire()
    with second:
        assert second.held
    assert not second.held
