"""Which file of a commit holds an entry, and the entries that differ between two commits.

A file is named by an id and a slug, so a commit that people made can have several files with one id. The first by path
(compared by bytes) is the entry, the others are reported. So the state of an entry follows from the commit alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from typing import Final

from memotree_storage.errors import CorruptError, FieldViolation
from memotree_storage.git.objects import ObjectTooLargeError
from memotree_storage.model.codec import InvalidFileError, decode_entry
from memotree_storage.model.node import Entry
from memotree_storage.model.paths import ENTRY_PATHS, Kind, archive_stem, node_stem, parse_path
from memotree_storage.ports import ObjectReader, PathChange

MOST_BYTES: Final = 4 << 30
"""Bytes of the files that one commit may change; an import of a million nodes has about two thousand million."""


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A file with the name of an entry, and its blob."""

    path: str
    kind: Kind
    blob: str


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """An entry with a file that differs between two commits; ``None`` for a side without a file.

    The entry itself may be the same: if its file was renamed, or if only a second file with its id changed.
    """

    entry_id: str
    old: EntryFile | None
    new: EntryFile | None

    @property
    def same_entry(self) -> bool:
        """Whether both sides have the same entry, perhaps under another name."""
        return (
            self.old is not None
            and self.new is not None
            and (self.old.kind, self.old.blob) == (self.new.kind, self.new.blob)
        )


@dataclass(frozen=True, slots=True)
class SecondFile:
    """A file of the new commit that is no entry, because the file ``read`` has the same id."""

    path: str
    read: str
    entry_id: str

    @property
    def fault(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"{self.path[:200]!r} is not read, because {self.read[:200]!r} has the same id {self.entry_id}. Remove one "
            "of the two files; the next change of that entry by MemoTree removes this one."
        )


class CommitTooLargeError(CorruptError):
    """The files that a commit changes are larger together than is read, as one text under many names can be."""

    reason = "COMMIT_TOO_LARGE"

    def __init__(self) -> None:
        super().__init__(
            f"The files that the commit changes have more than {MOST_BYTES:,} bytes together, so it is not read. Move "
            "the branches that have it back with git."
        )


class EntryDecoder:
    """Decodes the files of one commit."""

    def __init__(self, repository: ObjectReader) -> None:
        self._repository = repository
        self._bytes = 0

    def decode(self, file: EntryFile) -> Entry:
        """Decode a file.

        Raises:
            InvalidFileError: The file is no valid entry, or too large for one.
            ObjectMissingError: Git has lost the file.
            CommitTooLargeError: All files together have more than `MOST_BYTES`.
        """
        try:
            data = self._repository.read_blob(file.blob)
        except ObjectTooLargeError as error:
            raise InvalidFileError(file.path, [FieldViolation("", error.message)]) from error
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            raise CommitTooLargeError
        return decode_entry(file.path, data)


def entry_files(repository: ObjectReader, commit_id: str, ids: Iterable[str]) -> dict[str, list[EntryFile]]:
    """Return all files of a commit with one of these ids, by id; the first file of an id is the entry.

    Sorted ids read each folder once, however large it is.
    """
    return dict(_files_by_id(repository, commit_id, ids))


def diff_entries(repository: ObjectReader, old: str | None, new: str) -> Iterator[EntryDifference | SecondFile]:
    """Yield the entries whose files differ between two commits, each once, and their surplus files in ``new``."""
    changes = repository.diff(old, new, ENTRY_PATHS)
    if old is None:
        yield from _first_files(changes)
        return
    # The ids come in the order of paths, and both sides are read along with them: each folder once, however large.
    ids = tee(_changed_ids(changes))
    sides = (_files_by_id(repository, commit, each) for commit, each in zip((old, new), ids, strict=True))
    for (entry_id, before), (_, after) in zip(*sides, strict=True):
        yield EntryDifference(entry_id, _first(before), _first(after))
        for file in after[1:]:
            yield SecondFile(file.path, after[0].path, entry_id)


def _files_by_id(repository: ObjectReader, commit_id: str, ids: Iterable[str]) -> Iterator[tuple[str, list[EntryFile]]]:
    """Yield each id with its files; an id is taken when those of the one before were."""
    own, of_archives, of_nodes = tee(ids, 3)
    archives = repository.files_beginning(commit_id, map(archive_stem, of_archives))
    nodes = repository.files_beginning(commit_id, map(node_stem, of_nodes))
    for entry_id, (_, as_archive), (_, as_node) in zip(own, archives, nodes, strict=True):
        named = [(path, parse_path(path), blob) for path, blob in (*as_archive, *as_node)]
        yield entry_id, [EntryFile(path, parsed[0], blob) for path, parsed, blob in named if parsed is not None]


def _changed_ids(changes: Iterable[PathChange]) -> Iterator[str]:
    """Yield the id of each changed file, each once."""
    seen: set[str] = set()
    for change in changes:
        parsed = parse_path(change.path)
        if parsed is not None and parsed[1] not in seen:
            seen.add(parsed[1])
            yield parsed[1]


def _first(files: Sequence[EntryFile]) -> EntryFile | None:
    return files[0] if files else None


def _first_files(changes: Iterable[PathChange]) -> Iterator[EntryDifference | SecondFile]:
    """The same for all files of a commit: they come in the order of their paths, so no folder is read again."""
    seen: dict[str, str] = {}
    for change in changes:
        parsed = parse_path(change.path)
        if parsed is None or change.new_blob is None:
            continue
        kind, entry_id = parsed
        first = seen.setdefault(entry_id, change.path)
        if first == change.path:
            yield EntryDifference(entry_id, None, EntryFile(change.path, kind, change.new_blob))
        else:
            yield SecondFile(change.path, first, entry_id)
