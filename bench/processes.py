"""The memory of a server by process: the service, and the processes that it has started."""

import os
from pathlib import Path
from typing import Final

_ENGINE: Final = b"memotree_storage.qdrant.engine"
_WORKERS: Final = (b"memotree_storage.index.term_worker", b"memotree_storage.index.feature_worker")


def memory_mb(service: int | None = None) -> dict[str, float]:
    """The megabytes of memory by process: service, engine, workers, PostgreSQL; empty where there is no ``/proc``.

    What several processes share counts in parts, so that PostgreSQL's shared buffers count once.

    Args:
        service: The process of the service; this one if ``None``.
    """
    service = os.getpid() if service is None else service
    found: dict[str, float] = {}
    for pid in _with_descendants(service):
        try:
            kind = "service" if pid == service else _kind(pid)
            found[kind] = found.get(kind, 0.0) + _share_kb(pid) / 1024
        except OSError:
            continue  # it has ended
    return found


def _with_descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    own = {root} & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sorted(own)


def _kind(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    if _ENGINE in command:
        return "engine"
    return "workers" if any(module in command for module in _WORKERS) else "PostgreSQL"


def _share_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
