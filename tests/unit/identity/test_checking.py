"""The check around streams: one that runs is checked again when keys or roles change, and when its proof ends."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from memotree.identity.errors import KeyRefusedError, RoleMissingError
from memotree.request.principal import Principal, acting_as, principal
from memotree.server.checking import checked
from memotree.v1 import maintenance_service_pb2 as pb

pytestmark = pytest.mark.requirement("SERVE-3")

ADA = Principal("ada", key_id="a key")


class Watched:
    """A stream of three messages, whose check answers what the test has set."""

    def __init__(self) -> None:
        self.changes = 0
        self.admitted: list[Principal] = []
        self.now: Principal | Exception = ADA
        self.callers: list[str] = []
        self.closed = False

    async def admit(self, _call: str, _request: object, who: Principal) -> Principal:
        self.admitted.append(who)
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    async def verify_workspace(self, _request: object) -> AsyncIterator[pb.VerifyWorkspaceResponse]:
        try:
            for done in range(3):
                self.callers.append(principal().email)
                yield pb.VerifyWorkspaceResponse(progress=pb.Progress(done=done))
        finally:
            self.closed = True

    def stream(self) -> AsyncGenerator[Any]:
        found: Any = checked({"MaintenanceService": self}, self.admit, lambda: self.changes)["MaintenanceService"]
        stream: AsyncGenerator[Any] = found.verify_workspace(pb.VerifyWorkspaceRequest())
        return stream


async def test_a_stream_is_checked_once_more_for_each_change_and_goes_on_with_the_new_roles() -> None:
    watched = Watched()
    with acting_as(ADA):
        assert len([each async for each in watched.stream()]) == 3
        assert watched.admitted == [ADA], "once while nothing changes"
        async with aclosing(watched.stream()) as stream:
            await anext(stream)
            watched.changes += 2
            watched.now = replace(ADA, email="new@example.org")
            assert len([each async for each in stream]) == 2
    assert watched.admitted == [ADA, ADA, ADA]
    assert watched.callers[3:] == ["", "", "new@example.org"]


@pytest.mark.parametrize(
    "error",
    [KeyRefusedError(), RoleMissingError("ada", "VerifyWorkspace", "WRITER", "here")],
    ids=lambda each: each.reason,
)
async def test_a_stream_whose_key_or_role_is_gone_ends_before_its_next_message(error: Exception) -> None:
    watched = Watched()
    with acting_as(ADA):
        async with aclosing(watched.stream()) as stream:
            await anext(stream)
            watched.changes += 1
            watched.now = error
            with pytest.raises(type(error)):
                await anext(stream)
    assert watched.closed


async def test_a_stream_whose_proof_has_ended_ends_before_its_next_message() -> None:
    watched = Watched()
    watched.now = replace(ADA, expires_at=datetime.now(UTC))  # it ends as soon as it was admitted
    with acting_as(ADA):
        async with aclosing(watched.stream()) as stream:
            await anext(stream)
            assert watched.admitted == [ADA, watched.now]
            watched.now = KeyRefusedError()
            with pytest.raises(KeyRefusedError):
                await anext(stream)
    assert watched.closed
