"""The server is killed in the middle of an erasure: afterwards the old or the new history is there, whole.

The next server ends the work. At every moment the repository is one that git reads without a fault.
"""

import asyncio
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from campaigns import budget, dice, points
from crash.filled_folders import FilledFolders
from crash.service import Service, running, start
from integration.leftovers import files_with

from memotree.client import AsyncClient, Difference, JobState, UnavailableError

pytestmark = [pytest.mark.requirement("GIT-10", "STORE-1"), pytest.mark.timeout(180)]

SECRET = "Ranunkel-5519"  # noqa: S105 - of nobody
POINTS = (
    "erase.rewritten",
    "erase.completed",
    "erase.before-switch",
    "erase.place-empty",
    "erase.refs-aside",
    "erase.switched",
    "erase.before-commit",
    "erase.mark-removed",
    "erase.old-removed",
    "erase.rows-removed",
    "erase.text-forgotten",
    "erase.compacted",
)


async def prepare(service: Service) -> tuple[str, str, str, str]:
    """Make a workspace with the secret in a node, on a branch and staged; a node, a commit, a session, a phrase."""
    async with AsyncClient(service.address) as client:
        await client.create_workspace("garden")
        garden = client.workspace("garden")
        made = await garden.remember(f"The word is {SECRET}.", title="Word")
        for number in range(12):
            await garden.remember(f"Note {number}.")
        await garden.branch("idea")
        session = await garden.session(branch="idea", agent="bee")
        await session.create("Staged", f"And {SECRET}.", archive="notes")
        preview = await garden.preview_erasure(text=SECRET)
    return made.node.id, made.commit_id, session.id, preview.phrase


def fsck(data: Path) -> str:
    """What git finds wrong with the only repository there is, which may have stepped aside."""
    (repository,) = data.glob("workspaces/[!.]*.git")
    command = ["git", "-c", "safe.directory=*", "-C", str(repository), "fsck", "--strict", "--no-dangling"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout  # noqa: S603


async def ended(data: Path, log: Path, made: tuple[str, str, str, str]) -> None:
    """The next server ends the erasure, and everything else is as it was."""
    node, commit, session, _ = made
    async with running(data, log) as service:
        assert fsck(data) == ""
        async with AsyncClient(service.address) as client:
            garden = client.workspace("garden")
            (job,) = [each async for each in garden.jobs(kind="erase")]
            async for each in client.watch_job(job):
                job = each
            assert job.state is JobState.SUCCEEDED, job.message
            assert [each async for each in garden.verify() if isinstance(each, Difference)] == []
            assert (await garden.at(commit).node(node)).content == "The word is erased."
            assert len([each async for each in garden.log()]) == 14
            staged = garden.resume(session)
            assert [each.title async for each in staged.changes()] == ["Staged"]
            await staged.commit("What was staged")
            assert [each.id async for each in garden.erasures()] == [job.id]
        assert files_with(data, SECRET.encode()) == []
        assert not await asyncio.to_thread(lambda: list(data.glob("workspaces/.*")))
        assert await service.stop() == 0
    assert fsck(data) == ""


@pytest.mark.parametrize("point", points("erase", POINTS, hardest="erase.place-empty"))
async def test_a_killed_erasure_is_ended_by_the_next_server(filled: FilledFolders, tmp_path: Path, point: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    made = await filled.copy(data, prepare)
    async with running(data, log, fault=point) as service, AsyncClient(service.address) as client:
        with suppress(UnavailableError):  # the server may end before it can answer
            await client.workspace("garden").erase(made[3], "It leaked.", text=SECRET, request_id="once")
        await service.has_killed_itself()
    await ended(data, log, made)


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(budget(1)))
async def test_kills_at_random_moments_leave_the_old_or_the_new_history(
    filled: FilledFolders, tmp_path: Path, number: int
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    made = await filled.copy(data, prepare)
    rng = dice("erase", number)
    service: Service = await start(data, log)
    try:
        async with AsyncClient(service.address) as client:
            await client.workspace("garden").erase(made[3], "It leaked.", text=SECRET, request_id="once")
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), rng.uniform(0.0, 0.8))
                service.kill()
                service = await start(data, log)
                assert fsck(data) == ""
    finally:
        service.kill()
    await ended(data, log, made)
