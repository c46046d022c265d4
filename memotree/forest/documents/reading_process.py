"""Reads documents in a process of its own: ``python -m memotree.forest.documents.reading_process SECONDS BYTES CHARS``.

A document can be made to cost any time and memory, or to crash a library written in C. Here that costs at most the
limits, ends only this process, and can be stopped.

A message is the length of its head in four bytes, the head as JSON, and a body whose length is in the head. A request
has the document as its body, an answer the document that was read, as JSON, or the reason why it could not be read.
The process ends when its input does.
"""

import contextlib
import json
import math
import os
import resource
import sys
import traceback
from typing import IO, Any

from memotree.forest.documents.document import Document, UnreadableDocumentError
from memotree.forest.documents.reading import read_document
from memotree.forest.documents.serialization import to_json

LENGTH_BYTES = 4
"""Bytes of the length of a head."""


def encode(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Returns a message."""
    data = json.dumps({**head, "length": len(body)}).encode()
    return len(data).to_bytes(LENGTH_BYTES, "big") + data + body


def main() -> None:
    """Answers requests until the input ends."""
    seconds, most_bytes, most_chars = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get into the answers
    with contextlib.suppress(ValueError, OSError):  # where the system does not limit it
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    requests = sys.stdin.buffer
    while head := _head(requests):
        _limit_time(seconds)
        answers.write(_answer(head, requests.read(head["length"]), most_chars))
        answers.flush()


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


def _answer(head: dict[str, Any], data: bytes, most_chars: int) -> bytes:
    try:
        given: bytes | str = data.decode("utf-8", "surrogatepass") if head["is_text"] else data
        document = read_document(given, media_type=head["media_type"], name=head["name"])
    except UnreadableDocumentError as error:
        return encode({"reason": error.reason, "message": error.message})
    except MemoryError:
        return encode({"cause": "memory"})
    except Exception:  # noqa: BLE001 - a defect of a reader; the server logs it and goes on
        return encode({"cause": "defect", "message": traceback.format_exc()})
    return _read(document, most_chars)


def _read(document: Document, most_chars: int) -> bytes:
    if len(document.text) > most_chars:
        return encode({"cause": "length"})
    try:
        return encode({}, to_json(document))
    except MemoryError:
        return encode({"cause": "memory"})


if __name__ == "__main__":
    main()
