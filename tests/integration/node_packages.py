"""Node.js and the packages of a folder's ``package-lock.json``, installed once for all workers.

The lock files name no registry: after a change of ``package.json`` make them anew with
``npm install --omit-lockfile-registry-resolved --ignore-scripts``.
"""

import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent / "node_client"
NODE: Final = shutil.which("node")
NPM: Final = shutil.which("npm")

needs_node = pytest.mark.skipif(NODE is None or NPM is None, reason="this machine has no Node.js with npm")


def node_modules(folder: Path = FOLDER) -> Path:
    """The folder of the installed packages; npm installs them if they differ from the lock file of ``folder``."""
    lock, modules = folder / "package-lock.json", folder / "node_modules"
    with lock.open(encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # several workers may call this at once
        installed = modules / ".package-lock.json"
        if not installed.exists() or _packages(installed) != _packages(lock):
            done = subprocess.run(  # noqa: S603 - npm with arguments of our own
                [NPM or "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=500,
            )
            assert done.returncode == 0, done.stderr
    return modules


def _packages(lock: Path) -> dict[str, str]:
    listed = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return {name: facts["version"] for name, facts in listed.items() if name}
