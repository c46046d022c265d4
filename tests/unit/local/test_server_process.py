"""What a server that a program starts leaves in its data folder."""

import stat
import sys
from pathlib import Path

import pytest

from memotree.local.server_process import ServerProcess

pytestmark = pytest.mark.requirement("SERVE-4")


@pytest.mark.parametrize("earlier", [False, True])
def test_only_this_user_may_read_the_log_of_a_private_server(tmp_path: Path, earlier: bool) -> None:
    log = tmp_path / "private-server.log"
    if earlier:
        log.touch(mode=0o644)
    started = ServerProcess.start([sys.executable, "-c", "print('said')"], folder=tmp_path, log=log)
    started.wait()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert log.read_text(encoding="utf-8") == "said\n"
