"""git over HTTP: clones, fetches and pushes go to the server itself, are recorded, and hostile ones reach nothing."""

import gzip
import random
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from integration.clones import Clone, lost_node, new_node, refused, remote_lines
from integration.http_servers import Served, begin, notes, running, served, until
from memotree_storage.model.paths import entry_path
from starlette.requests import Request
from starlette.types import Message

from memotree.client.blocking import Client, Workspace
from memotree.gateways.git_http import _Exchange

__all__ = ["notes", "served"]

pytestmark = pytest.mark.requirement("GIT-8")

METHOD = "git-receive-pack"
PUSH = {"content-type": f"application/x-{METHOD}-request"}
GZIPPED = PUSH | {"content-encoding": "gzip"}
OK = ("OK", "")


@pytest.fixture
def url(served: Served, notes: Workspace) -> str:
    return f"{served.announced.url}/git/{notes.info().name}"


@pytest.fixture
def clone(tmp_path: Path, url: str) -> Clone:
    return Clone(tmp_path / "clone", url)


def refs(notes: Workspace) -> dict[str, str]:
    return {branch.name: branch.commit_id for branch in notes.branches()}


def recorded(client: Client, notes: Workspace) -> list[tuple[str, str]]:
    """The status and the error code of each push, from the first to the last."""
    found = list(client.audit_records(method=METHOD, workspace=notes.info().name))
    return [(each.code, each.reason) for each in reversed(found)]


def pushed(clone: Clone, before: str) -> tuple[str, bytes]:
    """A commit of 1 MiB that no delta makes smaller, and the body of the request that pushes it to main."""
    clone.write("README", random.Random(7).randbytes(1 << 20))
    clone.commit()
    packing = ["git", "-C", clone.folder, "pack-objects", "--revs", "--stdout", "-q"]
    asked = f"{clone.head}\n^{before}\n".encode()
    pack = subprocess.run(packing, input=asked, check=True, capture_output=True).stdout  # noqa: S603
    line = f"{before} {clone.head} refs/heads/main\0report-status".encode()
    return clone.head, b"%04x%s0000%s" % (len(line) + 4, line, pack)


@pytest.mark.requirement("TOOL-12")
def test_a_push_is_there_at_once_its_faults_told_and_recorded(served: Served, notes: Workspace, clone: Clone) -> None:
    node = new_node(notes, "Pushed", "By a person. " * 20_000)
    lost = lost_node(notes)
    clone.commit(node)
    assert remote_lines(clone.run("push", "origin", "main")) == ["MemoTree has taken in main."]
    assert notes.at("main").node(node.id).title == "Pushed"
    clone.commit(lost)
    first, fault = remote_lines(clone.run("push", "origin", "main"))
    assert first == "MemoTree has taken in main. It has a fault:"
    assert entry_path(lost) in fault
    assert recorded(served.client, notes) == [OK, OK]


def test_what_the_service_commits_is_fetched_in_each_version_of_the_protocol(notes: Workspace, clone: Clone) -> None:
    for version in range(3):
        with notes.session() as session:
            session.create(f"Node {version}", "More.", archive=next(iter(session.archives())).id)
            session.commit("Go on")
        clone.run("-c", f"protocol.version={version}", "pull", "-q", "--ff-only", "origin", "main")
        assert clone.head == refs(notes)["main"], f"version {version}"


def test_a_workspace_is_found_by_its_id_a_missing_one_is_told(served: Served, notes: Workspace, tmp_path: Path) -> None:
    Clone(tmp_path / "clone", f"{served.announced.url}/git/{notes.info().id}")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        Clone(tmp_path / "none", f"{served.announced.url}/git/nowhere")
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
def test_no_path_leaves_the_repositories(served: Served, path: str) -> None:
    answer = httpx2.get(f"{served.announced.url}{path}?service=git-upload-pack")
    assert answer.status_code in {400, 404}


def test_requests_that_are_not_gits_are_refused_and_no_file_is_served(url: str) -> None:
    for path in ("HEAD", "config", "objects/info/packs", "hooks/post-receive", "git-upload-archive"):
        assert httpx2.get(f"{url}/{path}").status_code == 404, path
        assert httpx2.post(f"{url}/{path}").status_code == 404, path
    assert httpx2.get(f"{url}/info/refs").status_code == 403
    assert httpx2.get(f"{url}/info/refs?service=git-upload-archive").status_code == 403
    assert httpx2.post(f"{url}/{METHOD}", headers={"content-type": "text/plain"}).status_code == 415
    assert httpx2.post(f"{url}/{METHOD}", headers=PUSH | {"content-encoding": "br"}).status_code == 415
    assert httpx2.post(f"{url}/{METHOD}", headers=PUSH | {"origin": "https://example.org"}).status_code == 403
    assert httpx2.get(f"{url}/info/refs?service=git-upload-pack", headers={"host": "example.org"}).status_code == 421


@pytest.mark.requirement("TOOL-12")
def test_a_body_that_git_cannot_use_moves_nothing_and_is_recorded(served: Served, notes: Workspace, url: str) -> None:
    before = refs(notes)
    for body in (b"not gzip", gzip.compress(b"0000" * 9)[:-9]):
        assert httpx2.post(f"{url}/{METHOD}", headers=GZIPPED, content=body, timeout=60).status_code == 400
    httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=b"no length", timeout=60)
    assert refs(notes) == before
    assert recorded(served.client, notes) == [
        ("INVALID_ARGUMENT", "PUSH_UNREADABLE"),
        ("INVALID_ARGUMENT", "PUSH_UNREADABLE"),
        ("UNKNOWN", "GIT_FAILED"),
    ]


def test_a_push_that_is_cut_off_moves_nothing(notes: Workspace, url: str, clone: Clone) -> None:
    before = refs(notes)
    new, body = pushed(clone, before["main"])
    for share in (0.001, 0.5, 0.99999):
        httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=body[: int(len(body) * share)], timeout=60)
        assert refs(notes) == before, f"{share} of it arrived"
    answer = httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=body, timeout=60)
    assert b"ok refs/heads/main" in answer.content
    assert refs(notes) == before | {"main": new}, "the whole of it does"


@pytest.mark.requirement("TOOL-12")
def test_a_push_so_long_that_git_asks_first_is_recorded_once(served: Served, notes: Workspace, clone: Clone) -> None:
    clone.run("config", "http.postBuffer", "65536")  # longer ones come in parts, after an empty push
    new, _ = pushed(clone, refs(notes)["main"])
    clone.run("push", "-q", "origin", "main")
    assert refs(notes) == {"main": new}
    assert recorded(served.client, notes) == [OK]


def test_a_server_that_is_killed_while_pushes_arrive_leaves_the_old_state_whole(tmp_path: Path) -> None:
    folder, shares = tmp_path / "data", {"nothing": 0.0, "half": 0.5, "nearly-all": 0.99}
    clones = {}
    with running(folder) as (announced, process), Client(announced.address) as client, ExitStack() as stack:
        made = {name: client.create_workspace(name) for name in shares}
        before = {name: refs(client.workspace(name)) for name in shares}
        for name, share in shares.items():
            clones[name] = Clone(tmp_path / name, f"{announced.url}/git/{name}")
            _, body = pushed(clones[name], before[name]["main"])
            stack.enter_context(begin(announced, name, METHOD, length=len(body), body=body[: int(len(body) * share)]))
        process.kill()
        process.wait(60)
    with running(folder) as (announced, _), Client(announced.address) as client:
        assert {name: refs(client.workspace(name)) for name in shares} == before
        for name, clone in clones.items():
            clone.run("push", "-q", f"{announced.url}/git/{name}", "main")
            assert refs(client.workspace(name)) == {"main": clone.head}, name
    for each in made.values():
        subprocess.run(["git", "-C", folder / each.repository, "fsck", "--strict"], check=True, capture_output=True)  # noqa: S603, S607


@pytest.mark.requirement("TOOL-12")
def test_a_git_that_writes_nothing_is_ended_and_one_that_is_missing_is_told(tmp_path: Path) -> None:
    silent, sleep = tmp_path / "bin" / "git", shutil.which("sleep")
    silent.parent.mkdir()
    silent.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec {sleep} 1000\n")
    silent.chmod(0o700)
    with (
        running(tmp_path / "data", silence=0.5, PATH=str(silent.parent)) as (announced, _),
        Client(announced.address) as client,
    ):
        client.create_workspace("notes")
        url = f"{announced.url}/git/notes"
        assert httpx2.get(f"{url}/info/refs?service=git-upload-pack", timeout=60).status_code == 504
        assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
        assert httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=b"0000", timeout=60).status_code == 504
        assert recorded(client, client.workspace("notes")) == [("DEADLINE_EXCEEDED", "GIT_SILENT")]
        silent.unlink()
        answer = httpx2.get(f"{url}/info/refs?service=git-upload-pack")
        assert answer.status_code == 501
        assert "install git" in answer.text


async def test_each_part_of_a_push_that_arrives_gives_git_its_time_again(tmp_path: Path) -> None:
    """So a push may arrive for longer than git may be silent."""
    deadlines: list[float | None] = []

    async def receive() -> Message:
        deadlines.append(exchange._patience.when())
        return {"type": "http.request", "body": b"some", "more_body": len(deadlines) < 5}

    async def send(_: Message) -> None:
        return

    scope = {"type": "http", "method": "POST", "headers": [], "query_string": b"", "path_params": {"program": METHOD}}
    exchange = _Exchange(Request(scope, receive), send)
    reads_all = tmp_path / "git"
    reads_all.write_text("#!/bin/sh\nexec cat\n")
    reads_all.chmod(0o700)
    await exchange.run(str(reads_all), tmp_path, {})
    assert None not in deadlines
    assert len(set(deadlines)) == 5
    assert deadlines == sorted(deadlines)


def test_too_many_requests_are_told_to_come_again(served: Served, notes: Workspace, url: str, clone: Clone) -> None:
    advertised = f"{url}/info/refs?service={METHOD}"
    with ExitStack() as stack:

        def is_refused() -> bool:
            """Whether a request is refused; if not, it may have had the place of one of the eight, so begin another."""
            if httpx2.get(advertised).status_code == 429:
                return True
            stack.enter_context(begin(served.announced, notes.info().name, METHOD))
            return False

        for _ in range(8):
            stack.enter_context(begin(served.announced, notes.info().name, METHOD))
        until(is_refused, "eight pushes that do not end have all places")
        assert "try again in a moment" in httpx2.get(advertised).text
        with pytest.raises(subprocess.CalledProcessError) as failed:
            clone.run("push", "origin", "main:other")
        assert "429" in failed.value.stderr
    until(lambda: httpx2.get(advertised).status_code == 200, "the server has seen that their clients are gone")
    assert clone.run("push", "origin", "main:other")
    assert set(refs(notes)) == {"main", "other"}


# --- The record of a push ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("TOOL-12")
def test_a_push_that_a_hook_or_git_refuses_is_recorded_with_the_reason_and_leaves_no_file(
    served: Served, notes: Workspace, clone: Clone
) -> None:
    refused(clone, ":main")  # the default branch, which git keeps
    clone.write("README", b"Not a node.\n")
    clone.commit()
    refused(clone, "main:refs/notes/x")
    notes.protect("main")
    refused(clone, "main")
    notes.unprotect("main")
    clone.run("push", "origin", "main")
    clone.run("commit", "-q", "--amend", "-m", "Another")
    refused(clone, "--force", "main")
    assert recorded(served.client, notes) == [
        ("FAILED_PRECONDITION", "PUSH_REFUSED"),
        ("FAILED_PRECONDITION", "REF_NOT_TAKEN"),
        ("FAILED_PRECONDITION", "BRANCH_PROTECTED"),
        OK,
        ("FAILED_PRECONDITION", "BRANCH_NOT_REWINDABLE"),
    ]
    assert not [each for each in served.scratch.iterdir() if "push" in each.name]


@pytest.mark.requirement("TOOL-12")
def test_a_push_with_faults_to_a_strict_workspace_is_recorded(served: Served, notes: Workspace, clone: Clone) -> None:
    notes.set_push_policy(strict=True)
    clone.run("branch", "good")
    clone.commit(lost_node(notes))
    refused(clone, "main")
    refused(clone, "main", "good")
    assert set(refs(notes)) == {"main", "good"}
    assert recorded(served.client, notes) == [
        ("FAILED_PRECONDITION", "PUSH_HAS_FAULTS"),
        ("FAILED_PRECONDITION", "PUSH_PARTLY_REFUSED"),
    ]


@pytest.mark.requirement("TOOL-12")
def test_a_client_that_wants_no_report_or_goes_away_hides_nothing(
    served: Served, notes: Workspace, url: str, clone: Clone
) -> None:
    before = refs(notes)
    _, body = pushed(clone, before["main"])
    begin(served.announced, notes.info().name, METHOD, length=len(body), body=body[: len(body) // 2]).close()
    until(lambda: bool(recorded(served.client, notes)), "the server has seen that its client is gone")
    assert refs(notes) == before
    silent = body.replace(b"\0report-status", b"\0agent=silent1")
    notes.protect("main")
    httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=silent, timeout=60)
    notes.unprotect("main")
    httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=silent, timeout=60)
    assert recorded(served.client, notes) == [
        ("CANCELLED", ""),
        ("FAILED_PRECONDITION", "BRANCH_PROTECTED"),
        ("UNKNOWN", "PUSH_NOT_REPORTED"),
    ]
