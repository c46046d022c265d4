"""What a run of the tests has cost: in all, and by test, file, fixture and starter of processes.

``MEMOTREE_TEST_TIMES=20`` (`make test-times`) prints the twenty dearest of each kind.
The processor time of a whole run has a budget, which the run itself keeps: see `BUDGET`.
"""

import os
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

import pytest

BUDGET: Final = 1400.0
"""Seconds of processor time that all workers of `make test` may take, with the processes that they started and ended.

On 2026-11-29 it was 544, in five and a half minutes on two cores. On the same machine some hours later the same tests
took 1,195, in eleven and a half minutes, where the yardstick below was 1.2 to 1.4 times as long. The rest is for that
noise.

The time of the processor depends on the machine, so the budget is for one that does
the work of `_yardstick` in `_YARDSTICK` seconds; a slower machine gets more in proportion, a faster one no less.
"""

_YARDSTICK: Final = 0.11

_LISTED: Final = int(os.environ.get("MEMOTREE_TEST_TIMES", "0"))
"""How many of each kind `make test-times` prints; 0: time is not measured by test."""


def _yardstick() -> float:
    """The processor time in seconds of a fixed piece of work like that of the tests: objects, texts, bytes."""
    begin = time.process_time()
    for number in range(12):
        rows = [{"id": f"{number}-{row}", "text": f"a row {row} of {number}"} for row in range(8000)]
        zlib.compress("\n".join(sorted(str(row) for row in rows)).encode(), 6)
    return time.process_time() - begin


def _clocks() -> tuple[float, float, float]:
    """Wall time, processor time of this process, and of the processes that it started and ended, in seconds."""
    now = os.times()
    return time.perf_counter(), now.user + now.system, now.children_user + now.children_system


def _of_forks() -> float:
    """Processor time in seconds of the process that forks the servers of the tests, and of the ended ones."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Times:
    """Time by kind (test, file, fixture, starter of processes) and name: count, and seconds in each measure."""

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
        self._running = ""
        sys.addaudithook(self._heard)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._running = item.nodeid
        begin = _clocks()
        answer = yield
        self._add("test", item.nodeid, begin)
        self._add("file", item.nodeid.partition("::")[0], begin)
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        begin = _clocks()
        answer = yield
        self._add("fixture", f"{fixturedef.baseid}::{fixturedef.argname} ({fixturedef.scope})", begin)
        return answer

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["times"] = dict(self.rows)

    def take(self, rows: dict[str, list[float]]) -> None:
        """Add the rows of a worker."""
        for key, values in rows.items():
            self.rows[key] = [one + other for one, other in zip(self.rows[key], values, strict=True)]

    def lines(self) -> Iterable[str]:
        """The dearest of each kind."""
        for kind in ("test", "file", "fixture", "process"):
            found = {key.partition(" ")[2]: row for key, row in self.rows.items() if key.startswith(f"{kind} ")}
            dearest = sorted(found.items(), key=lambda each: -(each[1][0] if kind == "process" else sum(each[1][2:])))
            yield f"{kind}: {len(found)}; count, seconds, and of those of the processor: the worker's, its processes'"
            for name, (count, *seconds) in dearest[:_LISTED]:
                yield f"{count:7.0f} {' '.join(f'{each:8.2f}' for each in seconds)}  {name}"

    def _heard(self, event: str, _: object) -> None:
        if event in {"subprocess.Popen", "os.fork", "os.posix_spawn"} and self._running:
            self.rows[f"process {self._running}"][0] += 1

    def _add(self, kind: str, name: str, begin: tuple[float, ...]) -> None:
        row = self.rows[f"{kind} {name}"]
        row[0] += 1
        for index, (before, after) in enumerate(zip(begin, _clocks(), strict=True), 1):
            row[index] += after - before


class Report:
    """What a run has cost."""

    def __init__(self, times: Times | None) -> None:
        self._times = times
        self._spent = 0.0
        self._allowed = BUDGET

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {})
        self._spent += told.get("processor_seconds", 0.0)
        if self._times is not None:
            self._times.take(told.get("times", {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._spent > BUDGET:
            self._allowed = BUDGET * max(1.0, _yardstick() / _YARDSTICK)
        if self._too_dear(session.config) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        write = terminalreporter.write_line
        if self._times is not None:
            terminalreporter.section("Times")
            for line in self._times.lines():
                write(line)
        if self._spent:
            told = f"Processor time of the workers: {self._spent:.0f} s of {self._allowed:.0f}"
            if self._too_dear(config):
                told += ": the suite is over its budget. `make test-times` shows where the time goes."
            write(told, red=self._too_dear(config))

    def _too_dear(self, config: pytest.Config) -> bool:
        is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
        is_whole = is_whole and config.option.markexpr == "not campaign"
        is_usual = not {"MEMOTREE_TEST_FUZZ", "SHAKE_SEED"} & os.environ.keys()
        return is_whole and is_usual and self._spent > self._allowed


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report in the process that the terminal belongs to, and measure where tests run."""
    is_worker = hasattr(config, "workerinput")
    times = Times() if _LISTED else None
    if times is not None:
        config.pluginmanager.register(times, "memotree-times")
    if not is_worker:
        config.pluginmanager.register(Report(times), "memotree-report")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process of the terminal what this worker has cost."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["processor_seconds"] = sum(_clocks()[1:]) + _of_forks()
