"""The saved corpora of workspaces: one of each, in a folder, of the commit that it was made of.

It is a cache: any part of it may be deleted at any time. A folder is written under another name and renamed, so that a
kill leaves nothing that seems whole; what is damaged, or of other software or another model, is deleted and not used.
The oldest ones are deleted when all together are over the limit.
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from threading import Lock
from typing import Final

import structlog
from memotree_storage import faults

from memotree.forest.recall.saved import array_files
from memotree.forest.recall.saved.array_files import FACTS, Facts, UnusableFilesError
from memotree.forest.recall.saved.corpus_arrays import arrays_of, corpus_of
from memotree.forest.recall.search_corpus import SearchCorpus
from memotree.forest.recall.superseded import Superseded

_FORMAT: Final = 2
"""To be raised when arrays are others, or are made otherwise from the same texts."""

_UNFINISHED: Final = ".unfinished"
_FREE: Final = 4
"""What is saved needs this many times its size on the disk, so that a cache never takes the last of it."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SavedOf:
    """What a saved corpus was made of.

    Attributes:
        workspace_id: The workspace.
        commit_id: The commit, all of whose archives are part of the corpus.
        row: The line of the commit in the mirror and its number there: other ones after the rows were replaced.
        counts: The number of leaves of each archive, as the mirror counts them.
    """

    workspace_id: str
    commit_id: str
    row: tuple[int, int]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SavedCorpus:
    """A saved corpus that was found and not read yet."""

    of: SavedOf
    folder: Path
    facts: Facts

    @property
    def archive_ids(self) -> list[str]:
        """Its archives."""
        return [each["archive"] for each in self.facts.facts["archives"]]

    def read(self, ended: Mapping[str, Superseded]) -> SearchCorpus:
        """Returns the corpus. Takes some tenths of a second, so call it in a thread.

        Args:
            ended: The superseded nodes of the commit by id.

        Raises:
            UnusableFilesError: If it is damaged.
        """
        return corpus_of(array_files.read(self.folder, self.facts), self.facts.facts["archives"], ended)


class SavedCorpora:
    """Saves corpora and finds them again. All methods read or write files; they may be called in any thread.

    Args:
        folder: Where they are; it is made when it is needed.
        limit: The most bytes of all together.
        model: The embedding model, with the length of its vectors; corpora of others are not used.
    """

    def __init__(self, folder: Path, limit: int, model: str) -> None:
        self._folder = folder
        self._limit = limit
        self._made_by = [_FORMAT, version("memotree"), model]
        self._lock = Lock()

    def find(self, workspace_id: str) -> SavedCorpus | None:
        """Returns the saved corpus of a workspace; what cannot be used is deleted."""
        for folder in self._saved(workspace_id):
            try:
                found = self._read(folder)
            except UnusableFilesError as error:
                self.discard(folder, str(error))
                continue
            if found.of.workspace_id == workspace_id:
                return found
            self.discard(folder, "It is of another workspace.")
        return None

    def _read(self, folder: Path) -> SavedCorpus:
        facts = array_files.read_facts(folder)
        told = facts.facts
        try:
            if told["made_by"] != self._made_by:
                raise UnusableFilesError("It was made by other software or with another model.")
            line_id, seq = told["row"]
            of = SavedOf(told["workspace"], told["commit"], (line_id, seq), told["counts"])
        except (KeyError, ValueError, TypeError) as error:
            raise UnusableFilesError(f"It has not the facts of a corpus: {error!r}") from error
        return SavedCorpus(of, folder, facts)

    def save(self, of: SavedOf, corpus: SearchCorpus, is_current: Callable[[], bool]) -> bool:
        """Saves a corpus in place of an earlier one of the workspace. Takes a second, so call it in a thread.

        Args:
            of: What it was made of.
            corpus: The corpus.
            is_current: Whether what it was made of is still true; it is asked before the corpus can be found.

        Returns:
            Whether it was saved. It is not if it is larger than the limit, or if the disk has little room.

        Raises:
            OSError: If it cannot be written.
        """
        arrays, archives = arrays_of(corpus)
        size = sum(array.dtype.itemsize * prod(array.shape) for array in arrays.values())
        home = self._folder / of.workspace_id
        for folder in (self._folder, home):
            folder.mkdir(mode=0o700, exist_ok=True)
        if size > self._limit or shutil.disk_usage(home).free < _FREE * size:
            return False
        before = self._saved(of.workspace_id)
        number = 1 + max((int(folder.name) for folder in before), default=0)
        unfinished = home / f"{number}{_UNFINISHED}"
        shutil.rmtree(unfinished, ignore_errors=True)
        facts = {
            "made_by": self._made_by,
            "workspace": of.workspace_id,
            "commit": of.commit_id,
            "row": of.row,
            "counts": dict(of.counts),
            "archives": archives,
        }
        try:
            array_files.write(unfinished, arrays, facts)
            faults.point("recall.corpus_written")
            with self._lock:  # nothing is forgotten between the question and the rename
                is_saved = is_current()
                if is_saved:
                    unfinished.rename(home / str(number))
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        for folder in before:
            shutil.rmtree(folder, ignore_errors=True)
        self._keep_to_limit()
        return is_saved

    def forget(self, workspace_id: str) -> None:
        """Makes what is saved of a workspace useless at once, in less than a millisecond; `sweep` deletes the rest."""
        with self._lock:
            for folder in self._saved(workspace_id):
                (folder / FACTS).unlink(missing_ok=True)

    def sweep(self, workspace_id: str) -> None:
        """Deletes what is useless of a workspace. Nothing of it may be saved meanwhile."""
        home = self._folder / workspace_id
        for folder in _folders(home):
            if not folder.name.isdecimal() or not (folder / FACTS).is_file():
                shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            home.rmdir()  # if it is empty

    def clear(self, known: Collection[str]) -> None:
        """Deletes what a kill has left, and what is of other workspaces than these. Nothing may be saved meanwhile."""
        for home in _folders(self._folder):
            if home.name in known:
                self.sweep(home.name)
            else:
                shutil.rmtree(home, ignore_errors=True)

    def discard(self, folder: Path, why: str) -> None:
        """Deletes a folder that cannot be used."""
        _log.info("a saved recall corpus is not used; it is made anew", folder=str(folder), why=why)
        shutil.rmtree(folder, ignore_errors=True)

    def _saved(self, workspace_id: str) -> list[Path]:
        """The finished folders of a workspace, the latest first; a kill may leave several."""
        found = [folder for folder in _folders(self._folder / workspace_id) if folder.name.isdecimal()]
        return sorted(found, key=lambda folder: -int(folder.name))

    def _keep_to_limit(self) -> None:
        found = [folder for home in _folders(self._folder) for folder in _folders(home) if folder.name.isdecimal()]
        total = 0
        for _, size, folder in sorted(((*_age_and_size(folder), folder) for folder in found), reverse=True):
            total += size
            if total > self._limit:
                shutil.rmtree(folder, ignore_errors=True)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _age_and_size(folder: Path) -> tuple[float, int]:
    """When a folder was written, and the bytes of its files."""
    try:
        files = [path.stat() for path in folder.iterdir()]
    except OSError:  # it is being deleted
        return 0.0, 0
    return max((file.st_mtime for file in files), default=0.0), sum(file.st_size for file in files)
