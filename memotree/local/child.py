"""``python -m memotree.local.child FOLDER``: the private server of a folder. It ends when nobody uses it any more."""

import os
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Final

from memotree_storage.embedded.lock import DataFolderInUseError
from memotree_storage.errors import MemoTreeError

from memotree.local.users import wait_until_unused
from memotree.server import starting
from memotree.settings import load_settings

IN_USE: Final = 75
"""The exit code if another server holds the folder: EX_TEMPFAIL of sysexits.h."""


def main(folder: Path) -> int:
    """Serves ``folder`` until its last user ends; returns the exit code."""
    Thread(target=_stop_when_unused, args=(folder,), daemon=True).start()
    try:
        # the settings of `memotree serve` in the same place: a folder has one embedding, however it is opened
        starting.serve(load_settings(data_folder=folder, host="127.0.0.1", port=0, http_enabled=False))
    except DataFolderInUseError:
        return IN_USE
    except MemoTreeError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


def _stop_when_unused(folder: Path) -> None:
    wait_until_unused(folder)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
