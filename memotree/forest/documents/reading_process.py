"""Reads documents in a process of its own: ``python -m memotree.forest.documents.reading_process SECONDS BYTES CHARS``.

A document can be made to cost any time and memory, or to crash a library written in C. Here that costs at most the
limits, ends only this process, and can be stopped.

A request has the document as its body, an answer the document that was read, as JSON, or the reason why it could not be
read.
"""

import sys
import traceback
from functools import partial
from typing import Any

from memotree.forest.documents.document import Document, UnreadableDocumentError
from memotree.forest.documents.reading import read_document
from memotree.forest.documents.serialization import to_json
from memotree.workers.process import answer_requests, encode


def main() -> None:
    """Answers requests until the input ends."""
    seconds, most_bytes, most_chars = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    answer_requests(partial(_answer, most_chars), seconds, most_bytes)


def _answer(most_chars: int, head: dict[str, Any], data: bytes) -> bytes:
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
