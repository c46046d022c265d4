"""The whole server is killed with SIGKILL at named points of a commit and at random moments; no promise is broken.

After each kill: every acknowledged commit is on its branch with its tag, ``git fsck`` is clean, the mirror equals Git
row by row, every acknowledged edit is committed or still staged, a repeated request gives the same commit, the search
finds what is committed, and neither a lock nor an orphan keeps the next server from starting. `bench/kills.py` does the
same 200 times.
"""

from pathlib import Path

import pytest
from campaigns import TIMES, budget, dice, points
from crash.campaign import BEHIND, POINTS, RECOVERY_POINTS, Campaign, all_points
from crash.service import running
from integration.calls import Calls
from memotree_storage.model.node import new_id
from unit.storage.git.judge import Judge

from memotree.v1 import workspace_service_pb2

pytestmark = pytest.mark.requirement("STORE-1", "STORE-2", "STORE-3", "STORE-6", "GIT-1")


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_kills_lose_no_acknowledged_change(tmp_path: Path) -> None:
    rng = dice("kills")
    faults = [*rng.sample(all_points(rng)[: len(POINTS)], 5), BEHIND, rng.choice(RECOVERY_POINTS[:2]), ""]
    if TIMES:
        faults = all_points(rng) + [""] * budget(1)
    tally = await Campaign(tmp_path, rng.randrange(2**32)).run(faults)
    assert tally.kills == len(faults)


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_kills_beside_many_writers_lose_no_commit_of_a_group(tmp_path: Path) -> None:
    rng = dice("kills of groups")
    others = ["commit.mirrored", "git.pack-synced", "commit.before-swap", "git.ref-moved", "commit.recorded"]
    chosen = others if TIMES else rng.sample(others, 1)
    faults = [f"{point}:{rng.randrange(2, 6)}" for point in (*chosen, BEHIND)]
    faults += ["recovery.projected", *[""] * budget(1)]
    tally = await Campaign(tmp_path, rng.randrange(2**32), writers=32).run(faults)
    assert tally.kills == len(faults)


@pytest.mark.parametrize("point", points("workspace", ["git.ref-moved", "workspace.made"], hardest="git.ref-moved"))
async def test_a_kill_during_the_creation_of_a_workspace_leaves_a_complete_one_or_none(
    tmp_path: Path, point: str
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    request = workspace_service_pb2.CreateWorkspaceRequest(name="garden", request_id=new_id())
    async with running(data, log, fault=point) as service, service.channel() as channel:
        with pytest.raises(Exception, match="UNAVAILABLE"):
            await Calls(channel, "garden").workspaces.CreateWorkspace(request)
        await service.has_killed_itself()
    async with running(data, log) as service, service.channel() as channel:
        calls = Calls(channel, "garden")
        listed = await calls.workspaces.ListWorkspaces(workspace_service_pb2.ListWorkspacesRequest())
        before = [workspace.id for workspace in listed.workspaces]
        made = await calls.workspaces.CreateWorkspace(request)
        assert before in ([], [made.workspace.id]), "the same request again makes no second one"
        listed = await calls.workspaces.ListWorkspaces(workspace_service_pb2.ListWorkspacesRequest())
        (workspace,) = listed.workspaces
        await calls.open()
        await calls.workspaces.CreateArchive(
            workspace_service_pb2.CreateArchiveRequest(workspace="garden", session_id=calls.session, name="notes")
        )
        await calls.commit("It works")
        Judge(data / workspace.repository).check()
        assert [path.name for path in (data / "workspaces").glob("*.git")] == [Path(workspace.repository).name]
