"""Refs: names that move by compare and swap, in Git's own files, alongside the git program.

Follows Git's files backend: a loose file per ref, ``packed-refs`` as the fallback, a ``.lock`` file around each change.
A ref is deleted from ``packed-refs`` before its loose file; otherwise a crash in between would bring back an old value.
``packed-refs`` stays locked until the loose file is gone, so that nobody packs a ref that is being deleted.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from dulwich.errors import PackedRefsException
from dulwich.objects import ObjectID
from dulwich.refs import (
    Ref,
    check_ref_format,
    read_packed_refs,
    read_packed_refs_with_peeled,
    write_packed_refs,
)

from memotree_storage.errors import CorruptError, FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.faults import point
from memotree_storage.git.disk import make_folders, sync_folder
from memotree_storage.git.locks import PRIVATE_FOLDER, LockFile, LockJournal, RefLockedError
from memotree_storage.git.objects import is_hex_id

_MAX_PART: Final = 240
"""Maximum bytes of one part of a name: a file name can have 255, and Git appends ``.lock`` and the like."""

LONGEST_NAME: Final = 1024
"""The maximum bytes of a full name."""

_TOO_LONG: Final = f"is too long: at most {_MAX_PART} bytes between slashes and {LONGEST_NAME} together"
_ATTEMPTS: Final = 5
_FRESH_NS: Final = 1_000_000_000
_SYMBOLIC: Final = "ref: "
_NAMED_BY_PEOPLE: Final = ("refs/heads/", "refs/tags/")

_T = TypeVar("_T")


class InvalidRefNameError(InvalidInputError):
    """Git refuses this name of a branch, tag or other ref."""

    reason = "INVALID_REF_NAME"


class RefNameTakenError(FailedPreconditionError):
    """A ref name would be both a file and a folder, because of another ref."""

    reason = "REF_NAME_TAKEN"


class PackedRefsDamagedError(CorruptError):
    """The file of packed refs cannot be read."""

    reason = "PACKED_REFS_DAMAGED"


def check_ref_name(name: str) -> None:
    """Refuse names that ``git check-ref-format`` refuses, and branch and tag names that Git's commands cannot handle.

    Args:
        name: A full name such as ``refs/heads/main``.

    Raises:
        InvalidRefNameError: With the rule that the name breaks.
    """
    problem = _TOO_LONG if len(name) > LONGEST_NAME else _ref_problem(name)
    if problem:
        shown = repr(name[:LONGEST_NAME])
        raise InvalidRefNameError(f"Ref name {shown} {problem}.", [FieldViolation("ref", f"{shown} {problem}")])


def _ref_problem(name: str) -> str:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate; use valid Unicode"
    if not name.startswith("refs/") or name.count("/") < 2:  # noqa: PLR2004 - refs/<kind>/<name>
        return "must have the form refs/heads/<name>, refs/tags/<name> or refs/<folder>/<name>"
    if not check_ref_format(Ref(encoded)):
        return (
            "breaks Git's rules: no white space, control characters, '~', '^', ':', '?', '*', '[', '\\', '..' or "
            "'@{'; no part that is empty, starts with '.' or ends with '.lock'; no '/' or '.' at the end"
        )
    if len(encoded) > LONGEST_NAME or any(len(part) > _MAX_PART for part in encoded.split(b"/")):
        return _TOO_LONG
    for prefix in _NAMED_BY_PEOPLE:
        short = name.removeprefix(prefix)
        if short != name and (short.startswith("-") or short == "HEAD"):
            return "would be taken for an option or for HEAD by Git's commands; choose another name"
    return ""


class RefStore:
    """The refs of one repository. Reads need no lock; `compare_and_swap` needs the repository's write lock."""

    def __init__(self, repository: Path, journal: LockJournal) -> None:
        self._repository = repository
        self._journal = journal
        self._loose = _FileCache(_decode_loose)
        self._packed_file = _FileCache(_decode_packed)
        self._packed_below: dict[tuple[str, ...], tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def below(self, folders: Sequence[str]) -> dict[str, str]:
        """Return every ref below some folders with the id it holds, such as ``refs/heads``; ``refs`` has all.

        Symbolic refs are followed once, broken refs left out. Reads only these folders: each open session has a ref,
        and a commit does not ask for those.
        """
        # Read loose refs before packed ones: git packs a ref before it removes the loose file, so none is missed.
        loose = {name: value for folder in folders for name, value in self._loose_values(folder)}
        values = {**self._packed_in(tuple(folders)), **loose}
        for name, value in loose.items():
            followed = self._followed(value, values)
            if is_hex_id(followed):
                values[name] = followed
            else:
                del values[name]
        return values

    def _packed_in(self, folders: tuple[str, ...]) -> Mapping[str, str]:
        """The packed refs below some folders; selected again only when the file has changed."""
        packed, _ = self._packed()
        known = self._packed_below.get(folders)
        if known is None or known[0] is not packed:
            prefixes = tuple(f"{folder}/" for folder in folders)
            known = (packed, {name: value for name, value in packed.items() if name.startswith(prefixes)})
            self._packed_below[folders] = known
        return known[1]

    def count_loose(self, folders: Sequence[str]) -> int:
        """Return how many files there are below some folders; reads none of them."""
        return sum(len(names) for folder in folders for _, _, names in os.walk(self._repository / folder))

    def pack(self, folders: Sequence[str], peeled: Callable[[str], str | None]) -> dict[str, str]:
        """Write the loose refs below some folders into ``packed-refs`` too; return them. See `drop_packed`.

        Does nothing while another program has locked that file: writers wait for the repository meanwhile.

        Args:
            folders: Such as ``refs/heads``.
            peeled: Returns the commit that an object peels to, given its id; a ref for which it returns ``None`` stays
                as it is.
        """
        with suppress(RefLockedError), self._journal.lock(self._repository / "packed-refs", 0):
            packed, targets = self._packed()
            targets = dict(targets)
            found: dict[str, str] = {}
            for name, value in (pair for folder in folders for pair in self._loose_values(folder)):
                commit_id = peeled(value) if is_hex_id(value) else None
                if commit_id is None:
                    continue
                found[name] = value
                if commit_id == value:
                    targets.pop(Ref(os.fsencode(name)), None)
                else:
                    targets[Ref(os.fsencode(name))] = ObjectID(commit_id.encode())
            if found:
                self._replace_packed({**packed, **found}, targets)
            return found
        return {}

    def drop_packed(self, refs: Mapping[str, str]) -> None:
        """Remove the files of loose refs whose values are packed, except those that move or have moved since."""
        for name, value in refs.items():
            path = self._repository / name
            with suppress(RefLockedError), self._journal.lock(path, 0):
                if self._loose_value(path) == value == self._packed()[0].get(name):
                    path.unlink()

    def one(self, name: str) -> str | None:
        """Return the id that a ref holds; ``None`` if it is absent or broken."""
        value = self._value(name)
        found = None if value is None else self._followed(value, {})
        return found if found is not None and is_hex_id(found) else None

    def _followed(self, value: str, values: Mapping[str, str]) -> str:
        """The value that a symbolic ref leads to; any other value itself."""
        if not value.startswith(_SYMBOLIC):
            return value
        target = value.removeprefix(_SYMBOLIC).strip()
        if _ref_problem(target):  # a path out of the repository, for example
            return value
        return values.get(target) or self._value(target) or value

    def broken(self) -> list[str]:
        """Return the loose refs that hold neither an id nor a symbolic ref (a crash of another program causes this)."""
        return [
            name for name, value in self._loose_values() if not is_hex_id(value) and not value.startswith(_SYMBOLIC)
        ]

    def compare_and_swap(self, name: str, old: str | None, new: str | None, lock_timeout: float) -> bool:
        """Move a ref from ``old`` to ``new`` (``None``: absent); the move is durable when this returns ``True``.

        Returns ``False`` and changes nothing if the ref is not at ``old``. A symbolic ref never matches any ``old``.

        Raises:
            RefNameTakenError: Another ref's name is a folder of this one, or the other way round.
            RefLockedError: Another program holds the ref's lock file.
        """
        if self._value(name) != old:
            return False
        if old == new:
            return True
        path = self._repository / name
        if old is None:
            self._refuse_taken(name)
        for attempt in range(_ATTEMPTS):
            try:
                make_folders(path.parent, self._repository)
                with self._journal.lock(path, lock_timeout) as lock:
                    point("git.ref-locked")
                    if self._value(name) != old:
                        return False
                    if new is None:
                        self._delete(name, lock_timeout)
                    else:
                        self._replace(name, new, lock)
                break
            except (FileNotFoundError, NotADirectoryError, FileExistsError):
                # git removes folders that become empty, and creates others, at any time.
                self._refuse_taken(name)
                if attempt == _ATTEMPTS - 1:
                    raise
        if new is None:
            self._remove_empty_folders(path.parent)
        return True

    def _replace(self, name: str, value: str, lock: LockFile) -> None:
        path = self._repository / name
        if path.is_dir():
            self._clear_folder(name, path)
        lock.commit(value.encode() + b"\n")
        point("git.ref-moved")
        sync_folder(path.parent)
        point("git.ref-synced")

    def _delete(self, name: str, lock_timeout: float) -> None:
        path = self._repository / name
        with ExitStack() as stack:
            if name.startswith(_NAMED_BY_PEOPLE) or name in self._packed()[0]:
                # A ref of ours that somebody packs at this moment comes back, and maintenance deletes it again. So a
                # session can be closed whatever another program has locked.
                stack.enter_context(self._journal.lock(self._repository / "packed-refs", lock_timeout))
                packed, peeled = self._packed()
                if name in packed:
                    self._replace_packed({key: value for key, value in packed.items() if key != name}, peeled)
            path.unlink(missing_ok=True)
            point("git.ref-moved")
            sync_folder(path.parent)
            point("git.ref-synced")

    def _replace_packed(self, refs: Mapping[str, str], peeled: Mapping[Ref, ObjectID]) -> None:
        """Replace ``packed-refs``, whose lock the caller keeps; committing the lock file itself would release it."""
        fresh = self._repository / PRIVATE_FOLDER / "packed-refs.new"
        with fresh.open("wb") as file:
            file.write(_encode_packed(refs, peeled))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._repository / "packed-refs")
        sync_folder(self._repository)

    def _refuse_taken(self, name: str) -> None:
        """Refuse a new ref that would be a folder of an existing ref, or the other way round."""
        other = next((above for above in _folders_of(name) if self._value(above) is not None), None)
        other = other or next((below for below, _ in self._loose_values(name)), None)
        other = other or next((packed for packed in self._packed()[0] if packed.startswith(f"{name}/")), None)
        if other is not None:
            raise RefNameTakenError(
                f"{name} cannot be created while {other} exists, since one would be a folder of the other; choose "
                "another name or delete that one first."
            )

    def _clear_folder(self, name: str, path: Path) -> None:
        """Remove empty folders at the path where a ref's file must go."""
        for folder, _, _ in os.walk(path, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                self._refuse_taken(name)
                message = (
                    f"{name} cannot be created because the folder {name}/ contains files that are not refs; remove it."
                )
                raise RefNameTakenError(message) from error

    def _remove_empty_folders(self, folder: Path) -> None:
        while self._repository not in {folder.parent.parent, folder.parent}:
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or already gone: both are fine
            folder = folder.parent

    def _value(self, name: str) -> str | None:
        """Return the content of the ref's file, or its packed value; ``None`` if there is neither."""
        value = self._loose_value(self._repository / name)
        if value is None:
            value = self._packed()[0].get(name)
        if value is None:
            value = self._loose_value(self._repository / name)
        return value

    @staticmethod
    def _loose_value(path: Path) -> str | None:
        """Read the file without the cache: a move must compare with the current value."""
        try:
            return _decode_loose(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _loose_values(self, below: str = "refs") -> Iterator[tuple[str, str]]:
        folders = [below]
        seen: set[str] = set()
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(self._repository / folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif not name.endswith(".lock") and (value := self._loose.read(entry.path)) is not None:
                    seen.add(entry.path)
                    yield name, value
        self._loose.keep(seen, f"{self._repository / below}/")

    def _packed(self) -> tuple[Mapping[str, str], Mapping[Ref, ObjectID]]:
        """Return the packed refs, and the peeled targets of annotated tags among them."""
        try:
            found = self._packed_file.read(os.fspath(self._repository / "packed-refs"))
        except (PackedRefsException, ValueError) as error:
            message = "The file packed-refs of the repository is damaged; restore it from a clone or a backup."
            raise PackedRefsDamagedError(message) from error
        return found or ({}, {})


class _KnownFile(NamedTuple, Generic[_T]):
    """A file that was read: what identifies it (``None``: it may change unseen), its bytes, and what they mean."""

    mark: tuple[int, ...] | None
    data: bytes
    value: _T


class _FileCache(Generic[_T]):
    """The content of files, decoded again only when it has changed. Thread-safe.

    A file is identified by its inode, size and times. One that changed less than a second before it was read is read
    again: a second change within one tick of the clock could leave all of these the same. Its bytes are compared then,
    since decoding ``packed-refs`` takes a hundred times as long as reading it.
    """

    def __init__(self, decode: Callable[[bytes], _T]) -> None:
        self._decode = decode
        self._known: dict[str, _KnownFile[_T]] = {}

    def read(self, path: str) -> _T | None:
        """Return the decoded content of the file; ``None`` if there is no file."""
        known = self._known.get(path)
        now = time.time_ns()
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands in a row; a Path costs more than the call
            mark = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if known is not None and known.mark == mark:
                return known.value
            with open(path, "rb") as file:  # noqa: PTH123 - the same
                data = file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._known.pop(path, None)
            return None
        value = known.value if known is not None and known.data == data else self._decode(data)
        is_settled = status.st_ctime_ns < now - _FRESH_NS
        self._known[path] = _KnownFile(mark if is_settled else None, data, value)
        return value

    def keep(self, paths: Collection[str], folder: str) -> None:
        """Forget all files below a folder except these."""
        for path in [path for path in list(self._known) if path.startswith(folder) and path not in paths]:
            self._known.pop(path, None)


def _decode_loose(data: bytes) -> str:
    return data.decode("utf-8", "replace").rstrip()


def _folders_of(name: str) -> Iterator[str]:
    """``refs/heads/a/b`` gives ``refs/heads/a``; ``refs/heads`` can't be a ref."""
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(3, len(parts)))


def _decode_packed(data: bytes) -> tuple[Mapping[str, str], Mapping[Ref, ObjectID]]:
    file = BytesIO(data)
    first = file.readline()
    refs: dict[str, str] = {}
    peeled: dict[Ref, ObjectID] = {}
    if first.startswith(b"# pack-refs") and b" peeled" in first:
        for value, name, target in read_packed_refs_with_peeled(file):
            refs[os.fsdecode(name)] = value.decode()
            if target is not None:
                peeled[name] = target
    else:
        file.seek(0)
        refs = {os.fsdecode(name): value.decode() for value, name in read_packed_refs(file)}
    return refs, peeled


def _encode_packed(refs: Mapping[str, str], peeled: Mapping[Ref, ObjectID]) -> bytes:
    file = BytesIO()
    packed = {Ref(os.fsencode(name)): ObjectID(value.encode()) for name, value in refs.items()}
    write_packed_refs(file, packed, {name: target for name, target in peeled.items() if name in packed})
    return file.getvalue()
