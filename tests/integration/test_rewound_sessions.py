"""Sessions of a branch that a push has moved back or aside say so, commit nothing, and are carried over by a rebase."""

from dataclasses import replace

import psycopg
import pytest
from integration.pushes import OpenAgain, push, rewind, session_of
from integration.worlds import World
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.postgres.sessions import SessionRewoundError

from memotree.v1 import session_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-8")


async def rebase(world: World, session_id: str, *, keep_conflicts: bool = False) -> pb.Session:
    request = pb.RebaseSessionRequest(workspace=world.workspace, session_id=session_id, keep_conflicts=keep_conflicts)
    return (await world.sessions.rebase_session(request)).session


async def test_a_session_says_that_its_branch_was_rewound_and_is_carried_over(world: World) -> None:
    kept, gone, new = world.nodes(3)
    first = await world.put(kept)
    await world.put(gone)
    session_id = await world.open()
    await world.stage(session_id, replace(kept, title="Edited"), new)
    await rewind(world, first)
    request = pb.GetSessionRequest(workspace=world.workspace, session_id=session_id)
    assert (await world.sessions.get_session(request)).session.rewound
    with pytest.raises(SessionRewoundError) as refused:
        await world.commit(session_id)
    assert "RebaseSession" in refused.value.message
    assert await world.head() == first, "nothing was written"
    rebased = await rebase(world, session_id)
    assert (rebased.rewound, rebased.base_commit_id, rebased.change_count) == (False, first, 2)
    alive = await world.alive(await world.commit(session_id))
    assert set(alive) == {world.archive.id, kept.id, new.id}


async def test_an_edit_of_what_the_rewind_took_away_is_a_conflict_that_is_kept(world: World) -> None:
    node = world.node()
    first = await world.head()
    await world.put(node)
    session_id = await world.open()
    await world.stage(session_id, replace(node, title="Edited"))
    await rewind(world, first)
    with pytest.raises(ConflictError):
        await rebase(world, session_id)
    assert (await session_of(world, session_id)).rewound
    rebased = await rebase(world, session_id, keep_conflicts=True)
    assert (rebased.rewound, rebased.conflict_count) == (False, 1)


async def test_a_push_that_a_commit_meets_first_is_noticed_by_it(world: World) -> None:
    first = await world.head()
    await world.put(world.node())
    session_id = await world.open()
    await world.stage(session_id, world.node("Mine"))
    name = "refs/heads/main"
    assert world.repository.move_ref(name, world.repository.ref(name), first)
    with pytest.raises(SessionRewoundError):
        await world.commit(session_id)
    push(world, "main", world.node("Theirs"))
    with pytest.raises(SessionRewoundError):
        await world.commit(session_id)


async def test_a_branch_that_moves_on_or_comes_back_rewinds_no_session(world: World, again: OpenAgain) -> None:
    first = await world.head()
    second = await world.put(world.node())
    behind, at_head = await world.open(), await world.open()
    for session_id in (behind, at_head):
        await world.stage(session_id, world.node("Mine"))
    push(world, "main", world.node("Theirs"))
    await world.store.catch_up(world.workspace)
    assert not (await session_of(world, behind)).rewound
    await rewind(world, first)
    assert (await session_of(world, behind)).rewound
    await rewind(world, second)
    assert not (await session_of(world, behind)).rewound
    await world.commit(behind)
    await rewind(world, first)
    await world.store.close()
    async with again() as store:
        assert (await session_of(world.on(store), at_head)).rewound, "it outlives the server"


async def test_a_rewind_is_noticed_although_the_mirror_was_lost_meanwhile(
    world: World, again: OpenAgain, database_url: str
) -> None:
    first = await world.head()
    await world.put(world.node())
    session_id, other = await world.open(), await world.open()
    await world.stage(session_id, world.node("Mine"))
    await world.store.close()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute("drop schema mirror cascade")
    name = "refs/heads/main"
    assert world.repository.move_ref(name, world.repository.ref(name), first)
    async with again() as store:
        reopened = world.on(store)
        assert (await session_of(reopened, session_id)).rewound
        assert (await session_of(reopened, other)).rewound
        with pytest.raises(SessionRewoundError):
            await reopened.commit(session_id)
        await store.rebuild(world.workspace)
        assert (await session_of(reopened, session_id)).rewound, "a rebuild forgets nothing of it"
