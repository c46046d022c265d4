"""Kills the whole server with SIGKILL again and again on one data folder, and checks all that it acknowledged.

Run as ``python bench/kills.py [count]``. The harness is that of ``tests/crash``; three of four kills are at named
points of a commit or of the recovery after one, the others at random moments.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import grpc
from crash.campaign import Campaign, all_points
from crash.service import ServerEndedError

_SHARE_AT_POINTS = 0.75


def run(count: int, seed: int | None = None, *, writers: int = 2) -> dict[str, Any]:
    """Kill ``count`` times beside that many writers, or until the first broken promise.

    It is reported under ``what failed``, and its data folder and log are left as they are.
    """
    seed = random.randrange(2**32) if seed is None else seed
    begin = time.monotonic()
    folder = tempfile.mkdtemp(prefix="memotree-kills-")
    campaign, failures = Campaign(Path(folder), seed, writers=writers), []
    try:
        asyncio.run(campaign.run(_faults(count, random.Random(seed), writers)))
    except (AssertionError, ServerEndedError, grpc.aio.AioRpcError) as error:
        failures.append(f"{error} (see {folder})")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    tally = campaign.tally
    return {
        "kills": tally.kills,
        "writers": writers,
        "failures": len(failures),
        "what failed": failures,
        "at": dict(sorted(tally.by_point.items())),
        "acknowledged commits": tally.commits,
        "nodes": tally.nodes,
        "restart seconds, median": round(statistics.median(tally.restarts), 2),
        "restart seconds, longest": round(max(tally.restarts), 2),
        "seconds": round(time.monotonic() - begin, 1),
        "seed": seed,
    }


def _faults(count: int, rng: random.Random, writers: int) -> list[str]:
    """Return rounds of all named points, mixed with random moments (``""``)."""
    faults: list[str] = []
    while len(faults) < count:
        for point in all_points(rng, writers):
            faults.append(point)
            # A kill during recovery must directly follow the kill that makes the recovery necessary.
            if not point.startswith("commit.swapped") and rng.random() > _SHARE_AT_POINTS:
                faults.append("")
    return faults[:count]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--writers", type=int, default=2)
    options = parser.parse_args()
    print(json.dumps(run(options.count, options.seed, writers=options.writers), indent=2))
