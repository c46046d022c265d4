"""Reads the files of a folder, and collects what is wrong with them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memotree.client.markdown.file_names import SUFFIX
from memotree.client.markdown.folder_faults import FileFault, FileFaultError, MarkdownFolderError
from memotree.client.markdown.manifest import files_in

MOST_BYTES: Final = 16 << 20
"""The longest file that is read; a server refuses shorter ones already, by the content of a node."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The Markdown files of a folder by their paths from its top, and how many other files it has."""

    folder: Path
    paths: Sequence[str]
    others: int = 0


def find_markdown(folder: Path) -> FoundFiles:
    """Finds the Markdown files in a folder; hidden files and folders are passed over.

    Raises:
        FileNotFoundError: There is no such folder.
        MarkdownFolderError: It has links, or names that are no text.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; name a folder of Markdown files.")
    paths: list[str] = []
    others = 0
    faults = []
    for path in sorted(files_in(folder)):
        if (folder / path).is_symlink():
            faults.append(FileFault(path, "is a link, which may lead out of the folder; replace it by a file"))
        elif not _is_text(path):
            faults.append(FileFault(_shown(path), "has a name that is not UTF-8; rename it"))
        elif path.lower().endswith(SUFFIX):
            paths.append(path)
        else:
            others += 1
    if faults:
        raise MarkdownFolderError(faults)
    return FoundFiles(folder, paths, others)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")


def read_file(folder: Path, path: str) -> bytes:
    """The bytes of a file.

    Raises:
        FileFaultError: It is too long or cannot be read.
    """
    try:
        whole = folder / path
        size = whole.stat().st_size
        if size > MOST_BYTES:
            raise FileFaultError(f"has {size:,} bytes, over the limit of {MOST_BYTES:,}; split it")
        return whole.read_bytes()
    except OSError as error:
        raise FileFaultError(f"cannot be read: {error.strerror or error}") from None


class Faults:
    """The faults of a folder; `refuse` raises them all."""

    def __init__(self) -> None:
        self._found: list[FileFault] = []

    def add(self, file: str, description: str, line: int = 0) -> None:
        """Adds a fault."""
        self._found.append(FileFault(file, description, line))

    def add_error(self, file: str, error: FileFaultError) -> None:
        """Adds the fault of a file that could not be read."""
        self._found.append(FileFault(file, error.description, error.line))

    def refuse(self) -> None:
        """Ends the import if there are faults.

        Raises:
            MarkdownFolderError: With all faults.
        """
        if self._found:
            raise MarkdownFolderError(self._found)


def homes_of(path: str) -> Iterator[str]:
    """The folders above a path, outermost first."""
    parts = path.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])
