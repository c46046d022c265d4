"""git over HTTP with API keys: all push within their roles and in their own names, and none takes all places."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from integration.clones import Clone, refused
from integration.guarded import Place, place, refusal
from integration.http_servers import begin, until

from memotree.local.before_push import imitated

__all__ = ["place"]

pytestmark = pytest.mark.requirement("SERVE-3")

PERSON = b" <a@example.org> 1700000000 +0000\n"


@pytest.fixture
def clone(place: Place, tmp_path: Path) -> Clone:
    return cloned(place, "reviewer", tmp_path)


def cloned(place: Place, name: str, folder: Path) -> Clone:
    made = Clone(folder / name, place.git_url(name), name=name)
    made.write("README.md", name.encode())
    made.run("add", "-A")
    return made


def put_commit(clone: Clone, head: bytes, message: bytes = b"Forged\n") -> str:
    """Write a commit of these bytes, with the tree and the parent of the clone's last one; return its id."""

    def git(*arguments: str, data: bytes | None = None) -> bytes:
        command = ["git", "-C", str(clone.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, input=data).stdout.strip()  # noqa: S603

    tree, parent = git("rev-parse", "HEAD^{tree}"), git("rev-parse", "HEAD")
    data = b"tree " + tree + b"\nparent " + parent + b"\n" + head + b"\n" + message
    return git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", data=data).decode()


def recorded(place: Place, name: str) -> tuple[str, str]:
    """The status and the error code in the record of a principal's last push."""
    with place.client("admin") as client:
        record = next(iter(client.audit_records(method="git-receive-pack", principal=name)))
        return record.code, record.reason


@pytest.mark.requirement("TOOL-12", "GIT-8")
def test_a_reviewer_does_not_push_in_the_name_of_another_or_of_the_service(place: Place, clone: Clone) -> None:
    clone.run("commit", "-q", "-m", "As ada", "--author", "ada <ada@example.org>")
    (told,) = refused(clone, "HEAD:agents/authors")
    assert "names 'ada' as its author, and reviewer pushes it. Make it in your own name: git -c user.name=" in told
    assert recorded(place, "reviewer") == ("PERMISSION_DENIED", "AUTHOR_NOT_PERMITTED")
    clone.run("commit", "-q", "--amend", "--no-edit", "--reset-author")
    clone.run("-c", "user.email=memotree@localhost", "commit", "-q", "--allow-empty", "-m", "Forged")
    refused(clone, "HEAD:agents/authors")
    assert recorded(place, "reviewer") == ("PERMISSION_DENIED", "COMMITTER_NOT_PERMITTED")
    clone.run("reset", "-q", "--hard", "HEAD^")
    clone.run("push", "origin", "HEAD:agents/authors")
    notes = place.notes("reviewer")
    proposal = place.notes("writer").propose("A change", branch="agents/authors")
    assert refusal(lambda: notes.approve(proposal.number, proposal.head_commit_id)).reason == "OWN_PROPOSAL"


def test_no_encoding_hides_another_name_or_the_address_of_the_service(clone: Clone) -> None:
    """The names that the mirror reads are those that are checked, whatever git itself would show.

    Commits of the service are believed: of which session they are, and which tag they have. git knows encodings that
    the mirror does not, and would show another address then.
    """
    names = [(b"ada", "IBM037"), (b"ada", "nothing"), ("reviewer".encode("cp037"), "UTF-8")]
    forged = {
        f"the author {name!r} in {encoding}": b"author %s%scommitter reviewer%sencoding %s\n"
        % (name, PERSON, PERSON, encoding.encode())
        for name, encoding in names
    }
    for encoding in ("", "EBCDIC-US", "IBM037", "nothing"):
        service = b"committer MemoTree <memotree@localhost> 1700000000 +0000\n"
        told = f"encoding {encoding}\n".encode() if encoding else b""
        forged[f"the service in {encoding!r}"] = b"author reviewer" + PERSON + service + told
    for what, head in forged.items():
        commit_id = put_commit(clone, head, b"Forged\n\nMemoTree-Session: 0123456789abcdef\nMemoTree-Tag: forged\n")
        updates = [f"{'0' * 40} {commit_id} refs/heads/agents/forged"]
        assert imitated(clone.folder, updates, "memotree@localhost", "reviewer"), what


@pytest.mark.parametrize(
    ("start", "encoding"),
    [
        (b"author " + "reviewer".encode("utf-16") + PERSON, "UTF-16"),
        (b"author reviewer\0ada" + PERSON, "UTF-8"),
        (b"author reviewer" + PERSON + b"mergetag " + b"x" * (2 << 20) + b"\n", "UTF-8"),
    ],
    ids=["zero bytes", "a zero byte", "very much before the message"],
)
def test_git_takes_no_commit_that_another_reader_may_read_otherwise(clone: Clone, start: bytes, encoding: str) -> None:
    commit_id = put_commit(clone, start + b"committer reviewer" + PERSON + f"encoding {encoding}\n".encode())
    with pytest.raises(subprocess.CalledProcessError):
        clone.run("push", "origin", f"{commit_id}:refs/heads/agents/{commit_id}")


def test_the_own_name_may_be_in_another_letter_case_width_or_encoding(clone: Clone) -> None:
    wide = "\N{FULLWIDTH LATIN CAPITAL LETTER R}eviewer <r@example.org>"
    clone.run("commit", "-q", "-m", "As I like it", "--author", wide)
    name = "reviewer".encode("cp037")
    encoded = put_commit(clone, b"author " + name + PERSON + b"committer x" + PERSON + b"encoding IBM037\n")
    clone.run("push", "origin", "HEAD:agents/spelled", f"{encoded}:refs/heads/agents/encoded")


def test_commits_of_others_that_the_repository_has_are_no_matter(place: Place, clone: Clone, tmp_path: Path) -> None:
    theirs = cloned(place, "writer", tmp_path)
    theirs.commit()
    theirs.run("push", "origin", "HEAD:agents/theirs")
    clone.run("fetch", "-q", "origin")
    clone.run("push", "origin", "origin/agents/theirs:refs/heads/agents/copied")


def test_an_administrator_brings_histories_of_others(place: Place, tmp_path: Path) -> None:
    clone = cloned(place, "keeper", tmp_path)
    clone.run("commit", "-q", "-m", "As ada", "--author", "ada <ada@example.org>")
    clone.run("push", "origin", "HEAD:agents/histories")


@pytest.mark.requirement("TOOL-12", "GIT-8")
def test_pushes_that_a_role_forbids_are_recorded_as_denied(place: Place, tmp_path: Path) -> None:
    limited, reader = (cloned(place, name, tmp_path) for name in ("limited", "reader"))
    limited.commit()
    refused(limited, "HEAD:main")
    assert recorded(place, "limited") == ("PERMISSION_DENIED", "ROLE_MISSING")
    limited.run("push", "origin", "HEAD:agents/recorded")
    assert recorded(place, "limited") == ("OK", "")
    with pytest.raises(subprocess.CalledProcessError):
        reader.run("push", "origin", "HEAD:agents/read")
    assert recorded(place, "reader") == ("PERMISSION_DENIED", "ROLE_MISSING")
    hook = place.folder / place.notes("admin").info().repository / "hooks" / "pre-receive"
    ours = hook.read_bytes()
    try:
        hook.write_text("#!/bin/sh\nexit 0\n")  # such a one would not keep the role
        with pytest.raises(subprocess.CalledProcessError):
            limited.run("push", "origin", "HEAD:agents/unguarded")
    finally:
        hook.write_bytes(ours)
    assert recorded(place, "limited") == ("PERMISSION_DENIED", "PUSH_NOT_GUARDED")


@pytest.mark.requirement("GIT-8")
def test_a_principal_with_many_requests_of_git_leaves_room_for_others(place: Place) -> None:
    def status(name: str) -> int:
        advertised = f"{place.announced.url}/git/notes/info/refs?service=git-upload-pack"
        return httpx2.get(advertised, headers=place.headers(name)).status_code

    with ExitStack() as stack:

        def hold(name: str, count: int = 1) -> None:
            """Begin requests that never end."""
            proof = place.headers(name)["authorization"]
            for _ in range(count):
                stack.enter_context(begin(place.announced, "notes", "git-upload-pack", proof=proof))

        def is_refused(name: str) -> bool:
            """Whether a request is refused; if not, it may have had the place of another, so begin one more."""
            if status(name) == 429:
                return True
            hold(name)
            return False

        hold("stranger", 20)  # it may not read the workspace, so these hold nothing
        assert status("stranger") == 404
        hold("reader", 20)
        until(lambda: is_refused("reader"), "the reader has as many requests as it may")
        assert status("writer") == 200
        hold("writer", 20)
        until(lambda: is_refused("writer"), "the writer has as many requests as it may")
        assert status("stranger") == 404
    until(lambda: status("reader") == status("writer") == 200, "the server has seen that their clients are gone")
