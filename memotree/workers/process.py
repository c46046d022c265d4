"""A process that answers requests one after the other: the messages, its limits, and its loop.

A message is the length of its head in four bytes, the head as JSON, and a body whose length is in the head. The process
ends when its input does, and when the process that started it has ended; what it started in its process group ends then
too.
"""

import contextlib
import json
import math
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import IO, Any, Final

LENGTH_BYTES: Final = 4
"""Bytes of the length of a head."""

_WATCH_SECONDS: Final = 2.0
"""How often the process looks whether the one that started it still runs."""


def encode(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A message."""
    data = json.dumps({**head, "length": len(body)}).encode()
    return len(data).to_bytes(LENGTH_BYTES, "big") + data + body


def answer_requests(answer: Callable[[dict[str, Any], bytes], bytes], seconds: float, most_bytes: int) -> None:
    """Answer requests until the input ends.

    Args:
        answer: Makes the message that answers a request of this head and body.
        seconds: The processor time that one request may take; a request whose head has ``seconds`` says it itself.
        most_bytes: The memory of this process, in bytes.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get into the answers
    requests = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what a function starts must not read the requests
    os.close(nothing)
    with contextlib.suppress(ValueError, OSError):  # where the system does not limit it
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while head := _head(requests):
        _limit_time(head.get("seconds", seconds))
        answers.write(answer(head, requests.read(head["length"])))
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process and its group soon after the one that started it was killed, which then cannot end them."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with this process
    os._exit(1)


def _head(requests: IO[bytes]) -> dict[str, Any]:
    length = requests.read(LENGTH_BYTES)
    head: dict[str, Any] = json.loads(requests.read(int.from_bytes(length, "big"))) if length else {}
    return head


def _limit_time(seconds: float) -> None:
    """Let the system end this process after so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
