"""The engine's process: ``python -m memotree_storage.qdrant.engine --data FOLDER --port N --api-key-file FILE``."""

import argparse
import fcntl
import logging
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

from memotree_storage.memory import return_freed_memory
from memotree_storage.qdrant.engine.optimising import Optimising
from memotree_storage.qdrant.engine.server import build
from memotree_storage.qdrant.engine.shards import Shards

_LOCK_WAIT: Final = 20.0
_LOCK_POLL: Final = 0.01
_STOP_GRACE: Final = 2.0


def main() -> int:
    """Serve until SIGTERM or SIGINT, then flush and exit."""
    parser = argparse.ArgumentParser(prog="python -m memotree_storage.qdrant.engine", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the collections")
    parser.add_argument("--port", type=int, required=True, help="port on the loopback interface")
    parser.add_argument(
        "--api-key-file", type=Path, required=True, help="file that contains the API key that every call must send"
    )
    options = parser.parse_args()
    return_freed_memory()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stopping = _Stopping()
    options.data.mkdir(parents=True, exist_ok=True)
    if not _lock(options.data / "engine.lock", stopping):
        sys.stderr.write(f"Another engine process uses {options.data} and does not exit; stop that process.\n")
        return 1
    shards = Shards(options.data / "collections")
    optimising = Optimising(shards)
    server = build(shards, optimising, options.api_key_file.read_text(encoding="ascii").strip())
    server.add_insecure_port(f"127.0.0.1:{options.port}")
    server.start()
    optimising.start()
    stopping.wait()
    stopped = server.stop(_STOP_GRACE)
    optimising.stop()
    stopped.wait()
    shards.close()
    return 0


class _Stopping:
    """A stop request: SIGTERM or SIGINT makes it, the main thread waits for it.

    The thread that gets the signal writes it into a pipe. A handler in Python runs in the main thread alone, which
    nothing wakes if the kernel gives the signal to another thread: the wait would never end.
    """

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # without a handler, the signal would end the process at once

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a stop request, at most ``timeout`` seconds; return whether there was one."""
        return bool(select.select([self._reader], [], [], timeout)[0])


def _lock(path: Path, stopping: _Stopping) -> bool:
    """Lock the folder until this process ends; wait for the engine of a killed server to flush and exit."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LOCK_WAIT
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stopping.wait(_LOCK_POLL):
                return False
        else:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
