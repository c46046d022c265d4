"""The default branch keeps its line beside branches that are merged into it by fast-forwards."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from integration.histories import branch, git
from integration.pushes import differences, rows, somebody_waits
from integration.worlds import World
from memotree_storage.index.search import SearchQuery
from memotree_storage.ports import IndexPoint
from memotree_storage.postgres import line_joins
from memotree_storage.postgres.search_reads import lineage_of
from memotree_storage.postgres.tree import Snapshot, State

from memotree.history import HistoryOperations

pytestmark = pytest.mark.requirement("STORE-9", "GIT-8")


async def lines(world: World, name: str = "main") -> int:
    """The number of lines in the lineage of a branch."""
    state = State(world.workspace, await world.head(name))
    async with world.store.database.connection() as conn:
        return len(await lineage_of(Snapshot(conn, state)))


async def fast_forward(world: World, to: str) -> None:
    """Move the default branch to a branch as a push does."""
    git(world, "update-ref", "refs/heads/main", f"refs/heads/{to}")
    await world.store.catch_up(world.workspace)


async def titles(world: World, commit_id: str) -> list[str]:
    hits = await world.store.search.find(State(world.workspace, commit_id), SearchQuery("apple", 50, meaning=True))
    return sorted(hit.version.title for hit in hits)


@pytest.mark.parametrize("commits_between", [False, True])
@pytest.mark.parametrize("indexed", [False, True], ids=["not indexed yet", "indexed"])
async def test_fast_forwards_make_no_lineage_longer(
    world: World, history: HistoryOperations, commits_between: bool, indexed: bool
) -> None:
    (node, other) = world.nodes(2, content="apple")
    seen = {await world.put(node, other): ["Node 0", "Node 1"]}
    for number in range(4):
        name = f"step-{number}"
        await branch(history, world, name)
        node = replace(node, title=f"Step {number}")
        made = world.node(f"New {number}", content="apple")
        seen[await world.put(node, branch=name)] = []
        seen[await world.put(made, branch=name, delete=[other] if number == 2 else [])] = []
        if indexed:
            await world.store.indexer.drain(world.workspace)
        await fast_forward(world, name)
        assert await lines(world) == await lines(world, name) == 1
        if commits_between:
            seen[await world.put(replace(other, title=f"Other {number}") if number < 2 else world.node())] = []
    for commit_id in seen:
        seen[commit_id] = await titles(world, commit_id)
    assert await differences(world.store, world.workspace) == []
    await world.store.rebuild(world.workspace)
    assert {commit_id: await titles(world, commit_id) for commit_id in seen} == seen
    assert "Step 3" in seen[await world.head()]


async def test_what_forked_from_a_joined_line_reads_as_before(world: World, history: HistoryOperations) -> None:
    nodes = world.nodes(3, content="apple")
    first = await world.put(*nodes)
    await branch(history, world, "side")
    await world.put(replace(nodes[0], title="Of side"), branch="side")
    await branch(history, world, "twig", "side")
    await world.put(replace(nodes[1], title="Of side too"), branch="side")
    await world.put(replace(nodes[1], title="Of the twig"), delete=[nodes[0]], branch="twig")
    session_id = await world.open("twig")
    await world.stage(session_id, replace(nodes[2], title="Staged"))
    before = {name: await world.alive(await world.head(name)) for name in ("side", "twig")}
    await fast_forward(world, "side")
    assert (await lines(world), await lines(world, "twig")) == (1, 2)
    assert {name: await world.alive(await world.head(name)) for name in before} == before
    assert await titles(world, await world.head()) == ["Node 2", "Of side", "Of side too"]
    assert await titles(world, await world.head("twig")) == ["Node 2", "Of the twig"]
    assert await titles(world, first) == ["Node 0", "Node 1", "Node 2"]
    assert await differences(world.store, world.workspace) == []
    await world.commit(session_id)
    assert await titles(world, await world.head("twig")) == ["Of the twig", "Staged"]
    await world.put(replace(nodes[0], title="Of main"))
    assert await lines(world) == 1


async def test_a_branch_whose_line_goes_on_elsewhere_is_not_joined(world: World, history: HistoryOperations) -> None:
    nodes = world.nodes(2)
    await world.put(*nodes)
    await branch(history, world, "side")
    await world.put(replace(nodes[0], title="Of side"), branch="side")
    await branch(history, world, "kept")
    await world.put(replace(nodes[1], title="Of main"))
    await fast_forward(world, "side")
    assert await lines(world) == 2
    assert await differences(world.store, world.workspace) == []


@pytest.mark.own_store
async def test_a_row_is_moved_once(world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join costs what the fast-forward brought, whatever there was before."""
    moved: list[int] = []
    fetched = line_joins.fetched

    async def counted(cursor: object) -> list[tuple[int]]:
        found = await fetched(cursor)  # type: ignore[type-var,arg-type]  # a stand-in with the same arguments
        moved.append(len(found))
        return found  # type: ignore[return-value]

    await world.put(*world.nodes(40))
    monkeypatch.setattr(line_joins, "fetched", counted)
    for number in range(3):
        await branch(history, world, f"step-{number}")
        await world.put(world.node(f"Of step {number}"), branch=f"step-{number}")
        await fast_forward(world, f"step-{number}")
    assert sum(moved) == 3
    assert len(await rows(world.store, "select from mirror.line where workspace_id = %s", world.workspace)) == 1


@pytest.mark.own_store
async def test_lines_are_joined_after_a_batch_of_the_indexer(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would write points of the old line, and mark them as written."""
    await branch(history, world, "side")
    await world.store.indexer.drain(world.workspace)
    upsert, begun, may_end = world.store.index.upsert, asyncio.Event(), asyncio.Event()

    async def slow(points: Sequence[IndexPoint]) -> None:
        if points:
            begun.set()
            await may_end.wait()
        await upsert(points)

    monkeypatch.setattr(world.store.index, "upsert", slow)
    await world.put(world.node("apple", content="apple"), branch="side")
    await begun.wait()
    joining = asyncio.create_task(fast_forward(world, "side"))
    await somebody_waits(world.store)
    may_end.set()
    await joining
    assert await titles(world, await world.head()) == ["apple"]
    assert await differences(world.store, world.workspace) == []
