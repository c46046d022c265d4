"""Optimises the copy of a shard: ``python -m memotree_storage.qdrant.engine.optimise_copy COLLECTION COPY PARENT``.

A process of its own, since the call takes 100 µs a point and holds the GIL. It works behind all others, is the first to
be ended when memory runs out, and ends with the engine. When it succeeds, the copy is on stable storage.
"""

import ctypes
import os
import signal
import sys
from contextlib import ExitStack, suppress
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
_USUAL_ARGUMENTS: Final = 4
_FILLER: Final = 24 << 20
"""Bytes of an operation that changes nothing; a file of the log has 32 MiB."""

_MOST_FILLERS: Final = 10
_NO_KEY: Final = "of_no_point"


def main() -> None:
    """Optimise the copy in a folder."""
    collection, copy, parent = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    _end_with(parent)
    os.nice(_NICE)
    with suppress(OSError):  # not on this system
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    settings = qdrant.CreateCollection.FromString((collection / SETTINGS).read_bytes())
    anew = len(sys.argv) > _USUAL_ARGUMENTS
    shard = edge.EdgeShard.load(str(copy), optimised_shard(settings, anew=anew))
    for name, field in shard.info().payload_schema.items():
        mapped = mapped_index(field)
        if mapped is not None:
            shard.update(edge.UpdateOperation.delete_field_index(name))
            shard.update(edge.UpdateOperation.create_field_index(name, mapped))
    if anew:
        _renew_log(shard, copy)
    shard.optimize()
    faults.point("engine.copy_optimised")
    shard.flush()
    shard.close()
    sync_all(copy)
    read_ahead(copy, _READ_AHEAD)  # the engine's library takes what it closes out of the system's cache


def _renew_log(shard: edge.EdgeShard, copy: Path) -> None:
    """Fill the log until its present files are gone: a shard removes full ones when what they say is flushed.

    Removing them instead would let the numbers of operations begin anew, and the shard would ignore each that is not
    greater than the last one of its point.
    """
    filler = edge.MatchValue("0" * _FILLER)
    with ExitStack() as held:  # they are held open, since a file that is gone may give its number to a new one
        before = [held.enter_context(path.open("rb")) for path in (copy / "wal").iterdir() if _is_of_log(path)]
        for _ in range(_MOST_FILLERS):
            condition = edge.FieldCondition(key=_NO_KEY, match=filler)
            shard.update(edge.UpdateOperation.delete_points_by_filter(edge.Filter(must=[condition])))
            shard.flush()
            if not any(os.fstat(file.fileno()).st_nlink for file in before):
                return
    sys.exit("The files of the log stay, however much is written.")


def _is_of_log(path: Path) -> bool:
    return path.name.startswith(("open-", "closed-"))


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread ends that started it, in the process ``parent``."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The engine ended before it was asked to end this process with it.")


if __name__ == "__main__":
    main()
