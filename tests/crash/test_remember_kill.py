"""The server is killed during one call that remembers: it is remembered once, or not at all until it is asked again."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from campaigns import points
from crash.filled_folders import FilledFolders
from crash.service import Service, running
from integration.calls import Calls
from memotree_storage.model import trailers
from unit.storage.git.judge import Judge

from memotree.v1 import (
    history_service_pb2,
    memory_service_pb2,
    memory_service_pb2_grpc,
    node_service_pb2,
    session_service_pb2,
)

POINTS = (
    "immediate.claimed",
    "immediate.staged",
    "git.pack-synced",
    "git.ref-moved",
    "git.ref-synced",
    "commit.projected",
    "commit.tagged",
    "immediate.recorded",
)

WORKSPACE = "garden"


async def _prepare(service: Service) -> str:
    """Make a workspace; its repository."""
    async with service.channel() as channel:
        return (await Calls(channel, WORKSPACE).begin()).repository


async def _remember(channel: grpc.aio.Channel) -> Any:
    memory: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)
    request = memory_service_pb2.RememberRequest(
        workspace=WORKSPACE, text="The gate is shut at nine.", archive="rules", agent="a-test", request_id="once"
    )
    return await memory.Remember(request)


@pytest.mark.campaign
@pytest.mark.requirement("USE-1", "STORE-1", "STORE-2")
@pytest.mark.parametrize("point", points("remember", POINTS, hardest="git.ref-moved"))
async def test_a_kill_during_remember_keeps_the_note_once_and_the_call_can_be_repeated(
    filled: FilledFolders, tmp_path: Path, point: str
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    repository = await filled.copy(data, _prepare)
    async with running(data, log, fault=point) as service, service.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await _remember(channel)
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        await service.has_killed_itself()
    async with running(data, log) as service, service.channel() as channel:
        first, again = await _remember(channel), await _remember(channel)
        assert first == again
        at = Calls(channel, WORKSPACE)
        assert await at.read(first.node.id) == "The gate is shut at nine."
        log_ = await at.history.ListCommits(history_service_pb2.ListCommitsRequest(workspace=WORKSPACE))
        once = [one for one in log_.commits if trailers.trailers_of(one.message).get(trailers.REQUEST) == "once"]
        assert [one.id for one in once] == [first.commit_id]
        listed = await at.sessions.ListSessions(
            session_service_pb2.ListSessionsRequest(workspace=WORKSPACE, include_closed=True)
        )
        assert len(listed.sessions) == 1, "the call leaves no session behind"
        found = await at.nodes.ListChildren(node_service_pb2.ListChildrenRequest(workspace=WORKSPACE, archive="rules"))
        assert [node.id for node in found.nodes] == [first.node.id]
        assert await at.differences() == []
        Judge(data / repository).check()
