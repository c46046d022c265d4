"""The manifest of an export: the commit that its files show, and a hash of them that tells whether they were edited."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memotree.client.markdown.file_names import SUFFIX
from memotree.client.markdown.folder_faults import FileFault, MarkdownFolderError
from memotree.client.markdown.layout import MANIFEST

FORMAT: Final = 1
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export is of.

    Attributes:
        workspace_id: The workspace.
        commit_id: The commit that the files show.
        archive_ids: The archives.
        digest: A hash of the paths and contents of all Markdown files.
    """

    workspace_id: str
    commit_id: str
    archive_ids: tuple[str, ...]
    digest: str = ""

    def encode(self) -> bytes:
        """The file."""
        document = {
            "memotree_export": FORMAT,
            "workspace": self.workspace_id,
            "commit": self.commit_id,
            "archives": list(self.archive_ids),
            "digest": self.digest,
        }
        return (json.dumps(document, indent=2) + "\n").encode()


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; ``None`` if it has none.

    Raises:
        MarkdownFolderError: It is none that this version reads.
    """
    path = folder / MANIFEST
    if path.is_symlink() or not path.is_file():
        return None
    if path.stat().st_size > _MOST_BYTES:
        raise _invalid("is too long")
    try:
        document: Any = json.loads(path.read_bytes())
        if document["memotree_export"] != FORMAT:
            raise _invalid(f"has format {document['memotree_export']!r:.20}; this version reads {FORMAT}")
        texts = [document["workspace"], document["commit"], document["digest"], *document["archives"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _invalid(f"cannot be read ({type(error).__name__})") from None
    if not all(isinstance(text, str) for text in texts):
        raise _invalid("has a value that is no text")
    return Manifest(texts[0], texts[1], tuple(texts[3:]), texts[2])


def _invalid(why: str) -> MarkdownFolderError:
    return MarkdownFolderError([FileFault(MANIFEST, f"{why}; export again, or take it from there")])


def files_in(folder: Path) -> Iterator[str]:
    """The paths of the files and links in a folder, from its top, in order; hidden ones are passed over."""
    pending = [""]
    while pending:
        here = pending.pop()
        with os.scandir(folder / here) as entries:
            found = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda each: each.name)
        for entry in found:
            path = f"{here}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            else:
                yield path


def digest_of(folder: Path) -> str:
    """The hash of all Markdown files of a folder that are not hidden."""
    total = hashlib.sha256()
    for path in sorted(files_in(folder)):
        if path.lower().endswith(SUFFIX):
            whole = folder / path
            data = str(whole.readlink()).encode() if whole.is_symlink() else whole.read_bytes()
            total.update(f"{path}\0{hashlib.sha256(data).hexdigest()}\n".encode(errors="surrogateescape"))
    return total.hexdigest()
