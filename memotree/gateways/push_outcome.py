"""How a push has ended: read from the report that git sends to its client, and from what the hooks have noted.

git says which refs moved, but not why a hook let none of them move. So the hooks write that into a file, too, which
also tells of refusals when a client wants no report.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

_DENIED: Final = "PERMISSION_DENIED"
_NOTE: Final = re.compile(r"([A-Z_]{1,40}) ([A-Z0-9_]{1,80})")
_MOST_NOTED: Final = 1 << 16

_LENGTH: Final = 4
"""The characters before a line, which have its length with them in hexadecimal; lengths below four are marks."""

_REPORT: Final = 1
_BANDS: Final = (1, 2, 3)
"""The first byte of a line if there are several bands: the report, what is shown to people, and a fatal error."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a push has ended.

    Attributes:
        code: The gRPC status.
        reason: The error code of one that failed.
    """

    code: str = "OK"
    reason: str = ""


_REFUSED: Final = Outcome("FAILED_PRECONDITION", "PUSH_REFUSED")
"""git itself has refused it, or a hook that somebody else wrote."""

_UNREPORTED: Final = Outcome("UNKNOWN", "PUSH_NOT_REPORTED")
"""The client wanted no report, and no hook of ours has refused anything."""


class PushReport:
    """Reads the report-status of git in the response to a push, while it passes (see gitprotocol-pack).

    Attributes:
        moved: How many refs have moved.
        refused: How many have not.
    """

    def __init__(self) -> None:
        self._lines = _Lines()
        self._report = _Lines()
        self.moved = 0
        self.refused = 0

    def read(self, data: bytes) -> None:
        """Read the next part of the response."""
        for line in self._lines.read(data):
            if line[0] not in _BANDS:
                self._note(line)
            elif line[0] == _REPORT:
                for inner in self._report.read(line[1:]):
                    self._note(inner)

    def _note(self, line: bytes) -> None:
        word = line.split(b" ", 1)[0]
        self.moved += word == b"ok"
        self.refused += word == b"ng" or (word == b"unpack" and line.strip() != b"unpack ok")


class _Lines:
    """Takes lines with their length before them out of a stream that comes in parts; marks are left out."""

    def __init__(self) -> None:
        self._data = b""
        self._broken = False

    def read(self, data: bytes) -> Sequence[bytes]:
        """The lines that are whole now, none of them empty."""
        if self._broken:
            return ()
        self._data += data
        found: list[bytes] = []
        place = 0
        while place + _LENGTH <= len(self._data):
            try:
                length = int(self._data[place : place + _LENGTH], 16)
            except ValueError:
                self._broken, self._data = True, b""
                return found
            if place + length > len(self._data):
                break
            if length > _LENGTH:
                found.append(self._data[place + _LENGTH : place + length])
            place += max(length, _LENGTH)
        self._data = self._data[place:]
        return found


def outcome_of(report: PushReport, noted: Sequence[Outcome]) -> Outcome:
    """How a push has ended that git has answered.

    Args:
        report: What git has told its client.
        noted: Why hooks have refused something.
    """
    if noted or report.refused:
        found = next((each for each in noted if each.code == _DENIED), None) or (noted or [_REFUSED])[0]
        return Outcome(found.code, "PUSH_PARTLY_REFUSED") if report.moved else found
    return Outcome() if report.moved else _UNREPORTED


def make_notes() -> str:
    """Make an empty file in which hooks note why they refuse a push; return its path, empty if there is no room."""
    try:
        handle, path = tempfile.mkstemp(prefix="memotree-push-")
    except OSError as error:
        _log.warning("the audit log will not say why a push is refused", why=str(error))
        return ""
    os.close(handle)
    return path


def take_notes(path: str) -> Sequence[Outcome]:
    """Read what hooks have noted, and remove the file."""
    if not path:
        return []
    text = ""
    with suppress(OSError):
        with Path(path).open("rb") as file:
            text = file.read(_MOST_NOTED).decode("ascii", "replace")
        Path(path).unlink()
    return [Outcome(*found.groups()) for found in map(_NOTE.fullmatch, text.splitlines()) if found is not None]
