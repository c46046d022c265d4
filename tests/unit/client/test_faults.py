"""Failed calls: the client repeats repeatable ones, and its errors have all details that the server sent."""

import asyncio

import grpc
import pytest
from far_servers import far_away
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from unit.client.fake_memotree import FakeMemoTree
from unit.client.fake_state import RefusedError

from memotree.client import (
    AbortedError,
    AsyncClient,
    Client,
    Conflict,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    MemoTreeClientError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from memotree.v1 import types_pb2 as types

GONE = RefusedError(grpc.StatusCode.UNAVAILABLE, "PostgreSQL does not answer; try again.", "POSTGRES_UNAVAILABLE")


@pytest.mark.requirement("STORE-2")
def test_a_commit_that_meets_an_outage_or_whose_answer_is_lost_is_sent_again_and_made_once(
    client: Client, fake: FakeMemoTree
) -> None:
    client.create_workspace("demo")
    workspace = client.workspace("demo")
    session = workspace.session(agent="a")
    for name, fault in (("Once", "CommitChanges"), ("Twice", "CommitChanges answered")):
        session.create_archive(name)
        fake.fail(fault, GONE)
        assert session.commit(name).commit_id == next(workspace.log()).id
    assert [each.subject for each in workspace.log()] == ["Twice", "Once", "Begin"]
    ids = [each.request_id for each in fake.requests("CommitChanges")]
    assert ids == [ids[0], ids[0], ids[2], ids[2]]
    assert len({"", *ids}) == 3


async def test_the_asynchronous_client_repeats_in_the_same_way(fake: FakeMemoTree) -> None:
    async with AsyncClient(fake.address) as client:
        fake.fail("CreateWorkspace", GONE, GONE)
        await client.create_workspace("demo")
        assert len({request.request_id for request in fake.requests("CreateWorkspace")}) == 1
        fake.fail("ListWorkspaces", GONE)
        assert [each.name async for each in client.workspaces()] == ["demo"]


@pytest.mark.requirement("TOOL-4")
def test_a_call_that_a_busy_server_refuses_is_sent_again_as_it_advises_unless_that_is_late(
    client: Client, fake: FakeMemoTree
) -> None:
    def busy(reason: str, **delay: int) -> RefusedError:
        later = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(**delay))
        return RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Later.", reason, later)

    soon = busy("TOO_MANY_CALLS", nanos=10_000_000)
    fake.fail("GetStatus", soon, soon)
    client.status()
    assert len(fake.requests("GetStatus")) == 3
    fake.fail("GetStatus", *[soon] * 5, busy("TOOL_RATE_EXCEEDED", seconds=30, nanos=500_000_000))
    for reason, seconds, calls in (("TOO_MANY_CALLS", 0.01, 5), ("TOOL_RATE_EXCEEDED", 30.5, 1)):
        fake.calls.clear()
        with pytest.raises(ResourceExhaustedError) as caught:
            client.status()
        assert (caught.value.reason, caught.value.retry_after) == (reason, seconds)
        assert len(fake.requests("GetStatus")) == calls


@pytest.mark.parametrize("reason", ["MESSAGE_TOO_LARGE", ""])
def test_a_limit_that_another_try_would_meet_again_is_told_at_once(
    client: Client, fake: FakeMemoTree, reason: str
) -> None:
    fake.fail("GetStatus", RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "Send less.", reason))
    with pytest.raises(ResourceExhaustedError) as caught:
        client.status()
    assert (caught.value.reason, caught.value.violations, caught.value.retry_after) == (reason, (), None)
    assert len(fake.requests("GetStatus")) == 1


def test_a_call_without_a_request_id_that_changes_something_is_never_repeated(
    client: Client, fake: FakeMemoTree
) -> None:
    client.create_workspace("demo")
    fake.fail("CreateBranch", GONE)
    with pytest.raises(UnavailableError):
        client.workspace("demo").branch("trial")
    assert len(fake.requests("CreateBranch")) == 1


@pytest.mark.parametrize("name", ["ABORTED", "INTERNAL", "DEADLINE_EXCEEDED", "OUT_OF_RANGE"])
def test_other_statuses_are_not_repeated(client: Client, fake: FakeMemoTree, name: str) -> None:
    fake.fail("GetStatus", RefusedError(grpc.StatusCode[name], "No.", ""))
    with pytest.raises(MemoTreeClientError) as caught:
        client.status()
    found = (caught.value.code, type(caught.value) is MemoTreeClientError)
    assert found == (("UNKNOWN", True) if name == "OUT_OF_RANGE" else (name, False)), "that one is of no family"
    assert len(fake.requests("GetStatus")) == 1


@pytest.mark.requirement("SERVE-1")
def test_every_call_has_a_deadline_and_bounded_attempts(fake: FakeMemoTree) -> None:
    with Client(fake.address, timeout=700.0) as client:
        client.status()
    assert 0 < (fake.deadlines[-1] or 0) < 750
    fake.calls.clear()
    fake.fail("GetStatus", *[GONE] * 9)
    with Client(fake.address, attempts=3) as client, pytest.raises(UnavailableError) as caught:
        client.status()
    assert (caught.value.reason, len(fake.requests("GetStatus"))) == ("POSTGRES_UNAVAILABLE", 3)
    with Client(fake.address, timeout=0.000001) as client, pytest.raises(DeadlineExceededError):
        client.status()


@pytest.mark.requirement("SERVE-2")
def test_violations_conflicts_and_candidates_are_returned(client: Client) -> None:
    client.create_workspace("demo")
    session = client.workspace("demo").session()
    archive = session.create_archive("notes")
    with pytest.raises(InvalidArgumentError) as caught:
        session.create("", archive="notes")
    assert (caught.value.reason, caught.value.metadata) == ("INVALID_TITLE", {"seen": "yes"})
    assert caught.value.violations == (Violation("title", "Give one line."),)
    assert str(caught.value) == caught.value.message == "title: give one line."
    first = session.create("A", "x", archive=archive, node_id="abcd" + "1" * 12)
    session.create("B", "x", archive=archive, node_id="abcd" + "2" * 12)
    with pytest.raises(AbortedError) as clash:
        session.update(first, content="z", etag="stale")
    texts = ("a", "b", "c")
    told = Conflict(first.id, "content", *texts, "Both sides changed the content.", *texts)
    assert clash.value.conflicts == (told,)
    with pytest.raises(InvalidArgumentError) as ambiguous:
        session.node("abcd")
    assert [node.title for node in ambiguous.value.nodes] == ["A", "B"]


def test_every_kind_of_detail_is_read_and_unknown_ones_are_ignored(client: Client, fake: FakeMemoTree) -> None:
    failure = error_details_pb2.PreconditionFailure()
    failure.violations.add(type="STATE", subject="session", description="It is closed.")
    resource = error_details_pb2.ResourceInfo(resource_type="session", resource_name="abc")
    details = (failure, resource, error_details_pb2.Help(), types.ConflictList())
    fake.fail("GetStatus", RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "It is closed.", "CLOSED", *details))
    with pytest.raises(FailedPreconditionError) as caught:
        client.status()
    assert caught.value.violations == (Violation("session", "It is closed."),)
    assert caught.value.metadata == {"seen": "yes", "resource_type": "session", "resource_name": "abc"}


async def test_a_stream_that_fails_raises_the_same_errors(fake: FakeMemoTree) -> None:
    def verify() -> None:
        with Client(fake.address) as client:
            list(client.workspace("nowhere").verify())

    with pytest.raises(NotFoundError):
        await asyncio.to_thread(verify)
    async with AsyncClient(fake.address) as client:
        with pytest.raises(NotFoundError):
            _ = [event async for event in client.workspace("nowhere").rebuild()]


def test_the_error_for_a_request_that_is_too_large_names_the_setting(client: Client, fake: FakeMemoTree) -> None:
    told = "SERVER: Received message larger than max (20724047 vs. 16777216)"
    fake.fail("GetStatus", RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, told, ""))
    with pytest.raises(ResourceExhaustedError, match=r"has 20,724,047 bytes.* at most 16,777,216.*max_message_bytes"):
        client.status()


async def test_a_server_far_away_is_reached_by_the_first_call(fake: FakeMemoTree) -> None:
    async with (
        far_away(int(fake.address.rpartition(":")[2])) as far,
        AsyncClient(f"127.0.0.1:{far}", timeout=300.0, attempts=1) as client,
    ):
        await client.create_workspace("demo")
    assert len(fake.requests("CreateWorkspace")) == 1
