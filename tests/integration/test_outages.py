"""Outages of git, the disk and the embedded stores: calls fail with clear errors, and nothing is lost."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import pytest
from campaigns import budget
from crash.service import POLL, Service, start
from integration.calls import Calls, reason
from memotree_storage.model.node import new_id
from unit.storage.git.judge import Judge

from memotree.v1 import history_service_pb2 as history
from memotree.v1 import node_service_pb2 as nodes
from memotree.v1 import types_pb2

DEADLINE: Final = 60.0
POSTGRES: Final = "bin/postgres -D"
ENGINE: Final = "-m memotree_storage.qdrant.engine"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount file systems")
_T = TypeVar("_T")


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """One server for all outages; each test has a workspace of its own."""
    folder = tmp_path_factory.mktemp("outages")
    service = await start(folder / "data", folder / "server.log")
    try:
        yield service
    finally:
        service.kill()


@pytest.fixture
async def calls(server: Service) -> AsyncIterator[Calls]:
    async with server.channel() as channel:
        yield await Calls(channel, f"w-{new_id()}").begin()


async def until_answered(call: Callable[..., Awaitable[_T]], *arguments: Any) -> tuple[_T, list[str]]:
    """Repeat a call while it is UNAVAILABLE, as a client does; return the answer and the reasons before it."""
    reasons: list[str] = []
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            return await call(*arguments), reasons
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                raise
            reasons.append(reason(error))
        await asyncio.sleep(POLL)


async def until(question: Callable[[], bool], what: str) -> None:
    """Poll until the answer is yes."""
    deadline = time.monotonic() + DEADLINE
    while not question():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(POLL)


async def build(calls: Calls, count: int = 4) -> dict[str, str]:
    """Make some commits: nodes with a unique word each, one changed, one deleted; return the contents by id."""
    contents = {}
    for number in range(count):
        content = f"Chapter {number} tells of orchards and of zqword{number}."
        contents[await calls.create(content, tags=["book"])] = content
        tag = {"create_tag": True, "tag_name": "v1"} if number == count // 2 else {}
        await calls.commit(f"Write chapter {number}", **tag)
    first, second, *_ = contents
    contents[first] = "Chapter 0, written anew, tells of zqanew."
    inside = {"workspace": calls.workspace, "session_id": calls.session}
    await calls.nodes.UpdateNode(nodes.UpdateNodeRequest(**inside, node_id=first, content=contents[first]))
    await calls.nodes.DeleteNode(nodes.DeleteNodeRequest(**inside, node_id=second))
    del contents[second]
    await calls.commit("Revise")
    return contents


async def hits(calls: Calls, query: str, revision: str, kind: int = nodes.SEARCH_TYPE_FULL_TEXT) -> list[Any]:
    """What a search finds, with scores and previews."""
    asked = {"workspace": calls.workspace, "revision": revision, "query": query}
    answer = await calls.nodes.SearchNodes(nodes.SearchNodesRequest(**asked, search_type=kind))
    return [(hit.node.id, round(hit.score, 5), hit.preview) for hit in answer.hits]


async def answers(calls: Calls) -> dict[str, Any]:
    """All answers about the committed state: reads, children, history, hits with scores; at several revisions."""
    seen: dict[str, Any] = {}
    place = {"workspace": calls.workspace}
    for revision in ("", "v1"):
        below = {"parent_id": calls.root, "level": types_pb2.LEVEL_OF_DETAIL_DETAIL}
        children = await calls.nodes.ListChildren(nodes.ListChildrenRequest(**place, revision=revision, **below))
        seen[f"children at {revision}"] = [node.SerializeToString(deterministic=True) for node in children.nodes]
        for kind in (nodes.SEARCH_TYPE_FULL_TEXT, nodes.SEARCH_TYPE_SEMANTIC, nodes.SEARCH_TYPE_HYBRID):
            for query in ("zqword2", "zqanew", "chapter tells"):
                name = f"{nodes.SearchType.Name(kind)} of {query} at {revision}"
                seen[name] = await hits(calls, query, revision, kind)
        log = await calls.history.ListCommits(history.ListCommitsRequest(**place, revision=revision))
        seen[f"log at {revision}"] = [commit.SerializeToString(deterministic=True) for commit in log.commits]
    for node in children.nodes:
        asked = history.ListNodeRevisionsRequest(**place, node_id=node.id)
        revisions = (await calls.history.ListNodeRevisions(asked)).revisions
        seen[f"revisions of {node.id}"] = [item.commit.id for item in revisions]
    tags = await calls.history.ListTags(history.ListTagsRequest(**place))
    seen["tags"] = [(tag.name, tag.commit_id) for tag in tags.tags]
    return seen


@pytest.mark.requirement("GIT-1", "STORE-3", "STORE-4", "GIT-4", "GIT-5", "STORE-6")
async def test_without_a_git_program_and_after_the_loss_of_both_mirrors_all_answers_stay_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    data, log, environment = tmp_path / "data", tmp_path / "server.log", {"PATH": str(tmp_path / "bin")}
    service = await start(data, log, environment=environment)
    try:
        async with service.channel() as channel:
            calls = await Calls(channel, "garden").begin()
            contents = await build(calls)
            before = await answers(calls)
        assert len(before["children at "]) == len(contents)
        assert before["SEARCH_TYPE_FULL_TEXT of zqanew at "] != []
        assert before["SEARCH_TYPE_FULL_TEXT of zqanew at v1"] == []
        for gone in (("qdrant",), ("postgres", "qdrant")):
            assert await service.stop() == 0
            Judge(data / calls.repository).check()
            for name in gone:
                await asyncio.to_thread(shutil.rmtree, data / name)
            service = await start(data, log, environment=environment)
            async with service.channel() as channel:
                again = Calls(channel, "garden")
                again.root = calls.root
                after = await answers(again)
            for question, answer in before.items():
                assert after[question] == answer, f"{question}, without {gone}"
    finally:
        service.kill()


@pytest.mark.requirement("STORE-6", "STORE-1", "STORE-2", "STORE-3", "SERVE-2")
async def test_a_postgres_outage_during_commits_leaves_one_commit_per_request(server: Service, calls: Calls) -> None:
    staged, session = await calls.create("staged before the fall"), calls.session
    await calls.open()
    ended = asyncio.Event()
    reasons: list[str] = []

    async def commit_on() -> list[tuple[str, str]]:
        done = []
        while not ended.is_set():
            # The same ids in each attempt: a call that failed may or may not have taken effect.
            creation = calls.creation("a text", request_id=new_id())
            _, before = await until_answered(calls.nodes.CreateNode, creation)
            request = calls.commitment("Commit", request_id=new_id())
            answer, between = await until_answered(calls.sessions.CommitChanges, request)
            reasons.extend(before + between)
            done.append((creation.node_id, answer.commit_id))
        return done

    working = asyncio.create_task(commit_on())
    for _ in range(budget(2)):
        postgres = server.child(POSTGRES)
        await asyncio.wait({working}, timeout=0.15)  # any moment of the work will do
        os.kill(postgres, signal.SIGKILL)
        await until(partial(_is_back, server, postgres), "it is back")
    ended.set()
    done = await working
    git = Judge(server.data / calls.repository)
    git.check()
    chain = git.run("rev-list", "main").split()
    assert sorted(commit for _, commit in done) == sorted(chain[: len(done)]), "no commit twice, none lost"
    for node_id, _ in done:
        assert await calls.read(node_id) == "a text"
    assert await calls.changes() == 0
    assert await calls.read(staged, session) == "staged before the fall"
    assert set(await calls.search("a text")) <= {node_id for node_id, _ in done}
    assert set(reasons) <= {"DATABASE_UNAVAILABLE"}


def _is_back(server: Service, fallen: int) -> bool:
    children = [pid for pid, text in server.children().items() if POSTGRES in text]
    return bool(children) and fallen not in children


@pytest.mark.requirement("STORE-6", "STORE-5")
async def test_a_killed_engine_comes_back_by_itself_and_the_search_is_right(server: Service, calls: Calls) -> None:
    contents = await build(calls)
    before, _ = await until_answered(hits, calls, "zqword2", "v1")
    assert before
    for turn in range(2):
        os.kill(server.child(ENGINE), signal.SIGKILL)
        late = await calls.create(f"Written while the engine is away: zqaway{turn}.")
        await calls.commit("A commit needs no engine")
        found, reasons = await until_answered(calls.search, f"zqaway{turn}")
        assert found == [late]
        assert set(reasons) <= {"INDEX_UNAVAILABLE"}
        for node_id, content in contents.items():
            assert (await calls.search(content.split()[-1].rstrip(".")))[0] == node_id
    assert await hits(calls, "zqword2", "v1") == before


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder read-only for the block; for root this needs a mount."""
    if os.geteuid() == 0:
        _run("mount", "--bind", folder, folder)
        try:
            _run("mount", "-o", "remount,bind,ro", folder)
            yield
        finally:
            _run("umount", "--lazy", folder)
        return
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if path.is_dir()}
    try:
        for path in modes:
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=30)  # noqa: S603 - mount, by root, on the test's own folders


@pytest.mark.requirement("STORE-1", "SERVE-2")
async def test_a_read_only_repository_refuses_commits_until_it_can_be_written(server: Service, calls: Calls) -> None:
    repository = server.data / calls.repository
    head = Judge(repository).run("rev-parse", "main")
    node_id = await calls.create("waits for the disk")
    request = calls.commitment("Not now", request_id=new_id(), create_tag=True, tag_name="v1")
    with read_only(repository):
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await calls.sessions.CommitChanges(request)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert reason(caught.value) == "REPOSITORY_UNAVAILABLE"
            assert "read-only" in (caught.value.details() or "") or "permission" in (caught.value.details() or "")
        assert await calls.read(node_id, calls.session) == "waits for the disk"
        assert await calls.read(node_id) is None
        another = await calls.create("edits are staged all the same")
    assert Judge(repository).run("rev-parse", "main") == head
    answer = await calls.sessions.CommitChanges(request)
    assert Judge(repository).run("rev-parse", "v1^{commit}").strip() == answer.commit_id
    assert await calls.read(node_id) == "waits for the disk"
    assert await calls.read(another) == "edits are staged all the same"
    Judge(repository).check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system for the test."""
    folder = tmp_path / "small"
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=320m,mode=755", "tmpfs", folder)
    try:
        yield folder
    finally:
        _run("umount", "--lazy", folder)


def fill(folder: Path) -> None:
    """Take all the space there is."""
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


@needs_root
@pytest.mark.requirement("STORE-1", "SERVE-2")
async def test_a_full_disk_fails_calls_clearly_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    service = await start(small_disk / "data", tmp_path / "server.log")
    try:
        async with service.channel() as channel:
            calls = await Calls(channel, "garden").begin()
            kept = {await calls.create("kept and committed"): "kept and committed"}
            await calls.commit()
            staged = {await calls.create(f"staged {number}"): f"staged {number}" for number in range(5)}
            fill(small_disk)
            refused = await _until_refused(calls, staged)
            assert refused.code() is grpc.StatusCode.UNAVAILABLE, refused
            request = calls.commitment("Too much", request_id=new_id())
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await calls.sessions.CommitChanges(request)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, caught.value
            (small_disk / "ballast").unlink()
            await until_answered(calls.sessions.CommitChanges, request)
            for node_id, content in (kept | staged).items():
                found, _ = await until_answered(calls.read, node_id)
                assert found == content
            found_by_search, _ = await until_answered(calls.search, "staged 3")
            assert found_by_search[0] in staged
        Judge(service.data / calls.repository).check()
        assert await service.stop() == 0
        service = await start(small_disk / "data", tmp_path / "server.log")
        async with service.channel() as channel:
            again = Calls(channel, "garden")
            assert {node_id: await again.read(node_id) for node_id in staged} == staged
    finally:
        service.kill()


async def _until_refused(calls: Calls, staged: dict[str, str]) -> grpc.aio.AioRpcError:
    """Stage large texts until the disk is full; record the acknowledged ones."""
    for number in range(400):
        content = f"{number} " + os.urandom(60_000).hex()
        try:
            node_id = await calls.create(content)
        except grpc.aio.AioRpcError as error:
            return error
        staged[node_id] = content
    pytest.fail("the disk took everything")
