"""The memory of the processes of a world: this one as the service, and its children."""

import os
from pathlib import Path
from typing import Final

_ENGINE: Final = b"memotree_storage.qdrant.engine"
_WORKERS: Final = (b"memotree_storage.index.term_worker", b"memotree_storage.index.feature_worker")


def memory_mb() -> dict[str, float]:
    """The megabytes of memory by process: service, engine, workers, PostgreSQL; empty where there is no ``/proc``.

    What several processes share counts in parts, so that PostgreSQL's shared buffers count once.
    """
    found: dict[str, float] = {}
    for pid in _own_processes():
        try:
            kind = _kind(pid)
            found[kind] = found.get(kind, 0.0) + _share_kb(pid) / 1024
        except OSError:
            continue  # it has ended
    return found


def _own_processes() -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    own = {os.getpid()} & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sorted(own)


def _kind(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    if pid == os.getpid():
        return "service"
    if _ENGINE in command:
        return "engine"
    return "workers" if any(module in command for module in _WORKERS) else "PostgreSQL"


def _share_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
