"""The proposals of a repository: one file each, and an index of those that are open.

A call reads the files that it is about and no others, however many there are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memotree_storage.git.records import NewRecord, write_record
from memotree_storage.model.proposal import (
    PROPOSALS_REF,
    Proposal,
    ProposalDamagedError,
    ProposalStatus,
    decode_proposal,
    encode_proposal,
)
from memotree_storage.ports import CommitReader, CommitStore, Signature

_INDEX: Final = "index.json"
_IN_A_FOLDER: Final = 100
_ABOUT: Final = """\
# Proposals

`proposals/` has a file for each proposal, with all that happened to it: by hundreds, then by number. `index.json` has
the number of the next one, and those that are open. `git log --first-parent` tells who did what; the second parent of
such a commit is the commit that was proposed or reviewed.
"""


@dataclass(frozen=True, slots=True)
class OpenProposal:
    """What the index has of an open proposal: its branches, and the request id of the call that made it."""

    branch: str
    target: str
    request_id: str


@dataclass(frozen=True, slots=True)
class ProposalIndex:
    """The proposals of a workspace at one commit of their ref.

    Attributes:
        tip: That commit; ``None`` if there has been no proposal.
        next_number: The number of the next proposal.
        open: Those that are open, by number.
    """

    tip: str | None = None
    next_number: int = 1
    open: Mapping[int, OpenProposal] = field(default_factory=dict)


def read_index(repository: CommitReader) -> ProposalIndex:
    """The present index.

    Raises:
        ProposalDamagedError: It cannot be read.
    """
    tip = repository.ref(PROPOSALS_REF)
    if tip is None:
        return ProposalIndex()
    try:
        fields: Mapping[str, Any] = json.loads(repository.read_path(tip, _INDEX) or b"")
        listed = {
            int(number): OpenProposal(str(one["branch"]), str(one["target"]), str(one["request_id"]))
            for number, one in fields["open"].items()
        }
        return ProposalIndex(tip, int(fields["next"]), listed)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ProposalDamagedError(_INDEX, f"{type(error).__name__}: {error}") from error


def read_proposal(repository: CommitReader, index: ProposalIndex, number: int) -> Proposal | None:
    """The proposal of a number; ``None`` if there is none.

    Raises:
        ProposalDamagedError: Its file cannot be read.
    """
    if index.tip is None or not 0 < number < index.next_number:
        return None
    path = _path(number)
    data = repository.read_path(index.tip, path)
    return None if data is None else decode_proposal(data, path)


def write_proposal(
    repository: CommitStore,
    index: ProposalIndex,
    proposal: Proposal,
    message: str,
    author: Signature,
    committer: Signature,
    *,
    keeps: str,
) -> None:
    """Write a new proposal, or a changed one.

    Args:
        repository: The repository.
        index: The index that the proposal was read with.
        proposal: The proposal.
        message: What happened.
        author: Who did it.
        committer: The service.
        keeps: The commit at which the proposed branch is.

    Raises:
        RecordRacedError: Another program changed the proposals at the same moment.
    """
    listed = {number: one for number, one in index.open.items() if number != proposal.number}
    if proposal.status is ProposalStatus.OPEN:
        listed[proposal.number] = OpenProposal(proposal.branch, proposal.target, proposal.request.id)
    next_number = max(index.next_number, proposal.number + 1)
    files = {_path(proposal.number): encode_proposal(proposal), _INDEX: _encode_index(next_number, listed)}
    new = NewRecord(files, message, author, committer, [keeps])
    write_record(repository, PROPOSALS_REF, index.tip, new, _ABOUT)


def _path(number: int) -> str:
    return f"proposals/{number // _IN_A_FOLDER:04d}/{number}.json"


def _encode_index(next_number: int, listed: Mapping[int, OpenProposal]) -> bytes:
    open_ones = {
        str(number): {"branch": one.branch, "target": one.target, "request_id": one.request_id}
        for number, one in sorted(listed.items())
    }
    return (json.dumps({"next": next_number, "open": open_ones}, ensure_ascii=False, indent=2) + "\n").encode()
