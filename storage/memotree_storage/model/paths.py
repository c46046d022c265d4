"""The paths of nodes and archives: an id, which identifies the file, and a slug of the title, which people read.

A path is ``nodes/ab/cd/<id>-<slug>.md`` or ``archives/<id>-<slug>.md``. Only the id means something. A file with
another slug, or with none, is the same entry; MemoTree gives it the present slug when it next writes the entry.
"""

import re
from typing import Final, Literal
from unicodedata import category

from memotree_storage.model.node import ID_ALPHABET, Entry, Node, is_id
from memotree_storage.model.normal_form import normalized

Kind = Literal["node", "archive"]

MAX_SLUG_BYTES: Final = 48
"""Eight English words or sixteen Chinese characters; with the id, a name stays far below all file systems' limits."""

_NODE_PATH: Final = re.compile(r"nodes/([^/]{2})/([^/]{2})/([^/]{16})(?:-[^/]*)?\.md")
_ARCHIVE_PATH: Final = re.compile(r"archives/([^/]{16})(?:-[^/]*)?\.md")
_ID_FOLDER: Final = re.compile(rf"nodes/(?:([{ID_ALPHABET}]{{2}})/)?(?:([{ID_ALPHABET}]{{2}})/)?")
_APOSTROPHES: Final = "'\u2019"
_NO_ASCII_WORD: Final = re.compile(r"[^0-9a-z]+")
_SHOWN: Final = 300


def slug(title: str) -> str:
    """Return the words of a title as a part of a file name: in lower case, joined by hyphens, at most 48 bytes.

    Letters, marks and digits of every script stay, since a title in Chinese has no other form. They are normalized
    (NFKC), so that equal titles give equal names and every file system keeps the name. A long title is cut between
    words if there is a boundary in its second half. A title without a letter or digit gives "".
    """
    if title.isascii():
        words = _NO_ASCII_WORD.sub("-", title.lower().replace("'", "")).strip("-")
    else:
        words = _any_script(title)
    encoded = words.encode()
    if len(encoded) <= MAX_SLUG_BYTES:
        return words
    cut = encoded[:MAX_SLUG_BYTES].decode(errors="ignore")
    boundary = cut.rfind("-")
    if words[len(cut)] != "-" and 2 * boundary >= len(cut):
        cut = cut[:boundary]
    return cut.rstrip("-")


def _any_script(title: str) -> str:
    kept: list[str] = []
    for character in normalized("NFKC", normalized("NFKC", title).lower()):
        kind = category(character)
        if kind[0] in "LN" or (kind[0] == "M" and kept and kept[-1] != "-"):
            kept.append(character)
        elif kind != "Cf" and character not in _APOSTROPHES and kept and kept[-1] != "-":
            kept.append("-")
    return normalized("NFKC", "".join(kept).rstrip("-"))


def node_path(node_id: str, title: str = "") -> str:
    """Return the path of a node's file; folders are named by the first four characters of the id."""
    return f"{node_stem(node_id)}{_ending(title)}"


def archive_path(archive_id: str, name: str = "") -> str:
    """Return the path of an archive's file."""
    return f"{archive_stem(archive_id)}{_ending(name)}"


def entry_path(entry: Entry) -> str:
    """Return the path that an entry's file has when MemoTree writes it."""
    return node_path(entry.id, entry.title) if isinstance(entry, Node) else archive_path(entry.id, entry.name)


def node_stem(node_id: str) -> str:
    """Return what the paths of all files of a node begin with."""
    return f"nodes/{node_id[:2]}/{node_id[2:4]}/{node_id}"


def archive_stem(archive_id: str) -> str:
    """Return what the paths of all files of an archive begin with."""
    return f"archives/{archive_id}"


def parse_path(path: str) -> tuple[Kind, str] | None:
    """Return the kind and id that a path stands for; ``None`` if it is not the path of a node or archive."""
    found = _NODE_PATH.fullmatch(path)
    if found is not None:
        entry_id = found[3]
        return ("node", entry_id) if is_id(entry_id) and entry_id.startswith(found[1] + found[2]) else None
    found = _ARCHIVE_PATH.fullmatch(path)
    return ("archive", found[1]) if found is not None and is_id(found[1]) else None


class EntryPaths:
    """The folders in which entries can be, and what the names of their files begin with; a `PathScope`."""

    def names(self, folder: str) -> str | None:
        """What the names of entries in a folder begin with; ``None`` if the folder has none, nor a folder of such."""
        if folder == "archives/":
            return ""
        found = _ID_FOLDER.fullmatch(folder)
        if found is None:
            return None
        return found[1] + found[2] if found[1] and found[2] else ""

    def beginning_below(self, folder: str) -> str | None:
        """The first half of the four characters, for a folder of folders of nodes; see `PathScope`."""
        found = _ID_FOLDER.fullmatch(folder)
        return found[1] if found is not None and found[2] is None else None


ENTRY_PATHS: Final = EntryPaths()


def shown_path(path: str) -> str:
    """Return a path as text that can be stored and shown: people may push names that are not UTF-8, or very long."""
    return path.encode(errors="backslashreplace").decode()[:_SHOWN]


def _ending(title: str) -> str:
    words = slug(title)
    return f"-{words}.md" if words else ".md"
