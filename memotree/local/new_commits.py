"""The commits that a push brings, read as the mirror reads them: another reader may see other names in the same bytes.

git runs the hooks of a push when the repository does not have its objects yet, so git itself has to give them.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from memotree_storage.errors import CorruptError
from memotree_storage.git.objects import parse_commit
from memotree_storage.ports import CommitInfo

_LONGEST: Final = 1 << 20
"""Bytes of a commit that are read: all before its message, and the beginning of that."""

_CHUNK: Final = 1 << 16


class NewCommitUnreadableError(CorruptError):
    """A commit of a push cannot be read."""

    reason = "NEW_COMMIT_UNREADABLE"


def new_commits(repository: Path, heads: Sequence[str]) -> Iterator[CommitInfo]:
    """Yield the commits that ``heads`` reach and no ref of the repository does; of long messages only the beginning.

    Args:
        repository: The folder of the repository.
        heads: Ids of objects.

    Raises:
        NewCommitUnreadableError: git cannot list or read them, or one has too much before its message.
        ObjectDamagedError: One of them names no tree, or an id in it is malformed.
        TooManyParentsError: One of them has too many parents.
    """
    if not heads:
        return
    listing = subprocess.Popen(
        ["git", "rev-list", "--stdin", "--not", "--all"],  # noqa: S607 - as the hook is run by git
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    reading = subprocess.Popen(
        ["git", "cat-file", "--batch"],  # noqa: S607
        cwd=repository,
        stdin=listing.stdout,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert listing.stdin is not None  # noqa: S101 - they are pipes
    assert listing.stdout is not None  # noqa: S101
    assert reading.stdout is not None  # noqa: S101
    listing.stdout.close()  # the reader has it
    try:
        listing.stdin.write("".join(f"{head}\n" for head in heads).encode())
        listing.stdin.close()
        while line := reading.stdout.readline():
            yield _commit(line, reading.stdout)
        if listing.wait() or reading.wait():
            raise NewCommitUnreadableError("The commits of this push cannot be read. Run git fsck where you push from.")
    finally:
        for process in (reading, listing):
            process.kill()
            process.wait()
        reading.stdout.close()


def _commit(line: bytes, output: IO[bytes]) -> CommitInfo:
    """The commit that git writes after a line with its id, kind and size."""
    commit_id, kind, *size = line.decode("ascii", "replace").split()
    if kind != "commit" or len(size) != 1:
        raise NewCommitUnreadableError(f"Commit {commit_id} of this push cannot be read.")
    total = int(size[0])
    data = output.read(min(total, _LONGEST))
    if b"\n\n" not in data:
        raise NewCommitUnreadableError(
            f"Commit {commit_id} has no message, or more than {_LONGEST} bytes before it. Make it anew."
        )
    left = total - len(data) + 1  # git writes a line end after each
    while left and (rest := output.read(min(left, _CHUNK))):
        left -= len(rest)
    return parse_commit(commit_id, data)
