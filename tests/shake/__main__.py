"""Runs the tests under delays, and beside busy processes: ``python tests/shake --seed 7 --busy 4 -- tests/crash``."""

import argparse
import os
import secrets
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run pytest; its exit status."""
    parser = argparse.ArgumentParser(prog="tests/shake", description=__doc__)
    parser.add_argument("--seed", default="", help="the seed of all delays; a new one if it is left out, 0 for none")
    parser.add_argument("--busy", type=int, default=0, help="how many processes compute beside the tests")
    parser.add_argument("arguments", nargs="*", metavar="PYTEST", help="arguments of pytest, after --")
    chosen = parser.parse_args()
    seed = chosen.seed or str(secrets.randbelow(10**6) + 1)
    here = Path(__file__).parent
    environment = dict(os.environ)
    if seed != "0":
        environment |= {"SHAKE_SEED": seed, "MEMOTREE_TEST_SEED": seed}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH", "")]))
    print(f"Delays with seed {seed}, beside {chosen.busy} busy processes.", flush=True)
    command = [sys.executable, "-m", "pytest", *chosen.arguments]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(chosen.busy)]
    try:
        status = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - pytest itself
    finally:
        for process in busy:
            process.kill()
    if status:
        print(f"To see it again: make shake SEED={seed} BUSY={chosen.busy} ON=<the test>", flush=True)
    return status


sys.exit(main())
