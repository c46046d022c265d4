"""The README's Python example does what it shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.requirement("SERVE-4", "USE-7")
def test_the_example_runs_unchanged(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    done = subprocess.run(  # noqa: S603 - the example
        [sys.executable, "-c", code[1]], capture_output=True, text=True, check=False, timeout=150, cwd=tmp_path
    )
    assert done.stderr == ""
    *recalled, before = done.stdout.splitlines()
    assert any("At most three retries." in line for line in recalled)
    assert before == "At most five retries."
