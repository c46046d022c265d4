"""A server that needs API keys: who calls is known over every interface, and may do what its roles say, and no more."""

import base64
import json
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from click.testing import Result
from grpc_health.v1 import health_pb2, health_pb2_grpc
from integration.clones import Clone, refused
from integration.guarded import PEOPLE, Place, ingested, place, refusal, status
from memotree_storage.model.node import Node, new_id
from memotree_storage.postgres import access as tables
from memotree_storage.store import Store

from memotree.client import (
    AsyncClient,
    Author,
    Client,
    Job,
    NotFoundError,
    PermissionDeniedError,
)
from memotree.composition.access import open_access
from memotree.identity.access import Access
from memotree.identity.errors import KeyRefusedError
from memotree.identity.permissions import OUTSIDE, PERMISSIONS
from memotree.server.binding import contract
from memotree.settings import Settings
from memotree.v1 import job_service_pb2, session_service_pb2

__all__ = ["place"]

pytestmark = pytest.mark.requirement("SERVE-3")


# --- Who calls --------------------------------------------------------------------------------------------------------


def test_every_rpc_has_its_permission_or_stands_outside() -> None:
    rpcs = {f"{name}.{rpc.name}" for name, service in contract().items() for rpc in service.methods}
    assert set(PERMISSIONS) | OUTSIDE == rpcs
    assert not PERMISSIONS.keys() & OUTSIDE


def test_without_a_valid_key_nothing_is_answered(place: Place) -> None:
    for key in ("", "mt_" + "A" * 43):
        with Client(place.announced.address, attempts=1, key=key) as client:
            assert refusal(client.status).reason == ("KEY_REFUSED" if key else "NOT_AUTHENTICATED")
    url, admin = place.announced.url, place.keys["admin"]
    no_proofs: list[list[tuple[str, str]]] = [
        [],
        [("authorization", "Bearer mt_no")],
        [("authorization", "Token x")],
        [("authorization", f"Bearer {admin}")] * 2,  # two proofs prove nothing
    ]
    password = base64.b64encode(f"x:{admin}".encode()).decode()  # it is taken from git alone
    cases = product(
        ("/api/tools", "/api/tools/recall", "/mcp", "/git/notes/info/refs", "/tools/x", "/nowhere"), no_proofs
    )
    with httpx2.Client() as http:
        for path, headers in (*cases, ("/api/tools", [("authorization", f"Basic {password}")])):
            answer = http.get(url + path, headers=headers)
            assert answer.status_code == 401, (path, headers)
            assert "www-authenticate" in answer.headers, (path, headers)
            assert "notes" not in answer.text, (path, headers)
            if "/git/" not in path:
                assert answer.json()["error"]["code"] in {"NOT_AUTHENTICATED", "KEY_REFUSED"}, (path, headers)


def test_whoever_watches_the_server_needs_no_key(place: Place) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert httpx2.get(place.announced.url + path).status_code == 200
    with grpc.insecure_channel(place.announced.address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())  # type: ignore[no-untyped-call]
    assert check.status == health_pb2.HealthCheckResponse.SERVING


def test_the_first_start_made_a_key_that_only_its_user_can_read(place: Place) -> None:
    assert stat.S_IMODE((place.folder / "admin.key").stat().st_mode) == 0o600
    me = place.client("admin").principal()
    assert me.name == "admin"
    assert [(grant.workspace, grant.branches, grant.role) for grant in me.grants] == [("*", "*", "ADMIN")]


def test_a_key_that_was_deleted_proves_nothing_from_then_on(place: Place) -> None:
    admin, client = place.client("admin"), place.enter("brief")
    assert client.principal().name == "brief"
    (key,) = client.keys()
    client.delete_key(key.id)
    assert refusal(client.principal).reason == "KEY_REFUSED"
    other = place.enter("brief")
    assert other.principal().name == "brief"
    admin.delete_principal("brief")
    assert refusal(other.principal).reason == "KEY_REFUSED"
    assert refusal(lambda: admin.principal("brief")).reason == "PRINCIPAL_NOT_FOUND"


def test_a_key_is_shown_once_and_its_last_use_is_known(place: Place) -> None:
    reader = place.client("reader")
    reader.principal()
    (key,) = reader.keys()
    assert key.last_use_time is not None
    assert place.keys["reader"] not in repr([*reader.keys(), *place.client("admin").keys("*")])
    made = reader.create_key(label="second")
    assert made.key not in repr(made)
    reader.delete_key(made.api_key.id)


def test_keys_of_others_are_for_administrators(place: Place) -> None:
    reader, admin = place.client("reader"), place.client("admin")
    (of_writer,) = admin.keys("writer")
    for call in (
        lambda: list(reader.keys("writer")),
        lambda: list(reader.keys("*")),
        lambda: reader.create_key("writer"),
        lambda: reader.principal("writer"),
        lambda: list(reader.principals()),
        lambda: reader.put_principal("reader", email="x@example.org"),
        lambda: reader.delete_principal("writer"),
        lambda: reader.grant_role("reader", "ADMIN", workspace="notes"),
        lambda: reader.grant_role("reader", "READER", workspace="*"),
        lambda: list(reader.principals("notes")),
    ):
        assert refusal(call).reason == "ROLE_MISSING"
    assert refusal(lambda: reader.delete_key(of_writer.id)).reason == "KEY_NOT_FOUND"
    assert refusal(lambda: reader.grant_role("reader", "ADMIN", workspace="elsewhere")).reason == "WORKSPACE_NOT_FOUND"


# --- Roles ------------------------------------------------------------------------------------------------------------


def test_what_one_may_not_read_is_not_there(place: Place) -> None:
    stranger = place.client("stranger")
    assert [each.name for each in stranger.workspaces()] == ["elsewhere"]
    assert stranger.status().workspace_count == 1
    for call in (lambda name: stranger.workspace(name).info(), lambda name: list(stranger.workspace(name).jobs())):
        there, missing = (refusal(partial(call, name)) for name in ("notes", "nites"))
        assert (there.reason, str(there)) == (missing.reason, str(missing).replace("nites", "notes"))
    assert refusal(lambda: stranger.create_workspace("notes")).reason == "ROLE_MISSING"


def test_each_role_may_do_what_the_ones_before_it_may_and_on_no_other_branches(place: Place) -> None:
    for name in PEOPLE:
        assert place.notes(name).recall("When does the harbour close?").passages
    assert refusal(lambda: place.notes("reader").remember("No.")).reason == "ROLE_MISSING"
    for name in ("writer", "reviewer", "keeper"):
        place.notes(name).remember(f"{name} was here.")
    for name in ("reader", "writer", "reviewer"):
        assert refusal(partial(place.notes(name).protect, "main")).reason == "ROLE_MISSING"
    place.notes("keeper").protect("kept/*")
    place.notes("keeper").unprotect("kept/*")
    limited = place.notes("limited")
    limited.branch("agents/limited")
    limited.remember("On my branch.", branch="agents/limited")
    assert refusal(lambda: limited.merge("agents/limited")).reason == "ROLE_MISSING"
    assert refusal(lambda: limited.delete_branch("main")).reason == "ROLE_MISSING"
    with limited.session() as session:  # of main: it may be staged, and proposed
        session.create("Staged", archive=next(iter(session.archives())).id)
        assert refusal(lambda: session.commit("On main")).reason == "ROLE_MISSING"
        session.discard()


def test_the_same_refusal_comes_over_every_interface(place: Place) -> None:
    given = {"workspace": "notes", "text": "Not by a reader."}
    typed = refusal(lambda: place.notes("reader").remember("Not by a reader."))
    generic = place.client("reader").run_tool("remember", given)
    over_http = place.http("reader", "remember", given)
    over_mcp = place.mcp("reader", "remember", given)
    assert isinstance(typed, PermissionDeniedError)
    assert over_http.status_code == 403
    assert generic.error is not None
    codes = {typed.reason, generic.error.code, over_http.json()["error"]["code"], over_mcp["error"]["code"]}
    assert codes == {"ROLE_MISSING"}


# --- What belongs to whom ---------------------------------------------------------------------------------------------


def test_a_session_of_somebody_else_is_not_there(place: Place) -> None:
    with place.notes("writer").session() as theirs:
        theirs.create("A secret plan", archive=next(iter(theirs.archives())).id)
        mine = place.notes("reviewer")
        raw = place.client("reviewer").raw
        fields = {"workspace": "notes", "session_id": theirs.id}
        for call in (
            lambda: raw.sessions.GetSession(session_service_pb2.GetSessionRequest(**fields)),
            lambda: raw.sessions.CommitChanges(session_service_pb2.CommitChangesRequest(**fields, message="Theirs")),
            lambda: raw.sessions.DiscardSession(session_service_pb2.DiscardSessionRequest(**fields)),
        ):
            assert status(call) is grpc.StatusCode.NOT_FOUND
        with pytest.raises(NotFoundError):
            list(mine.at(theirs.id).children())
        assert theirs.id not in [each.id for each in mine.sessions()]
        assert theirs.id in [each.id for each in place.notes("keeper").sessions()]
        assert [each.node.title for each in place.notes("keeper").at(theirs.id).search("secret plan")][:1]
        theirs.discard()


def test_a_job_of_somebody_else_is_not_there(place: Place) -> None:
    job = ingested(place.notes("writer"))
    assert place.client("writer").job(job).state == "SUCCEEDED"
    reader = place.client("reader")
    for call in (
        lambda: reader.job(job),
        lambda: reader.job(job[:6]),
        lambda: reader.cancel_job(job),
        lambda: reader.resume_job(job),
    ):
        assert refusal(call).reason == "JOB_NOT_FOUND"
    assert job not in [each.id for each in reader.jobs()]
    assert job in [each.id for each in place.client("keeper").jobs()]
    assert job not in [each.id for each in place.client("stranger").jobs()]


def test_each_has_views_of_its_own(place: Place) -> None:
    (note, *_) = place.notes("writer").search("harbour")
    place.notes("writer").view("mine").expand(note.node.id)
    assert [each.name for each in place.notes("writer").views()] == ["mine"]
    assert list(place.notes("reader").views()) == []
    place.notes("reader").view("mine").expand(note.node.id)
    place.notes("writer").view("mine").delete()
    assert [each.name for each in place.notes("reader").views()] == ["mine"]


def test_a_page_token_and_a_request_id_are_of_one_principal(place: Place) -> None:
    def page(name: str, token: str = "") -> Any:
        request = job_service_pb2.ListJobsRequest(page_size=1, page_token=token)
        return place.client(name).raw.jobs.ListJobs(request)

    for _ in range(2):
        ingested(place.notes("writer"))
    token = page("writer").next_page_token
    assert page("writer", token).jobs
    assert status(lambda: page("keeper", token)) is grpc.StatusCode.INVALID_ARGUMENT

    request_id = new_id()
    open_session = session_service_pb2.OpenSessionRequest(workspace="notes", request_id=request_id)
    made = place.client("writer").raw.sessions.OpenSession(open_session)
    assert place.client("writer").raw.sessions.OpenSession(open_session).session.id == made.session.id
    assert place.client("reviewer").raw.sessions.OpenSession(open_session).session.id != made.session.id


def test_commits_made_together_are_each_by_their_own_principal(place: Place) -> None:
    names = ["writer", "reviewer", "keeper"] * 4

    def remember(number: int) -> tuple[str, str]:
        with place.client(names[number]) as client:
            made = client.workspace("notes").remember(f"Fact {number} of {names[number]}.", agent="an-agent")
            return names[number], made.commit_id

    with ThreadPoolExecutor(12) as threads:
        made = list(threads.map(remember, range(len(names))))
    for name, commit in made:
        author = place.notes("reader").show(commit).commit.author
        assert (author.name, author.email) == (name, f"{name}@example.org")


def test_whom_else_a_caller_names_is_a_co_author(place: Place) -> None:
    with place.notes("writer").session() as session:
        session.create("Together", archive=next(iter(session.archives())).id)
        made = session.commit("Write together", author=Author("Grace Hopper", "grace@example.org"))
    commit = place.notes("writer").show(made.commit_id).commit
    assert commit.author.name == "writer"
    assert "Co-authored-by: Grace Hopper <grace@example.org>" in commit.message


def test_nobody_reviews_in_the_name_of_another(place: Place) -> None:
    limited = place.notes("limited")
    limited.branch("agents/proposed")
    limited.remember("Proposed.", branch="agents/proposed")
    proposal = limited.propose("Take this", branch="agents/proposed")
    number, head = proposal.number, proposal.head_commit_id
    lower = refusal(lambda: place.notes("writer").approve(number, commit=head))
    assert lower.reason == "ROLE_MISSING"
    approved = place.notes("reviewer").approve(number, reviewer=Author("Grace"), commit=head)
    assert approved.proposal.approved_by == ("reviewer",)
    assert refusal(lambda: limited.merge_proposal(number)).reason == "ROLE_MISSING"
    place.notes("reviewer").merge_proposal(number)


# --- Interfaces -------------------------------------------------------------------------------------------------------


def test_a_session_of_mcp_belongs_to_who_opened_it(place: Place) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a client", "version": "1"},
        },
    }
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    url = f"{place.announced.url}/mcp"
    opened = httpx2.post(url, json=hello, headers=accept | place.headers("keeper"))
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    assert httpx2.post(url, json=call, headers=accept | session | place.headers("keeper")).status_code == 200
    assert httpx2.post(url, json=call, headers=accept | session | place.headers("reader")).status_code == 404
    assert httpx2.post(url, json=call, headers=accept | session).status_code == 401


def test_git_clones_with_a_key_and_pushes_what_the_role_permits(place: Place, tmp_path: Path) -> None:
    reading = Clone(tmp_path / "reading", place.git_url("reader"))
    reading.write("README.md", b"# Changed by a reader")
    reading.commit()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        reading.run("push", "origin", "main")
    assert "403" in failed.value.stderr
    with pytest.raises(subprocess.CalledProcessError):
        Clone(tmp_path / "none", place.git_url("stranger"))

    limited = Clone(tmp_path / "limited", place.git_url("limited"), name="limited")
    (archive, *_) = place.notes("limited").archives()
    node = Node(new_id(), archive.id, None, "a5", title="Pushed", content="By git.")
    limited.commit(node)
    assert "You may not push main" in " ".join(refused(limited, "main"))
    limited.run("push", "origin", "main:agents/pushed")
    assert place.notes("limited").at("agents/pushed").node(node.id).title == "Pushed"
    assert refused(limited, "main:refs/tags/v7")


def test_the_terminal_on_the_same_machine_uses_the_key_in_the_folder(place: Place) -> None:
    def memotree(*arguments: str, key: str = "") -> Result:
        return place.memotree(key, *arguments)

    assert "ADMIN everywhere" in memotree("access", "show").stdout
    assert memotree("access", "add", "ben", "--email", "ben@example.org").exit_code == 0
    granted = memotree("access", "grant", "ben", "writer", "--workspace", "notes", "--branches", "agents/*")
    assert "WRITER in" in granted.stdout
    made = memotree("access", "create-key", "ben", "--label", "laptop", "--days", "30", "--json")
    key = json.loads(made.stdout)["key"]
    assert "ben" in memotree("access", "show", key=key).stdout
    assert memotree("access", "keys", key=key).stdout.count("laptop") == 1
    told = " ".join(memotree("access", "list", key=key).stderr.split())
    assert "it needs the role ADMIN in all workspaces" in told
    assert "ben@example.org" in memotree("access", "list", "--workspace", "notes").stdout
    assert memotree("access", "revoke", "ben", "--workspace", "notes", "--branches", "agents/*").exit_code == 0
    assert memotree("access", "remove", "ben").exit_code == 0
    assert "The API key is not valid" in memotree("ws", "list", key=key).stderr


def test_a_client_sends_no_key_in_clear_to_another_machine() -> None:
    far = ("memory.example.org:7319", "192.0.2.1:7319", "localhost.example.org:1", "127.evil.example.org:1")
    for address in (*far, "localhostile:1", "[::2]:1", "128.0.0.1:1"):
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match="in clear text"):
                kind(address, key="mt_x")
    for address in ("localhost:1", "LOCALHOST:1", "127.0.0.9:1", "[::1]:1", "127.0.0.1:7319"):
        Client(address, key="mt_x").close()


async def test_the_asynchronous_client_sends_the_key_with_streams_too(place: Place) -> None:
    async with AsyncClient(place.announced.address, key=place.keys["writer"]) as client:
        events = client.workspace("notes").ingest("Streamed.", name=f"Book {new_id()}")
        (job, *_) = [event async for event in events if isinstance(event, Job)]
        assert [each.state async for each in client.watch_job(job.id)][-1] == "SUCCEEDED"


async def restarted(store: Store, folder: Path) -> Access:
    """Read who may call as a server does that starts on a data folder."""
    async with AsyncExitStack() as stack:
        return await open_access(store, Settings(data_folder=folder, authentication="keys"), stack)


async def test_the_key_in_the_folder_is_the_same_after_a_restart_and_another_comes_if_it_is_lost_or_was_ended(
    store: Store, tmp_path: Path
) -> None:
    await restarted(store, tmp_path)
    file = tmp_path / "admin.key"
    first = file.read_text().strip()
    access = await restarted(store, tmp_path)
    assert file.read_text().strip() == first
    assert access.principal_of_key(first).name == "admin"
    file.unlink()
    access = await restarted(store, tmp_path)
    second = file.read_text().strip()
    assert access.principal_of_key(second).name == "admin"
    with pytest.raises(KeyRefusedError):
        access.principal_of_key(first)
    (ended,) = access.keys_of("admin")
    async with store.database.transaction() as conn:
        await tables.delete_key(conn, ended.key_id)
    access = await restarted(store, tmp_path)
    assert access.principal_of_key(file.read_text().strip()).name == "admin"
    with pytest.raises(KeyRefusedError):
        access.principal_of_key(second)
