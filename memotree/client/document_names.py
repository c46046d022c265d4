"""The names of documents: paths that stay the same however and from wherever a file or folder is named. Pure but cwd.

A name is also the id of the document, so that ingesting a file again updates its tree.
"""

import hashlib
import os
import posixpath
from collections.abc import Container
from typing import Final

LONGEST_NAME: Final = 200
_HASH_DIGITS: Final = 12
_NEEDED_PARTS: Final = 2
"""A path that is found again by its end must agree in the file's name and its folder at least."""


def whole(path: str) -> str:
    """Returns the absolute path, with forward slashes and without ``.`` and ``..``; links are not followed."""
    return os.path.abspath(path).replace(os.sep, "/")  # noqa: PTH100 - resolve() follows links


def below_here(path: str) -> str:
    """Returns a path relative to the current folder, or ``""`` if it is not below that folder."""
    here = whole(".").rstrip("/")
    return path.removeprefix(f"{here}/") if here and path.startswith(f"{here}/") else ""


def name_in_folder(folder: str, path: str) -> str:
    """Returns the name of a file that was found in a folder: the folder's own name and the path below it.

    Args:
        folder: The absolute path of the folder.
        path: The absolute path of the file.
    """
    return posixpath.relpath(path, posixpath.dirname(folder))


def name_of_file(path: str) -> str:
    """Returns the name of a file that was named itself: its path below the current folder, else its folder and name."""
    return below_here(path) or "/".join([part for part in path.split("/") if part][-2:])


def name_before(path: str, name: str, known: Container[str]) -> str:
    """Returns the name under which a file was ingested before, or the given name if none is known.

    A part of a folder, or a single file of it, is found by the end of its path: ``docs/sub/a.md`` is the document that
    ``ingest docs`` made, even if only ``sub`` is given now.

    Args:
        path: The absolute path of the file.
        name: The name that the file has otherwise.
        known: The ids of the documents that exist.
    """
    if shortened(path) in known:  # earlier versions used the path as it was written
        return shortened(path)
    parts, here = path.strip("/").split("/"), below_here(path)
    least = max(_NEEDED_PARTS, name.count("/") + 1)
    for start in range(len(parts)):
        end = "/".join(parts[start:])
        if shortened(end) in known and (len(parts) - start >= least or end == here):
            return shortened(end)
    return name


def shortened(name: str) -> str:
    """Returns a name that the service accepts: one line of valid Unicode of at most 200 characters.

    Undecodable bytes and control characters become U+FFFD. A longer name becomes a digest of it, and its end.
    """
    valid = os.fsencode(name).decode("utf-8", "replace")
    valid = "".join(char if char.isprintable() or char == " " else "\ufffd" for char in valid).strip()
    if len(valid) <= LONGEST_NAME:
        return valid
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:_HASH_DIGITS]
    return f"{digest} {valid[-(LONGEST_NAME - _HASH_DIGITS - 1) :]}"
