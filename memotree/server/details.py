"""Errors as ``google.rpc.Status``, small enough to travel in the trailing metadata of any client.

The details follow https://google.aip.dev/193. Many clients refuse more than 8 KiB of metadata, so a long error is
shortened: first its texts, then its lists; ``ErrorInfo.metadata`` says so (``shortened``, ``omitted``).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no py.typed in this package
from memotree_storage.errors import Conflict, FailedPreconditionError, FieldViolation, InvalidInputError, MemoTreeError

from memotree.errors import DOMAIN, HIDDEN, Answer, Code, classify
from memotree.v1 import types_pb2

BUDGET: Final = 7000
"""The most bytes that message and details may need on the wire, so that 8 KiB hold them and what gRPC adds."""

MESSAGE_BUDGET: Final = 1800
"""The most bytes of that for the message, which travels twice."""

TEXT_LIMITS: Final = (1024, 256, 64)
"""Characters that a text of the details may have, tried in this order until the budget is kept."""

MAX_NODES: Final = 20
"""Nodes that a NodeList may have (the contract says so)."""

RETRY_SECONDS: Final = 1
"""When to send a call again that met a store which does not answer."""


def to_status(error: BaseException, call_id: str) -> status_pb2.Status:
    """The status that a client receives for ``error``; ``call_id`` is the id under which the log has the call."""
    answer = classify(error)
    for limit in TEXT_LIMITS:
        status = _compose(answer, call_id, limit, None)
        if wire_size(status) <= BUDGET:
            return status
    low, high = 0, max(len(_items(answer.error, name)) for name in ("violations", "conflicts", "nodes"))
    while low < high:  # the greatest number of list entries that fits
        middle = (low + high + 1) // 2
        if wire_size(_compose(answer, call_id, TEXT_LIMITS[-1], middle)) <= BUDGET:
            low = middle
        else:
            high = middle - 1
    return _compose(answer, call_id, TEXT_LIMITS[-1], low)


def wire_size(status: status_pb2.Status) -> int:
    """Bytes of ``grpc-message`` (percent-encoded) and ``grpc-status-details-bin`` (base 64) in the trailers."""
    size: int = status.ByteSize()
    return _quoted(status.message) + 4 * ((size + 2) // 3)


class _Shortener:
    """Cuts texts to ``limit`` characters and remembers whether it had to."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = False

    def __call__(self, text: str) -> str:
        text = _legal(text)
        if len(text) <= self.limit:
            return text
        self.used = True
        return f"{text[: self.limit]}… ({len(text)} characters)"


def _compose(answer: Answer, call_id: str, limit: int, keep: int | None) -> status_pb2.Status:
    """The status with texts of at most ``limit`` characters and lists of at most ``keep`` entries."""
    short = _Shortener(limit)
    details: list[Message] = []
    omitted = 0
    error = answer.error
    if error is not None:
        violations, conflicts, nodes = (_items(error, name) for name in ("violations", "conflicts", "nodes"))
        shown = len(violations) + len(conflicts) + len(nodes)
        violations, conflicts, nodes = violations[:keep], conflicts[:keep], nodes[:keep][:MAX_NODES]
        omitted = shown - len(violations) - len(conflicts) - len(nodes)
        details += [*_violations(error, violations, short), *_resource(error, short)]
        details += [_conflicts(conflicts, short)] if conflicts else []
        details += [_nodes(nodes, short)] if nodes else []
    if answer.code is Code.UNAVAILABLE:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=RETRY_SECONDS)))
    details.append(error_details_pb2.RequestInfo(request_id=call_id))
    facts = {"omitted": str(omitted)} if omitted else {}
    facts |= {"shortened": "true"} if short.used else {}
    message = f"{answer.message.rstrip('.')}: {call_id}." if answer is HIDDEN else answer.message
    info = error_details_pb2.ErrorInfo(reason=answer.reason, domain=DOMAIN, metadata=facts)
    return status_pb2.Status(
        code=answer.code.value[0],
        message=_bounded(message),
        details=[_packed(detail) for detail in (info, *details)],
    )


def _items(error: MemoTreeError | None, name: str) -> Sequence[Any]:
    """The list that an error carries under ``name``, if it carries one."""
    return tuple(getattr(error, name, ()) or ())


def _violations(error: MemoTreeError, violations: Iterable[FieldViolation], short: _Shortener) -> list[Message]:
    """What is wrong with the arguments, or with the state of things."""
    if isinstance(error, InvalidInputError):
        faults = [
            error_details_pb2.BadRequest.FieldViolation(
                field=short(violation.field), description=short(violation.description), reason=error.reason
            )
            for violation in violations
        ]
        return [error_details_pb2.BadRequest(field_violations=faults)] if faults else []
    if isinstance(error, FailedPreconditionError):
        obstacles = [
            error_details_pb2.PreconditionFailure.Violation(
                type=error.reason, subject=short(violation.field), description=short(violation.description)
            )
            for violation in violations
        ]
        if not obstacles:  # the sentence is the only fault there is to tell
            subject = short(getattr(error, "resource_name", ""))
            obstacles = [
                error_details_pb2.PreconditionFailure.Violation(
                    type=error.reason, subject=subject, description=short(error.message)
                )
            ]
        return [error_details_pb2.PreconditionFailure(violations=obstacles)]
    return []


def _resource(error: MemoTreeError, short: _Shortener) -> list[Message]:
    """The thing that is not there, or is there already."""
    kind, name = getattr(error, "resource_type", ""), getattr(error, "resource_name", "")
    if not kind and not name:
        return []
    return [error_details_pb2.ResourceInfo(resource_type=short(kind), resource_name=short(name))]


def _conflicts(conflicts: Iterable[Conflict], short: _Shortener) -> Message:
    """The edits that cannot both hold."""
    return types_pb2.ConflictList(
        conflicts=[
            types_pb2.Conflict(
                node_id=short(conflict.node_id),
                field=short(conflict.field),
                base=short(conflict.base),
                ours=short(conflict.ours),
                theirs=short(conflict.theirs),
                description=short(conflict.description),
            )
            for conflict in conflicts
        ]
    )


def _nodes(nodes: Iterable[Any], short: _Shortener) -> Message:
    """The nodes that were meant or are needed, at level TITLE: messages, or nodes or versions of the store."""
    return types_pb2.NodeList(
        nodes=[
            types_pb2.Node(
                id=short(getattr(node, "entry_id", "") or node.id),
                archive_id=short(getattr(node, "archive_id", "")),
                parent_id=short(getattr(node, "parent_id", "") or ""),
                type=short(getattr(node, "type", "")),
                title=short(node.title),
                level=types_pb2.LEVEL_OF_DETAIL_TITLE,
            )
            for node in nodes
        ]
    )


def _packed(detail: Message) -> any_pb2.Any:
    """The detail as protobuf's Any."""
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _legal(text: str) -> str:
    """``text`` as protobuf can carry it: a lone surrogate (of a hand-made file name) becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _quoted(text: str) -> int:
    """Bytes of ``text`` in the header ``grpc-message``: printable ASCII but ``%`` is one, every other byte is three."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())  # noqa: PLR2004 - see above


def _bounded(message: str) -> str:
    """The message, cut where its share of the budget ends."""
    message = _legal(message)
    if _quoted(message) <= MESSAGE_BUDGET:
        return message
    spent = 12  # the ellipsis, three bytes of three
    for end, character in enumerate(message):
        spent += _quoted(character)
        if spent > MESSAGE_BUDGET:
            return f"{message[:end]}…"
    return message
