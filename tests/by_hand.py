"""Changes of entries as a person commits them with git: new bytes by path."""

from collections.abc import Callable, Mapping

from memotree_storage.git.entry_files import entry_files
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Entry
from memotree_storage.model.paths import entry_path
from memotree_storage.ports import ObjectReader


def file_changes(
    repository: ObjectReader,
    parent: str,
    entries: Mapping[str, Entry | None],
    name: Callable[[Entry], str] = entry_path,
) -> dict[str, bytes | None]:
    """Each entry under its name and under no other (``None``: removed), whatever its file is called at the parent."""
    changes: dict[str, bytes | None] = {}
    for files in entry_files(repository, parent, entries).values():
        changes |= dict.fromkeys(file.path for file in files)
    return changes | {name(entry): encode_entry(entry) for entry in entries.values() if entry is not None}


def read_entry(repository: ObjectReader, commit_id: str, entry_id: str) -> bytes | None:
    """The bytes of an entry's file, whatever it is called."""
    files = entry_files(repository, commit_id, [entry_id])[entry_id]
    return repository.read_blob(files[0].blob) if files else None
