"""Encodes errors as ``google.rpc.Status``, small enough for the trailing metadata that any client accepts.

The details follow https://google.aip.dev/193. Many clients refuse more than 8 KiB of metadata, so a long error is
shortened: first its texts, then its lists; ``ErrorInfo.metadata`` records this (``shortened``, ``omitted``).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no py.typed in this package
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError, MemoTreeError

from memotree.error_mapping import DOMAIN, HIDDEN, Code, ErrorAnswer, classify
from memotree.request.conflicts import conflict_message
from memotree.v1 import types_pb2

BUDGET: Final = 7000
"""The most bytes of message and details on the wire, so that with what gRPC adds they fit into 8 KiB."""

MESSAGE_BUDGET: Final = 1800
"""The most bytes of that for the message, which is sent twice."""

TEXT_LIMITS: Final = (1024, 256, 64)
"""The most characters of a text in the details; tried in this order until the budget is kept."""

MAX_NODES: Final = 20
"""The most nodes of a NodeList, as the contract says."""

RETRY_SECONDS: Final = 1
"""Seconds after which a client should repeat a call that failed for a cause that passes, unless the error says when."""


def to_status(error: BaseException, call_id: str) -> status_pb2.Status:
    """The status that a client receives for ``error``; ``call_id`` is the id of the call in the log."""
    answer = classify(error)
    for limit in TEXT_LIMITS:
        status = _compose(answer, call_id, limit, None)
        if wire_size(status) <= BUDGET:
            return status
    low, high = 0, max(len(_items(answer.error, name)) for name in ("violations", "conflicts", "nodes"))
    while low < high:  # search the greatest number of list entries that fits
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
    """Cuts texts to ``limit`` characters and remembers whether any text was cut."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = False

    def __call__(self, text: str) -> str:
        shown = _legal(text[: self.limit])
        if len(text) <= self.limit:
            return shown
        self.used = True
        return f"{shown}… ({len(text)} characters)"


def _compose(answer: ErrorAnswer, call_id: str, limit: int, keep: int | None) -> status_pb2.Status:
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
    if answer.code is Code.UNAVAILABLE or (error is not None and error.passes):
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(math.ceil(round(1000 * getattr(error, "retry_after", RETRY_SECONDS), 3)))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
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
    """The list that the error has as attribute ``name``; empty if it has none."""
    return tuple(getattr(error, name, ()) or ())


def _violations(error: MemoTreeError, violations: Iterable[FieldViolation], short: _Shortener) -> list[Message]:
    """The detail that lists the faults of the arguments or the failed preconditions."""
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
        if not obstacles:  # the message is the only fault known
            subject = short(getattr(error, "resource_name", ""))
            obstacles = [
                error_details_pb2.PreconditionFailure.Violation(
                    type=error.reason, subject=subject, description=short(error.message)
                )
            ]
        return [error_details_pb2.PreconditionFailure(violations=obstacles)]
    return []


def _resource(error: MemoTreeError, short: _Shortener) -> list[Message]:
    """The detail that names the resource that is missing or exists already."""
    kind, name = getattr(error, "resource_type", ""), getattr(error, "resource_name", "")
    if not kind and not name:
        return []
    return [error_details_pb2.ResourceInfo(resource_type=short(kind), resource_name=short(name))]


def _conflicts(conflicts: Iterable[Conflict], short: _Shortener) -> Message:
    """The detail that lists the conflicting edits."""
    return types_pb2.ConflictList(conflicts=[conflict_message(conflict, short) for conflict in conflicts])


def _nodes(nodes: Iterable[Any], short: _Shortener) -> Message:
    """The detail that lists candidate or missing nodes at level TITLE; takes messages, store nodes or versions."""
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
    """The detail packed into a protobuf ``Any``."""
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _legal(text: str) -> str:
    """``text`` as protobuf can encode it: a lone surrogate (of a hand-made file name) becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _quoted(text: str) -> int:
    """Bytes of ``text`` in the header ``grpc-message``: one for printable ASCII except ``%``, three for others."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())  # noqa: PLR2004 - see above


def _bounded(message: str) -> str:
    """The message, cut to its share of the budget."""
    message = _legal(message[: MESSAGE_BUDGET + 1])  # each character has a byte or more
    if _quoted(message) <= MESSAGE_BUDGET:
        return message
    spent = 12  # the ellipsis: three bytes, each encoded as three
    for end, character in enumerate(message):
        spent += _quoted(character)
        if spent > MESSAGE_BUDGET:
            return f"{message[:end]}…"
    return message
