"""Fault points: without effect unless named, and they kill the process at exactly the named pass."""

import os
import signal
import subprocess
import sys

import pytest
from memotree_storage.faults import ENVIRONMENT_VARIABLE

PROGRAM = """
from memotree_storage.faults import point
for number in range(3):
    print(number, flush=True)
    point("other")
    point("here")
"""


@pytest.mark.parametrize(
    ("fault", "printed", "status"),
    [("here", "0", -signal.SIGKILL), ("here:2", "0 1", -signal.SIGKILL), ("here:9", "0 1 2", 0), ("", "0 1 2", 0)],
)
def test_a_process_is_killed_at_the_named_pass_of_a_point(fault: str, printed: str, status: int) -> None:
    done = subprocess.run(  # noqa: S603 - this interpreter and the program above
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {ENVIRONMENT_VARIABLE: fault},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == printed.split()
    assert done.returncode == status
