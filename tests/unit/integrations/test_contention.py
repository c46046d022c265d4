"""A writer that loses against others waits for random times and tries again, until it wins or its time is over."""

from collections.abc import Sequence
from typing import Any

import pytest
from langgraph.store.base import PutOp

from memotree.client import (
    AbortedError,
    AlreadyExistsError,
    Change,
    FailedPreconditionError,
    MemoTreeClientError,
    NotFoundError,
)
from memotree.integrations import contention, langgraph_store
from memotree.integrations.contention import LONGEST, Contention

pytestmark = pytest.mark.requirement("USE-6")

LOST = (
    AbortedError("Resolve the conflict in the session.", reason="CONFLICT"),
    AlreadyExistsError("The id was used.", reason="NODE_ID_TAKEN"),
    NotFoundError("There is no such node.", reason="NODE_NOT_FOUND"),
)
OF_NO_USE = (
    NotFoundError("There is no such workspace.", reason="WORKSPACE_NOT_FOUND"),
    FailedPreconditionError("The session is closed.", reason="SESSION_CLOSED"),
)


class FakeTime:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def now(self) -> float:
        return 1000.0 + sum(self.pauses)


class Writer:
    """An attempt that fails a number of times."""

    def __init__(self, losses: float, error: MemoTreeClientError) -> None:
        self.attempts = 0
        self._losses = losses
        self._error = error

    async def __call__(self) -> None:
        self.attempts += 1
        if self.attempts <= self._losses:
            raise self._error


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.mark.parametrize("error", LOST)
async def test_a_writer_that_lost_often_gets_its_turn_after_random_pauses_that_grow_to_a_limit(
    time: FakeTime, error: MemoTreeClientError
) -> None:
    writer = Writer(25, error)
    await Contention(time.pause, time.now).outlast(writer, "the items")
    assert (writer.attempts, len(set(time.pauses))) == (26, 25)
    limits = [min(0.05 * 2**number, 2.0) for number in range(25)]
    assert all(0 <= pause <= limit for pause, limit in zip(time.pauses, limits, strict=True))


async def test_the_error_at_the_end_says_what_to_do(time: FakeTime) -> None:
    with pytest.raises(AbortedError, match=r"Others changed the items .* Make the same call again later") as caught:
        await Contention(time.pause, time.now).outlast(Writer(float("inf"), LOST[0]), "the items")
    assert caught.value.reason == "CONFLICT"
    assert LONGEST <= sum(time.pauses) < LONGEST + 2.0


@pytest.mark.parametrize("error", OF_NO_USE)
async def test_an_error_that_another_attempt_does_not_mend_is_raised_at_once(
    time: FakeTime, error: MemoTreeClientError
) -> None:
    writer = Writer(float("inf"), error)
    with pytest.raises(type(error)) as caught:
        await Contention(time.pause, time.now).outlast(writer, "the items")
    assert (caught.value.reason, writer.attempts) == (error.reason, 1)


class BusyArchive:
    """An archive in which another writer is faster a number of times."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.written: list[Sequence[Change]] = []

    async def nodes(self, node_ids: Sequence[str]) -> list[None]:
        return [None] * len(node_ids)

    async def was_used(self, _: str) -> bool:
        return False

    async def change(self, changes: Sequence[Change], _: str) -> bool:
        if self.losses:
            self.losses -= 1
            raise LOST[0]
        self.written.append(changes)
        return True


def test_a_blocking_store_outlasts_other_writers_of_the_same_key(
    monkeypatch: pytest.MonkeyPatch, time: FakeTime
) -> None:
    archive, workspace = BusyArchive(25), object()
    monkeypatch.setattr(contention.time, "sleep", time.pauses.append)
    monkeypatch.setattr(langgraph_store, "ArchivePort", lambda *_: archive)
    store: Any = langgraph_store.MemoTreeStore(workspace)  # type: ignore[arg-type] # the archive is a fake
    store.batch([PutOp(("users", "ada"), "drink", {"text": "Ada prefers tea."})])
    assert len(archive.written) == 1
    assert len(time.pauses) == 25
