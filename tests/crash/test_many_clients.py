"""Many clients commit, merge and push on eight branches at once: nothing acknowledged is lost, nobody gets stuck.

Each client edits notes of its own, one for each branch, and one that all share. What the server or git accepts must be
on its branch at the end; what is refused must be refused with a reason.
"""

import asyncio
import subprocess
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from campaigns import TIMES, dice
from crash.service import Service, running
from integration.test_push_hook import Clone
from memotree_storage.model.codec import decode_entry, encode_entry
from memotree_storage.model.node import Node

from memotree.client import AbortedError, AsyncClient, Difference
from memotree.client.workspace import AsyncWorkspace

pytestmark = [pytest.mark.campaign, pytest.mark.requirement("GIT-6", "GIT-8", "STORE-2"), pytest.mark.timeout(600)]

BRANCHES = tuple(f"branch-{number}" for number in range(8))
CLIENTS = 32 if TIMES else 16
PUSHERS = 4
STEPS = 24 if TIMES else 6
PATIENCE = 500.0
"""Seconds after which a call counts as stuck: only a deadlock reaches it."""


@dataclass
class Told:
    """What the server and git have said.

    Attributes:
        commits: What was acknowledged: branch and commit.
        values: The last acknowledged content of a node on its own branch, by branch and node.
        outcomes: How many calls of each kind ended how.
    """

    commits: list[tuple[str, str]] = field(default_factory=list)
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)

    def refused(self, what: str, error: AbortedError, *, conflicts: bool = True) -> None:
        """Note a refusal, which must have a reason; and conflicts only where others change the same."""
        assert error.reason, error
        assert conflicts or not error.conflicts, error
        self.outcomes[f"{what}: {error.reason}"] += 1


async def edit(notes: AsyncWorkspace, told: Told, branch: str, node_id: str, text: str, *, own: bool) -> None:
    """Change a note in a session, and commit."""
    session = await notes.session(branch=branch, agent="many")
    await session.update(node_id, content=text)
    try:
        commit_id = (await session.commit("Change a note")).commit_id
    except AbortedError as error:
        told.refused("commit", error, conflicts=not own)
    else:
        told.commits.append((branch, commit_id))
        told.outcomes["commit"] += 1
        if own:
            told.values[branch, node_id] = text
    finally:
        await session.discard()


async def merge(notes: AsyncWorkspace, told: Told, source: str, into: str) -> None:
    try:
        merged = await notes.merge(source, into)
    except AbortedError as error:
        told.refused("merge", error)
    else:
        told.commits.append((into, merged.commit_id))
        told.outcomes["merge"] += 1


async def client(service: Service, told: Told, own: dict[str, str], shared: str, seed: int) -> None:
    chance = dice("client", seed)
    async with AsyncClient(service.address, timeout=PATIENCE) as connected:
        notes = connected.workspace("notes")
        for step in range(STEPS):
            branch = chance.choice(BRANCHES)
            kind = chance.random()
            if kind < 0.6:
                await edit(notes, told, branch, own[branch], f"Client {seed}, step {step}.", own=True)
            elif kind < 0.75:
                await edit(notes, told, branch, shared, f"All of us; client {seed}, step {step}.", own=False)
            else:
                await merge(notes, told, chance.choice([one for one in BRANCHES if one != branch]), branch)


def push(clone: Clone, told: Told, branch: str, node_id: str, text: str) -> None:
    """Change a note with git on the branch as it is now, and push until nobody was faster, a few times at most."""
    for _ in range(5):
        clone.run("fetch", "-q", "origin")
        clone.run("checkout", "-q", "-B", branch, f"origin/{branch}")
        (path,) = clone.folder.glob(f"nodes/*/*/{node_id}*")
        node = decode_entry(path.relative_to(clone.folder).as_posix(), path.read_bytes())
        assert isinstance(node, Node)
        path.write_bytes(encode_entry(replace(node, content=text)))
        clone.commit()
        commit_id = (clone.folder / ".git" / "refs" / "heads" / branch).read_text().strip()
        try:
            clone.run("push", "-q", "origin", branch)
        except subprocess.CalledProcessError as error:
            if "rejected" not in error.stderr:
                raise
            told.outcomes["push: rejected"] += 1
        else:
            told.commits.append((branch, commit_id))
            told.values[branch, node_id] = text
            told.outcomes["push"] += 1
            return


async def pusher(clone: Clone, told: Told, own: dict[str, str], seed: int) -> None:
    chance = dice("pusher", seed)
    for step in range(STEPS // 2):
        branch = chance.choice(BRANCHES)
        await asyncio.to_thread(push, clone, told, branch, own[branch], f"Pusher {seed}, step {step}.")


def commits_of(repository: Path, branch: str) -> set[str]:
    listed = ["git", "-C", str(repository), "rev-list", f"refs/heads/{branch}"]
    return set(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split())  # noqa: S603


async def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    told = Told()
    async with (
        running(tmp_path / "data", tmp_path / "server.log") as service,
        AsyncClient(service.address, timeout=PATIENCE) as connected,
    ):
        made = await connected.create_workspace("notes")
        notes = connected.workspace("notes")
        async with notes.session(agent="many") as session:
            archive = (await session.create_archive("notes")).id
            shared = (await session.create("Shared", "All of us.", archive=archive)).id
            own = [
                {
                    branch: (await session.create(f"{one} {branch}", "Nothing.", archive=archive)).id
                    for branch in BRANCHES
                }
                for one in range(CLIENTS)
            ]
            await session.commit("Begin")
        for branch in BRANCHES:
            await notes.branch(branch)
        repository = service.data / made.repository
        clones = [Clone(tmp_path / f"clone-{number}", repository) for number in range(PUSHERS)]
        async with asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS - PUSHERS):
                tasks.create_task(client(service, told, own[number], shared, number))
            for number, clone in enumerate(clones):
                tasks.create_task(pusher(clone, told, own[CLIENTS - 1 - number], CLIENTS + number))
        assert {"commit", "push"} <= told.outcomes.keys(), told.outcomes
        assert any(what.startswith("merge") for what in told.outcomes), told.outcomes
        for branch in BRANCHES:
            acknowledged = {commit_id for onto, commit_id in told.commits if onto == branch}
            assert acknowledged <= await asyncio.to_thread(commits_of, repository, branch)
            nodes = {node_id: text for (onto, node_id), text in told.values.items() if onto == branch}
            for node_id, text in nodes.items():
                assert (await notes.at(branch).node(node_id)).content.rstrip("\n") == text
        assert [each async for each in notes.verify() if isinstance(each, Difference)] == []
