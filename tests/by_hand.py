"""What a person makes with git alone: changes of entries as new bytes by path, and tags of tags."""

from collections.abc import Callable, Mapping

from memotree_storage.git.entry_files import entry_files
from memotree_storage.git.objects import KIND_NAMES, TAG
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
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


def tags_of_tags(store: GitRepository, target: str, kind: int, count: int) -> list[str]:
    """Tags that name each other, the first one an object."""
    ids: list[str] = []
    with PackWriter(store.path / "objects" / "pack") as pack:
        for number in range(count):
            named = KIND_NAMES[TAG if ids else kind].decode()
            text = f"object {ids[-1] if ids else target}\ntype {named}\ntag t{number}\ntagger A <a@b> 1 +0000\n\nx\n"
            ids.append(pack.add(TAG, text.encode()).hex())
        pack.finish()
    return ids
