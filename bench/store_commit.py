"""Measures the cost of a durable commit at the store level, beside the git program on the same tree.

Each commit looks up the present names of its nodes first, as the write path does. ``retitle`` commits give the nodes
other titles, and so other names; ``commit`` commits change only their text.

Run as ``python bench/store_commit.py [nodes ...]``; ``make bench`` calls the functions.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from memotree_storage.git.entry_files import entry_files
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.node import ID_ALPHABET
from memotree_storage.model.paths import node_path
from memotree_storage.ports import CommitDraft, Signature

Figures = dict[str, float]

BRANCH = "refs/heads/main"
_WHO = Signature("Bench", "bench@example.org", datetime(2025, 1, 1, tzinfo=UTC))
_WORDS = ("node", "memory", "commit", "branch", "tree", "agent", "session", "search", "summary", "parent", "leaf")


def random_path(rng: random.Random) -> str:
    """The path of a node with a random id and title."""
    return node_path("".join(rng.choices(ID_ALPHABET, k=16)), " ".join(rng.choices(_WORDS, k=4)))


def node_text(rng: random.Random, size: int) -> bytes:
    """A node file of about ``size`` bytes."""
    text = " ".join(rng.choices(_WORDS, k=size // 6))
    return f"---\ntitle: {text[:40]}\n---\n{text}\n".encode()


def build(path: Path, nodes: int, size: int, seed: int = 1) -> tuple[GitRepository, str, list[str], float]:
    """A repository of ``nodes`` nodes imported as one commit: (repository, head, paths, seconds of the import)."""
    rng = random.Random(seed)
    changes: dict[str, bytes | None] = {random_path(rng): node_text(rng, size) for _ in range(nodes)}
    repository = GitRepository.create(path, description="bench")
    start = time.perf_counter()
    commit_id = commit(repository, None, changes)
    return repository, commit_id, list(changes), time.perf_counter() - start


def commit(repository: GitRepository, parent: str | None, changes: dict[str, bytes | None]) -> str:
    """Make one durable commit on the branch."""
    written = repository.write_commit(CommitDraft(parent, changes, "Change some nodes", _WHO, _WHO))
    if not repository.move_ref(BRANCH, parent, written.commit_id):
        message = "The branch moved although no other program writes to it."
        raise RuntimeError(message)
    return written.commit_id


def measure_store(
    repository: GitRepository, head: str, ids: Sequence[str], *, k: int, rounds: int, size: int, retitle: bool = False
) -> tuple[str, float]:
    """Median milliseconds of a commit that rewrites ``k`` nodes (under new titles or not), and the new head."""
    rng = random.Random(k)
    times = []
    for number in range(rounds):
        text = node_text(rng, size)
        chosen = rng.sample(ids, k)
        start = time.perf_counter()
        changes: dict[str, bytes | None] = {}
        for node_id, files in entry_files(repository, head, chosen).items():
            present = files[0].path
            path = node_path(node_id, f"Title {number} of {k}") if retitle else present
            changes |= {present: None, path: text + b"%d %s\n" % (number, path.encode())}
        head = commit(repository, head, changes)
        times.append(time.perf_counter() - start)
    return head, statistics.median(times) * 1e3


def measure_git(repository: Path, folder: Path, paths: Sequence[str], *, k: int, rounds: int, size: int) -> float:
    """Median milliseconds of ``git add`` + ``git commit`` of ``k`` nodes in a clone with a work tree."""
    rng = random.Random(f"git {k}")  # with the seed of the store's rounds git would find nothing to commit
    subprocess.run(["git", "clone", "-q", str(repository), str(folder)], check=True)
    git = ["git", "-C", str(folder), "-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
    git += ["-c", "core.fsync=all"]
    times = []
    for number in range(rounds):
        text = node_text(rng, size)
        chosen = rng.sample(paths, k)
        for path in chosen:
            (folder / path).write_bytes(text + b"%d %s\n" % (number, path.encode()))
        start = time.perf_counter()
        subprocess.run([*git, "add", "--", *chosen], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "Change some nodes"], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def run(nodes: int, *, size: int = 2000, rounds: int = 40, git_rounds: int = 5) -> Figures:
    """Return all figures for one size of repository, in milliseconds unless the name says otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.git")
        repository, head, paths, seconds = build(path, nodes, size)
        figures: Figures = {"nodes": nodes, "import_s": seconds}
        figures["import_peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        ids = [name.split("/")[3][:16] for name in paths]
        for name, retitle in (("commit", False), ("retitle", True)):
            for k in (1, 10, 100):
                head, milliseconds = measure_store(
                    repository, head, ids, k=k, rounds=rounds, size=size, retitle=retitle
                )
                figures[f"{name}_k{k}_ms"] = milliseconds
                figures[f"{name}_k{k}_kib"] = _newest_pack(path) / 1024
        start = time.perf_counter()
        present = [change.path for change in repository.diff(None, head)]
        figures["list_all_s"] = time.perf_counter() - start
        if len(present) != nodes:
            message = f"{len(present)} files instead of {nodes}"
            raise RuntimeError(message)
        repository.close()
        if git_rounds:
            work = Path(folder, "work")
            figures["git_k10_ms"] = measure_git(path, work, present, k=10, rounds=git_rounds, size=size)
            figures["times_faster_than_git"] = figures["git_k10_ms"] / figures["commit_k10_ms"]
        return figures


def _newest_pack(repository: Path) -> int:
    packs = (repository / "objects" / "pack").glob("*.pack")
    return max(packs, key=lambda pack: pack.stat().st_mtime_ns).stat().st_size


def main() -> None:
    """Measure and print one JSON line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="*", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--no-git", action="store_true", help="leave out the git program")
    arguments = parser.parse_args()
    for nodes in arguments.nodes:
        figures = run(nodes, git_rounds=0 if arguments.no_git else 5)
        json.dump({name: round(value, 2) for name, value in figures.items()}, sys.stdout)
        print(flush=True)


if __name__ == "__main__":
    main()
