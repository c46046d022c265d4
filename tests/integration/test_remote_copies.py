"""With a remote in the settings, each workspace is pushed there after its commits, and no commit waits for that."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from crash.service import start
from integration.test_signed_commits import git as signed
from integration.test_signed_commits import signer
from integration.worlds import World
from memotree_storage.git.signing import load_signer
from memotree_storage.maintenance.remote_copies import RemoteCopies
from memotree_storage.model.erasure import ERASURES_REF
from memotree_storage.model.workspace import KEEP_PREFIX

from memotree.client import AsyncClient, JobState, ServerStatus
from memotree.v1 import job_service_pb2, job_service_pb2_grpc

pytestmark = [pytest.mark.requirement("GIT-11"), pytest.mark.own_store]

DEADLINE = 60.0
Copying = Callable[..., AbstractAsyncContextManager[RemoteCopies]]


@pytest.fixture
def remotes(tmp_path: Path) -> Path:
    folder = tmp_path / "remotes"
    folder.mkdir()
    return folder


@pytest.fixture
def copying(world: World, remotes: Path) -> Copying:
    """Starts to push as a server does."""

    @asynccontextmanager
    async def started(url: str = remotes.as_uri()) -> AsyncIterator[RemoteCopies]:
        copies = RemoteCopies(world.store.repositories, f"{url}/{{id}}.git", first_pause=0.01)
        world.store.noticing.append(copies.notice)
        copies.start()
        try:
            yield copies
        finally:
            world.store.noticing.remove(copies.notice)
            await copies.stop()

    return started


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607


def make_remote(folder: Path, workspace_id: str) -> Path:
    git("init", "-q", "--bare", str(folder / f"{workspace_id}.git"))
    return folder / f"{workspace_id}.git"


def refs_of(remote: Path) -> dict[str, str]:
    lines = git("--git-dir", str(remote), "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)


def shared(world: World) -> dict[str, str]:
    """The refs that a copy should have."""
    return {name: target for name, target in world.repository.refs().items() if not name.startswith(KEEP_PREFIX)}


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, asked in a thread."""
    async with asyncio.timeout(DEADLINE):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - git decides
            await asyncio.sleep(0.01)


async def until_status(client: AsyncClient, holds: Callable[[ServerStatus], bool]) -> None:
    """Wait until something holds of the server's status."""
    async with asyncio.timeout(DEADLINE):
        while not holds(await client.status()):  # noqa: ASYNC110 - git decides
            await asyncio.sleep(0.01)


async def test_a_commit_arrives_with_all_refs_but_those_of_sessions(
    world: World, remotes: Path, copying: Copying
) -> None:
    remote = make_remote(remotes, world.workspace)
    first = await world.head()
    await world.open()
    async with copying() as copies:
        await until(lambda: refs_of(remote) == shared(world))
        await world.put(world.node("A node"), tag="v1")
        await until(lambda: refs_of(remote) == shared(world))
        assert world.repository.move_ref("refs/heads/idea", None, await world.head())
        copies.notice(world.workspace)
        await until(lambda: refs_of(remote) == shared(world))
        assert "refs/heads/idea" in refs_of(remote)
        assert world.repository.move_ref("refs/heads/idea", await world.head(), None)
        copies.notice(world.workspace)
        await until(lambda: refs_of(remote) == shared(world))
        assert world.repository.move_ref("refs/heads/main", await world.head(), first), "what is moved back goes there"
        copies.notice(world.workspace)
        await until(lambda: refs_of(remote) == shared(world))
        await until(lambda: copies.behind() == [])
    assert refs_of(remote)["refs/heads/main"] == first
    assert {"refs/tags/v1", "refs/memotree/workspace"} <= refs_of(remote).keys()


async def test_commits_go_on_while_the_remote_is_missing_and_arrive_when_it_is_there(
    world: World, remotes: Path, copying: Copying
) -> None:
    async with copying() as copies:
        await world.put(world.node("A node"))
        await until(lambda: any(each.why for each in copies.behind()))
        (behind,) = copies.behind()
        assert behind.workspace_id == world.workspace
        assert "does not appear to be a git repository" in behind.why
        await world.put(world.node("Another", position="a5"))
        assert copies.behind()[0].since == behind.since
        remote = make_remote(remotes, world.workspace)
        await until(lambda: copies.behind() == [])
        assert refs_of(remote) == shared(world)


async def test_a_remote_that_says_nothing_holds_up_no_commit_and_no_stop(world: World, copying: Copying) -> None:
    asked = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until git is ended
        writer.close()

    server = await asyncio.start_server(stay_silent, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, asyncio.timeout(DEADLINE), copying(address) as copies:
        await asked.wait()
        commit_id = await world.put(world.node("A node"))
        assert await world.head() == commit_id
        assert [each.why for each in copies.behind()] == [""]


async def test_a_start_pushes_only_what_has_changed_since(world: World, remotes: Path, copying: Copying) -> None:
    remote = make_remote(remotes, world.workspace)
    async with copying() as copies:
        await until(lambda: refs_of(remote) == shared(world))
        await until(lambda: copies.behind() == [])
    remote.rename(remotes / "elsewhere")
    async with copying() as copies:
        copies.notice(world.workspace)
        await until(lambda: copies.behind() == [])  # it would fail, since the remote is gone
    (remotes / "elsewhere").rename(remote)
    await world.put(world.node("While nothing ran"))
    async with copying():
        await until(lambda: refs_of(remote) == shared(world))


async def test_a_server_signs_pushes_tells_when_it_cannot_and_gives_the_remote_the_history_after_an_erasure(
    tmp_path: Path, remotes: Path
) -> None:
    key, allowed = signer(tmp_path)
    secret = "Tulpenzwiebel-7731"  # noqa: S105 - of nobody
    url = f"{remotes.as_uri()}/{{name}}.git"
    environment = {"MEMOTREE_GIT_REMOTE_URL": url, "MEMOTREE_SIGNING_KEY": str(key)}
    service = await start(tmp_path / "data", tmp_path / "server.log", environment=environment)
    try:
        async with AsyncClient(service.address) as client:
            await client.create_workspace("garden")
            garden = client.workspace("garden")
            await garden.remember(f"The password is {secret}.")
            await until_status(client, lambda status: "does not appear" in "".join(status.copies_behind.values()))
            remote = make_remote(remotes, "garden")
            await until_status(client, lambda status: not status.copies_behind)
            status = await client.status()
            assert (status.git_remote_url, status.signing_key) == (url, load_signer(key).fingerprint)
            shown = signed(remote, allowed, "log", "--all", "--format=%G?").stdout.split()
            assert len(shown) >= 3
            assert set(shown) == {"G"}
            assert secret in git("--git-dir", str(remote), "grep", secret, "main")
            preview = await garden.preview_erasure(text=secret)
            job = await garden.erase(preview.phrase, "It leaked.", by="ada", text=secret)
            async for each in client.watch_job(job):
                job = each
            assert job.state is JobState.SUCCEEDED
            async with service.channel() as channel:
                found = await job_service_pb2_grpc.JobServiceStub(channel).GetJob(
                    job_service_pb2.GetJobRequest(job_id=job.id)
                )
            assert any("git gc --prune=now" in each for each in found.job.erasure.left)
            head = (await anext(aiter(garden.log()))).id
            await until(lambda: refs_of(remote)["refs/heads/main"] == head)
            assert await asyncio.to_thread(git, "--git-dir", str(remote), "log", "--all", "-S", secret) == ""
            rewritten = signed(remote, allowed, "log", "-1", "--format=%G?", "main").stdout.strip()
            assert rewritten == "N", "a signature is of the bytes before the erasure"
            assert signed(remote, allowed, "log", "-1", "--format=%G?", ERASURES_REF).stdout.strip() == "G"
            await garden.remember("It goes on.")
            head = (await anext(aiter(garden.log()))).id
            await until(lambda: refs_of(remote)["refs/heads/main"] == head)
            assert signed(remote, allowed, "log", "-1", "--format=%G?", "main").stdout.strip() == "G"
    finally:
        service.kill()
