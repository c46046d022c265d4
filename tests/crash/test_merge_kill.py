"""The server is killed during a merge, a revert or a restore: the branch has it once, or not until asked again."""

import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from crash.service import start
from integration.calls import Calls
from unit.storage.git.judge import Judge

from memotree.v1 import (
    history_service_pb2,
    maintenance_service_pb2,
    node_service_pb2,
    session_service_pb2,
    types_pb2,
)

POINTS = (
    "merge.planned",
    "git.before-pack",
    "git.pack-synced",
    "commit.before-swap",
    "git.ref-locked",
    "git.ref-moved",
    "git.ref-synced",
    "commit.swapped",
    "commit.projected",
    "commit.mirrored",
)
REF_POINTS = ("git.before-ref", "git.ref-locked", "git.ref-moved", "git.ref-synced")

WORKSPACE = "garden"
OURS = "It is blue. It is small."
THEIRS = "It is red. It is huge."
BOTH = "It is blue. It is huge."


async def _prepared(channel: grpc.aio.Channel, *, ours: bool, content: str = THEIRS) -> tuple[Calls, str]:
    """A node that a branch ``side`` has changed, and ``main`` as well if that is wanted."""
    calls = await Calls(channel, WORKSPACE).begin()
    node_id = await calls.create("It is red. It is small.")
    await calls.commit()
    await calls.history.CreateBranch(history_service_pb2.CreateBranchRequest(workspace=WORKSPACE, name="side"))
    for branch, text in (("main", OURS), ("side", content))[not ours :]:
        opened = await calls.sessions.OpenSession(
            session_service_pb2.OpenSessionRequest(workspace=WORKSPACE, branch=branch)
        )
        calls.session = opened.session.id
        await calls.nodes.UpdateNode(
            node_service_pb2.UpdateNodeRequest(
                workspace=WORKSPACE, session_id=calls.session, node_id=node_id, content=text
            )
        )
        await calls.commit(f"Change it on {branch}")
    return calls, node_id


async def _killed(folder: Path, point: str, call: str, asked: Any, *, ours: bool, expected: str) -> list[str]:
    """Kill the server at a point of a call, send it again twice, and check everything; the parents of the head.

    ``asked`` is the request, or makes it for the node.
    """
    data, log = folder / "data", folder / "server.log"
    service = await start(data, log)
    async with service.channel() as channel:
        calls, node_id = await _prepared(channel, ours=ours)
    request = asked(node_id) if callable(asked) else asked
    assert await service.stop() == 0
    service = await start(data, log, fault=point)
    try:
        async with service.channel() as channel:
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await getattr(Calls(channel, WORKSPACE).history, call)(request)
            assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await service.exit_status() == -signal.SIGKILL
        service = await start(data, log)
        async with service.channel() as channel:
            at = Calls(channel, WORKSPACE)
            first, again = [await getattr(at.history, call)(request) for _ in range(2)]
            assert first.commit_id == again.commit_id
            assert await at.read(node_id, "main") == expected
            head = await at.history.GetCommit(history_service_pb2.GetCommitRequest(workspace=WORKSPACE))
            assert head.commit.id == first.commit_id
            events = at.maintenance.VerifyWorkspace(maintenance_service_pb2.VerifyWorkspaceRequest(workspace=WORKSPACE))
            assert [event.difference async for event in events if event.HasField("difference")] == []
            tips = await at.history.ListBranches(history_service_pb2.ListBranchesRequest(workspace=WORKSPACE))
        Judge(data / calls.repository).check()
    finally:
        service.kill()
    side = next(branch.commit_id for branch in tips.branches if branch.name == "side")
    return ["side" if parent == side else "" for parent in head.commit.parent_ids]


@pytest.mark.campaign
@pytest.mark.requirement("GIT-6", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_during_a_merge(tmp_path: Path, point: str) -> None:
    request = history_service_pb2.MergeBranchRequest(workspace=WORKSPACE, source="side", request_id="once")
    assert await _killed(tmp_path, point, "MergeBranch", request, ours=True, expected=BOTH) == ["", "side"]


@pytest.mark.campaign
@pytest.mark.requirement("GIT-6", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", REF_POINTS)
async def test_a_kill_during_a_fast_forward(tmp_path: Path, point: str) -> None:
    style = history_service_pb2.MERGE_STYLE_FAST_FORWARD
    request = history_service_pb2.MergeBranchRequest(workspace=WORKSPACE, source="side", style=style, request_id="once")
    await _killed(tmp_path, point, "MergeBranch", request, ours=False, expected=THEIRS)


@pytest.mark.campaign
@pytest.mark.requirement("GIT-7", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_during_a_revert(tmp_path: Path, point: str) -> None:
    request = history_service_pb2.RevertCommitRequest(workspace=WORKSPACE, revision="main", request_id="once")
    expected = "It is red. It is small."
    assert await _killed(tmp_path, point, "RevertCommit", request, ours=True, expected=expected) == [""]


@pytest.mark.campaign
@pytest.mark.requirement("GIT-7", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_during_a_restore(tmp_path: Path, point: str) -> None:
    def request(node_id: str) -> history_service_pb2.RestoreNodesRequest:
        return history_service_pb2.RestoreNodesRequest(
            workspace=WORKSPACE, node_ids=[node_id], revision="side", request_id="once"
        )

    assert await _killed(tmp_path, point, "RestoreNodes", request, ours=True, expected=THEIRS) == [""]


SESSION_POINTS = (
    "commit.claimed",
    "commit.frozen",
    "commit.merged",
    "git.before-pack",
    "git.pack-synced",
    "commit.before-swap",
    "git.ref-moved",
    "commit.swapped",
    "commit.projected",
    "commit.mirrored",
    "commit.tagged",
    "commit.recorded",
)


class _Resolving:
    """A session that merges a branch with a conflict."""

    def __init__(self, channel: grpc.aio.Channel, session: str) -> None:
        self.calls = Calls(channel, WORKSPACE)
        self.session = session

    async def resolve(self) -> session_service_pb2.Session:
        request = session_service_pb2.ResolveConflictsRequest(
            workspace=WORKSPACE, session_id=self.session, others=types_pb2.CONFLICT_SIDE_THEIRS, request_id="resolve"
        )
        return (await self.calls.sessions.ResolveConflicts(request)).session

    async def resolve_and_commit(self) -> None:
        await self.resolve()
        await self.commit()

    async def commit(self) -> str:
        request = session_service_pb2.CommitChangesRequest(
            workspace=WORKSPACE, session_id=self.session, message="Merge side", request_id="commit"
        )
        return (await self.calls.sessions.CommitChanges(request)).commit_id


@pytest.mark.campaign
@pytest.mark.requirement("GIT-6", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", ["stage.written", "stage.recorded", *SESSION_POINTS])
async def test_a_kill_while_a_merge_is_resolved_and_committed_in_a_session(tmp_path: Path, point: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    service = await start(data, log)
    async with service.channel() as channel:
        calls, node_id = await _prepared(channel, ours=True, content="It is grey. It is huge.")
        opened = await calls.sessions.OpenSession(session_service_pb2.OpenSessionRequest(workspace=WORKSPACE))
        session = opened.session.id
        staged = await calls.history.MergeBranch(
            history_service_pb2.MergeBranchRequest(workspace=WORKSPACE, source="side", session_id=session)
        )
        assert staged.conflict_count == 1
    assert await service.stop() == 0
    service = await start(data, log, fault=point)
    try:
        async with service.channel() as channel:
            resolving = _Resolving(channel, session)
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await resolving.resolve_and_commit()
            assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await service.exit_status() == -signal.SIGKILL
        service = await start(data, log)
        async with service.channel() as channel:
            resolving = _Resolving(channel, session)
            at = resolving.calls
            assert (await resolving.resolve()).conflict_count == 0
            first, again = await resolving.commit(), await resolving.commit()
            assert first == again
            assert await at.read(node_id, "main") == "It is grey. It is huge."
            head = await at.history.GetCommit(history_service_pb2.GetCommitRequest(workspace=WORKSPACE))
            assert (head.commit.id, len(head.commit.parent_ids)) == (first, 2)
            found = await at.sessions.GetSession(
                session_service_pb2.GetSessionRequest(workspace=WORKSPACE, session_id=session)
            )
            assert (found.session.merge_commit_id, found.session.change_count) == ("", 0)
            events = at.maintenance.VerifyWorkspace(maintenance_service_pb2.VerifyWorkspaceRequest(workspace=WORKSPACE))
            assert [event.difference async for event in events if event.HasField("difference")] == []
        Judge(data / calls.repository).check()
    finally:
        service.kill()
