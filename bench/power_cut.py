"""Simulates a power cut: only what the disk had right after an acknowledgement is left.

Run as root: ``python bench/power_cut.py [count]``. The data folder lies on an ext4 image on a loop device. Right after
the last acknowledged commit every process of the server is stopped (SIGSTOP, so that none flushes any more) and the
image file is copied without a sync. A write reaches the image only when ext4 sends it to its device, so the copy lacks
all that was still in the page cache, as the disk would after a cut; the journal is committed by nothing but an fsync
meanwhile (``commit=300``). The copy is mounted, which replays the journal, and judged: ``git fsck``, every acknowledged
commit, and, by a server started on it, every staged change, the mirror and the search.

The controls show that the test can fail: the same cut under our own writer with ``fsync`` taken away, and under
dulwich's defaults. What the simulation does not show: a disk that lies about its flushes, or tears a sector.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import grpc
from crash.judge import Judge
from crash.service import ServerEndedError, Service, parent, pids, start
from crash.workload import Services, Writer, prepare
from unit.storage.git.judge import Judge as Git

_SIZE: Final = "1G"
"""The size of the image; it is sparse and holds about 150 MB."""

_LOAD: Final = 30.0
"""Seconds within which a commit must be acknowledged."""

_CONTROL_CUTS: Final = 3

WRITER: Final = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path

folder, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "without fsync":
    os.fsync = lambda descriptor: None
if kind == "dulwich defaults":
    from dulwich.objects import Blob, Commit, Tree
    from dulwich.repo import Repo
    repository = Repo.init_bare(str(folder), mkdir=True)
    parent = None
    for number in range(20):
        blob, tree, commit = Blob.from_string(b"text %d" % number), Tree(), Commit()
        tree.add(b"node.md", 0o100644, blob.id)
        commit.tree, commit.parents = tree.id, [parent] if parent else []
        commit.author = commit.committer = b"Bench <bench@example.org>"
        commit.author_time = commit.commit_time = 1_700_000_000 + number
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = b"commit"
        for made in (blob, tree, commit):
            repository.object_store.add_object(made)
        assert repository.refs.set_if_equals(b"refs/heads/main", parent, commit.id)
        parent = commit.id
        print(commit.id.decode(), flush=True)
else:
    from memotree_storage.git.repository import GitRepository
    from memotree_storage.ports import CommitDraft, Signature
    who = Signature("Bench", "bench@example.org", datetime(2024, 1, 1, tzinfo=UTC))
    repository = GitRepository.create(folder)
    head = None
    for number in range(20):
        written = repository.write_commit(CommitDraft(head, {"node.md": b"text %d" % number}, "commit", who, who))
        assert repository.move_ref("refs/heads/main", head, written.commit_id)
        head = written.commit_id
        print(head, flush=True)
print("done", flush=True)
time.sleep(3600)
"""
"""Makes commits in a repository and prints the id of each; then waits to be killed."""


def skip_reason() -> str:
    """Return why the test cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "only root can mount an image"
    missing = [name for name in ("mkfs.ext4", "mount", "umount", "losetup") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is missing"
    free = subprocess.run(["losetup", "--find"], capture_output=True, check=False)
    return "" if free.returncode == 0 else "there is no free loop device"


def run(count: int, seed: int | None = None) -> dict[str, Any]:
    """Cut the power ``count`` times; a cut counts as survived only if nothing acknowledged is missing."""
    reason = skip_reason()
    if reason:
        return {"skipped": reason}
    seed = random.randrange(2**32) if seed is None else seed
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="memotree-power-") as folder:
        server = asyncio.run(_Cuts(Path(folder), random.Random(seed)).run(count))
        controls = {kind: _control(Path(folder), kind) for kind in ("memotree", "without fsync", "dulwich defaults")}
    return {
        **server,
        "store alone: survived of " + str(_CONTROL_CUTS): controls,
        "seconds": round(time.monotonic() - begin, 1),
        "seed": seed,
    }


class _Disk:
    """An ext4 image, mounted at a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image = image
        self.folder = folder

    @classmethod
    def make(cls, image: Path, folder: Path) -> "_Disk":
        subprocess.run(["truncate", "-s", _SIZE, image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        return cls(image, folder)

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it for the block; unmounting also releases the loop device."""
        self.folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", "loop,commit=300", self.image, self.folder], check=True)
        try:
            yield self.folder
        finally:
            self._unmount()

    def _unmount(self) -> None:
        deadline = time.monotonic() + 20
        while subprocess.run(["umount", self.folder], capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline:  # a process still has files open; the mount ends when they are closed
                subprocess.run(["umount", "--lazy", self.folder], check=True)
                return
            time.sleep(0.05)

    def cut(self, copy: Path, folder: Path) -> "_Disk":
        """Copy what the disk has at this moment to another disk."""
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        return _Disk(copy, folder)


class _Cuts:
    """Power cuts under a whole server, one after the other; each begins with the disk that the previous cut left."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._writers: list[Writer] = []
        self._acknowledged = 0
        self._edits = 0

    async def run(self, count: int) -> dict[str, Any]:
        disk, survived, failures = self._fresh(), 0, []
        for number in range(count + 1):
            following = disk
            try:
                following = await self._life(disk, number, last=number == count)
            except (AssertionError, ServerEndedError, grpc.aio.AioRpcError) as error:
                failures.append(f"cut {number}: {error}")
                self._writers, following = [], self._fresh()
            else:
                survived += number > 0
            if following is not disk:
                disk.image.unlink(missing_ok=True)
            disk = following
        disk.image.unlink(missing_ok=True)
        return {
            "cuts": count,
            "survived": survived,
            "acknowledged commits": self._acknowledged,
            "acknowledged edits": self._edits,
            "failures": len(failures),
            "what failed": failures,
        }

    def _fresh(self) -> _Disk:
        return _Disk.make(self._folder / f"disk-{time.monotonic_ns()}.img", self._folder / "mounted")

    async def _life(self, disk: _Disk, number: int, *, last: bool) -> _Disk:
        """Check what a cut left, then load the server until the next cut; return the disk that this cut leaves."""
        with disk.mounted() as place:
            data = place / "data"
            # Before any server may repair something: Git alone must be whole.
            for repository in data.glob("workspaces/*.git"):
                Git(repository).check()
            service = await start(data, self._folder / "server.log")
            try:
                async with service.channel() as channel:
                    services = Services(channel)
                    if self._writers:
                        await Judge(data).check(services, self._writers, self._rng)
                    else:
                        self._writers = await prepare(services, 2, self._rng)
                    if last:
                        return disk
                    await self._load(services, service)
                return disk.cut(self._folder / f"disk-{number}.img", self._folder / "mounted")
            finally:
                _end(service)

    async def _load(self, services: Services, service: Service) -> None:
        """Edit and commit for a moment; then stop all processes at the next acknowledged commit."""
        tasks = [
            asyncio.create_task(work)
            for writer in self._writers
            for work in (writer.edit(services), writer.commit(services))
        ]
        await asyncio.wait(tasks, timeout=0.1 + self._rng.random() * 0.4)
        before, deadline = self._made(), time.monotonic() + _LOAD
        while self._made() == before:
            if time.monotonic() > deadline:
                raise TimeoutError("no commit was acknowledged")
            await asyncio.sleep(0)
        _stop(service.pid)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._acknowledged += self._made()
        self._edits = sum(writer.acknowledged_edits for writer in self._writers)

    def _made(self) -> int:
        return sum(len(writer.made) for writer in self._writers)


def _family(pid: int) -> list[int]:
    """Return a process and all its descendants, the process itself first."""
    parents = {child: parent(child) for child in pids()}
    family = [pid]
    for member in family:
        family += [child for child, above in parents.items() if above == member]
    return family


def _stop(pid: int) -> None:
    """Stop a process and all its descendants, those that are begun meanwhile too; some end by themselves."""
    stopped: set[int] = set()
    while found := set(_family(pid)) - stopped:
        for member in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGSTOP)
        stopped |= found


def _end(service: Service) -> None:
    """Kill the server and all its child processes; SIGKILL also ends stopped processes."""
    for pid in _family(service.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    service.kill()


def _control(folder: Path, kind: str) -> int:
    """Return how many of ``_CONTROL_CUTS`` cuts a repository survives that is written in this way."""
    survived = 0
    for number in range(_CONTROL_CUTS):
        disk = _Disk.make(folder / f"control-{number}.img", folder / "mounted")
        with disk.mounted() as place:
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(place / "a.git"), kind], stdout=subprocess.PIPE, text=True
            )
            try:
                said = _said(writer)
                copy = disk.cut(folder / f"control-{number}-cut.img", folder / "mounted")
            finally:
                writer.kill()
                writer.communicate()
        with copy.mounted() as place:
            survived += _whole(place / "a.git", said)
        disk.image.unlink()
        copy.image.unlink()
    return survived


def _said(writer: "subprocess.Popen[str]") -> list[str]:
    """Yield the commits that a writer acknowledges, until it is done."""
    said: list[str] = []
    for line in writer.stdout or ():
        if line == "done\n":
            return said
        said.append(line.strip())
    raise RuntimeError(f"The writer ended with {writer.wait()}.")


def _whole(repository: Path, acknowledged: list[str]) -> bool:
    """Whether the repository is intact and its branch has every acknowledged commit."""
    try:
        Git(repository).check()
        return set(acknowledged) <= set(Git(repository).run("rev-list", "main").split())
    except AssertionError:
        return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    print(json.dumps(run(options.count, options.seed), indent=2))
