"""The same change of one commit onto several branches at one moment is one commit, as in Git.

Without a request id or a session, nothing tells the commits of one second apart.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from integration.damage import differences
from integration.histories import branch, git
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.model.node import Node

from memotree.history import committing
from memotree.memory import MemoryOperations
from memotree.sessions import immediate
from memotree.v1 import memory_service_pb2

pytestmark = pytest.mark.requirement("GIT-7", "STORE-2")

NAMES = [f"side-{number}" for number in range(4)]


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls take place within one second, however slow the machine is."""
    now = datetime.now(UTC)
    for module in (committing, immediate):
        monkeypatch.setattr(module, "datetime", SimpleNamespace(now=lambda _zone: now))


async def check_goes_on(sides: Sides, node: Node, made: Mapping[str, str]) -> None:
    """Each branch is at its commit and takes further ones, which the others do not have."""
    world = sides.world
    assert len(set(made.values())) < len(NAMES)
    for name, commit_id in made.items():
        assert git(world, "rev-parse", name).strip() == commit_id
    for name, commit_id in made.items():
        later = await world.put(replace(node, title=f"Later on {name}"), branch=name)
        assert git(world, "rev-parse", f"{name}^", name).split() == [commit_id, later]
        assert node.id in await world.alive(later)
    assert await differences(world) == []


async def test_a_revert(world: World, sides: Sides) -> None:
    node = world.node("Before")
    await world.put(node)
    await world.put(replace(node, title="Wrong"))
    for name in NAMES:
        await branch(sides.history, world, name)
    made = {name: (await sides.revert(branch=name)).commit_id for name in NAMES}
    await check_goes_on(sides, node, made)


@pytest.mark.parametrize("at_once", [False, True])
async def test_changes_that_are_committed_at_once(world: World, sides: Sides, at_once: bool) -> None:
    """Such commits are made in groups; two on each branch, so that one of a group may follow one that was there."""
    node, first, second = world.nodes(3)
    await world.put(node, first, second)
    for name in NAMES:
        await branch(sides.history, world, name)
    memory = MemoryOperations(world.store, world.limits)

    async def forget(name: str, gone: Node) -> str:
        request = memory_service_pb2.ForgetRequest(
            workspace=world.workspace, branch=name, node_id=gone.id, agent="an-agent"
        )
        return (await memory.forget(request)).commit_id

    if at_once:
        await asyncio.gather(*(forget(name, gone) for gone in (first, second) for name in NAMES))
    else:
        for gone in (first, second):
            for name in NAMES:
                await forget(name, gone)
    made = {name: git(world, "rev-parse", name).strip() for name in NAMES}
    await check_goes_on(sides, node, made)
