"""The file in the data folder with which other programs on this machine find the running server."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE_NAME: Final = "server.json"


@dataclass(frozen=True, slots=True)
class Announcement:
    """A server that runs, or that was killed without withdrawing it; call the address to find out which.

    Attributes:
        address: Host and port, as a gRPC target.
        pid: The process id of the server.
        version: The version of MemoTree.
        url: The URL of its HTTP server; empty if it has none.
    """

    address: str
    pid: int
    version: str
    url: str = ""


def announce(data_folder: Path, announcement: Announcement) -> None:
    """Write the file atomically: a reader sees the old file or the new one, never a part."""
    data_folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=data_folder, prefix=f".{FILE_NAME}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(announcement), file)
        Path(name).replace(data_folder / FILE_NAME)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_announcement(data_folder: Path) -> Announcement | None:
    """The server that was announced last and has not withdrawn; ``None`` if there is none."""
    try:
        facts = json.loads((data_folder / FILE_NAME).read_text(encoding="utf-8"))
        url = str(facts.get("url", ""))  # versions before HTTP did not write it
        return Announcement(str(facts["address"]), int(facts["pid"]), str(facts["version"]), url)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError):  # not our file, or written by a later version
        return None


def withdraw(data_folder: Path, pid: int) -> None:
    """Remove the file if it still announces this process."""
    announced = read_announcement(data_folder)
    if announced is not None and announced.pid == pid:
        (data_folder / FILE_NAME).unlink(missing_ok=True)
