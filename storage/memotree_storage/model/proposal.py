"""A proposal: changes on a branch of their own that others review before they reach another branch.

Proposals are no nodes. Each is a JSON file on the ref ``refs/memotree/proposals`` (``git.proposals``), whose commits
are the record of who proposed, reviewed and merged what.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from memotree_storage.errors import CorruptError
from memotree_storage.model.normal_form import normalized
from memotree_storage.model.trailers import Request

PROPOSALS_REF: Final = "refs/memotree/proposals"
MOST_EVENTS: Final = 1000
"""The most events of a proposal; its file is read whole."""


class ProposalDamagedError(CorruptError):
    """The file of a proposal cannot be read."""

    reason = "PROPOSAL_DAMAGED"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} on {PROPOSALS_REF} cannot be read: {why}. Restore that ref from a backup or a clone.")


class ProposalStatus(Enum):
    """What became of a proposal."""

    OPEN = "open"
    MERGED = "merged"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


class EventKind(Enum):
    """What somebody did to a proposal."""

    COMMENTED = "commented"
    APPROVED = "approved"
    REJECTED = "rejected"
    EDITED = "edited"
    WITHDRAWN = "withdrawn"
    REOPENED = "reopened"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class ProposalEvent:
    """One thing that happened to a proposal after it was made.

    Attributes:
        kind: What it was.
        by: The name of who did it.
        at: When, in UTC.
        head: The commit at which the proposed branch was; of ``MERGED``, the one that was merged.
        text: What they said; "" for nothing.
        node_id: The node or archive that a comment is about; "" if it is about the proposal.
        field: The field of that node; "" if it is about the whole node.
        commit_id: Of ``MERGED``, the commit that the target branch got.
    """

    kind: EventKind
    by: str
    at: datetime
    head: str
    text: str = ""
    node_id: str = ""
    field: str = ""
    commit_id: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal and all that happened to it.

    Attributes:
        number: Counts the proposals of a workspace from 1.
        title: One line.
        description: Why it is proposed; "" for nothing.
        author: The name of who proposes it.
        branch: The branch that has the changes.
        target: The branch that shall get them.
        created_at: When it was made, in UTC.
        status: What became of it.
        merge_when_approved: Whether the approval that was still missing merges it.
        request: The call that made it.
        events: What happened since, oldest first.
    """

    number: int
    title: str
    description: str
    author: str
    branch: str
    target: str
    created_at: datetime
    status: ProposalStatus = ProposalStatus.OPEN
    merge_when_approved: bool = False
    request: Request = field(default_factory=Request)
    events: tuple[ProposalEvent, ...] = ()

    @property
    def updated_at(self) -> datetime:
        """When something last happened to it."""
        return self.events[-1].at if self.events else self.created_at

    @property
    def merge_commit(self) -> str:
        """The commit that the target branch got; "" unless it was merged."""
        return next((event.commit_id for event in reversed(self.events) if event.kind is EventKind.MERGED), "")

    def approvals(self) -> dict[str, str]:
        """Who has approved it, each with the commit that they last approved. A rejection ends all approvals before."""
        found: dict[str, tuple[str, str]] = {}
        for event in self.events:
            if event.kind is EventKind.APPROVED:
                found[_folded(event.by)] = event.by, event.head
            elif event.kind is EventKind.REJECTED:
                found.clear()
        return dict(found.values())

    def with_event(self, event: ProposalEvent, status: ProposalStatus | None = None) -> "Proposal":
        """The proposal after something happened to it."""
        return replace(self, events=(*self.events, event), status=status or self.status)


def is_among(name: str, others: Iterable[str]) -> bool:
    """Whether a name means the same principal as one of the others: letter case, compatible characters, space apart."""
    return _folded(name) in {_folded(other) for other in others}


def _folded(name: str) -> str:
    return " ".join(normalized("NFKC", name).casefold().split())


def encode_proposal(proposal: Proposal) -> bytes:
    """The file of a proposal: JSON with a line for each field, so that a diff shows what happened."""
    return (json.dumps(asdict(proposal), ensure_ascii=False, indent=2, default=_plain) + "\n").encode()


def decode_proposal(data: bytes, path: str) -> Proposal:
    """Read the file of a proposal.

    Raises:
        ProposalDamagedError: It is none.
    """
    try:
        fields: dict[str, Any] = json.loads(data)
        events = tuple(_event(event) for event in fields.pop("events"))
        return Proposal(
            **_texts(fields, "title", "description", "author", "branch", "target"),
            number=int(fields["number"]),
            created_at=_time(fields["created_at"]),
            status=ProposalStatus(fields["status"]),
            merge_when_approved=bool(fields["merge_when_approved"]),
            request=Request(**_texts(fields["request"], "id", "digest")),
            events=events,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ProposalDamagedError(path, f"{type(error).__name__}: {error}") from error


def _event(fields: Mapping[str, Any]) -> ProposalEvent:
    texts = _texts(fields, "by", "head", "text", "node_id", "field", "commit_id")
    return ProposalEvent(EventKind(fields["kind"]), at=_time(fields["at"]), **texts)


def _texts(fields: Mapping[str, Any], *names: str) -> dict[str, str]:
    found = {name: fields[name] for name in names}
    if not all(isinstance(text, str) for text in found.values()):
        message = f"{', '.join(names)} must be texts"
        raise TypeError(message)
    return found


def _time(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return str(value.value)
    raise TypeError(value)
