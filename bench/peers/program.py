"""What the programs of the peers share: they answer one JSON line for each JSON line, and time each call themselves.

Runs inside a peer's own environment, so it imports nothing but the standard library. The time of a call is that of the
peer's own client: the lines over the pipe and the decoding of vectors are not part of it.
"""

import base64
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

DIMENSIONS: Final = 256
"""Numbers of a vector."""

TOP: Final = 10
"""Results of a search."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note to write.

    Attributes:
        key: Its name, the same over all its versions.
        text: Its text; the first sentence serves as a title where one is needed.
        vector: Its vector of unit length.
    """

    key: str
    text: str
    vector: Sequence[float]


class Peer(Protocol):
    """A store of notes under the workload.

    It has those of the following calls, by these names, that it does not name in ``lacks``:

    - ``search_words(text)``, ``search_vector(text, vector)`` and ``search_hybrid(text, vector)`` return the keys of the
      best notes: by words, by their vectors, by both.
    - ``history_of_one(key)`` reads the versions of one note, newest first (what identifies each, not their texts), and
      returns how many there are.
    - ``read_as_of(key)`` returns the text that a note had at the mark.

    Attributes:
        versions: The versions of the packages and programs that matter, by name.
        durability: What is on disk when a write returns, in one sentence.
        lacks: Calls that it does not have, by name, each with the reason.
    """

    @property
    def versions(self) -> Mapping[str, str]: ...

    @property
    def durability(self) -> str: ...

    @property
    def lacks(self) -> Mapping[str, str]: ...

    def load(self, notes: Sequence[Note]) -> None:
        """Write new notes, as one commit or transaction."""

    def settle(self) -> None:
        """Do what an operator does after many writes (indexes, statistics), and wait until searches see everything."""

    def mark(self) -> None:
        """Remember the present state, which ``read_as_of`` reads later."""

    def update(self, notes: Sequence[Note]) -> None:
        """Replace the texts of some notes, as one commit or transaction."""


def packages(*names: str) -> dict[str, str]:
    """Return the installed versions of some packages."""
    return {name: version(name) for name in names}


def packed(vector: Sequence[float]) -> str:
    """Return a vector as it goes over the pipe: 32-bit floats in base 64."""
    return base64.b64encode(array("f", vector).tobytes()).decode("ascii")


def unpacked(text: str) -> list[float]:
    """Return the vector of such a text."""
    found = array("f")
    found.frombytes(base64.b64decode(text))
    return found.tolist()


def serve(start: Callable[[Path, str], Peer]) -> None:
    """Answer calls until standard input ends.

    Args:
        start: Opens the peer in an empty folder, at the address of its server if it has one.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    peer: Peer | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if peer is None:
                peer = start(Path(request["folder"]), request["address"])
                answer: dict[str, Any] = {
                    "versions": dict(peer.versions),
                    "durability": peer.durability,
                    "lacks": dict(peer.lacks),
                }
            else:
                answer = _timed(peer, request["call"], _arguments(request))
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _timed(peer: Peer, call: str, arguments: Sequence[Any]) -> dict[str, Any]:
    method = getattr(peer, call)
    begun = time.perf_counter()
    value = method(*arguments)
    return {"ms": (time.perf_counter() - begun) * 1000, "value": value}


def _arguments(request: Mapping[str, Any]) -> list[Any]:
    if "notes" in request:
        return [[Note(key, text, unpacked(vector)) for key, text, vector in request["notes"]]]
    given: list[Any] = [request[name] for name in ("key", "text") if name in request]
    return given + ([unpacked(request["vector"])] if "vector" in request else [])
