"""A push over HTTP has a record in the audit log, with how it ended and why."""

import gzip
import os
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest
from integration.guarded import Place, place
from integration.test_git_over_http import PUSH, clone, notes, pushed, refs, running, server, url
from integration.test_push_hook import Clone, refused
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Node, new_id
from memotree_storage.model.paths import entry_path

from memotree.client import Client
from memotree.client.blocking import Workspace
from memotree.server.announcement import Announcement

__all__ = ["clone", "notes", "place", "server", "url"]

pytestmark = pytest.mark.requirement("TOOL-12", "GIT-8")

METHOD = "git-receive-pack"
OK = ("OK", "")


def recorded(client: Client, workspace: str) -> list[tuple[str, str]]:
    """The status and the error code of each push, from the first to the last."""
    found = list(client.audit_records(method=METHOD, workspace=workspace))
    return [(each.code, each.reason) for each in reversed(found)]


def ended(server: Announcement, notes: Workspace) -> list[tuple[str, str]]:
    with Client(server.address) as client:
        return recorded(client, notes.info().name)


def changed(clone: Clone, text: bytes = b"Not a node.\n") -> None:
    clone.write("README", text)
    clone.commit()


def faulty(clone: Clone, notes: Workspace) -> None:
    (archive,) = notes.at("main").archives()
    lost = Node(new_id(), archive.id, new_id(), "a5", title="Lost", content="Below nothing.")
    clone.write(entry_path(lost), encode_entry(lost))
    clone.commit()


def test_a_push_that_moves_a_branch_is_recorded_as_such(server: Announcement, notes: Workspace, clone: Clone) -> None:
    changed(clone)
    clone.run("push", "origin", "main")
    assert ended(server, notes) == [OK]


def test_a_long_push_before_which_git_asks_is_recorded_once(
    server: Announcement, notes: Workspace, clone: Clone
) -> None:
    clone.run("config", "http.postBuffer", "65536")
    pushed(clone, refs(notes)["main"])
    clone.run("push", "origin", "main")
    assert ended(server, notes) == [OK]


def test_a_push_that_a_hook_refuses_is_recorded_with_the_reason(
    server: Announcement, notes: Workspace, clone: Clone
) -> None:
    changed(clone)
    refused(clone, "main:refs/notes/x")
    notes.protect("main")
    refused(clone, "main")
    notes.unprotect("main")
    clone.run("push", "origin", "main")
    clone.run("commit", "-q", "--amend", "-m", "Another")
    refused(clone, "--force", "main")
    assert ended(server, notes) == [
        ("FAILED_PRECONDITION", "REF_NOT_TAKEN"),
        ("FAILED_PRECONDITION", "BRANCH_PROTECTED"),
        OK,
        ("FAILED_PRECONDITION", "BRANCH_NOT_REWINDABLE"),
    ]


def test_a_push_with_faults_to_a_strict_workspace_is_recorded_as_refused_in_whole_or_in_part(
    server: Announcement, notes: Workspace, clone: Clone
) -> None:
    notes.set_push_policy(strict=True)
    clone.run("branch", "good")
    faulty(clone, notes)
    refused(clone, "main")
    refused(clone, "main", "good")
    assert set(refs(notes)) == {"main", "good"}
    assert ended(server, notes) == [
        ("FAILED_PRECONDITION", "PUSH_HAS_FAULTS"),
        ("FAILED_PRECONDITION", "PUSH_PARTLY_REFUSED"),
    ]


def test_a_push_that_git_itself_refuses_is_recorded_as_refused(
    server: Announcement, notes: Workspace, clone: Clone
) -> None:
    refused(clone, ":main")  # the default branch
    assert ended(server, notes) == [("FAILED_PRECONDITION", "PUSH_REFUSED")]


def test_a_body_that_git_does_not_get_or_does_not_understand_is_recorded_as_a_failure(
    server: Announcement, notes: Workspace, url: str
) -> None:
    gzipped = PUSH | {"content-encoding": "gzip"}
    for headers, body in ((gzipped, b"not gzip"), (gzipped, gzip.compress(b"0000" * 9)[:-9]), (PUSH, b"no length")):
        httpx2.post(f"{url}/{METHOD}", headers=headers, content=body, timeout=60)
    assert ended(server, notes) == [
        ("INVALID_ARGUMENT", "PUSH_UNREADABLE"),
        ("INVALID_ARGUMENT", "PUSH_UNREADABLE"),
        ("UNKNOWN", "GIT_FAILED"),
    ]


def test_a_client_that_wants_no_report_hides_no_refusal(
    server: Announcement, notes: Workspace, url: str, clone: Clone
) -> None:
    _, body = pushed(clone, refs(notes)["main"])
    silent = body.replace(b"\0report-status", b"\0agent=silent1")
    notes.protect("main")
    httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=silent, timeout=60)
    notes.unprotect("main")
    httpx2.post(f"{url}/{METHOD}", headers=PUSH, content=silent, timeout=60)
    assert ended(server, notes) == [("FAILED_PRECONDITION", "BRANCH_PROTECTED"), ("UNKNOWN", "PUSH_NOT_REPORTED")]


def test_a_push_whose_client_goes_away_is_recorded_as_cancelled(
    server: Announcement, notes: Workspace, clone: Clone
) -> None:
    before = refs(notes)
    _, body = pushed(clone, before["main"])
    head = f"POST /git/{notes.info().name}/{METHOD} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}content-type: {PUSH['content-type']}\r\n\r\n".encode() + body[: len(body) // 2])
    while not (found := ended(server, notes)):
        pass  # until the server has seen that its client is gone
    assert found == [("CANCELLED", "")]
    assert refs(notes) == before


def test_a_push_to_a_git_that_writes_nothing_is_recorded_as_late(tmp_path: Path) -> None:
    silent = tmp_path / "bin" / "git"
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o700)
    path = f"{silent.parent}{os.pathsep}{os.environ['PATH']}"
    with running(tmp_path / "data", silence=0.5, PATH=path) as (announced, _), Client(announced.address) as client:
        client.create_workspace("notes")
        answer = httpx2.post(f"{announced.url}/git/notes/{METHOD}", headers=PUSH, content=b"0000", timeout=60)
        assert answer.status_code == 504
        assert recorded(client, "notes") == [("DEADLINE_EXCEEDED", "GIT_SILENT")]


# --- Roles ------------------------------------------------------------------------------------------------------------


def git_url(place: Place, name: str) -> str:
    return place.announced.url.replace("http://", f"http://{name}:{place.keys[name]}@") + "/git/notes"


def last(place: Place, name: str) -> tuple[str, str]:
    with place.client("admin") as client:
        record = next(iter(client.audit_records(method=METHOD, principal=name)))
        return record.code, record.reason


def test_pushes_that_a_role_or_the_author_forbids_are_recorded_as_denied(place: Place, tmp_path: Path) -> None:
    limited = Clone(tmp_path / "limited", git_url(place, "limited"), name="limited")
    changed(limited, b"By limited.\n")
    refused(limited, "HEAD:main")
    assert last(place, "limited") == ("PERMISSION_DENIED", "ROLE_MISSING")
    limited.run("push", "origin", "HEAD:agents/recorded")
    assert last(place, "limited") == OK
    writer = Clone(tmp_path / "writer", git_url(place, "writer"), name="writer")
    writer.run("commit", "-q", "--allow-empty", "-m", "As ada", "--author", "ada <ada@example.org>")
    refused(writer, "HEAD:agents/ada")
    assert last(place, "writer") == ("PERMISSION_DENIED", "AUTHOR_NOT_PERMITTED")
    writer.run("reset", "-q", "--hard", "HEAD^")
    writer.run("-c", "user.email=memotree@localhost", "commit", "-q", "--allow-empty", "-m", "Forged")
    refused(writer, "HEAD:agents/forged")
    assert last(place, "writer") == ("PERMISSION_DENIED", "COMMITTER_NOT_PERMITTED")
    reader = Clone(tmp_path / "reader", git_url(place, "reader"), name="reader")
    with pytest.raises(subprocess.CalledProcessError):
        reader.run("push", "origin", "HEAD:agents/read")
    assert last(place, "reader") == ("PERMISSION_DENIED", "ROLE_MISSING")


def test_a_role_that_a_foreign_hook_would_not_keep_is_recorded_as_denied(place: Place, tmp_path: Path) -> None:
    limited = Clone(tmp_path / "limited", git_url(place, "limited"), name="limited")
    hook = place.folder / place.notes("admin").info().repository / "hooks" / "pre-receive"
    ours = hook.read_bytes()
    try:
        hook.write_text("#!/bin/sh\nexit 0\n")
        with pytest.raises(subprocess.CalledProcessError):
            limited.run("push", "origin", "HEAD:agents/unguarded")
    finally:
        hook.write_bytes(ours)
    assert last(place, "limited") == ("PERMISSION_DENIED", "PUSH_NOT_GUARDED")


def test_no_file_of_noted_refusals_is_left(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with running(tmp_path / "data", TMPDIR=str(scratch)) as (announced, _), Client(announced.address) as client:
        client.create_workspace("notes")
        clone = Clone(tmp_path / "clone", f"{announced.url}/git/notes")
        changed(clone)
        clone.run("push", "origin", "main")
        client.workspace("notes").protect("main")
        changed(clone, b"More.\n")
        refused(clone, "main")
        assert not [each for each in scratch.iterdir() if "push" in each.name]
