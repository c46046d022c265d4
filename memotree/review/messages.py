"""Proposals, their events and protections as messages, and who calls."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from memotree_storage.commit.merge_commit import Identity
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.proposal import Proposal, ProposalEvent, ProposalStatus
from memotree_storage.model.protection import Protection, is_pattern, protection_of
from memotree_storage.model.validation import check_text
from memotree_storage.ports import Signature

from memotree.request.idempotency import request_mark
from memotree.request.limits import ServiceLimits
from memotree.request.messages import author_of, timestamp
from memotree.request.naming import check_branch_name
from memotree.v1 import review_service_pb2 as pb

DEFAULT_NAME: Final = "agent"
"""Who calls if a request names nobody."""

_TITLE_CHARS: Final = 200
_TEXT_BYTES: Final = 16 << 10


def identity_of(limits: ServiceLimits, request: Any, field: str = "author", name: str = DEFAULT_NAME) -> Identity:
    """Who calls, as the field of a request names them, with MemoTree as the committer.

    Args:
        limits: The names and addresses of the service.
        request: The request.
        field: A field of type CommitAuthor.
        name: The name if the field has none.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    author = Signature(name, limits.author_email, now)
    author = author_of(request, author, field)
    return Identity(author, Signature(limits.committer_name, limits.committer_email, now), request_mark(request))


def check_title(title: str) -> str:
    """The title of a proposal, stripped.

    Raises:
        InvalidTextError: It is blank, too long or has several lines.
    """
    check_text("title", title.strip(), required=True, max_chars=_TITLE_CHARS)
    return title.strip()


def check_said(field: str, text: str, *, required: bool = False) -> str:
    """What somebody says about a proposal, stripped.

    Raises:
        InvalidTextError: It is too long, or blank where something must be said.
    """
    check_text(field, text.strip(), multiline=True, required=required, max_bytes=_TEXT_BYTES)
    return text.strip()


def read_status(status: pb.ProposalStatus.ValueType) -> ProposalStatus | None:
    """The status of a request; ``None`` if it gives none.

    Raises:
        InvalidInputError: The number is no status.
    """
    if status == pb.PROPOSAL_STATUS_UNSPECIFIED:
        return None
    if status not in pb.ProposalStatus.values():
        raise InvalidInputError.at("status", f"{status} is no ProposalStatus.")
    return ProposalStatus(pb.ProposalStatus.Name(status).removeprefix("PROPOSAL_STATUS_").lower())


def proposal_message(proposal: Proposal, head: str, protections: Sequence[Protection]) -> pb.Proposal:
    """The message of a proposal.

    Args:
        proposal: The proposal.
        head: Where its branch is; "" if that was deleted.
        protections: Those of the workspace.
    """
    approvals = proposal.approvals()
    rule = protection_of(protections, proposal.target)
    return pb.Proposal(
        number=proposal.number,
        title=proposal.title,
        description=proposal.description,
        author=proposal.author,
        branch=proposal.branch,
        target_branch=proposal.target,
        status=pb.ProposalStatus.Value(f"PROPOSAL_STATUS_{proposal.status.name}"),
        head_commit_id=head,
        approved_by=[name for name, commit_id in approvals.items() if commit_id == head],
        stale_approvals=[name for name, commit_id in approvals.items() if commit_id != head],
        required_approvals=0 if rule is None else rule.approvals,
        create_time=timestamp(proposal.created_at),
        update_time=timestamp(proposal.updated_at),
        merge_commit_id=proposal.merge_commit,
        event_count=len(proposal.events),
        merge_when_approved=proposal.merge_when_approved,
    )


def event_message(event: ProposalEvent) -> pb.ProposalEvent:
    """The message of an event."""
    return pb.ProposalEvent(
        kind=pb.ProposalEventKind.Value(f"PROPOSAL_EVENT_KIND_{event.kind.name}"),
        by=event.by,
        time=timestamp(event.at),
        head_commit_id=event.head,
        text=event.text,
        node_id=event.node_id,
        field=event.field,
        commit_id=event.commit_id,
    )


def protection_message(protection: Protection) -> pb.Protection:
    """The message of a protection."""
    return pb.Protection(
        pattern=protection.pattern,
        required_approvals=protection.approvals,
        checks_required=protection.needs_checks,
        protected_by=protection.by,
        protect_time=timestamp(protection.at),
    )


def check_pattern(pattern: str, field: str) -> str:
    """A pattern of branch names: a name, or the beginning of names with one ``*`` at its end.

    Raises:
        InvalidInputError: It is none.
    """
    if not is_pattern(pattern):
        raise InvalidInputError.at(
            field, "must be the name of a branch, or the beginning of names with one * at its end."
        )
    beginning = pattern.removesuffix("*").removesuffix("/")
    if beginning:
        check_branch_name(beginning, field)
    return pattern
