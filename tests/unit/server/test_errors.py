"""Every error reaches a client with its status, its reason and its details, which are small, and with nothing else."""

import asyncio
import errno
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import psycopg
import psycopg_pool
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as rpc  # type: ignore[import-untyped]  # the package ships no types
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st
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
from steps import Steps

from memotree.client import errors as client_errors
from memotree.error_mapping import (
    FAMILIES,
    DeadlineExceededError,
    ForbiddenError,
    UnauthenticatedError,
    UnimplementedError,
    classify,
    status_code,
)
from memotree.error_statuses import CLIENT_CODES, ERROR_STATUSES, FAMILY_CODES
from memotree.server.grpc_status import BUDGET, to_status, wire_size
from memotree.server.reference import error_classes, foreign_answers, import_all, stale_pages
from memotree.v1 import session_service_pb2 as sessions
from memotree.v1 import types_pb2

Code = grpc.StatusCode
NODE = Node("0123456789abcdef", "archive", None, "a", title="A title")

FAULTS = {"title": "too long", "tags": "NUL"}
BAD = rpc.BadRequest()
for field, fault in FAULTS.items():
    BAD.field_violations.add(field=field, description=fault, reason="INVALID_ARGUMENT")
CONFLICT = Conflict(ConflictKind.BOTH_CHANGED, "n1", "title", "a", "b", "c", "Both changed the title.")
SENT_CONFLICT = types_pb2.Conflict(
    kind=types_pb2.CONFLICT_KIND_BOTH_CHANGED, node_id="n1", field="title", description=CONFLICT.description,
    base_value={"text": "a"}, our_value={"text": "b"}, their_value={"text": "c"},
)  # fmt: skip
CLOSED = rpc.PreconditionFailure()
CLOSED.violations.add(type="FAILED_PRECONDITION", subject="session", description="it is closed")
CASES: list[tuple[MemoTreeError, Any, list[Any]]] = [
    (InvalidInputError("Two are wrong.", [FieldViolation(*each) for each in FAULTS.items()]), Code.INVALID_ARGUMENT,
     [BAD]),
    (NotFoundError("There is no such node; list the children.", "node", "abcd"), Code.NOT_FOUND,
     [rpc.ResourceInfo(resource_type="node", resource_name="abcd")]),
    (AlreadyExistsError("Choose another name.", "tag", "v1"), Code.ALREADY_EXISTS,
     [rpc.ResourceInfo(resource_type="tag", resource_name="v1")]),
    (AbortedError("Rebase it.", [CONFLICT]), Code.ABORTED, [types_pb2.ConflictList(conflicts=[SENT_CONFLICT])]),
    (FailedPreconditionError("Open another.", [FieldViolation("session", "it is closed")]), Code.FAILED_PRECONDITION,
     [CLOSED]),
    (TooLargeError("The limit is 1 MiB; split the node."), Code.RESOURCE_EXHAUSTED, []),
    (UnavailableError("PostgreSQL restarts; send it again."), Code.UNAVAILABLE, [rpc.RetryInfo]),
    (CorruptError("Object abc is damaged; restore it from a clone."), Code.DATA_LOSS, []),
    (UnimplementedError("Use a newer server."), Code.UNIMPLEMENTED, []),
    (UnauthenticatedError("Send an API key."), Code.UNAUTHENTICATED, []),
    (ForbiddenError("Ask for a role."), Code.PERMISSION_DENIED, []),
    (DeadlineExceededError("Ask for less."), Code.DEADLINE_EXCEEDED, []),
]  # fmt: skip


@pytest.fixture
def failure(scripted_sessions: Any, get_session: Callable[..., Any]) -> Callable[[BaseException], Any]:
    """What a client gets if an operation raises an error."""

    async def failed(error: BaseException) -> Any:
        scripted_sessions.raises(error)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await get_session(sessions.GetSessionRequest())
        return caught.value

    return failed


def details(status: Any) -> list[Any]:
    """The details of a status, unpacked."""
    kinds = (
        *(rpc.ErrorInfo, rpc.BadRequest, rpc.PreconditionFailure, rpc.ResourceInfo, rpc.RetryInfo, rpc.RequestInfo),
        *(types_pb2.ConflictList, types_pb2.NodeList),
    )
    found = []
    for packed in status.details:
        kind = next(kind for kind in kinds if packed.Is(kind.DESCRIPTOR))
        message = kind()
        assert packed.Unpack(message)
        found.append(message)
    return found


@pytest.mark.requirement("SERVE-2", "CANVAS-7")
async def test_every_family_has_its_status_reason_and_details(failure: Callable[[BaseException], Any]) -> None:
    for error, code, expected in CASES:
        raised = await failure(error)
        info, *rest, request = details(rpc_status.from_call(raised))
        assert (raised.code(), raised.details()) == (code, error.message)
        assert info == rpc.ErrorInfo(reason=error.reason, domain="memotree")
        assert isinstance(request, rpc.RequestInfo)
        pairs = zip(rest, expected, strict=True)
        assert [found if isinstance(want, Message) else type(found) for found, want in pairs] == expected
    assert {type(error) for error, _, _ in CASES} | {MemoTreeError} == set(FAMILIES)


def test_the_nodes_of_an_error_are_sent_at_level_title() -> None:
    title = types_pb2.Node(id=NODE.id, archive_id="archive", type="note", title="A title")
    for node in (NODE, title):
        error = InvalidInputError("The prefix is ambiguous; give more of it.")
        error.nodes = [node] * 30  # type: ignore[attr-defined]  # an error may carry nodes
        info, listed, _ = details(to_status(error, "call"))
        assert isinstance(listed, types_pb2.NodeList)
        assert {each.level for each in listed.nodes} == {types_pb2.LEVEL_OF_DETAIL_TITLE}
        for each in listed.nodes:
            each.ClearField("level")
        assert list(listed.nodes) == [title] * 20
        assert info.metadata == {"omitted": "10"}


@pytest.mark.requirement("SERVE-2")
async def test_an_unexpected_error_shows_a_client_only_its_id_in_the_log(
    failure: Callable[[BaseException], Any], log_lines: list[Any]
) -> None:
    for error in (ValueError("/srv/secret"), MemoTreeError("secret"), KeyError("secret")):
        raised = await failure(error)
        line = [line for line in log_lines if line["event"] == "call"][-1]
        info, request = details(rpc_status.from_call(raised))
        assert raised.code() is Code.INTERNAL
        assert info == rpc.ErrorInfo(reason="INTERNAL", domain="memotree")
        assert re.fullmatch(r"[0-9a-f]{16}", request.request_id)
        assert raised.details().endswith(f"{request.request_id}.")
        assert "secret" not in raised.debug_error_string()
        assert (line["log_level"], line["exc_info"]) == ("error", error)


LIBRARY_ERRORS: list[tuple[BaseException, Any, str]] = [
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
    (asyncio.CancelledError(), Code.UNAVAILABLE, "INTERRUPTED"),
]


@pytest.mark.requirement("SERVE-2")
async def test_errors_of_libraries_become_statuses_that_a_client_can_act_on(
    failure: Callable[[BaseException], Any],
) -> None:
    for error, code, reason in LIBRARY_ERRORS:
        raised = await failure(error)
        assert (raised.code(), details(rpc_status.from_call(raised))[0].reason) == (code, reason), repr(error)
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


# --- The table of statuses, for server and client -------------------------------------------------------------------


@pytest.mark.requirement("SERVE-2")
def test_each_status_is_listed_once_and_families_and_classes_are_those_of_the_table() -> None:
    assert len({each.code for each in ERROR_STATUSES}) == len(ERROR_STATUSES) == len(CLIENT_CODES)
    assert len(FAMILY_CODES) == sum(bool(each.family) for each in ERROR_STATUSES)
    assert {kind.__name__: code for kind, code in FAMILIES.items()} == FAMILY_CODES
    assert all(kind.reason == code.name for kind, code in FAMILIES.items())
    classes = client_errors.MemoTreeClientError.__subclasses__()
    assert {kind.__name__: kind.code for kind in classes if kind.__module__ == client_errors.__name__} == CLIENT_CODES
    assert client_errors.MemoTreeClientError.code == "UNKNOWN"


def test_an_error_below_one_of_the_client_keeps_its_status() -> None:
    class StaleError(client_errors.AbortedError):
        pass

    assert StaleError.code == "ABORTED"


# --- The size of details ---------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=50) | st.builds(lambda text, times: text * times, st.text(max_size=5), st.integers(0, 3000))


def told(error: MemoTreeError) -> tuple[dict[str, str], Any]:
    """The facts about an error, and the detail that follows them."""
    info, detail, *_ = details(to_status(error, "call"))
    return dict(info.metadata), detail


def conflict(number: int, text: str) -> Conflict:
    return Conflict(ConflictKind.BOTH_CHANGED, f"node{number}", "content", text, text, text, "Choose one.")


def test_long_values_and_many_conflicts_are_cut_and_the_rest_is_counted() -> None:
    facts, only = told(AbortedError("Choose.", [conflict(0, "x" * 100_000)]))
    assert only.conflicts[0].our_value.text.endswith("… (100000 characters)")
    assert len(only.conflicts[0].our_value.text) > 900
    assert facts == {"shortened": "true"}
    error = AbortedError("Choose.", [conflict(number, "x" * 1000) for number in range(500)])
    facts, some = told(error)
    assert len(some.conflicts) > 5
    assert facts == {"shortened": "true", "omitted": str(500 - len(some.conflicts))}
    assert 0.9 * BUDGET < wire_size(to_status(error, "call")) <= BUDGET


def test_a_failed_precondition_always_has_a_violation() -> None:
    (only,) = told(FailedPreconditionError("Choose another."))[1].violations
    assert (only.type, only.subject, only.description) == ("FAILED_PRECONDITION", "", "Choose another.")


def test_a_long_message_of_any_script_is_cut() -> None:
    status = to_status(NotFoundError("记" * 10_000, "node", "忆" * 10_000), "call")
    assert status.message.endswith("记…")
    assert wire_size(status) <= BUDGET


@pytest.mark.requirement("STORE-8")
def test_an_error_about_an_endless_text_costs_no_more_than_one_about_a_long_text() -> None:
    counts = []
    for size in (10_000, 1_000_000):
        name = "\u200b" * size
        error = NotFoundError(f"There is no node {name!r}.", "node", name)
        with Steps() as steps:
            to_status(error, "call")
        counts.append(steps.count)
    assert counts[1] <= 1.1 * counts[0]


def test_a_lone_surrogate_does_not_hide_the_error() -> None:
    status = to_status(NotFoundError("There is no file \udcff; look again.", "file", "\udcff"), "call")
    assert status.message == "There is no file ?; look again."


@given(TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=30), st.integers(1, 60))
def test_no_error_ever_exceeds_the_budget(message: str, faults: list[tuple[str, str]], times: int) -> None:
    violations = [FieldViolation(field, description) for field, description in faults] * times
    conflicts = [
        Conflict(ConflictKind.BOTH_CHANGED, field, field, text, text, text, text) for field, text in faults
    ] * times
    for error in (
        InvalidInputError(message, violations),
        FailedPreconditionError(message, violations),
        AbortedError(message, conflicts),
    ):
        status = to_status(error, "0123456789abcdef")
        assert wire_size(status) <= BUDGET
        assert len(quote(status.message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")) <= wire_size(status)
