"""The server is killed during a merge, a revert or a restore: the branch has it once, or not until asked again."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from campaigns import points
from crash.filled_folders import FilledFolders
from crash.service import Service, running
from integration.calls import Calls
from unit.storage.git.judge import Judge

from memotree.v1 import history_service_pb2, node_service_pb2, session_service_pb2, types_pb2

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


async def _prepare(service: Service, first: str, content: str = THEIRS) -> tuple[str, str]:
    """Make a node that the branches ``main`` and ``side`` have changed, or ``side`` alone; its id, the repository."""
    async with service.channel() as channel:
        calls = await Calls(channel, WORKSPACE).begin()
        node_id = await calls.create("It is red. It is small.")
        await calls.commit()
        await calls.history.CreateBranch(history_service_pb2.CreateBranchRequest(workspace=WORKSPACE, name="side"))
        for branch, text in (("main", OURS), ("side", content))[first != "main" :]:
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
    return node_id, calls.repository


async def _prepare_session(service: Service) -> tuple[str, str, str]:
    """Make a session that merges a branch with a conflict; a node, the repository and the session."""
    node_id, repository = await _prepare(service, "main", "It is grey. It is huge.")
    async with service.channel() as channel:
        at = Calls(channel, WORKSPACE)
        session = await at.open()
        staged = await at.history.MergeBranch(
            history_service_pb2.MergeBranchRequest(workspace=WORKSPACE, source="side", session_id=session)
        )
    assert staged.conflict_count == 1
    return node_id, repository, session


class _Killing:
    """Kills a server at a point of a call.

    Args:
        filled: The folders to copy.
        folder: An empty folder.
        point: Where the server kills itself.
    """

    def __init__(self, filled: FilledFolders, folder: Path, point: str) -> None:
        self._filled = filled
        self._folder = folder
        self._point = point

    async def __call__(self, call: str, asked: Any, *, ours: bool, expected: str) -> list[str]:
        """Kill the server, send the call again twice, and check everything; the parents of the head.

        ``asked`` is the request, or makes it for the node.
        """
        data, log = self._folder / "data", self._folder / "server.log"
        node_id, repository = await self._filled.copy(data, _prepare, "main" if ours else "side")
        request = asked(node_id) if callable(asked) else asked
        async with running(data, log, fault=self._point) as service, service.channel() as channel:
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await getattr(Calls(channel, WORKSPACE).history, call)(request)
            assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
            await service.has_killed_itself()
        async with running(data, log) as service, service.channel() as channel:
            at = Calls(channel, WORKSPACE)
            first, again = [await getattr(at.history, call)(request) for _ in range(2)]
            assert first.commit_id == again.commit_id
            assert await at.read(node_id, "main") == expected
            head = await at.history.GetCommit(history_service_pb2.GetCommitRequest(workspace=WORKSPACE))
            assert head.commit.id == first.commit_id
            assert await at.differences() == []
            tips = await at.history.ListBranches(history_service_pb2.ListBranchesRequest(workspace=WORKSPACE))
            Judge(data / repository).check()
        side = next(branch.commit_id for branch in tips.branches if branch.name == "side")
        return ["side" if parent == side else "" for parent in head.commit.parent_ids]


@pytest.fixture
def killed(filled: FilledFolders, tmp_path: Path, point: str) -> _Killing:
    """Kills a server at the point of the test."""
    return _Killing(filled, tmp_path, point)


@pytest.mark.requirement("GIT-6", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", points("merge", POINTS, hardest="commit.swapped"))
async def test_a_kill_during_a_merge(killed: _Killing) -> None:
    request = history_service_pb2.MergeBranchRequest(workspace=WORKSPACE, source="side", request_id="once")
    assert await killed("MergeBranch", request, ours=True, expected=BOTH) == ["", "side"]


@pytest.mark.campaign
@pytest.mark.requirement("GIT-6", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", points("fast-forward", REF_POINTS))
async def test_a_kill_during_a_fast_forward(killed: _Killing) -> None:
    style = history_service_pb2.MERGE_STYLE_FAST_FORWARD
    request = history_service_pb2.MergeBranchRequest(workspace=WORKSPACE, source="side", style=style, request_id="once")
    await killed("MergeBranch", request, ours=False, expected=THEIRS)


def _restoration(node_id: str) -> history_service_pb2.RestoreNodesRequest:
    return history_service_pb2.RestoreNodesRequest(
        workspace=WORKSPACE, node_ids=[node_id], revision="side", request_id="once"
    )


_REVERSION = history_service_pb2.RevertCommitRequest(workspace=WORKSPACE, revision="main", request_id="once")


@pytest.mark.campaign
@pytest.mark.requirement("GIT-7", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize(
    ("call", "asked", "expected"),
    [("RevertCommit", _REVERSION, "It is red. It is small."), ("RestoreNodes", _restoration, THEIRS)],
)
@pytest.mark.parametrize("point", points("revert or restore", POINTS))
async def test_a_kill_during_a_revert_or_a_restore(killed: _Killing, call: str, asked: Any, expected: str) -> None:
    assert await killed(call, asked, ours=True, expected=expected) == [""]


SESSION_POINTS = (
    "stage.written",
    "stage.recorded",
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


async def _resolve(at: Calls, session: str) -> session_service_pb2.Session:
    """Resolve the conflicts of a session that merges a branch."""
    request = session_service_pb2.ResolveConflictsRequest(
        workspace=WORKSPACE, session_id=session, others=types_pb2.CONFLICT_SIDE_THEIRS, request_id="resolve"
    )
    found: session_service_pb2.Session = (await at.sessions.ResolveConflicts(request)).session
    return found


async def _commit(at: Calls, session: str) -> str:
    at.session = session
    return await at.commit("Merge side", request_id="commit")


async def _resolve_and_commit(at: Calls, session: str) -> None:
    await _resolve(at, session)
    await _commit(at, session)


@pytest.mark.campaign
@pytest.mark.requirement("GIT-6", "STORE-1", "STORE-2", "STORE-3")
@pytest.mark.parametrize("point", points("session", SESSION_POINTS, hardest="commit.swapped"))
async def test_a_kill_while_a_merge_is_resolved_and_committed_in_a_session(
    filled: FilledFolders, tmp_path: Path, point: str
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    node_id, repository, session = await filled.copy(data, _prepare_session)
    async with running(data, log, fault=point) as service, service.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await _resolve_and_commit(Calls(channel, WORKSPACE), session)
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        await service.has_killed_itself()
    async with running(data, log) as service, service.channel() as channel:
        at = Calls(channel, WORKSPACE)
        assert (await _resolve(at, session)).conflict_count == 0
        first, again = await _commit(at, session), await _commit(at, session)
        assert first == again
        assert await at.read(node_id, "main") == "It is grey. It is huge."
        head = await at.history.GetCommit(history_service_pb2.GetCommitRequest(workspace=WORKSPACE))
        assert (head.commit.id, len(head.commit.parent_ids)) == (first, 2)
        found = await at.sessions.GetSession(
            session_service_pb2.GetSessionRequest(workspace=WORKSPACE, session_id=session)
        )
        assert (found.session.merge_commit_id, found.session.change_count) == ("", 0)
        assert await at.differences() == []
        Judge(data / repository).check()
