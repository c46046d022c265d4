"""A disk that can lose its power at any step: what a repository's folder may be after a power cut.

While a block runs, every rename, link, removal, new folder and ``fsync`` below a folder is a step. What the disk holds
for certain after a step is modelled by two rules of POSIX, which file systems keep:

- the content of a file is on the disk as it was at its last ``fsync``; without one, nothing of it may be;
- the names in a folder are on the disk as they were at its last ``fsync``.

A third one is kept by every file system with a journal: a rename from one folder to another is on the disk in both of
them or in none.

A power cut may also have kept more than that. So each step gives several folders: the **least** that the disk must
hold; **all names** with only the synced contents, as a journal of metadata alone leaves them (unsynced files are
empty); the same with the unsynced contents **cut** in half; and for each folder with names that are not synced, **all
but** those, since folders reach the disk one by one. What stood in the folder when the block began is on the disk.
"""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

_STEPS: Final = ("rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir")

Listing = dict[int, dict[str, int]]
"""By the inode of each folder, the inode of each name in it."""


@dataclass(frozen=True, slots=True)
class PowerCut:
    """What the disk may hold after a step.

    Attributes:
        step: The step, for messages.
        mark: What the test noted last before it.
        kinds: The states that it may leave.
        write: Writes the folder as it may be to a path that does not exist; the argument is the kind.
    """

    step: str
    mark: Any
    kinds: list[str]
    write: Callable[[Path, str], None]


@dataclass(slots=True)
class SimulatedDisk:
    """Records the steps below a folder; ``mark`` is what the test notes, such as the last acknowledged commit."""

    root: Path
    mark: Any = None
    cuts: list[PowerCut] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _names: Listing = field(default_factory=dict)
    _renamed: list[set[int]] = field(default_factory=list)
    _kept: list[int] = field(default_factory=list)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what this process does below the folder."""
        names, contents = self._look()
        self._names, self._contents = names, dict(contents)
        real = {name: getattr(os, name) for name in (*_STEPS, "fsync")}
        try:
            for name in _STEPS:
                setattr(os, name, partial(self._step, name, real[name]))
            os.fsync = partial(self._sync, real["fsync"])
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)
            while self._kept:
                os.close(self._kept.pop())

    def _step(self, name: str, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self._keep(arguments)
            done = real(*arguments, **options)
            if name in ("rename", "replace"):
                self._renamed.append({Path(one).parent.stat().st_ino for one in arguments[:2]})
            if any(isinstance(one, (str, os.PathLike)) and str(self.root) in os.fspath(one) for one in arguments):
                self._cut(f"{name} {arguments[0]}")
            return done

    def _keep(self, arguments: tuple[Any, ...]) -> None:
        """Keep files open that lose a name, so that no later file gets the inode of one that is gone."""
        for one in arguments:
            if isinstance(one, (str, os.PathLike)) and Path(one).is_relative_to(self.root):
                with suppress(OSError):
                    self._kept.append(os.open(one, os.O_RDONLY | os.O_NOFOLLOW))

    def _sync(self, real: Callable[[int], None], descriptor: int) -> None:
        with self._lock:
            real(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if not path.is_relative_to(self.root):
                return
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                self._names[status.st_ino] = _listed(path)
                self._renamed = [pair for pair in self._renamed if status.st_ino not in pair]
            else:
                self._contents[status.st_ino] = (
                    os.pread(descriptor, status.st_size, 0) if _readable(descriptor) else (path.read_bytes())
                )
            self._cut(f"fsync {path}")

    def _cut(self, step: str) -> None:
        names, contents = self._look()
        top = self.root.stat().st_ino
        least, synced = {key: dict(value) for key, value in self._names.items()}, dict(self._contents)
        paths = {path.stat().st_ino: path.relative_to(self.root) for path in (self.root, *self._folders())}
        late = {
            f"all but {paths[inode]}": {inode}.union(*(pair for pair in self._renamed if inode in pair))
            for inode, now in names.items()
            if now != least.get(inode, {})
        }

        def write(target: Path, kind: str) -> None:
            lost = contents if kind == "cut" else {}
            kept = least if kind == "least" else least | names
            if kind in late:
                kept = kept | {inode: least.get(inode, {}) for inode in late[kind]}
            _Writer(kept, lambda inode: synced.get(inode, _half(lost.get(inode, b""))), set(least | names)).write(
                target, top
            )

        self.cuts.append(PowerCut(step, self.mark, ["least", "all names", "cut", *late], write))

    def _folders(self) -> Iterator[Path]:
        return (Path(folder) / name for folder, names, _ in os.walk(self.root) for name in names)

    def _look(self) -> tuple[Listing, dict[int, bytes]]:
        """The names and contents as a process sees them."""
        names: Listing = {}
        contents: dict[int, bytes] = {}
        for folder, _, _ in os.walk(self.root):
            names[Path(folder).stat().st_ino] = _listed(Path(folder))
            for path in Path(folder).iterdir():
                try:
                    if path.is_file():
                        contents[path.stat().st_ino] = path.read_bytes()
                except FileNotFoundError:
                    continue
        return names, contents


def _listed(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def _readable(descriptor: int) -> bool:
    try:
        os.pread(descriptor, 1, 0)
    except OSError:
        return False
    return True


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


@dataclass(slots=True)
class _Writer:
    """Writes folders with their files; several names of one file stay names of one file."""

    names: Listing
    content: Callable[[int], bytes]
    folders: set[int]
    written: dict[int, Path] = field(default_factory=dict)

    def write(self, target: Path, inode: int) -> None:
        target.mkdir()
        for name, other in self.names.get(inode, {}).items():
            path = target / name
            if other in self.folders or other in self.names:
                self.write(path, other)
            elif other in self.written:
                path.hardlink_to(self.written[other])
            else:
                path.write_bytes(self.content(other))
                self.written[other] = path
