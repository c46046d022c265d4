"""The promises of the transport, on the real server with its real stores."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from campaigns import budget, dice
from crash.service import DEADLINE, POLL, Service, alive, start
from integration.calls import Calls
from memotree_storage.model.node import new_id
from unit.storage.git.judge import Judge

from memotree.v1 import node_service_pb2, view_service_pb2, view_service_pb2_grpc


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("transport")
    service = await start(folder / "data", folder / "server.log")
    try:
        yield service
    finally:
        service.kill()


@pytest.fixture
async def calls(server: Service) -> AsyncIterator[Calls]:
    """A workspace of the test's own."""
    async with server.channel() as channel:
        yield await Calls(channel, f"w-{new_id()}").begin()


async def gives_up(call: Any, after: float) -> str:
    """Send a call and cancel it after this many seconds; return the name of its status."""
    asyncio.get_running_loop().call_later(after, call.cancel)
    try:
        await call
    except asyncio.CancelledError:
        return "CANCELLED"
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def eventually(question: Callable[[], Awaitable[bool]], what: str) -> None:
    """Repeat a question until the answer is yes."""
    deadline = time.monotonic() + DEADLINE
    while not await question():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(POLL)


@pytest.mark.requirement("SERVE-1", "CANVAS-8")
async def test_a_creation_whose_deadline_passes_or_that_is_cancelled_is_made_completely_or_not_at_all(
    calls: Calls, server: Service
) -> None:
    rng, turns = dice("a cancelled creation"), budget(20)
    async with server.channel() as channel:
        views: Any = view_service_pb2_grpc.ViewServiceStub(channel)
        there = 0
        for turn in range(turns):
            request = calls.creation("all of it", tags=["a"], view_name="default", request_id=new_id())
            moment, has_deadline = rng.random() * 0.03 if turn else 60, turn % 2 == 1
            call = calls.nodes.CreateNode(request, timeout=moment if has_deadline else None)
            status = await gives_up(call, DEADLINE if has_deadline else moment)
            # A later call of the same session waits for the rest of the earlier one.
            update = node_service_pb2.UpdateNodeRequest(workspace=calls.workspace, session_id=calls.session)
            update.node_id, update.content = calls.root, new_id()
            await calls.nodes.UpdateNode(update)
            found = await calls.read(request.node_id, calls.session)
            view = view_service_pb2.RenderViewRequest(workspace=calls.workspace, revision=calls.session)
            shown = await views.RenderView(view)
            assert found in {None, "all of it"}
            assert (found is None) == (request.node_id not in shown.markdown), "the node and its place in the view"
            assert found is not None or status != "OK"
            there += found is not None
            assert (await calls.nodes.CreateNode(request)).node.content == "all of it"
        assert await calls.changes() == turns + 1
        assert there > 0, "the first call is given all the time it needs"


@pytest.mark.requirement("CANVAS-8", "STORE-2", "CANVAS-6")
async def test_a_cancelled_commit_is_made_completely_or_not_at_all(calls: Calls, server: Service) -> None:
    rng = dice("a cancelled commit")
    git = Judge(server.data / calls.repository)
    for turn in range(budget(10)):
        before = git.run("rev-parse", "main").strip()
        ids = [await calls.create(f"part {number} of {turn}") for number in range(3)]
        request = calls.commitment(f"Commit {turn}", request_id=new_id(), create_tag=True, tag_name=f"t{turn}")
        status = await gives_up(calls.sessions.CommitChanges(request), rng.random() * 0.06)
        again = await calls.sessions.CommitChanges(request)
        assert git.run("rev-list", f"{before}..main").split() == [again.commit_id], f"one commit, after {status}"
        assert git.run("rev-parse", f"t{turn}^{{commit}}").strip() == again.commit_id
        assert await calls.changes() == 0
        for number, node_id in enumerate(ids):
            assert await calls.read(node_id) == f"part {number} of {turn}"
    git.check()


@pytest.mark.requirement("SERVE-1", "STORE-1", "STORE-6")
async def test_a_graceful_stop_lets_a_running_commit_finish_and_the_next_server_continues(tmp_path: Path) -> None:
    service = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        async with service.channel() as channel:
            calls = await Calls(channel, "garden").begin()
            other = Calls(channel, "garden")
            other.root = calls.root
            await other.open()
            staged = await other.create("staged and not committed")
            for batch in range(4):
                await calls.nodes.BatchChangeNodes(_batch(calls, batch, 100))
            packs = service.data / calls.repository / "objects" / "pack"
            before = set(packs.iterdir())
            children = set(service.children())
            committing = asyncio.ensure_future(calls.sessions.CommitChanges(calls.commitment("The last one")))

            async def writing() -> bool:
                return set(packs.iterdir()) != before

            await eventually(writing, "the commit is being written")
            service.terminate()
            answer = await committing
        assert answer.change_count == 400
        assert await service.exit_status() == 0
        assert not [pid for pid in children if alive(pid)], "the stores stop with the server"
        git = Judge(service.data / calls.repository)
        assert git.run("rev-parse", "main").strip() == answer.commit_id
        service = await start(tmp_path / "data", tmp_path / "server.log")
        async with service.channel() as channel:
            calls = Calls(channel, "garden")
            assert len(await calls.search("word0x7")) == 1
            calls.session = other.session
            assert await calls.read(staged) is None
            assert await calls.read(staged, calls.session) == "staged and not committed"
            await calls.commit()
            assert await calls.read(staged) == "staged and not committed"
    finally:
        service.kill()


def _batch(calls: Calls, number: int, size: int) -> node_service_pb2.BatchChangeNodesRequest:
    request = node_service_pb2.BatchChangeNodesRequest(workspace=calls.workspace, session_id=calls.session)
    for index in range(size):
        create = calls.creation(f"word{number}x{index} and some more text", title=f"Node {number} {index}")
        request.changes.add().create.CopyFrom(create)
    return request
