"""Files in allowed folders: read page by page, and listed.

A path is resolved first, links and all, and must then be in an allowed folder. It is opened from that folder downwards,
part by part, and no part may be a link: so one that was put there in the meantime leads nowhere. Hidden files, the data
of the server and what is no regular file are refused.
"""

import base64
import heapq
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError, NotFoundError
from pydantic import Field

from memotree.tools.declaration import Permission
from memotree.tools.function_tool import tool

MOST_BYTES: Final = 1 << 18
"""The most bytes of one page of a file."""

MOST_ENTRIES: Final = 1000
"""The most entries of one page of a folder."""

_LONGEST_PATH: Final = 4096
_LONGEST_NAME: Final = 6 * 255
"""Characters of the name of an entry as it is shown: six for each byte that is no text."""

_CONTINUED: Final = 0b1000_0000
_CONTINUED_MASK: Final = 0b1100_0000
_LONGEST_CHARACTER: Final = 4

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

FilePath = Annotated[str, Field(max_length=_LONGEST_PATH)]


class FileNotAllowedError(FailedPreconditionError):
    """The path is in no folder that tools may read, or is hidden, whether it exists or not."""

    reason = "FILE_NOT_ALLOWED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{_shown(path)} is in no folder that tools may read, or is hidden; list_folder without a path shows the "
            "folders."
        )


class NoSuchFileError(NotFoundError):
    """There is no such file or folder."""

    reason = "FILE_NOT_FOUND"

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no {_shown(path)}; list_folder shows what there is.", "file", path[:200])


class FileNotReadableError(FailedPreconditionError):
    """The file or folder exists and cannot be read so."""

    reason = "FILE_NOT_READABLE"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{_shown(path)} {why}")


def _shown(path: str) -> str:
    return _legible(repr(path[:200]))


@dataclass(frozen=True, slots=True)
class Files:
    """Reads files.

    Attributes:
        folders: The allowed folders, absolute.
        excluded: Files and folders below them that are not read: what the server keeps there.
        bounds: Where roles limit the folders, those of the settings: a link that was put above the folder of a role
            must not lead out of them.
    """

    folders: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()

    def within(self, limits: Sequence[str]) -> "Files":
        """The same for somebody whose roles name the folders that it may read; it looks at the disk."""
        wanted = [os.path.realpath(each) for each in limits]
        allowed = [os.path.realpath(each) for each in self.folders]
        narrower = [limit for limit in wanted if any(_below(limit, folder) for folder in allowed)]
        narrower += [folder for folder in allowed if any(_below(folder, limit) for limit in wanted)]
        return replace(self, folders=tuple(dict.fromkeys(narrower)), bounds=self.bounds or self.folders)

    @tool(
        category="files",
        title="Read a file",
        read_only=True,
        open_world=True,
        permissions=(Permission("read", "folder"),),
        examples=({"path": "notes/today.md"}, {"path": "logs/server.log", "offset": 16384, "most_bytes": 4096}),
    )
    def read_file(
        self,
        path: Annotated[FilePath, Field(min_length=1)],
        offset: Annotated[int, Field(ge=0, le=2**53)] = 0,
        most_bytes: Annotated[int, Field(ge=16, le=MOST_BYTES)] = 1 << 14,
        encoding: Literal["utf-8", "base64"] = "utf-8",
    ) -> dict[str, Any]:
        """Read a page of a file in a folder that the server allows.

        Args:
            path: Absolute, or below an allowed folder.
            offset: The first byte; next_offset of the answer for the next page.
            most_bytes: The size of the page.
            encoding: utf-8 for texts; base64 for other bytes.
        """
        with self._opened(path) as (handle, found):
            if not stat.S_ISREG(found.st_mode):
                why = "is a folder; list_folder lists it." if stat.S_ISDIR(found.st_mode) else "is no regular file."
                raise FileNotReadableError(path, why)
            data = os.pread(handle, most_bytes, offset)
        begin, content = offset, data
        if encoding == "utf-8":
            begin, content = _whole_characters(data, offset, is_last=offset + len(data) >= found.st_size)
        after = begin + len(content)
        return {
            "path": path,
            "content": _text(path, content) if encoding == "utf-8" else base64.b64encode(content).decode(),
            "offset": begin,
            **({"next_offset": after} if after < found.st_size and content else {}),
            "size": found.st_size,
            "modified": _time(found),
        }

    @tool(
        category="files",
        title="List a folder",
        read_only=True,
        open_world=True,
        permissions=(Permission("read", "folder"),),
        examples=({}, {"path": "notes", "page_size": 50}),
    )
    def list_folder(
        self,
        path: FilePath = "",
        page_size: Annotated[int, Field(ge=1, le=MOST_ENTRIES)] = 100,
        after: Annotated[str, Field(max_length=_LONGEST_NAME)] = "",
    ) -> dict[str, Any]:
        """List the files and folders in a folder that the server allows, by name; without a path, these folders.

        Args:
            path: Absolute, or below an allowed folder.
            page_size: The most entries of one answer.
            after: The name after which the page begins; next_after of the previous answer.
        """
        if not path:
            return {"folders": list(self.folders)}
        with self._opened(path) as (handle, found):
            if not stat.S_ISDIR(found.st_mode):
                raise FileNotReadableError(path, "is no folder; read_file reads files.")
            with os.scandir(handle) as entries:
                names = ((_legible(entry.name), entry.name) for entry in entries if not entry.name.startswith("."))
                page = heapq.nsmallest(page_size + 1, (each for each in names if each[0] > after))
            listed = [_entry(handle, *each) for each in page[:page_size]]
        more = {"next_after": listed[-1]["name"]} if len(page) > page_size else {}
        return {"path": path, "entries": listed, **more}

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """An open file or folder and what is known of it."""
        folder, parts = self._place(path)
        excluded = set(_identities(self.excluded))
        try:
            handle = os.open(folder, _FOLDER)
            try:
                for number, part in enumerate(parts, 1):
                    last = number == len(parts)
                    known = os.stat(part, dir_fd=handle, follow_symlinks=False)
                    _refuse_special(path, known, is_last=last)
                    opened = os.open(part, _FILE if last else _FOLDER, dir_fd=handle)
                    os.close(handle)
                    handle = opened
                    if _identity(os.fstat(handle)) in excluded:
                        raise FileNotAllowedError(path)
                yield handle, os.fstat(handle)
            finally:
                os.close(handle)
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchFileError(path) from None
        except OSError as error:
            why = f"cannot be read: {os.strerror(error.errno or 0)}."
            raise FileNotReadableError(path, why) from None

    def _place(self, path: str) -> tuple[str, tuple[str, ...]]:
        """The folder of the settings that a path is in, without links, and the parts of the path below it.

        Raises:
            FileNotAllowedError: It is in none.
            NoSuchFileError: It is relative, and in none of them.
        """
        if "\0" in path:
            raise InvalidInputError("path has a NUL.", [FieldViolation("path", "has a NUL, which no path has.")])
        without = [os.path.realpath(each) for each in self.excluded]
        bounds = [os.path.realpath(each) for each in self.bounds or self.folders]
        allowed = [os.path.realpath(folder) for folder in self.folders]
        allowed = [folder for folder in allowed if any(_below(folder, each) for each in bounds)]
        allowed = [folder for folder in allowed if not any(_below(folder, each) for each in without)]
        tried = [path] if path.startswith("/") else [f"{folder}/{path}" for folder in allowed]
        found = [(folder, real) for each in tried for real in _real(each) for folder in allowed if _below(real, folder)]
        if not found:
            raise FileNotAllowedError(path)
        folder, real = next(((folder, real) for folder, real in found if os.path.lexists(real)), found[0])
        if any(name.startswith(".") for name in Path(real).relative_to(folder).parts):
            raise FileNotAllowedError(path)
        bound = max((each for each in bounds if _below(folder, each)), key=len)
        return bound, Path(real).relative_to(bound).parts


def _real(path: str) -> Sequence[str]:
    """The path without links; none if the system cannot tell."""
    with suppress(OSError, ValueError):
        return [os.path.realpath(path)]
    return []


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _refuse_special(path: str, known: os.stat_result, *, is_last: bool) -> None:
    """Refuse what must not even be opened: a device may act when it is."""
    if stat.S_ISLNK(known.st_mode):
        raise FileNotAllowedError(path)  # it was put there after the path was resolved
    if not stat.S_ISDIR(known.st_mode) and not (is_last and stat.S_ISREG(known.st_mode)):
        raise FileNotReadableError(path, "is no regular file." if is_last else "goes through what is no folder.")


def _identities(paths: Sequence[str]) -> Iterator[tuple[int, int]]:
    for path in paths:
        with suppress(OSError):
            yield _identity(os.stat(path))  # noqa: PTH116 - a path of the settings


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _whole_characters(data: bytes, offset: int, *, is_last: bool) -> tuple[int, bytes]:
    """The page without the parts of characters that other pages have the rest of, and where it begins then."""
    begin = 0
    while offset and begin < min(len(data), _LONGEST_CHARACTER - 1) and data[begin] & _CONTINUED_MASK == _CONTINUED:
        begin += 1
    end = len(data)
    if not is_last:
        for back in range(1, min(_LONGEST_CHARACTER, end) + 1):
            byte = data[end - back]
            if byte & _CONTINUED_MASK == _CONTINUED:
                continue
            size = 1 if byte < _CONTINUED else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4  # noqa: PLR2004 - UTF-8
            end -= back if size > back else 0
            break
    return offset + begin, data[begin:end]


def _text(path: str, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise FileNotReadableError(path, "is no text in UTF-8; give the encoding base64 to read its bytes.")
    return text


def _time(found: os.stat_result) -> str:
    return datetime.fromtimestamp(int(found.st_mtime), UTC).isoformat()


def _legible(name: str) -> str:
    """A text with an escape for each byte that is no UTF-8, which JSON could not have."""
    return name.encode("utf-8", "backslashreplace").decode()


def _entry(handle: int, shown: str, name: str) -> dict[str, Any]:
    try:
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except OSError:
        return {"name": shown, "kind": "unknown"}
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    kind = next((word for test, word in kinds if test(found.st_mode)), "other")
    return {
        "name": shown,
        "kind": kind,
        **({"size": found.st_size} if kind == "file" else {}),
        "modified": _time(found),
    }
