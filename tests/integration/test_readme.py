"""The README's Python example does what it shows."""

import contextlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.requirement("SERVE-4")
def test_the_example_runs_unchanged(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    command = [sys.executable, "-m", "memotree.cli", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own server
    try:
        announced = tmp_path / "data" / "server.json"
        deadline = time.monotonic() + 60
        while not announced.exists() and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=0.05)  # a pause that ends at once when the server does
        address = json.loads(announced.read_text(encoding="utf-8"))["address"]
        program = code[1].replace("Client()", f"Client({address!r})")
        done = subprocess.run(  # noqa: S603 - the example
            [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        server.terminate()
        server.wait(timeout=30)
    assert done.stderr == ""
    *recalled, before = done.stdout.splitlines()
    assert any("At most three retries." in line for line in recalled)
    assert before == "At most five retries."
