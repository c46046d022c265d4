"""Ways around the check of who calls: keys that have ended, old names, forged fields, receipts, pushes."""

import base64
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
import httpx2
import pytest
from integration.guarded import Place, ingested, place, refusal
from integration.test_git_over_http import running
from integration.test_push_hook import Clone

from memotree.client import (
    Client,
    InvalidArgumentError,
    NotFoundError,
)
from memotree.identity.access import Access
from memotree.identity.errors import NotAuthenticatedError
from memotree.identity.guard import REVISION_FIELDS, SESSION_FIELD, Guard
from memotree.identity.operations import MOST_KEYS
from memotree.server.binding import contract
from memotree.server.checking import checked
from memotree.v1 import (
    access_service_pb2,
    forest_service_pb2,
    maintenance_service_pb2,
    workspace_service_pb2,
)

__all__ = ["place"]

pytestmark = pytest.mark.requirement("SERVE-3")


def test_two_proofs_prove_nothing(place: Place) -> None:
    proof = f"Bearer {place.keys['admin']}"
    answer = httpx2.get(
        f"{place.announced.url}/api/tools", headers=[("authorization", proof), ("authorization", proof)]
    )
    assert answer.status_code == 401


@pytest.mark.parametrize("name", ["", "a b", "\u0430dmin", "admin\n", "-a", "a" * 101, "ad\u200bmin"])
def test_names_that_look_like_others_are_refused(place: Place, name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        place.client("admin").put_principal(name)


def test_no_key_is_in_the_log_or_the_database(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder, MEMOTREE_AUTHENTICATION="keys") as (announced, _):
        key = (folder / "admin.key").read_text().strip()
        with Client(announced.address, key=key) as client:
            client.put_principal("ada")
            made = client.create_key("ada").key
        with socket.create_connection(tuple(announced.url.removeprefix("http://").split(":"))) as raw:  # type: ignore[arg-type]
            raw.sendall(f"GET /{made} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {made}\r\n\r\n".encode())
            raw.recv(100)
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "admin.key":
            data = path.read_bytes()
            assert key.encode() not in data, path
            assert made.encode() not in data, path


def test_operations_are_checked_within_the_process_too(place: Place) -> None:
    """The tools of ToolService call operations in the server's process."""
    answer = place.client("stranger").run_tools(
        [memotree_call("list_workspaces"), memotree_call("get_tree", workspace="notes")], go_on=True
    )
    assert [each["name"] for each in (answer[0].data or {})["workspaces"]] == ["elsewhere"]
    assert answer[1].error is not None
    assert answer[1].error.code == "WORKSPACE_NOT_FOUND"
    with pytest.raises(grpc.RpcError) as caught:
        place.client("reader").raw.workspaces.DeleteWorkspace(
            workspace_service_pb2.DeleteWorkspaceRequest(workspace="notes", confirm_name="notes")
        )
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED  # type: ignore[attr-defined]
    found = place.client("reader").raw.access.GetPrincipal(access_service_pb2.GetPrincipalRequest())
    assert found.principal.name == "reader"


def memotree_call(name: str, **arguments: Any) -> Any:
    from memotree.client import ToolCall  # noqa: PLC0415 - used here alone

    return ToolCall(name, arguments)


# --- What an attacker tried -------------------------------------------------------------------------------------------


def test_a_key_that_was_ended_stays_ended_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running(folder, MEMOTREE_AUTHENTICATION="keys") as (announced, _):
        leaked = (folder / "admin.key").read_text().strip()
        with Client(announced.address, key=leaked) as admin:
            admin.put_principal("ada")
            admin.grant_role("ada", "ADMIN", workspace="*")
            ada = admin.create_key("ada").key
        with Client(announced.address, key=ada) as client:
            (key,) = client.keys("admin")
            client.delete_key(key.id)
    with running(folder, MEMOTREE_AUTHENTICATION="keys") as (announced, _):
        assert (folder / "admin.key").read_text().strip() != leaked
        assert refusal(Client(announced.address, attempts=1, key=leaked).status).reason == "KEY_REFUSED"
        assert Client(announced.address, key=ada).principal().name == "ada"


def test_a_call_whose_key_ends_before_its_request_arrives_does_nothing(place: Place) -> None:
    admin = place.client("admin")
    admin.put_principal("slow")
    made = admin.create_key("slow")
    arrives = threading.Event()

    def requests() -> Iterator[bytes]:
        arrives.wait(60)
        yield access_service_pb2.CreateKeyRequest().SerializeToString()

    with grpc.insecure_channel(place.announced.address) as channel:
        call = channel.stream_unary("/memotree.v1.AccessService/CreateKey").future(
            requests(), metadata=(("authorization", f"Bearer {made.key}"),), timeout=60
        )
        until = time.monotonic() + 60
        while not any(each.last_use_time for each in admin.keys("slow")) and time.monotonic() < until:
            pass  # until the server has seen the key
        admin.delete_key(made.api_key.id)
        arrives.set()
        with pytest.raises(grpc.RpcError) as caught:
            call.result()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    assert list(admin.keys("slow")) == []
    admin.delete_principal("slow")


def test_a_job_goes_on_only_while_its_principal_may_do_it(place: Place) -> None:
    admin = place.client("admin")
    admin.put_principal("leaving")
    admin.grant_role("leaving", "WRITER", workspace="notes")
    leaving = Client(place.announced.address, attempts=1, key=admin.create_key("leaving").key)
    job = ingested(leaving.workspace("notes"))
    admin.revoke_role("leaving", workspace="notes")
    for call in (lambda: leaving.job(job), lambda: leaving.resume_job(job), lambda: leaving.cancel_job(job)):
        assert refusal(call).reason == "JOB_NOT_FOUND"
    admin.grant_role("leaving", "READER", workspace="notes")
    assert leaving.job(job).state == "SUCCEEDED"
    assert refusal(lambda: leaving.resume_job(job)).reason == "ROLE_MISSING"
    admin.delete_principal("leaving")


def test_somebody_else_with_an_old_name_gets_nothing_of_the_first(place: Place) -> None:
    admin = place.client("admin")
    admin.put_principal("first")
    admin.grant_role("first", "WRITER", workspace="notes")
    first = Client(place.announced.address, key=admin.create_key("first").key).workspace("notes")
    session = first.session()
    session.create("A draft", archive=next(iter(session.archives())).id)
    job = ingested(first)
    assert list(first.at(session.id).archives())
    admin.delete_principal("first")
    admin.put_principal("first")
    admin.grant_role("first", "WRITER", workspace="notes")
    second = Client(place.announced.address, attempts=1, key=admin.create_key("first").key)
    assert list(second.workspace("notes").sessions()) == []
    with pytest.raises(NotFoundError):
        list(second.workspace("notes").at(session.id).archives())
    assert refusal(lambda: second.job(job)).reason == "JOB_NOT_FOUND"
    admin.delete_principal("first")


def test_a_receipt_reads_no_session_of_somebody_else(place: Place) -> None:
    with place.notes("writer").session() as session:
        session.create("Zebra", "A secret about zebras.", archive=next(iter(session.archives())).id)
        raw = place.client("writer").raw.forest
        found = raw.Recall(forest_service_pb2.RecallRequest(workspace="notes", revision=session.id, query="zebras"))
        assert "zebras" in found.text
        again = forest_service_pb2.RecallRequest(workspace="notes", query="zebras", receipt=found.receipt)
        assert "zebras" in raw.Recall(again).text
        with pytest.raises(grpc.RpcError) as caught:
            place.client("reader").raw.forest.Recall(again)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
        session.discard()


def test_every_field_that_may_name_a_session_is_known_to_the_check() -> None:
    def names(kind: Any, path: str = "", depth: int = 0) -> Iterator[str]:
        for each in kind.fields:
            if "session" in each.name or "revision" in each.name or each.name in {"tests_at", "source"}:
                yield path + each.name
            if each.message_type is not None and depth < 3:
                yield from names(each.message_type, f"{path}{each.name}.", depth + 1)

    found = {
        f"{method.name}.{name}"
        for service in contract().values()
        for method in service.methods
        for name in names(method.input_type)
    }
    top = {name for name in found if name.split(".", 1)[1] in {SESSION_FIELD, *REVISION_FIELDS}}
    others = {
        "Recall.receipt.session_id",  # checked by itself
        "Recall.receipt.session_digest",  # a hash
        "IngestDocument.conversation.turns.session",  # a session of a chat
        "IngestDocuments.documents.conversation.turns.session",
        "BatchChangeMemory.changes.restore.revision",  # the operation refuses sessions
    }
    within = {name for name in found if re.search(r"\.changes\.\w+\.(session_id|source)$", name)}  # that of the batch
    documents = {name for name in found if name.endswith(("node.source", "create.source"))}  # where a text came from
    assert found - top - others - within - documents == set()


def test_who_merges_a_proposal_deletes_no_branch_that_it_may_not_write(place: Place) -> None:
    admin = place.client("admin")
    admin.put_principal("agents-reviewer")
    admin.grant_role("agents-reviewer", "REVIEWER", workspace="notes", branches="agents/*")
    theirs = Client(place.announced.address, attempts=1, key=admin.create_key("agents-reviewer").key).workspace("notes")
    place.notes("writer").branch("release")
    place.notes("writer").remember("On release.", branch="release")
    theirs.branch("agents/mine")
    number = theirs.propose("Take release", branch="release", target="agents/mine").number
    refused = refusal(lambda: theirs.merge_proposal(number, delete_branch=True))
    assert refused.reason == "ROLE_MISSING"
    assert "release" in [each.name for each in theirs.branches()]
    place.notes("writer").branch("later")
    place.notes("writer").remember("On later.", branch="later")
    other = place.notes("writer").propose("Into main", branch="later").number
    assert refusal(lambda: theirs.change_proposal(other, title="Mine")).reason == "ROLE_MISSING"


def test_a_list_of_jobs_does_not_tell_which_workspaces_there_are(place: Place) -> None:
    stranger = place.client("stranger")
    there, missing = (
        refusal(lambda name=name: list(stranger.workspace(name).jobs()))
        for name in ("notes", "nites")  # type: ignore[misc]
    )
    assert (there.reason, str(there)) == (missing.reason, str(missing).replace("nites", "notes"))


def test_no_push_brings_other_refs_or_commits_in_the_name_of_the_service(place: Place, tmp_path: Path) -> None:
    url = place.announced.url.replace("http://", f"http://writer:{place.keys['writer']}@") + "/git/notes"
    clone = Clone(tmp_path / "clone", url, name="writer")
    listed = subprocess.run(  # noqa: S603 - git, with our arguments
        ["git", "ls-remote", url],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "refs/memotree/keep" not in listed
    for name in ("refs/replace/" + "0" * 39 + "1", "refs/notes/commits", "refs/other/x"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            clone.run("push", "origin", f"HEAD:{name}")
        assert "Push branches and tags alone" in failed.value.stderr
    clone.write("README.md", b"# Forged")
    clone.run("add", "-A")
    message = "Forged\n\nMemoTree-Session: 0123456789abcdef\nMemoTree-Tag: forged"
    clone.run("-c", "user.email=memotree@localhost", "commit", "-q", "-m", message)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        clone.run("push", "origin", "HEAD:agents/forged")
    assert "Commit it in your own name" in failed.value.stderr
    clone.run("commit", "-q", "--amend", "--no-edit")
    clone.run("push", "origin", "HEAD:agents/forged")


def test_a_principal_has_not_any_number_of_keys_and_a_key_with_an_end_makes_none_without(place: Place) -> None:
    admin = place.client("admin")
    admin.put_principal("many")
    ending = admin.create_key("many", ttl=timedelta(hours=1)).key
    client = Client(place.announced.address, attempts=1, key=ending)
    assert refusal(client.create_key).reason == "INVALID_ARGUMENT"
    assert client.create_key(ttl=timedelta(minutes=1)).api_key.expire_time is not None
    for _ in range(MOST_KEYS - 2):
        admin.create_key("many")
    assert refusal(lambda: admin.create_key("many")).reason == "TOO_MANY_KEYS"
    admin.delete_principal("many")


@pytest.mark.parametrize(
    "address", ["localhost.example.org:1", "127.evil.example.org:1", "localhostile:1", "[::2]:1", "128.0.0.1:1"]
)
def test_a_name_that_begins_like_this_machine_is_another_one(address: str) -> None:
    with pytest.raises(ValueError, match="in clear text"):
        Client(address, key="mt_x")


@pytest.mark.parametrize("address", ["localhost:1", "LOCALHOST:1", "127.0.0.9:1", "[::1]:1"])
def test_this_machine_is_known_by_each_of_its_names(address: str) -> None:
    Client(address, key="mt_x").close()


def test_a_password_is_taken_from_git_alone(place: Place) -> None:
    proof = base64.b64encode(f"x:{place.keys['admin']}".encode()).decode()
    answer = httpx2.get(f"{place.announced.url}/api/tools", headers={"authorization": f"Basic {proof}"})
    assert answer.status_code == 401


async def test_calls_within_the_process_are_refused_without_a_principal() -> None:
    """A context that was forgotten is no administrator."""

    class Operations:
        async def get_status(self, _request: Any) -> str:
            return "answered"

    access = Access(cast("Any", None))
    guard = Guard(cast("Any", None), access, cast("Any", None))
    subject: Any = checked({"MaintenanceService": Operations()}, guard.admit, guard.changes)["MaintenanceService"]
    with pytest.raises(NotAuthenticatedError):
        await subject.get_status(maintenance_service_pb2.GetStatusRequest())
