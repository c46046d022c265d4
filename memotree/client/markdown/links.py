"""Links of Markdown between the files of a folder, as Obsidian and GitHub follow them."""

import posixpath
import re
from typing import Final
from urllib.parse import unquote

_IN_LABEL: Final = re.compile(r"([\\\[\]<>*_`])")
_IN_PATH: Final = re.compile(r"[\x00-\x20\x7f\"#%()<>?\[\\\]^`{|}]|\s")


def label(text: str) -> str:
    """A text as the label of a link."""
    return _IN_LABEL.sub(r"\\\1", text)


def destination(path: str) -> str:
    """A path as the destination of a link; letters of all scripts stay as they are."""
    return _IN_PATH.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), path)


def relative(path: str, file: str) -> str:
    """The path of a file as a link in another one has it; both begin at the top of the folder."""
    return posixpath.relpath(path, posixpath.dirname(file) or ".")


def linked_file(link: str, file: str) -> str:
    """The path, from the top of the folder, that a relative link in ``file`` leads to."""
    path = unquote(link.partition("#")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
