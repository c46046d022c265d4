"""A new generation of a repository: built beside it, and put in its place whole or not at all.

An erasure cannot take an object out of a pack that others read. It writes all that stays into a new repository, under a
name that nobody opens, and then renames twice: the old generation out of its place, the new one into it. The names say
how far a killed process came, so no journal is needed:

- Only the new generation is beside the place: it was not finished. It is removed.
- The place is empty and the old generation is beside it: that one goes back.
- The place is taken and the old generation is beside it: the new one is in its place. The old one is removed.

Between the renames the refs of the old generation are moved aside and a file takes their name, so that a push which has
it open can move none of them any more; then they are compared with those that were rewritten. A push that ended before
is seen there, the old generation goes back, and its commits are rewritten too. One that comes later fails, and says so.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memotree_storage.errors import UnavailableError
from memotree_storage.faults import point
from memotree_storage.git.disk import disk_errors, sync_folder, sync_tree
from memotree_storage.git.locks import PRIVATE_FOLDER, LockJournal
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.refs import RefStore
from memotree_storage.model.workspace import KEEP_PREFIX

_NEW: Final = ".new-generation"
_OLD: Final = ".old-generation"
_SUFFIX: Final = ".git"
_ASIDE: Final = "refs.aside"
_MARK: Final = f"{PRIVATE_FOLDER}/erased"
_LEFT_OUT: Final = frozenset(
    {"objects", "refs", "logs", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "shallow", "worktrees"}
)
"""What is not copied: it is written anew, or it names objects and messages of the old generation."""

_PRIVATE_LEFT_OUT: Final = frozenset({"locks", "write.lock", "maintenance.lock", "erased"})


class GenerationRacedError(UnavailableError):
    """Others changed the workspace each time when the new generation was about to take its place."""

    reason = "GENERATION_RACED"

    def __init__(self) -> None:
        super().__init__(
            "Pushes or commits changed the workspace each time when its rewritten history was about to take its place. "
            "Nothing was changed; stop them for a moment and resume the job."
        )


@dataclass(frozen=True, slots=True)
class ErasedMark:
    """What the rows of a workspace do not know yet: the generation in its place, and its files by the old ones.

    It lies in the new generation until the rows follow, so that a start after a kill can let them follow.
    """

    erasure_id: str
    blobs: Mapping[str, str]


def new_place(place: Path) -> Path:
    """Where the new generation of a repository is built."""
    return place.with_name(f".{place.name.removesuffix(_SUFFIX)}{_NEW}")


def _old_place(place: Path) -> Path:
    return place.with_name(f".{place.name.removesuffix(_SUFFIX)}{_OLD}")


def begin_generation(place: Path, redacted: Callable[[bytes], bytes]) -> Path:
    """Begin a new generation: the repository's own files, and no object and no ref.

    Args:
        place: The repository.
        redacted: Takes what goes out of the bytes of a file.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    draft = new_place(place)
    with disk_errors("begin its new generation"):
        shutil.rmtree(draft, ignore_errors=True)
        for folder in ("objects/pack", "objects/info", "refs/heads", "refs/tags", f"{PRIVATE_FOLDER}/locks"):
            (draft / folder).mkdir(parents=True)
        for entry in place.iterdir():
            if entry.name in _LEFT_OUT or entry.name.endswith(".lock") or entry.is_symlink():
                continue
            _copy(entry, draft / entry.name, redacted)
    return draft


def _copy(source: Path, target: Path, redacted: Callable[[bytes], bytes]) -> None:
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for entry in source.iterdir():
            if not (source.name == PRIVATE_FOLDER and entry.name in _PRIVATE_LEFT_OUT) and not entry.is_symlink():
                _copy(entry, target / entry.name, redacted)
    elif source.is_file():
        target.write_bytes(redacted(source.read_bytes()))
        shutil.copymode(source, target)


class PackSink:
    """Writes the objects of a new generation as a pack; a `memotree_storage.git.rewriting.Sink`."""

    keeps: Final = True

    def __init__(self, generation: Path) -> None:
        self._pack = PackWriter(generation / "objects" / "pack")

    def add(self, kind: int, data: bytes) -> bytes:
        """Add an object."""
        return self._pack.add(kind, data)

    def finish(self) -> None:
        """Sync the pack; it survives a power cut when this returns."""
        with self._pack:
            if len(self._pack):
                self._pack.finish()

    def drop(self) -> None:
        """Give the pack up."""
        self._pack.__exit__(None, None, None)


def all_refs(repository: Path) -> dict[str, str]:
    """Every ref of a repository with its object, read anew."""
    return RefStore(repository, LockJournal(repository)).below(("refs",))


def write_refs(generation: Path, refs: Mapping[str, str]) -> None:
    """Write all refs of a repository that nobody else uses."""
    lines = sorted((name.encode("utf-8", "surrogateescape"), target.encode()) for name, target in refs.items())
    text = b"".join(target + b" " + name + b"\n" for name, target in lines)
    (generation / "packed-refs").write_bytes(b"# pack-refs with: sorted\n" + text)


def complete_generation(place: Path, refs: Mapping[str, str], mark: ErasedMark) -> None:
    """Write the refs of the new generation and its mark, and make all of it durable.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    draft = new_place(place)
    with disk_errors("complete its new generation"):
        write_refs(draft, refs)
        (draft / _MARK).write_text(
            json.dumps({"erasure_id": mark.erasure_id, "blobs": dict(mark.blobs)}), encoding="ascii"
        )
        sync_tree(draft)
        sync_folder(draft.parent)


def put_in_place(place: Path, rewritten: Mapping[str, str]) -> None:
    """Put the new generation in its place; the caller holds the write lock of the old one.

    Args:
        place: The repository.
        rewritten: The refs of the old generation that were rewritten.

    Raises:
        GenerationRacedError: A push has moved refs; the old generation is in its place as before.
        RepositoryUnavailableError: The disk refused; the old generation is in its place.
    """
    draft, old = new_place(place), _old_place(place)
    with disk_errors("take the place of its old generation"):
        point("erase.before-switch")
        place.rename(old)
        try:
            point("erase.place-empty")
            (old / "refs").rename(old / _ASIDE)
            (old / "refs").touch()
            point("erase.refs-aside")
            _refuse_others(_refs_aside(old), rewritten)
            draft.rename(place)
        except (OSError, GenerationRacedError):
            _put_back(place)
            raise
        point("erase.switched")
        sync_folder(place.parent)


def _refuse_others(found: Mapping[str, str], rewritten: Mapping[str, str]) -> None:
    """Refuse other refs than those that were rewritten; a session that has ended meanwhile may have deleted its own."""
    gone = rewritten.keys() - found.keys()
    if not all(name.startswith(KEEP_PREFIX) for name in gone) or not found.items() <= rewritten.items():
        raise GenerationRacedError


def _refs_aside(old: Path) -> dict[str, str]:
    """The refs of an old generation whose folder of refs was moved aside; symbolic ones are followed."""
    view = old / "refs.view"
    shutil.rmtree(view, ignore_errors=True)
    view.mkdir()
    shutil.copytree(old / _ASIDE, view / "refs")
    if (old / "packed-refs").exists():
        shutil.copyfile(old / "packed-refs", view / "packed-refs")
    try:
        return all_refs(view)
    finally:
        shutil.rmtree(view, ignore_errors=True)


def _put_back(place: Path) -> None:
    old = _old_place(place)
    if (old / _ASIDE).is_dir():
        (old / "refs").unlink(missing_ok=True)
        (old / _ASIDE).rename(old / "refs")
        sync_folder(old)
    old.rename(place)
    sync_folder(place.parent)


def remove_old_generation(place: Path) -> None:
    """Remove the old generation of a repository, once the new one is in its place; safe to repeat.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    old = _old_place(place)
    with disk_errors("remove its old generation"):
        if old.exists():
            shutil.rmtree(old)
            sync_folder(old.parent)


def give_up_generation(place: Path) -> None:
    """Remove a new generation that is not finished."""
    shutil.rmtree(new_place(place), ignore_errors=True)


def recover_generations(folder: Path) -> Iterator[str]:
    """Finish or undo what a killed process began, before any repository is opened; one sentence for each thing done."""
    for old in sorted(folder.glob(f".*{_OLD}")):
        place = folder / f"{old.name[1:].removesuffix(_OLD)}{_SUFFIX}"
        if place.exists():
            remove_old_generation(place)
            yield f"{place.name} has its new generation; the old one was removed."
        else:
            _put_back(place)
            yield f"{place.name} has its old generation again; the erasure is repeated."
    for draft in sorted(folder.glob(f".*{_NEW}")):
        shutil.rmtree(draft, ignore_errors=True)
        yield f"{draft.name} was not finished and was removed."


def read_mark(repository: Path) -> ErasedMark | None:
    """The mark of a generation whose rows do not follow yet; ``None`` if they do.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    mark = repository / _MARK
    with disk_errors("read its mark"):
        if not mark.exists():
            return None
        found = json.loads(mark.read_text(encoding="ascii"))
    return ErasedMark(found["erasure_id"], found["blobs"])


def remove_erased_mark(repository: Path) -> None:
    """Remove the mark durably; safe to repeat.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    mark = repository / _MARK
    with disk_errors("remove its mark"):
        if mark.exists():
            with mark.open("r+b") as file:
                size = os.fstat(file.fileno()).st_size
                file.write(bytes(size))
                os.fsync(file.fileno())
            mark.unlink()
            sync_folder(mark.parent)
