"""Ways around the check of who calls: keys that have ended, old names, forged fields, receipts, pushes."""

import asyncio
import re
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from crash.service import start
from integration.clones import Clone, refused
from integration.guarded import Place, ingested, place, refusal, status
from integration.http_servers import until

from memotree.client import AsyncClient, Client, NotFoundError, ToolCall
from memotree.identity.access import Access
from memotree.identity.errors import NotAuthenticatedError
from memotree.identity.guard import REVISION_FIELDS, SESSION_FIELD, Guard
from memotree.identity.operations import MOST_KEYS
from memotree.server.announcement import read_announcement
from memotree.server.binding import contract
from memotree.server.checking import checked
from memotree.v1 import (
    access_service_pb2,
    forest_service_pb2,
    maintenance_service_pb2,
)

__all__ = ["place"]

pytestmark = pytest.mark.requirement("SERVE-3")


def test_names_that_look_like_others_are_refused(place: Place) -> None:
    with place.client("admin") as admin:
        for name in ("", "a b", "\u0430dmin", "admin\n", "-a", "a" * 101, "ad\u200bmin"):
            assert refusal(lambda name=name: admin.put_principal(name)).code == "INVALID_ARGUMENT", name  # type: ignore[misc]


async def test_no_key_is_in_the_log_or_the_database(tmp_path: Path) -> None:
    folder, log = tmp_path / "data", tmp_path / "server.log"
    server = await start(folder, log, http=True, authentication="keys")
    announced = read_announcement(folder)
    assert announced is not None
    key = (folder / "admin.key").read_text().strip()
    async with AsyncClient(server.address, key=key) as client:
        await client.put_principal("ada")
        made = (await client.create_key("ada")).key
    host, port = announced.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /{made} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {made}\r\n\r\n".encode())
    assert await reader.read(100)
    writer.close()
    await server.stop()
    assert b"stopped" in log.read_bytes()
    for path in (log, *folder.rglob("*")):
        if path.is_file() and path.name != "admin.key":
            data = path.read_bytes()
            assert key.encode() not in data, path
            assert made.encode() not in data, path


def test_operations_are_checked_within_the_process_too(place: Place) -> None:
    """The tools of ToolService call operations in the server's process."""
    answer = place.client("stranger").run_tools(
        [ToolCall("list_workspaces", {}), ToolCall("get_tree", {"workspace": "notes"})], go_on=True
    )
    assert [each["name"] for each in (answer[0].data or {})["workspaces"]] == ["elsewhere"]
    assert answer[1].error is not None
    assert answer[1].error.code == "WORKSPACE_NOT_FOUND"


# --- What an attacker tried -------------------------------------------------------------------------------------------


def test_a_call_whose_key_ends_before_its_request_arrives_does_nothing(place: Place) -> None:
    admin = place.client("admin")
    place.enter("slow").close()
    arrives = threading.Event()

    def requests() -> Iterator[bytes]:
        arrives.wait(60)
        yield access_service_pb2.CreateKeyRequest().SerializeToString()

    with grpc.insecure_channel(place.announced.address) as channel:
        call = channel.stream_unary("/memotree.v1.AccessService/CreateKey").future(
            requests(), metadata=(("authorization", f"Bearer {place.keys['slow']}"),), timeout=60
        )
        until(lambda: any(each.last_use_time for each in admin.keys("slow")), "the server has seen the key")
        (key,) = admin.keys("slow")
        admin.delete_key(key.id)
        arrives.set()
        assert status(call.result) is grpc.StatusCode.UNAUTHENTICATED
    assert list(admin.keys("slow")) == []
    admin.delete_principal("slow")


def test_a_job_goes_on_only_while_its_principal_may_do_it(place: Place) -> None:
    admin = place.client("admin")
    leaving = place.enter("leaving", "WRITER")
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
    first = place.enter("first", "WRITER").workspace("notes")
    session = first.session()
    session.create("A draft", archive=next(iter(session.archives())).id)
    job = ingested(first)
    assert list(first.at(session.id).archives())
    admin.delete_principal("first")
    second = place.enter("first", "WRITER")
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
        assert status(lambda: place.client("reader").raw.forest.Recall(again)) is grpc.StatusCode.NOT_FOUND
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
    theirs = place.enter("agents-reviewer", "REVIEWER", branches="agents/*").workspace("notes")
    place.notes("writer").branch("release")
    place.notes("writer").remember("On release.", branch="release")
    theirs.branch("agents/mine")
    number = theirs.propose("Take release", branch="release", target="agents/mine").number
    assert refusal(lambda: theirs.merge_proposal(number, delete_branch=True)).reason == "ROLE_MISSING"
    assert "release" in [each.name for each in theirs.branches()]
    place.notes("writer").branch("later")
    place.notes("writer").remember("On later.", branch="later")
    other = place.notes("writer").propose("Into main", branch="later").number
    assert refusal(lambda: theirs.change_proposal(other, title="Mine")).reason == "ROLE_MISSING"


def test_no_push_brings_other_refs(place: Place, tmp_path: Path) -> None:
    url = place.git_url("writer")
    clone = Clone(tmp_path / "clone", url, name="writer")
    listed = subprocess.run(  # noqa: S603 - git, with our arguments
        ["git", "ls-remote", url],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "refs/memotree/keep" not in listed
    for name in ("refs/replace/" + "0" * 39 + "1", "refs/notes/commits", "refs/other/x"):
        assert "Push branches and tags alone" in " ".join(refused(clone, f"HEAD:{name}"))


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
