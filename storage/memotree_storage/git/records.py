"""What must be audited and is no node: files on refs below ``refs/memotree``, whose commits are the record.

Each change is a commit on top of the last one, so that ``git log --first-parent`` on the ref tells who did what, when
and why. These refs are cloned and backed up with the rest, and nothing of them is only in PostgreSQL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import AbortedError
from memotree_storage.ports import CommitDraft, CommitReader, CommitStore, Signature

_README: Final = "README.md"


class RecordRacedError(AbortedError):
    """Another program moved the ref at the same moment."""

    reason = "RECORD_RACED"

    def __init__(self, ref: str) -> None:
        super().__init__(f"{ref} was moved at the same moment by another program; nothing was recorded. Send it again.")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A change of files on a ref.

    Attributes:
        files: The files that change, by path.
        message: What happened: a subject, and more if there is more.
        author: Who did it.
        committer: The service.
        keeps: Commits that it is about; as further parents they stay in Git as long as the record does.
    """

    files: Mapping[str, bytes]
    message: str
    author: Signature
    committer: Signature
    keeps: Sequence[str] = ()


def read_record(repository: CommitReader, ref: str, path: str) -> bytes | None:
    """The file at a path at the tip of a ref; ``None`` if there is none."""
    tip = repository.ref(ref)
    return None if tip is None else repository.read_path(tip, path)


def write_record(repository: CommitStore, ref: str, tip: str | None, new: NewRecord, about: str) -> None:
    """Write a change of files on a ref; it is durable when this returns.

    Args:
        repository: The repository.
        ref: The full name of the ref.
        tip: The commit that it is at; ``None`` if it does not exist yet.
        new: What to write.
        about: What the ref is for; the README of its first commit.

    Raises:
        RecordRacedError: The ref is not at the tip any more; nothing was changed.
    """
    parent = tip
    if parent is None:  # a commit of its own, since the first parent of every other one is the record before
        first = CommitDraft(None, {_README: about.encode()}, f"Begin {ref}\n", new.committer, new.committer)
        parent = repository.write_commit(first).commit_id
    message = new.message.rstrip("\n") + "\n"
    draft = CommitDraft(parent, new.files, message, new.author, new.committer, None, new.keeps)
    if not repository.move_ref(ref, tip, repository.write_commit(draft).commit_id):
        raise RecordRacedError(ref)
