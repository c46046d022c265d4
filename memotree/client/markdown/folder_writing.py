"""Writes an export beside its folder and puts it into place by a rename, so that a folder is an old or a new export.

Only an empty folder, or an export that nobody has edited since, is replaced. What an export does not write stays: what
is hidden at the top (`.git`, `.obsidian`), so that an export can be a repository or a vault, and files that are no
Markdown, such as images.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from memotree.client.errors import FailedPreconditionError
from memotree.client.markdown.file_names import SUFFIX
from memotree.client.markdown.layout import MANIFEST
from memotree.client.markdown.manifest import Manifest, digest_of, files_in, read_manifest

_NEW: Final = ".memotree-new"
_OLD: Final = ".memotree-old"


class ExportFolderError(FailedPreconditionError):
    """The folder cannot take an export; nothing in it was changed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, reason="EXPORT_FOLDER")


class FolderWriting:
    """An export that is being written; `finish` puts it into place, and `clear` removes what is left of it.

    Args:
        folder: Where it shall be.
        replace: Whether an export there may be replaced although its files were edited.
        expected: The hash that its files must have to be replaced, in place of that in its manifest.

    Raises:
        ExportFolderError: Something else is there, an edited export, or it cannot be written.
    """

    def __init__(self, folder: Path, *, replace: bool = False, expected: str = "") -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100 - a link to a folder shall not be followed
        self._new = self._folder.with_name(f".{self._folder.name}{_NEW}")
        self._old = self._folder.with_name(f".{self._folder.name}{_OLD}")
        self._made: set[str] = set()
        self._replaced = ""
        try:
            self._recover()
            self._check(expected, replace=replace)
            self._clear(self._new)
            self._new.mkdir(parents=True)
        except OSError as error:
            raise self._unwritable(error) from None

    def write(self, path: str, data: bytes) -> None:
        """Writes one file; ``path`` is that from the top of the folder."""
        home = path.rpartition("/")[0]
        try:
            if home not in self._made:
                (self._new / home).mkdir(parents=True, exist_ok=True)
                self._made.add(home)
            with (self._new / path).open("xb") as file:
                file.write(data)
        except OSError as error:
            raise self._unwritable(error) from None

    def finish(self, manifest: Manifest) -> None:
        """Puts the export into the place of what was there."""
        whole = Manifest(manifest.workspace_id, manifest.commit_id, manifest.archive_ids, digest_of(self._new))
        self.write(MANIFEST, whole.encode())
        try:
            if self._folder.is_dir():
                if self._replaced and digest_of(self._folder) != self._replaced:
                    raise self._edited()
                self._folder.rename(self._old)
            self._new.rename(self._folder)
            self._recover()
        except OSError as error:
            raise self._unwritable(error) from None

    def clear(self) -> None:
        """Removes what was written, if it was not put into place."""
        self._clear(self._new)

    def _recover(self) -> None:
        """Ends a replacement that a kill may have cut off: what was hidden comes along, the other old files go."""
        if not self._old.is_dir():
            return
        if not self._folder.exists():
            self._old.rename(self._folder)
            return
        if (self._folder / MANIFEST).is_file():
            for path in _kept(self._old):
                if not os.path.lexists(self._folder / path):
                    (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (self._old / path).rename(self._folder / path)
            self._clear(self._old)

    def _check(self, expected: str, *, replace: bool) -> None:
        if not os.path.lexists(self._folder):
            return
        if self._folder.is_symlink() or not self._folder.is_dir():
            raise ExportFolderError(f"{self._folder.name} is no folder. Name another place for the export.")
        manifest = read_manifest(self._folder)
        if manifest is None:
            if any(not entry.name.startswith(".") for entry in self._folder.iterdir()):
                raise ExportFolderError(
                    f"{self._folder.name} has files that are no export of MemoTree. Name a new or empty folder."
                )
        else:
            self._replaced = digest_of(self._folder)
            if not replace and self._replaced != (expected or manifest.digest):
                raise self._edited()

    def _edited(self) -> ExportFolderError:
        return ExportFolderError(
            f"Files in {self._folder.name} were edited since it was exported. Import them first, or replace them."
        )

    @staticmethod
    def _clear(folder: Path) -> None:
        if folder.is_dir():
            shutil.rmtree(folder)

    def _unwritable(self, error: OSError) -> ExportFolderError:
        return ExportFolderError(f"{self._folder.name} cannot be written: {error.strerror or error}.")


def _kept(folder: Path) -> list[str]:
    """The paths in an old export that a new one leaves alone."""
    hidden = [entry.name for entry in folder.iterdir() if entry.name.startswith(".")]
    return hidden + [path for path in files_in(folder) if path != MANIFEST and not path.lower().endswith(SUFFIX)]
