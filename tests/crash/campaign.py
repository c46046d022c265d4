"""A series of kills on one data folder: check, load, kill, start again."""

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crash.judge import Judge
from crash.service import DEADLINE, POLL, Service, alive
from crash.workload import Services, Writer, prepare

POINTS: Final = (
    "stage.written",
    "stage.recorded",
    "commit.claimed",
    "commit.frozen",
    "commit.merged",
    "git.before-pack",
    "git.pack-written",
    "git.pack-synced",
    "commit.before-swap",
    "git.before-ref",
    "git.ref-locked",
    "git.ref-moved",
    "git.ref-synced",
    "commit.swapped",
    "commit.projected",
    "commit.mirrored",
    "commit.tagged",
    "commit.recorded",
    "index.put",
    "index.applied",
    "index.flushed",
)
"""Every named point that an edit and its commit pass, in order."""

RECOVERY_POINTS: Final = ("recovery.projected", "recovery.tagged", "recovery.mirrored")
"""Named points of a start at which the mirror is behind Git."""

BEHIND: Final = "commit.swapped"
"""A point at which a kill leaves the mirror behind Git."""

_ONCE_FOR_A_GROUP: Final = frozenset({"commit.before-swap", "commit.swapped"})

_LIVE: Final = 0.6
"""The longest load in seconds before a kill at a random moment."""


def all_points(rng: random.Random, writers: int = 2) -> list[str]:
    """Each named point once, at a random pass of it; those of the recovery follow a kill that leaves work for it."""

    def last(point: str) -> int:
        """The most passes to wait for, so that something is acknowledged before."""
        if point.startswith("index"):
            return 3  # once for many commits
        return 6 if point.startswith("git") or point in _ONCE_FOR_A_GROUP else 2 * writers

    passes = [f"{point}:{rng.randint(1, last(point))}" for point in POINTS]
    return [*passes, *(point for recovery in RECOVERY_POINTS for point in (BEHIND, recovery))]


@dataclass(slots=True)
class Tally:
    """The results of a campaign: counts, and seconds from each start to its first answer."""

    kills: int = 0
    by_point: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    nodes: int = 0
    restarts: list[float] = field(default_factory=list)


class Campaign:
    """A data folder whose server is killed again and again.

    Args:
        folder: Holds the data folder and the log.
        seed: The seed of all random choices.
        writers: How many clients write at once; with many, most commits are made in groups.
    """

    def __init__(self, folder: Path, seed: int, *, writers: int = 2) -> None:
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.tally = Tally()
        self._rng = random.Random(seed)
        self._clients = writers
        self._judge = Judge(self.data)
        self._writers: list[Writer] = []
        self._living: list[Service] = []
        self._children: set[int] = set()

    async def run(self, faults: list[str]) -> Tally:
        """Kill once for each fault (``""``: at a random moment), and check after each kill."""
        try:
            await self._prepare()
            heir = self._load_modules(faults[0])
            for fault, following in zip(faults, [*faults[1:], ""], strict=True):
                # The next server loads its modules while this one works, and starts when this one is killed.
                service, heir = heir, self._load_modules(following)
                try:
                    await self._life_and_death(service, fault)
                except Exception as error:
                    error.add_note(f"at kill {self.tally.kills + 1} of {faults}: {fault or 'at a random moment'}")
                    raise
            self._judge.forget()
            await self._start(heir)
            await self._look(heir)
            async with heir.channel() as channel:
                await self._judge.verify(Services(channel))
            assert await heir.stop() == 0, heir.tail()
        finally:
            for living in self._living:
                living.kill()
        self.tally.nodes = sum(len(writer.nodes) for writer in self._writers)
        return self.tally

    def _load_modules(self, fault: str) -> Service:
        self._living.append(Service(self.data, self.log, fault=fault))
        return self._living[-1]

    async def _prepare(self) -> None:
        service = self._load_modules("")
        await self._start(service)
        async with service.channel() as channel:
            self._writers = await prepare(Services(channel), self._clients, self._rng)
        await service.stop()

    async def _start(self, service: Service) -> None:
        begin = time.monotonic()
        service.begin()
        await service.ready()
        self.tally.restarts.append(time.monotonic() - begin)

    async def _life_and_death(self, service: Service, fault: str) -> None:
        """Start, check and load until the kill; a named point may be reached in any of these."""
        orphans, self._children = self._children, set()
        try:
            await self._start(service)
            self._children = set(service.children())
            await _gone(orphans)
            await self._look(service)
            await self._load(service, fault)
        except Exception:
            # The outcome of calls to the killed server is unknown; the next check decides about it.
            if not fault or not await service.ends(DEADLINE):
                raise
        assert service.status == -signal.SIGKILL, f"{fault} was never passed; {service.tail()}"
        self._living.remove(service)
        self.tally.kills += 1
        name = fault.partition(":")[0] or "random"
        self.tally.by_point[name] = self.tally.by_point.get(name, 0) + 1

    async def _load(self, service: Service, fault: str) -> None:
        async with service.channel() as channel:
            services = Services(channel)
            tasks = [
                asyncio.create_task(work)
                for writer in self._writers
                for work in (writer.edit(services), writer.commit(services))
            ]
            if fault:
                await asyncio.wait({*tasks}, timeout=DEADLINE)
            else:
                await asyncio.wait({*tasks}, timeout=self._rng.random() * _LIVE)
                service.kill()
            _, late = await asyncio.wait({*tasks}, timeout=DEADLINE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for task in tasks:
                if not task.cancelled():
                    task.result()
        if fault:
            await service.ends(DEADLINE)
        self.tally.commits += sum(len(writer.made) for writer in self._writers)
        complaints = [complaint for writer in self._writers for complaint in writer.complaints]
        assert not complaints, f"{complaints}; {service.tail()}"

    async def _look(self, service: Service) -> None:
        async with service.channel() as channel:
            await self._judge.check(Services(channel), self._writers, self._rng)


async def _gone(children: set[int]) -> None:
    """Check that the embedded stores end with their server."""
    deadline = time.monotonic() + DEADLINE
    while left := [pid for pid in children if alive(pid)]:
        assert time.monotonic() < deadline, f"processes {left} outlive their server"
        await asyncio.sleep(POLL)
