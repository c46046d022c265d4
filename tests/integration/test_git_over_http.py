"""git over HTTP: clones, fetches and pushes go to the server itself, and hostile requests reach nothing."""

import gzip
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from integration.test_push_hook import Clone, remote_lines
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Node, new_id
from memotree_storage.model.paths import entry_path

from memotree.client.blocking import Client, Workspace
from memotree.server.announcement import Announcement, read_announcement

pytestmark = pytest.mark.requirement("GIT-8")

SERVE = """
import sys
from pathlib import Path
from memotree.gateways import git_http
from memotree.gateways.http_server import HttpServer
from memotree.server import starting
git_http._SILENT_SECONDS = float(sys.argv[2])
from memotree.settings import load_settings
settings = load_settings(data_folder=Path(sys.argv[1]), host="127.0.0.1", port=0, http_port=0)
starting.serve(settings, lambda _: print("up", flush=True), lambda: HttpServer)
"""
PUSH = {"content-type": "application/x-git-receive-pack-request"}
FETCH = {"content-type": "application/x-git-upload-pack-request"}


@contextmanager
def running(
    folder: Path, *, silence: float = 600.0, **environment: str
) -> Iterator[tuple[Announcement, subprocess.Popen[str]]]:
    """A server on a folder, ended at the exit if it still runs."""
    process = subprocess.Popen(  # noqa: S603 - this interpreter and the program above
        [sys.executable, "-c", SERVE, str(folder), str(silence)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
    )
    try:
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "up\n":
            assert line, "the server ended"
        announced = read_announcement(folder)
        assert announced is not None
        yield announced, process
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announcement]:
    with running(tmp_path_factory.mktemp("served") / "data") as (announced, _):
        yield announced


@pytest.fixture
def notes(server: Announcement, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    with Client(server.address) as client:
        made = client.create_workspace(f"{request.function.__name__[:40]}-{new_id()}")
        with client.workspace(made.name).session() as session:
            session.create("Root", "What it says.", archive=session.create_archive("notes"))
            session.commit("Begin")
        yield client.workspace(made.name)


@pytest.fixture
def url(server: Announcement, notes: Workspace) -> str:
    return f"{server.url}/git/{notes.info().name}"


@pytest.fixture
def clone(tmp_path: Path, url: str) -> Clone:
    return Clone(tmp_path / "clone", url)  # type: ignore[arg-type] # git takes either


def refs(notes: Workspace) -> dict[str, str]:
    return {branch.name: branch.commit_id for branch in notes.branches()}


def test_a_push_over_http_is_there_at_once_and_its_faults_are_told(notes: Workspace, clone: Clone) -> None:
    (archive,) = notes.at("main").archives()
    node = Node(new_id(), archive.id, None, "a5", title="Pushed", content="By a person. " * 200_000)
    lost = Node(new_id(), archive.id, new_id(), "a5", title="Lost", content="Below nothing.")
    clone.write(entry_path(node), encode_entry(node))
    clone.commit()
    assert remote_lines(clone.run("push", "origin", "main")) == ["MemoTree has taken in main."]
    assert notes.at("main").node(node.id).title == "Pushed"
    clone.write(entry_path(lost), encode_entry(lost))
    clone.commit()
    first, fault = remote_lines(clone.run("push", "origin", "main"))
    assert first == "MemoTree has taken in main. It has a fault:"
    assert entry_path(lost) in fault


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_what_the_service_commits_is_fetched_in_each_version_of_the_protocol(
    notes: Workspace, clone: Clone, version: str
) -> None:
    with notes.session() as session:
        session.create("Second", "More.", archive=next(iter(session.archives())).id)
        session.commit("Go on")
    clone.run("-c", f"protocol.version={version}", "pull", "-q", "--ff-only", "origin", "main")
    assert (clone.folder / ".git" / "refs" / "heads" / "main").read_text().strip() == refs(notes)["main"]


def test_a_workspace_is_found_by_its_id_and_a_missing_one_is_told(
    server: Announcement, notes: Workspace, tmp_path: Path
) -> None:
    Clone(tmp_path / "clone", f"{server.url}/git/{notes.info().id}")  # type: ignore[arg-type]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        Clone(tmp_path / "none", f"{server.url}/git/nowhere")  # type: ignore[arg-type]
    assert b"nowhere" in failed.value.stderr


def test_what_memotree_keeps_in_refs_is_not_pushed_to(notes: Workspace, clone: Clone) -> None:
    for name in ("workspace", "keep/a", "protections", "proposals/a", "new"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            clone.run("push", "origin", f"+main:refs/memotree/{name}")
        assert "deny updating a hidden ref" in failed.value.stderr
    assert list(refs(notes)) == ["main"]


@pytest.mark.parametrize(
    "path",
    [
        "/git/../../etc/info/refs",
        "/git/%2e%2e/info/refs",
        "/git/..%2f..%2fetc/info/refs",
        "/git/%2e%2e%2fworkspaces/info/refs",
        "/git//etc/info/refs",
        "/git/%2fetc%2f/info/refs",
        "/git/%00/info/refs",
        "/git/a%0a/info/refs",
        "/git/--upload-pack=x/info/refs",
        "/git/..%5c..%5cetc/info/refs",
        "/git/%c0%ae%c0%ae/info/refs",
    ],
)
def test_no_path_leaves_the_repositories(server: Announcement, path: str) -> None:
    answer = httpx2.get(f"{server.url}{path}?service=git-upload-pack")
    assert answer.status_code in {400, 404}


@pytest.mark.parametrize("path", ["HEAD", "config", "objects/info/packs", "hooks/post-receive", "git-upload-archive"])
def test_no_file_of_a_repository_is_served(url: str, path: str) -> None:
    assert httpx2.get(f"{url}/{path}").status_code == 404
    assert httpx2.post(f"{url}/{path}").status_code == 404


def test_requests_that_are_not_gits_are_refused(url: str) -> None:
    assert httpx2.get(f"{url}/info/refs").status_code == 403
    assert httpx2.get(f"{url}/info/refs?service=git-upload-archive").status_code == 403
    assert httpx2.post(f"{url}/git-receive-pack", headers={"content-type": "text/plain"}).status_code == 415
    assert httpx2.post(f"{url}/git-receive-pack", headers=PUSH | {"content-encoding": "br"}).status_code == 415
    foreign = PUSH | {"origin": "https://example.org"}
    assert httpx2.post(f"{url}/git-receive-pack", headers=foreign).status_code == 403
    assert httpx2.get(f"{url}/info/refs?service=git-upload-pack", headers={"host": "example.org"}).status_code == 421


def test_a_body_that_is_not_whole_gzip_is_refused_and_moves_nothing(notes: Workspace, url: str) -> None:
    before = refs(notes)
    for body in (b"not gzip", gzip.compress(b"0000" * 9)[:-9]):
        answer = httpx2.post(f"{url}/git-receive-pack", headers=PUSH | {"content-encoding": "gzip"}, content=body)
        assert answer.status_code == 400
    assert refs(notes) == before


def pushed(clone: Clone, before: str) -> tuple[str, bytes]:
    """A commit of 1 MiB that no delta makes smaller, and the body of the request that pushes it to main."""
    clone.write("README", random.Random(7).randbytes(1 << 20))
    clone.commit()
    new = (clone.folder / ".git" / "refs" / "heads" / "main").read_text().strip()
    packing = ["git", "-C", clone.folder, "pack-objects", "--revs", "--stdout", "-q"]
    pack = subprocess.run(packing, input=f"{new}\n^{before}\n".encode(), check=True, capture_output=True).stdout  # noqa: S603
    line = f"{before} {new} refs/heads/main\0report-status".encode()
    return new, b"%04x%s0000%s" % (len(line) + 4, line, pack)


@pytest.mark.parametrize("share", [0.001, 0.5, 0.99999])
def test_a_push_that_is_cut_off_moves_nothing(notes: Workspace, url: str, clone: Clone, share: float) -> None:
    before = refs(notes)
    new, body = pushed(clone, before["main"])
    httpx2.post(f"{url}/git-receive-pack", headers=PUSH, content=body[: int(len(body) * share)])
    assert refs(notes) == before
    answer = httpx2.post(f"{url}/git-receive-pack", headers=PUSH, content=body)
    assert b"ok refs/heads/main" in answer.content
    assert refs(notes) == before | {"main": new}, "the whole of it does"


def test_a_push_so_long_that_git_asks_first_arrives(notes: Workspace, clone: Clone) -> None:
    clone.run("config", "http.postBuffer", "65536")  # longer ones come in parts, after an empty push
    new, _ = pushed(clone, refs(notes)["main"])
    clone.run("push", "-q", "origin", "main")
    assert refs(notes) == {"main": new}


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_server_that_is_killed_while_a_push_arrives_leaves_the_old_state_whole(tmp_path: Path, share: float) -> None:
    folder = tmp_path / "data"
    with running(folder) as (announced, process):
        with Client(announced.address) as client:
            made = client.create_workspace("notes")
            before = refs(client.workspace("notes"))
        clone = Clone(tmp_path / "clone", f"{announced.url}/git/notes")  # type: ignore[arg-type]
        new, body = pushed(clone, before["main"])
        head = f"POST /git/notes/git-receive-pack HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
        host, port = announced.url.removeprefix("http://").rsplit(":", 1)
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{head}content-type: {PUSH['content-type']}\r\n\r\n".encode())
            connection.sendall(body[: int(len(body) * share)])
            process.kill()
            process.wait(60)
    with running(folder) as (announced, _), Client(announced.address) as client:
        notes = client.workspace("notes")
        assert refs(notes) == before
        clone.run("push", "-q", f"{announced.url}/git/notes", "main")
        assert refs(notes) == {"main": new}
    subprocess.run(["git", "-C", folder / made.repository, "fsck", "--strict"], check=True, capture_output=True)  # noqa: S603, S607


def test_a_server_without_a_git_program_says_so(tmp_path: Path) -> None:
    with running(tmp_path / "data", PATH=str(tmp_path)) as (announced, _):
        with Client(announced.address) as client:
            client.create_workspace("notes")
        answer = httpx2.get(f"{announced.url}/git/notes/info/refs?service=git-upload-pack")
        assert answer.status_code == 501
        assert "install git" in answer.text


def test_a_git_that_writes_nothing_is_ended(tmp_path: Path) -> None:
    silent = tmp_path / "bin" / "git"
    silent.parent.mkdir()
    silent.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    silent.chmod(0o700)
    path = f"{silent.parent}{os.pathsep}{os.environ['PATH']}"
    with running(tmp_path / "data", silence=0.5, PATH=path) as (announced, _):
        with Client(announced.address) as client:
            client.create_workspace("notes")
        answer = httpx2.get(f"{announced.url}/git/notes/info/refs?service=git-upload-pack", timeout=60)
        assert answer.status_code == 504
        assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_a_push_that_arrives_for_longer_than_git_may_be_silent_is_taken(tmp_path: Path) -> None:
    with running(tmp_path / "data", silence=10.0) as (announced, _), Client(announced.address) as client:
        client.create_workspace("notes")
        notes = client.workspace("notes")
        clone = Clone(tmp_path / "clone", f"{announced.url}/git/notes")  # type: ignore[arg-type]
        new, body = pushed(clone, refs(notes)["main"])

        def slowly() -> Iterator[bytes]:
            for start in range(0, len(body), 1 + len(body) // 12):
                yield body[start : start + 1 + len(body) // 12]
                time.sleep(1.0)  # so that all of it takes longer than git may be silent

        answer = httpx2.post(f"{announced.url}/git/notes/git-receive-pack", headers=PUSH, content=slowly(), timeout=60)
        assert b"ok refs/heads/main" in answer.content
        assert refs(notes) == {"main": new}


def test_requests_beyond_the_limit_are_told_to_come_again_and_the_others_end(
    server: Announcement, notes: Workspace, url: str, clone: Clone
) -> None:
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    head = (
        f"POST /git/{notes.info().name}/git-receive-pack HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n"
        f"content-type: {PUSH['content-type']}\r\n\r\n"
    )
    advertised = f"{url}/info/refs?service=git-receive-pack"
    with ExitStack() as stack:

        def begin() -> None:
            """Begin a push that does not end; one that comes while eight requests run is refused at once."""
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(head.encode() + b"0")

        for _ in range(8):
            begin()
        while (refused := httpx2.get(advertised)).status_code == 200:
            begin()  # this request may have had the place of one of the eight
        assert refused.status_code == 429
        assert "try again in a moment" in refused.text
        with pytest.raises(subprocess.CalledProcessError) as failed:
            clone.run("push", "origin", "main:other")
        assert "429" in failed.value.stderr
    while httpx2.get(advertised).status_code == 429:
        pass  # until the server has seen that their clients are gone
    assert clone.run("push", "origin", "main:other")
    assert set(refs(notes)) == {"main", "other"}


def test_who_holds_many_requests_of_git_leaves_room_for_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder, MEMOTREE_AUTHENTICATION="keys") as (announced, _):
        host, port = announced.url.removeprefix("http://").rsplit(":", 1)
        proofs = {}
        with Client(announced.address, key=(folder / "admin.key").read_text().strip()) as admin:
            admin.create_workspace("notes")
            for name in ("ada", "ben", "stranger"):
                admin.put_principal(name)
                proofs[name] = f"Bearer {admin.create_key(name).key}"
            for name in ("ada", "ben"):
                admin.grant_role(name, "READER", workspace="notes")

        def status(name: str) -> int:
            advertised = f"{announced.url}/git/notes/info/refs?service=git-upload-pack"
            return httpx2.get(advertised, headers={"authorization": proofs[name]}).status_code

        def begin(stack: ExitStack, name: str, count: int) -> None:
            """Begin requests that never end: they wait for the rest of what is asked."""
            head = (
                f"POST /git/notes/git-upload-pack HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {proofs[name]}\r\n"
                f"content-length: 100\r\ncontent-type: {FETCH['content-type']}\r\n\r\n0"
            )
            for _ in range(count):
                connection = stack.enter_context(socket.create_connection((host, int(port))))
                connection.sendall(head.encode())

        with ExitStack() as stack:
            begin(stack, "stranger", 20)  # it may not read the workspace, so these hold nothing
            assert status("stranger") == 404
            begin(stack, "ada", 20)
            while status("ada") == 200:
                begin(stack, "ada", 1)  # until as many have begun as may: this request may have had the place of one
            assert status("ada") == 429
            assert status("ben") == 200
            begin(stack, "ben", 20)
            while status("ben") == 200:
                begin(stack, "ben", 1)
            assert status("stranger") == 404
        while 429 in {status("ada"), status("ben")}:
            pass  # until the server has seen that their clients are gone
