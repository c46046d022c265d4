"""The server is killed while changes are proposed, reviewed and merged; repeating the call ends what it had begun."""

from pathlib import Path

import pytest
from campaigns import points
from crash.filled_folders import FilledFolders
from crash.service import Service, running

from memotree.client import AsyncClient, Author, Difference, MemoTreeClientError, ProposalStatus

pytestmark = [pytest.mark.requirement("GIT-9", "STORE-2"), pytest.mark.campaign]

ADA = Author("ada")
PROPOSING = ("proposal.branched", "proposal.recorded", "commit.before-swap", "commit.swapped")
MERGING = ("merge.planned", "commit.before-swap", "commit.swapped", "proposal.merged")


async def proposable(service: Service) -> str:
    """Make a session with a staged change."""
    async with AsyncClient(service.address) as client:
        await client.create_workspace("garden")
        garden = client.workspace("garden")
        note = await garden.remember("Roses are cut in March.", title="Roses", agent="bot")
        session = await garden.session(agent="bot")
        await session.update(note.node.id, content="Roses are cut in February.")
    return session.id


async def approved(service: Service) -> str:
    """Make an approved proposal of that change."""
    session = await proposable(service)
    async with AsyncClient(service.address) as client:
        garden = client.workspace("garden")
        await garden.protect("main", author=ADA)
        made = await garden.propose("Earlier", session=session)
        await garden.approve(made.number, made.head_commit_id, reviewer=ADA)
    return session


@pytest.mark.parametrize("fault", points("propose", PROPOSING))
async def test_a_proposal_is_whole_after_the_repeated_call(filled: FilledFolders, tmp_path: Path, fault: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    session = await filled.copy(data, proposable)
    async with running(data, log, fault=fault) as service, AsyncClient(service.address, attempts=1) as client:
        with pytest.raises(MemoTreeClientError):
            await client.workspace("garden").propose("Earlier", session=session, request_id="once")
        await service.has_killed_itself()
    async with running(data, log) as service, AsyncClient(service.address) as client:
        garden = client.workspace("garden")
        made = await garden.propose("Earlier", session=session, request_id="once")
        assert [one.number async for one in garden.proposals(status="OPEN")] == [made.number]
        assert (await garden.resume(session).info()).change_count == 0
        preview = await garden.preview_merge(made.branch)
        assert len(preview.changes) == 1, "the change is in the proposal, once"
        assert [one async for one in garden.verify() if isinstance(one, Difference)] == []


@pytest.mark.parametrize("fault", points("merge a proposal", MERGING))
async def test_a_merge_is_made_once_and_recorded(filled: FilledFolders, tmp_path: Path, fault: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    await filled.copy(data, approved)
    async with running(data, log, fault=fault) as service, AsyncClient(service.address, attempts=1) as client:
        with pytest.raises(MemoTreeClientError):
            await client.workspace("garden").merge_proposal(1, request_id="once")
        await service.has_killed_itself()
    async with running(data, log) as service, AsyncClient(service.address) as client:
        garden = client.workspace("garden")
        merged = await garden.merge_proposal(1, request_id="once")
        assert merged.status is ProposalStatus.MERGED
        merges = [one async for one in garden.log() if len(one.parent_ids) == 2]
        assert [one.id for one in merges] == [merged.merge_commit_id]
        assert [one async for one in garden.verify() if isinstance(one, Difference)] == []
