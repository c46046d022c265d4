"""Every domain error reaches a client with its status, its reason and its details, and with nothing else."""

import errno
import re
from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import psycopg
import psycopg_pool
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as rpc  # type: ignore[import-untyped]  # the package ships no types
from grpc_status import rpc_status
from memotree_storage.conflicts import Conflict, ConflictKind
from memotree_storage.errors import (
    AbortedError,
    AlreadyExistsError,
    CorruptError,
    FailedPreconditionError,
    FieldViolation,
    InvalidInputError,
    MemoTreeError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)
from memotree_storage.model.node import Node

from memotree.error_mapping import (
    FAMILIES,
    DeadlineExceededError,
    ForbiddenError,
    UnauthenticatedError,
    UnimplementedError,
    classify,
    status_code,
)
from memotree.server.reference import error_classes, foreign_answers, import_all, stale_pages
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2

Code = grpc.StatusCode
NODE = Node("0123456789abcdef", "archive", None, "a", title="A title")

CASES: list[tuple[MemoTreeError, Any, list[Message]]] = [
    (
        InvalidInputError(
            "Two fields are wrong.", [FieldViolation("title", "too long"), FieldViolation("tags", "NUL")]
        ),
        Code.INVALID_ARGUMENT,
        [
            rpc.BadRequest(
                field_violations=[
                    rpc.BadRequest.FieldViolation(field="title", description="too long", reason="INVALID_ARGUMENT"),
                    rpc.BadRequest.FieldViolation(field="tags", description="NUL", reason="INVALID_ARGUMENT"),
                ]
            )
        ],
    ),
    (
        NotFoundError("There is no such node; list the children.", "node", "abcd"),
        Code.NOT_FOUND,
        [rpc.ResourceInfo(resource_type="node", resource_name="abcd")],
    ),
    (
        AlreadyExistsError("Choose another name.", "tag", "v1"),
        Code.ALREADY_EXISTS,
        [rpc.ResourceInfo(resource_type="tag", resource_name="v1")],
    ),
    (
        AbortedError(
            "Rebase the session.",
            [Conflict(ConflictKind.BOTH_CHANGED, "n1", "title", "a", "b", "c", "Both changed the title.")],
        ),
        Code.ABORTED,
        [
            types_pb2.ConflictList(
                conflicts=[
                    types_pb2.Conflict(
                        kind=types_pb2.CONFLICT_KIND_BOTH_CHANGED,
                        node_id="n1",
                        field="title",
                        base_value=types_pb2.FieldValue(text="a"),
                        our_value=types_pb2.FieldValue(text="b"),
                        their_value=types_pb2.FieldValue(text="c"),
                        description="Both changed the title.",
                    )
                ]
            )
        ],
    ),
    (
        FailedPreconditionError("Open another session.", [FieldViolation("session", "it is closed")]),
        Code.FAILED_PRECONDITION,
        [
            rpc.PreconditionFailure(
                violations=[
                    rpc.PreconditionFailure.Violation(
                        type="FAILED_PRECONDITION", subject="session", description="it is closed"
                    )
                ]
            )
        ],
    ),
    (TooLargeError("The limit is 1 MiB; split the node."), Code.RESOURCE_EXHAUSTED, []),
    (UnavailableError("PostgreSQL restarts; send it again."), Code.UNAVAILABLE, [rpc.RetryInfo]),
    (CorruptError("Object abc is damaged; restore it from a clone."), Code.DATA_LOSS, []),
    (UnimplementedError("Use a newer server."), Code.UNIMPLEMENTED, []),
    (UnauthenticatedError("Send an API key."), Code.UNAUTHENTICATED, []),
    (ForbiddenError("Ask for a role."), Code.PERMISSION_DENIED, []),
    (DeadlineExceededError("Ask for less."), Code.DEADLINE_EXCEEDED, []),
]


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def details(error: Any) -> list[Message]:
    """The details of a status, unpacked."""
    kinds = (
        rpc.ErrorInfo,
        rpc.BadRequest,
        rpc.PreconditionFailure,
        rpc.ResourceInfo,
        rpc.RetryInfo,
        rpc.RequestInfo,
        types_pb2.ConflictList,
        types_pb2.NodeList,
    )
    found = []
    for packed in rpc_status.from_call(error).details:
        kind = next(kind for kind in kinds if packed.Is(kind.DESCRIPTOR))
        message = kind()
        assert packed.Unpack(message)
        found.append(message)
    return found


@pytest.mark.requirement("SERVE-2", "CANVAS-7")
@pytest.mark.parametrize(("error", "code", "expected"), CASES, ids=lambda case: type(case).__name__)
async def test_every_family_has_its_status_reason_and_details(
    error: MemoTreeError, code: Any, expected: list[Any], scripted_sessions: Any, get_session: Callable[..., Any]
) -> None:
    scripted_sessions.raises(error)
    raised = await failure(get_session(sessions.GetSessionRequest()))
    info, *rest, request = details(raised)
    assert raised.code() is code
    assert raised.details() == error.message
    assert info == rpc.ErrorInfo(reason=error.reason, domain="memotree")
    assert isinstance(request, rpc.RequestInfo)
    assert [
        detail if isinstance(want, Message) else type(detail) for detail, want in zip(rest, expected, strict=True)
    ] == (expected)


def test_the_cases_cover_every_family() -> None:
    assert {type(error) for error, _, _ in CASES} | {MemoTreeError} == set(FAMILIES)


@pytest.mark.parametrize(
    "nodes", [[NODE], [types_pb2.Node(id=NODE.id, archive_id="archive", type="note", title="A title")]]
)
async def test_the_nodes_of_an_error_are_sent_at_level_title(
    nodes: list[Any], scripted_sessions: Any, get_session: Callable[..., Any]
) -> None:
    error = InvalidInputError("The prefix is ambiguous; give more of it.")
    error.nodes = nodes * 30  # type: ignore[attr-defined]  # an error may carry nodes
    scripted_sessions.raises(error)
    info, listed, _ = details(await failure(get_session(sessions.GetSessionRequest())))
    assert isinstance(listed, types_pb2.NodeList)
    title = types_pb2.LEVEL_OF_DETAIL_TITLE
    assert list(listed.nodes) == 20 * [
        types_pb2.Node(id=NODE.id, archive_id="archive", type="note", title="A title", level=title)
    ]
    assert info.metadata == {"omitted": "10"}  # type: ignore[attr-defined]  # it is an ErrorInfo


@pytest.mark.requirement("SERVE-2")
@pytest.mark.parametrize("error", [ValueError("/srv/secret"), MemoTreeError("secret"), KeyError("secret")], ids=repr)
async def test_an_unexpected_error_shows_a_client_only_its_id_in_the_log(
    error: Exception, scripted_sessions: Any, get_session: Callable[..., Any], log_lines: list[Any]
) -> None:
    scripted_sessions.raises(error)
    raised = await failure(get_session(sessions.GetSessionRequest()))
    (line,) = [line for line in log_lines if line["event"] == "call"]
    info, request = details(raised)
    assert raised.code() is Code.INTERNAL
    assert info == rpc.ErrorInfo(reason="INTERNAL", domain="memotree")
    assert re.fullmatch(r"[0-9a-f]{16}", request.request_id)  # type: ignore[attr-defined]  # it is a RequestInfo
    assert raised.details().endswith(f"{request.request_id}.")  # type: ignore[attr-defined]
    assert "secret" not in raised.debug_error_string()
    assert line["log_level"] == "error"
    assert line["exc_info"] is error


@pytest.mark.requirement("SERVE-2")
@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (TimeoutError(), Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
        (psycopg.errors.QueryCanceled("statement timeout"), Code.DEADLINE_EXCEEDED, "STATEMENT_TIMEOUT"),
        (psycopg.OperationalError("secret"), Code.UNAVAILABLE, "DATABASE_UNAVAILABLE"),
        (psycopg.errors.AdminShutdown("secret"), Code.UNAVAILABLE, "DATABASE_UNAVAILABLE"),
        (psycopg.errors.ReadOnlySqlTransaction("secret"), Code.UNAVAILABLE, "DATABASE_UNAVAILABLE"),
        (psycopg.InterfaceError("the connection is closed"), Code.UNAVAILABLE, "DATABASE_UNAVAILABLE"),
        (psycopg_pool.PoolTimeout("secret"), Code.UNAVAILABLE, "DATABASE_UNAVAILABLE"),
        (psycopg_pool.PoolClosed("secret"), Code.UNAVAILABLE, "DATABASE_UNAVAILABLE"),
        (ConnectionRefusedError("secret"), Code.UNAVAILABLE, "STORE_UNAVAILABLE"),
        (OSError(errno.ENOSPC, "No space left on device", "/srv/secret"), Code.UNAVAILABLE, "DISK_UNAVAILABLE"),
        (OSError(errno.EROFS, "Read-only file system"), Code.UNAVAILABLE, "DISK_UNAVAILABLE"),
        (MemoryError(), Code.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"),
        (psycopg.errors.UniqueViolation("secret"), Code.INTERNAL, "INTERNAL"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/srv/secret"), Code.INTERNAL, "INTERNAL"),
        (ExceptionGroup("tasks", [NotFoundError("There is no node.")]), Code.NOT_FOUND, "NOT_FOUND"),
        (ExceptionGroup("tasks", [NotFoundError("There is no node."), KeyError("x")]), Code.INTERNAL, "INTERNAL"),
    ],
    ids=repr,
)
async def test_errors_of_libraries_become_statuses_that_a_client_can_act_on(
    error: Exception, code: Any, reason: str, scripted_sessions: Any, get_session: Callable[..., Any]
) -> None:
    scripted_sessions.raises(error)
    raised = await failure(get_session(sessions.GetSessionRequest()))
    assert raised.code() is code
    assert details(raised)[0].reason == reason  # type: ignore[attr-defined]  # it is an ErrorInfo
    assert "secret" not in raised.debug_error_string()


@pytest.mark.parametrize(("inner", "outer"), [(Code.UNAVAILABLE, "STORE_UNAVAILABLE"), (Code.NOT_FOUND, "INTERNAL")])
def test_a_grpc_error_of_a_store_is_not_passed_on_as_ours(inner: Any, outer: str) -> None:
    metadata = grpc.aio.Metadata()
    answer = classify(grpc.aio.AioRpcError(inner, metadata, metadata, details="secret"))
    assert answer.reason == outer
    assert "secret" not in answer.message


@pytest.mark.requirement("SERVE-2", "CANVAS-7")
def test_every_error_class_has_a_reason_of_its_own_and_a_status() -> None:
    import_all()
    kinds = error_classes()
    reasons = [kind.reason for kind in kinds]
    assert len(kinds) > len(FAMILIES)
    for kind in kinds:
        assert "reason" in vars(kind), f"{kind.__qualname__} needs a reason of its own"
        assert re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", kind.reason), kind.reason
        assert len(kind.reason) <= 63, kind.reason  # what google.rpc.ErrorInfo allows
        assert kind is MemoTreeError or status_code(kind) is not Code.INTERNAL, f"{kind.__qualname__} has no family"
    assert sorted(reasons) == sorted(set(reasons))
    statuses = {kind.reason: status_code(kind) for kind in kinds}
    for reason, answer in foreign_answers().items():  # a library's error may mean what one of ours means
        assert statuses.get(reason, answer.code) is answer.code, reason


@pytest.mark.requirement("SERVE-2")
def test_the_reference_pages_match_the_code() -> None:
    assert stale_pages() == [], "run `python -m memotree.server.reference`"
