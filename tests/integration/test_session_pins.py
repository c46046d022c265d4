"""The refs that protect the base commits of sessions, when the moves of a ref end in another order than the changes."""

from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.model.workspace import KEEP_PREFIX

from memotree.v1 import session_service_pb2 as sessions_pb

pytestmark = [pytest.mark.requirement("CANVAS-8"), pytest.mark.own_store]


@pytest.fixture
async def late(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Coroutine[Any, Any, None]]]:
    """The work that calls leave to the background, which does not begin by itself."""
    works = list[Coroutine[Any, Any, None]]()
    monkeypatch.setattr(world.store.background, "start", works.append)
    yield works
    for work in works:
        work.close()


def kept(world: World, session_id: str) -> str | None:
    """The commit that the ref of a session protects."""
    return world.repository.ref(KEEP_PREFIX + session_id)


async def test_a_late_move_after_a_commit_does_not_bring_back_the_ref_of_a_discarded_session(
    world: World, late: list[Coroutine[Any, Any, None]]
) -> None:
    session_id = await world.open()
    await world.stage(session_id, world.node())
    await world.commit(session_id)
    await world.sessions.discard_session(
        sessions_pb.DiscardSessionRequest(workspace=world.workspace, session_id=session_id)
    )
    while late:
        await late.pop()
    assert kept(world, session_id) is None


async def test_late_moves_after_two_commits_in_reverse_order_protect_the_last(
    world: World, late: list[Coroutine[Any, Any, None]]
) -> None:
    session_id = await world.open()
    for number in range(2):
        await world.stage(session_id, world.node(f"Node {number}"))
        head = await world.commit(session_id)
    while late:
        await late.pop()
    assert kept(world, session_id) == head
