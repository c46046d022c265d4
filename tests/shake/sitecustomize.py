"""Delays what a Python process does, at moments that a seed chooses: threads, event loops, system calls, processes.

Python imports this module at its start if the folder is on its path, so that the servers and programs that tests start
are delayed as well; without the variable ``SHAKE_SEED`` it does nothing. A test that passes only as long as one thing
happens before another fails under it.

Every process has a sequence of its own, from the seed and from its command line. What the machine does between two
delays differs from run to run, so a seed makes a failure likely again, not certain.
"""

import functools
import importlib.abc
import importlib.machinery
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

VARIABLE = "SHAKE_SEED"

_sleep = time.sleep
"""The real one: tests put others in its place."""

_EVERY = {"thread": 0.3, "task": 0.1, "system call": 0.02, "process": 0.5, "stall": 1.0}
"""The share of each kind that is delayed; the event loop is stalled again and again."""

_MOST = {"thread": 0.08, "task": 0.08, "system call": 0.03, "process": 0.15, "stall": 0.12}
"""The longest delay of each kind in seconds."""

_BETWEEN_STALLS = 1.5
"""The mean time in seconds from one stall of an event loop to the next."""

_chance = random.Random()


def seed(text: str) -> None:
    """Begin the sequence of this process."""
    _chance.seed(f"{text} {' '.join(sys.argv)}")


def delay(kind: str) -> None:
    """Wait for a moment, or not."""
    if _chance.random() < _EVERY[kind]:
        _sleep(_chance.random() * _MOST[kind])


def late(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, begun late."""

    @functools.wraps(function)
    def begun_late(*arguments: Any, **named: Any) -> Any:
        delay(kind)
        return function(*arguments, **named)

    return begun_late


def _shake_loop(kind: type[Any]) -> None:
    """Stall the event loops of a class while they run."""
    run_forever = kind.run_forever

    def run(loop: Any) -> None:
        stalls: list[Any] = []

        def stall() -> None:
            delay("stall")
            stalls[:] = [loop.call_later(_chance.expovariate(1 / _BETWEEN_STALLS), stall)]

        loop.call_soon(stall)
        try:
            run_forever(loop)
        finally:
            for each in stalls:
                each.cancel()

    kind.run_forever = run


def _shake_uvloop(module: Any) -> None:
    _shake_loop(module.Loop)
    module.Loop.subprocess_exec = late("process", module.Loop.subprocess_exec)


def _shake_threads(module: Any) -> None:
    module.Thread._bootstrap_inner = late("thread", module.Thread._bootstrap_inner)


def _shake_executors(module: Any) -> None:
    module._WorkItem.run = late("task", module._WorkItem.run)


def _shake_processes(module: Any) -> None:
    begin = module.Popen.__init__

    @functools.wraps(begin)
    def begun(*arguments: Any, **named: Any) -> None:
        delay("process")
        begin(*arguments, **named)
        delay("process")

    module.Popen.__init__ = begun


def _shake_forks(module: Any) -> None:
    module.BaseProcess.start = late("process", module.BaseProcess.start)
    module.BaseProcess._bootstrap = late("process", module.BaseProcess._bootstrap)


def _shake_system_calls() -> None:
    sets = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids)
    for name in ("fsync", "link", "mkdir", "open", "rename", "replace", "rmdir", "unlink"):
        function = getattr(os, name)
        changed = late("system call", function)
        setattr(os, name, changed)
        for functions in sets:
            if function in functions:
                functions.add(changed)


_ON_IMPORT: dict[str, Callable[[Any], None]] = {
    "asyncio.base_events": lambda module: _shake_loop(module.BaseEventLoop),
    "concurrent.futures.thread": _shake_executors,
    "multiprocessing.process": _shake_forks,
    "subprocess": _shake_processes,
    "threading": _shake_threads,
    "uvloop": _shake_uvloop,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Changes modules when they are imported, so that no process loads one for this."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _ON_IMPORT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_change(module: Any) -> None:
            execute(module)
            _ON_IMPORT[name](module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Delay this process from now on."""
    seed(os.environ[VARIABLE])
    _shake_system_calls()
    for name, change in _ON_IMPORT.items():
        if name in sys.modules:
            change(sys.modules[name])
    sys.meta_path.insert(0, _Finder())
    delay("process")


if os.environ.get(VARIABLE):
    install()
