"""The journal: records on their way to PostgreSQL, one line of JSON each, in two files of the data folder.

A line that was written survives a kill of the server and of PostgreSQL, since the system has it; a power cut may take
the lines that were not synced. Only one process writes, which the lock of the data folder ensures.

The files take turns, so that they stay small although calls add lines all the time: while PostgreSQL takes the lines of
one, new lines go to the other; the one is emptied when PostgreSQL has all of it. A kill before that leaves lines in it
that PostgreSQL has already. They are brought again, and their ids keep them from standing there twice.
"""

import errno
import os
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 256 << 20
"""How many bytes the lines may have that PostgreSQL does not have."""

_CHUNK: Final = 1 << 20
"""The most bytes of one transaction; a line has some hundreds."""

_PROBE: Final = 4096


class Journal:
    """The files; they are created with their folder if they are missing. Blocks while it is opened.

    Positions count the bytes that were ever written by this object, so they only grow.

    Args:
        path: The first file; the second one is beside it.
        most_bytes: How many bytes the lines may have that PostgreSQL does not have.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = [_File(path), _File(path.with_stem(f"{path.stem}-2"))]
        left = sorted((each for each in files if each.size), key=lambda each: each.written_at)
        self._reading = left[0] if left else files[0]  # the file whose lines PostgreSQL takes
        self._writing = left[-1] if left else files[0]  # the file that gets new lines
        self._other = {files[0]: files[1], files[1]: files[0]}
        for each in left:
            each.end_line()
        self._end = sum(each.size for each in left)
        self._taken = 0
        self._offset = 0  # bytes at the beginning of the file that is read, which PostgreSQL has

    @property
    def end(self) -> int:
        """The position after the last line."""
        return self._end

    @property
    def taken(self) -> int:
        """The position up to which PostgreSQL has the records."""
        return self._taken

    def append(self, line: bytes) -> None:
        """Add one line, with its end.

        Raises:
            OSError: It could not be written whole; the file is as it was before.
        """
        waiting = self._end - self._taken
        if waiting + len(line) > self._most_bytes:
            raise OSError(f"its journal has {waiting} bytes that PostgreSQL has not taken, the most that it may have")
        self._writing.append(line)
        self._end += len(line)

    def check(self) -> None:
        """Check that a record could be written.

        Raises:
            OSError: It could not.
        """
        size, end = self._writing.size, self._end
        self.append(b" " * _PROBE)
        self._end = end
        self._writing.cut(size)

    def next_lines(self) -> tuple[list[bytes], int]:
        """Some whole lines that PostgreSQL does not have, and the position of their end; blocks while it reads."""
        chunk = self._reading.read(_CHUNK, self._offset)
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) == _CHUNK:
            end = _CHUNK  # no record is that long; a power cut has left this
        return chunk[:end].splitlines(), self._taken + end

    def sync(self) -> None:
        """Bring all lines to the disk; blocks."""
        for each in self._other:
            each.sync()

    def took(self, position: int) -> None:
        """Note that PostgreSQL has all lines up to a position; a file of which it has all is emptied."""
        offset = self._offset + position - self._taken
        if offset == self._reading.size:
            self._reading.cut(0)
            self._reading = self._writing
            offset = 0
        elif self._reading is self._writing:
            self._writing = self._other[self._writing]  # which is empty: its turn begins with the next line
        self._offset = offset
        self._taken = position

    def close(self) -> None:
        """Close the files."""
        for each in self._other:
            each.close()


class _File:
    """One file.

    Attributes:
        size: Its bytes.
        written_at: When it was written before it was opened, in nanoseconds.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        found = os.fstat(self._file)
        self.size = found.st_size
        self.written_at = found.st_mtime_ns

    def end_line(self) -> None:
        """End the last line if a power cut tore it; its call was not answered."""
        if os.pread(self._file, 1, self.size - 1) != b"\n":
            self.append(b"\n")

    def append(self, line: bytes) -> None:
        """Add a line.

        Raises:
            OSError: It could not be written whole; the file is as it was before.
        """
        try:
            written = os.write(self._file, line)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        if written != len(line):
            os.ftruncate(self._file, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += len(line)

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._file, size, offset)

    def cut(self, size: int) -> None:
        """Leave only so much of its beginning."""
        os.ftruncate(self._file, size)
        self.size = size

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)
