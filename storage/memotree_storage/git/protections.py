"""The protections of branches in a repository, and the check that a branch may be changed."""

from collections.abc import Iterable
from typing import Final

from memotree_storage.git.records import NewRecord, read_record, write_record
from memotree_storage.model.protection import (
    PROTECTIONS_REF,
    BranchProtectedError,
    Protection,
    decode_protections,
    encode_protections,
    protection_of,
)
from memotree_storage.ports import CommitReader, CommitStore, Signature

_FILE: Final = "protections.json"
_ABOUT: Final = """\
# Protected branches

`protections.json` names the branches that change only by the merge of an approved proposal, and who protected them.
"""


def read_protections(repository: CommitReader) -> tuple[Protection, ...]:
    """The protections of a workspace, by pattern.

    Raises:
        ProtectionsDamagedError: They cannot be read.
    """
    data = read_record(repository, PROTECTIONS_REF, _FILE)
    return () if data is None else decode_protections(data)


def write_protections(
    repository: CommitStore, protections: Iterable[Protection], message: str, author: Signature, committer: Signature
) -> None:
    """Replace the protections of a workspace.

    Raises:
        RecordRacedError: Another program changed them at the same moment.
    """
    tip = repository.ref(PROTECTIONS_REF)
    new = NewRecord({_FILE: encode_protections(protections)}, message, author, committer)
    write_record(repository, PROTECTIONS_REF, tip, new, _ABOUT)


def refuse_protected(repository: CommitReader, branch: str) -> None:
    """Refuse a change of a protected branch. Without any protection this reads one file, which is not there.

    Raises:
        BranchProtectedError: The branch is protected.
        ProtectionsDamagedError: The protections cannot be read.
    """
    if protection_of(read_protections(repository), branch) is not None:
        raise BranchProtectedError.of(branch)
