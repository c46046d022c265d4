"""Optimises the copy of a shard: ``python -m memotree_storage.qdrant.engine.optimise_copy COLLECTION COPY PARENT``.

A process of its own, since the call takes 100 µs a point and holds the GIL. It works behind all others, is the first to
be ended when memory runs out, and ends with the engine. When it succeeds, the copy is on stable storage.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import qdrant_edge as edge

from memotree_storage import faults
from memotree_storage.qdrant.engine.collection import SETTINGS
from memotree_storage.qdrant.engine.configuration import mapped_index, optimised_shard
from memotree_storage.qdrant.engine.files import read_ahead, sync_all
from memotree_storage.qdrant.engine.wire import qdrant

_NICE: Final = 10
_READ_AHEAD: Final = 1 << 30
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Optimise the copy in a folder."""
    collection, copy, parent = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    _end_with(parent)
    os.nice(_NICE)
    with suppress(OSError):  # not on this system
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    settings = qdrant.CreateCollection.FromString((collection / SETTINGS).read_bytes())
    shard = edge.EdgeShard.load(str(copy), optimised_shard(settings))
    for name, field in shard.info().payload_schema.items():
        mapped = mapped_index(field)
        if mapped is not None:
            shard.update(edge.UpdateOperation.delete_field_index(name))
            shard.update(edge.UpdateOperation.create_field_index(name, mapped))
    shard.optimize()
    faults.point("engine.copy_optimised")
    shard.flush()
    shard.close()
    sync_all(copy)
    read_ahead(copy, _READ_AHEAD)  # the engine's library takes what it closes out of the system's cache


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread ends that started it, in the process ``parent``."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The engine ended before it was asked to end this process with it.")


if __name__ == "__main__":
    main()
