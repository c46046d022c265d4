"""The server is killed while changes are proposed, reviewed and merged; repeating the call ends what it had begun."""

import signal
from pathlib import Path

import pytest
from campaigns import points
from crash.filled_folders import FilledFolders
from crash.service import start

from memotree.client import AsyncClient, AsyncWorkspace, Author, Difference, MemoTreeClientError, ProposalStatus

pytestmark = [pytest.mark.requirement("GIT-9", "STORE-2"), pytest.mark.campaign]

ADA = Author("ada")
PROPOSING = ("proposal.branched", "proposal.recorded", "commit.before-swap", "commit.swapped")
MERGING = ("merge.planned", "commit.before-swap", "commit.swapped", "proposal.merged")


def garden_of(client: AsyncClient) -> AsyncWorkspace:
    return client.workspace("garden")


async def proposable(data: Path, log: Path) -> str:
    """Make a session with a staged change."""
    service = await start(data, log)
    try:
        async with AsyncClient(service.address) as client:
            await client.create_workspace("garden")
            garden = client.workspace("garden")
            note = await garden.remember("Roses are cut in March.", title="Roses", agent="bot")
            session = await garden.session(agent="bot")
            await session.update(note.node.id, content="Roses are cut in February.")
        assert await service.stop() == 0
    finally:
        service.kill()
    return session.id


@pytest.mark.parametrize("fault", points("propose", PROPOSING))
async def test_a_proposal_is_whole_after_the_repeated_call(filled: FilledFolders, tmp_path: Path, fault: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    session = await filled.copy(data, proposable)
    service = await start(data, log, fault=fault)
    try:
        async with AsyncClient(service.address, attempts=1) as client:
            with pytest.raises(MemoTreeClientError):
                await garden_of(client).propose("Earlier", session=session, request_id="once")
        assert await service.exit_status() == -signal.SIGKILL
        service = await start(data, log)
        async with AsyncClient(service.address) as client:
            garden = garden_of(client)
            made = await garden.propose("Earlier", session=session, request_id="once")
            assert [one.number async for one in garden.proposals(status="OPEN")] == [made.number]
            assert (await garden.resume(session).info()).change_count == 0
            preview = await garden.preview_merge(made.branch)
            assert len(preview.changes) == 1, "the change is in the proposal, once"
            assert [one async for one in garden.verify() if isinstance(one, Difference)] == []
    finally:
        service.kill()


@pytest.mark.parametrize("fault", points("merge a proposal", MERGING))
async def test_a_merge_is_made_once_and_recorded(filled: FilledFolders, tmp_path: Path, fault: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    session = await filled.copy(data, proposable)
    service = await start(data, log)
    try:
        async with AsyncClient(service.address) as client:
            garden = garden_of(client)
            await garden.protect("main", author=ADA)
            made = await garden.propose("Earlier", session=session)
            await garden.approve(made.number, made.head_commit_id, reviewer=ADA)
        assert await service.stop() == 0
        service = await start(data, log, fault=fault)
        async with AsyncClient(service.address, attempts=1) as client:
            with pytest.raises(MemoTreeClientError):
                await garden_of(client).merge_proposal(1, request_id="once")
        assert await service.exit_status() == -signal.SIGKILL
        service = await start(data, log)
        async with AsyncClient(service.address) as client:
            garden = garden_of(client)
            merged = await garden.merge_proposal(1, request_id="once")
            assert merged.status is ProposalStatus.MERGED
            merges = [one async for one in garden.log() if len(one.parent_ids) == 2]
            assert [one.id for one in merges] == [merged.merge_commit_id]
            assert [one async for one in garden.verify() if isinstance(one, Difference)] == []
    finally:
        service.kill()
