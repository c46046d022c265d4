"""What a nearer line or a session hides costs a search nothing: the index leaves it out, however much it is."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest
from integration.histories import branch, delete_branch
from integration.pushes import rows
from integration.worlds import World
from memotree_storage.index import search
from memotree_storage.index.search import SearchQuery
from memotree_storage.maintenance.line_collection import collect_unreachable_lines
from memotree_storage.model.node import Node
from memotree_storage.ports import IndexHit, IndexQuery
from memotree_storage.postgres.search_reads import lineage_of
from memotree_storage.postgres.tree import Snapshot, State

from memotree.history.operations import HistoryOperations

_MANY: Final = 45
_QUERY: Final = SearchQuery("apple", 1, meaning=True)


def _counted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of candidates of each question to the index from now on."""
    asked: list[int] = []

    def counted(ask: Callable[..., Awaitable[list[IndexHit]]]) -> Callable[..., Awaitable[list[IndexHit]]]:
        async def told(query: IndexQuery, wanted: object) -> list[IndexHit]:
            found = await ask(query, wanted)
            asked.append(len(found))
            return found

        return told

    for name in ("nearest", "best_terms"):
        monkeypatch.setattr(world.store.index, name, counted(getattr(world.store.index, name)))
    return asked


async def _apples(world: World) -> list[Node]:
    """Many nodes of one word, and one that is found last, since it is longer."""
    nodes = [replace(node, title="apple", content="apple") for node in world.nodes(_MANY)]
    last = replace(world.nodes(1)[0], title="pear", content="an apple among " + "other words " * 20)
    await world.put(*nodes, last)
    return [*nodes, last]


async def _branch(world: World, name: str, revision: str = "main") -> None:
    await branch(HistoryOperations(world.store, world.pages, world.limits), world, name, revision)


async def _found(world: World, commit_id: str, session_id: str | None = None) -> list[str]:
    hits = await world.store.search.find(State(world.workspace, commit_id, session_id), _QUERY)
    return [hit.version.title for hit in hits]


async def test_a_branch_or_session_that_deleted_most_hits_finds_the_one_that_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, last = await _apples(world)
    await _branch(world, "side")
    await world.store.indexer.drain(world.workspace)  # so that the points are there before they are overridden
    await world.put(delete=others, branch="side")
    session_id = await world.open()
    await world.stage(session_id, delete=others)
    await world.store.indexer.drain(world.workspace)
    asked = _counted(world, monkeypatch)
    assert await _found(world, await world.head("side")) == [last.title]
    assert await _found(world, await world.head(), session_id) == [last.title]
    assert asked == [1, 1, 1, 1]
    assert await _found(world, await world.head("main")) == ["apple"]


async def test_an_older_commit_of_a_branch_finds_what_the_branch_overrode_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, last = await _apples(world)
    await _branch(world, "side")
    first = await world.put(delete=others[:30], branch="side")
    await world.put(*(replace(node, title="plum", content="a plum") for node in others[30:]), branch="side")
    await world.store.rebuild(world.workspace)
    await world.store.indexer.drain(world.workspace)
    asked = _counted(world, monkeypatch)
    assert await _found(world, first) == ["apple"]
    assert await _found(world, await world.head("side")) == [last.title]
    assert len(asked) == 4


@pytest.mark.own_store
async def test_hits_that_the_index_has_not_heard_of_use_up_no_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index may be told late, for example while a model is away; then a search asks until its answer is full."""
    monkeypatch.setattr(search, "_MOST_CANDIDATES", 20)  # which is a limit only of a search among very many given ids
    *others, last = await _apples(world)
    await world.store.indexer.drain(world.workspace)
    await world.store.indexer.stop()
    await world.put(delete=others)

    async def told(*_: object, **__: object) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr(world.store.indexer, "current", told)
        asked = _counted(world, patch)
        assert await _found(world, await world.head()) == [last.title]
    assert max(asked) == _MANY + 1


@pytest.mark.parametrize("rebuilt", [False, True])
async def test_the_default_branch_keeps_its_line_beside_forks(world: World, rebuilt: bool) -> None:
    """Each branch commits first, from the head of the default branch, and so would take its line."""
    (node,) = world.nodes(1)
    await world.put(node)
    for number in range(5):
        await _branch(world, f"side-{number}")
        await world.put(replace(node, title=f"Side {number}"), branch=f"side-{number}")
        await world.put(replace(node, title=f"Main {number}"))
    await _branch(world, "twig", "side-4")
    await world.put(replace(node, title="Twig"), branch="twig")
    await world.put(replace(node, title="Side 5"), branch="side-4")
    if rebuilt:
        await world.store.rebuild(world.workspace)
    assert await _lineage(world, "main") == 1
    assert [await _lineage(world, f"side-{number}") for number in range(5)] == [2] * 5
    assert await _lineage(world, "twig") == 3


async def test_a_branch_that_goes_on_from_a_deleted_one_takes_its_line(
    world: World, history: HistoryOperations
) -> None:
    (node,) = world.nodes(1)
    await world.put(node)
    await _branch(world, "step-0")
    for number in range(5):
        await world.put(replace(node, title=f"Step {number}"), branch=f"step-{number}")
        await _branch(world, f"step-{number + 1}", f"step-{number}")
        await delete_branch(history, world, f"step-{number}")
    assert await _lineage(world, "step-5") == 2


@pytest.mark.own_store
async def test_a_collected_line_overrides_nothing_any_more(world: World, history: HistoryOperations) -> None:
    *others, _ = await _apples(world)
    await _branch(world, "side")
    await world.put(delete=others, branch="side")
    await world.store.indexer.drain(world.workspace)
    await delete_branch(history, world, "side")
    lock = world.store.locks.workspaces.of(world.workspace)
    assert len(await collect_unreachable_lines(world.store.database, world.workspace, world.repository, lock)) == 1
    assert await rows(world.store, "select count(*) from mirror.overridden") == [(0,)]
    await _branch(world, "again")
    await world.put(delete=others[1:], branch="again")
    assert await _found(world, await world.head("again")) == ["apple"]


async def _lineage(world: World, branch: str) -> int:
    """The number of lines in the lineage of a branch."""
    commit_id = await world.head(branch)
    async with world.store.database.connection() as conn:
        return len(await lineage_of(Snapshot(conn, State(world.workspace, commit_id))))
