"""``make bench-peers``: the same everyday workload on MemoTree and its peers, as a table, JSON and Markdown.

Each peer has an environment of its own with pinned packages, which the first run installs; one that cannot be
installed or started is skipped, with the reason. Times are of the peer's own client in its own process: over gRPC for
MemoTree, over a socket for PostgreSQL, in the process for LanceDB, a program for each call with git. Peers get the
vectors of texts for nothing; MemoTree makes them itself within its times.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import uvloop

from bench.peers.environments import KINDS, OURS, OUT
from bench.peers.measure import measure
from bench.peers.outcome import Run, keep
from bench.peers.report import markdown, show
from bench.table import machine
from memotree.server.logs import configure_logging


def main() -> int:
    """Run the workload; fails only if MemoTree itself did not run, or answered wrongly."""
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 notes and few rounds")
    parser.add_argument("--notes", type=int, help="how many notes; 10,000 by default")
    parser.add_argument("--words", type=int, default=100, help="the words of a note")
    parser.add_argument("--rounds", type=int, help="calls of each kind; 100 by default")
    parser.add_argument("--only", action="append", choices=[kind.name for kind in KINDS], help="only these peers")
    parser.add_argument("--json", type=Path, default=OUT / "peers.json", help="where the figures are kept")
    given = parser.parse_args()
    configure_logging("warning", "console")
    notes = given.notes or (1_000 if given.quick else 10_000)
    rounds = given.rounds or (20 if given.quick else 100)
    kinds = [kind for kind in KINDS if not given.only or kind.name in {OURS, *given.only}]
    before = os.getloadavg()[0]
    outcomes = uvloop.run(measure(kinds, notes=notes, words=given.words, rounds=rounds))
    load = {"load before": round(before, 1), "load after": round(os.getloadavg()[0], 1)}
    run = Run(notes, given.words, machine() | load | {"date": time.strftime("%Y-%m-%d")}, outcomes)
    show(run)
    keep(run, given.json)
    given.json.with_suffix(".md").write_text(markdown(run), encoding="utf-8")
    ours = outcomes[0]
    return int(bool(ours.skipped or ours.wrong or ours.lacks))


if __name__ == "__main__":
    sys.exit(main())
