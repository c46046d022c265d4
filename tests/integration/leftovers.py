"""Looks for a text in all files below a folder: their bytes, and what Git's objects are when unpacked."""

import os
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def files_with(folder: Path, text: bytes) -> list[str]:
    """The files below a folder that have a text, in their bytes or in the objects of Git that they hold."""
    return sorted({*_raw(folder, text), *_loose(folder, text), *_packed(folder, text)})


def _raw(folder: Path, text: bytes) -> Iterator[str]:
    for here, _, names in os.walk(folder):
        for name in names:
            path = Path(here, name)
            with suppress(FileNotFoundError):  # a server that runs removed it meanwhile
                if path.is_file() and text in path.read_bytes():
                    yield str(path.relative_to(folder))


def _objects(folder: Path) -> Iterator[Path]:
    """The folders of objects of all repositories, also of those that stand beside their place."""
    for here, folders, _ in os.walk(folder):
        if "objects" in folders and (Path(here) / "objects" / "pack").is_dir():
            yield Path(here) / "objects"


def _loose(folder: Path, text: bytes) -> Iterator[str]:
    for objects in _objects(folder):
        for path in objects.glob("[0-9a-f][0-9a-f]/*"):
            if text in zlib.decompress(path.read_bytes()):
                yield f"{path.relative_to(folder)} (unpacked)"


def _packed(folder: Path, text: bytes) -> Iterator[str]:
    """Every object of every pack, whether anything reaches it or not."""
    for objects in _objects(folder):
        found = subprocess.run(  # noqa: S603 - the git program that the tests need anyway
            ["git", "-c", "safe.directory=*", "-C", str(objects.parent), "cat-file", "--batch", "--batch-all-objects"],  # noqa: S607
            capture_output=True,
            check=True,
        ).stdout
        if text in found:
            yield f"{objects.relative_to(folder)} (packed)"
