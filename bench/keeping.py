"""Measures new branches, an erasure from a long history, and a backup and its restore, each beside git."""

import asyncio
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from memotree_storage.backup.restoring import check_backup
from memotree_storage.backup.writing import write_backup
from memotree_storage.erasure.rewriting import Order, rewrite_history
from memotree_storage.model.erasure import ErasureTarget
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.position import many_between
from memotree_storage.ports import Signature

from bench.merges import commit_entries
from bench.table import Row
from bench.worlds import World
from memotree.v1 import history_service_pb2 as history

_MOST_MS = 5
_AT_ONCE = 10_000
_MAIN = "refs/heads/main"


async def branches(place: World, *, rounds: int) -> list[Row]:
    """Measure a new branch at the head of a workspace; git makes its own in a copy, where nobody has to follow it."""
    repository = place.store.repositories.get(place.workspace_id)
    head = repository.refs()[_MAIN]
    samples, peer = [], []
    with tempfile.TemporaryDirectory(prefix="memotree-bench-") as folder:
        await asyncio.to_thread(_git, Path(folder), "clone", "-q", "--mirror", str(repository.path), "copy.git")
        for number in range(rounds):
            begun = time.perf_counter()
            request = history.CreateBranchRequest(workspace="bench", name=f"made-{number}", revision="main")
            await place.history.create_branch(request)
            samples.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            copy = Path(folder, "copy.git")
            await asyncio.to_thread(_git, copy, "-c", "core.fsync=all", "branch", f"made-{number}", head)
            peer.append(time.perf_counter() - begun)
    return [
        Row.of_times("new branch", samples, "git branch", peer),
        Row.of_times("new branch, in milliseconds", samples, most=_MOST_MS),
    ]


async def erasure(place: World, *, commits: int) -> list[Row]:
    """Measure the erasure of one node from a history, until its rows have followed, beside a rewrite by git."""
    archive = Archive(new_id(), "erased")
    secret = Node(new_id(), archive.id, None, "a0", title="Secret", content="What must go.")
    repository = place.store.repositories.get(place.workspace_id)
    head = commit_entries(place, repository.refs()[_MAIN], [archive, secret])
    for number, position in enumerate(many_between("a0", None, commits - 1)):
        note = Node(new_id(), archive.id, None, position, title=f"Note {number}", content=f"What note {number} says.")
        head = commit_entries(place, head, [note])
    repository.move_ref(_MAIN, repository.refs()[_MAIN], head)
    await place.store.catch_up(place.workspace_id)
    peer = await asyncio.to_thread(_rewritten_by_git, repository.path)
    who = Signature("bench", "", datetime.now(UTC).replace(microsecond=0))
    order = Order(new_id(), place.workspace_id, ErasureTarget(node_id=secret.id), "bench", "It is measured.", who)
    begun = time.perf_counter()
    stub = await rewrite_history(place.store, order)
    taken = time.perf_counter() - begun
    if stub.commits < commits:
        message = f"{stub.commits} of {commits} commits were rewritten"
        raise RuntimeError(message)
    work = f"erasure of one node from {commits:,} commits, until its rows have followed"
    return [Row(work, taken, "s", "git fast-export | git fast-import", peer)]


async def backups(place: World, *, nodes: int) -> list[Row]:
    """Measure a backup of a workspace, and a restore of it, which is checked."""
    archive = Archive(new_id(), "kept")
    repository = place.store.repositories.get(place.workspace_id)
    head = commit_entries(place, repository.refs()[_MAIN], [archive])
    notes = [
        Node(new_id(), archive.id, None, position, title=f"Note {number}", content=f"What note {number} says. " * 20)
        for number, position in enumerate(many_between(None, None, nodes))
    ]
    for start in range(0, nodes, _AT_ONCE):
        head = commit_entries(place, head, notes[start : start + _AT_ONCE])
    repository.move_ref(_MAIN, repository.refs()[_MAIN], head)
    await place.store.catch_up(place.workspace_id)
    with tempfile.TemporaryDirectory(prefix="memotree-bench-") as name:
        folder = Path(name)
        whole = folder / "whole.backup"
        saving = await _saved(place, whole)
        begun = time.perf_counter()
        await asyncio.to_thread(_git, repository.path, "bundle", "create", "-q", str(folder / "peer.bundle"), "--all")
        bundling = time.perf_counter() - begun
        begun = time.perf_counter()
        await asyncio.to_thread(check_backup, [whole], folder / "restored")
        restoring = time.perf_counter() - begun
        begun = time.perf_counter()
        await asyncio.to_thread(_git, folder, "clone", "-q", "--mirror", "peer.bundle", "peer.git")
        cloning = time.perf_counter() - begun
        size, peer_size = whole.stat().st_size / 2**20, (folder / "peer.bundle").stat().st_size / 2**20
    work = f"of a workspace of {nodes:,} nodes"
    return [
        Row(f"backup {work}", saving, "s", "git bundle create", bundling),
        Row(f"restore {work}, checked", restoring, "s", "git clone of the bundle", cloning),
        Row(f"size of a backup {work}", size, "MB", "git bundle", peer_size),
    ]


async def _saved(place: World, file: Path) -> float:
    begun = time.perf_counter()
    with file.open("wb") as target:
        async for chunk in write_backup(place.store, "bench"):
            target.write(chunk)
    return time.perf_counter() - begun


def _rewritten_by_git(repository: Path) -> float:
    """The seconds in which git reads a whole history and writes it again, with nothing taken out."""
    with tempfile.TemporaryDirectory(prefix="memotree-bench-") as folder:
        _git(Path(folder), "init", "-q", "--bare")
        begun = time.perf_counter()
        with subprocess.Popen(
            ["git", "-C", repository, "fast-export", "--all", "--signed-tags=strip"],
            stdout=subprocess.PIPE,
        ) as reading:
            subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], stdin=reading.stdout, check=True)
        return time.perf_counter() - begun


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)
