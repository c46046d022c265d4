"""A push over HTTP has commits of its principal alone, in whatever way they name somebody else."""

import subprocess
from pathlib import Path

import pytest
from integration.guarded import Place, place, refusal
from integration.test_push_hook import Clone, refused

__all__ = ["place"]

pytestmark = pytest.mark.requirement("SERVE-3")


@pytest.fixture
def clone(place: Place, tmp_path: Path) -> Clone:
    return cloned(place, "reviewer", tmp_path)


def cloned(place: Place, name: str, folder: Path) -> Clone:
    url = place.announced.url.replace("http://", f"http://{name}:{place.keys[name]}@") + "/git/notes"
    made = Clone(folder / name, url, name=name)
    made.write("README.md", name.encode())
    return made


def put_commit(clone: Clone, head: bytes, message: bytes = b"Forged\n") -> str:
    """Write a commit of these bytes, with the tree and the parent of the clone's last one; return its id."""

    def git(*arguments: str, data: bytes | None = None) -> bytes:
        command = ["git", "-C", str(clone.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, input=data).stdout.strip()  # noqa: S603

    tree, parent = git("rev-parse", "HEAD^{tree}"), git("rev-parse", "HEAD")
    data = b"tree " + tree + b"\nparent " + parent + b"\n" + head + b"\n" + message
    return git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", data=data).decode()


def test_a_reviewer_does_not_push_in_the_name_of_somebody_else(place: Place, clone: Clone) -> None:
    clone.run("add", "-A")
    clone.run("commit", "-q", "-m", "As ada", "--author", "ada <ada@example.org>")
    (told,) = refused(clone, "HEAD:agents/authors")
    assert "names 'ada' as its author, and reviewer pushes it. Make it in your own name: git -c user.name=" in told
    clone.run("commit", "-q", "--amend", "--no-edit", "--reset-author")
    clone.run("push", "origin", "HEAD:agents/authors")
    notes = place.notes("reviewer")
    proposal = place.notes("writer").propose("A change", branch="agents/authors")
    assert refusal(lambda: notes.approve(proposal.number, proposal.head_commit_id)).reason == "OWN_PROPOSAL"


def test_letter_case_and_width_of_the_own_name_do_not_matter(clone: Clone) -> None:
    clone.run("add", "-A")
    clone.run(
        "commit", "-q", "-m", "As I like it", "--author", "\N{FULLWIDTH LATIN CAPITAL LETTER R}eviewer <r@example.org>"
    )
    clone.run("push", "origin", "HEAD:agents/spelled")


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        (b"ada", "IBM037"),
        (b"ada", "nothing"),
        ("reviewer".encode("cp037"), "UTF-8"),
        ("reviewer".encode("utf-16"), "UTF-16"),
        (b"reviewer\0ada", "UTF-8"),
    ],
)
def test_no_encoding_hides_another_name(clone: Clone, name: bytes, encoding: str) -> None:
    """The names that the mirror reads are those that are checked, whatever git itself would show."""
    person = b" <a@example.org> 1700000000 +0000\n"
    told = f"encoding {encoding}\n".encode()
    commit_id = put_commit(clone, b"author " + name + person + b"committer reviewer" + person + told)
    with pytest.raises(subprocess.CalledProcessError):
        clone.run("push", "origin", f"{commit_id}:refs/heads/agents/{commit_id}")


def test_the_own_name_may_be_in_another_encoding(clone: Clone) -> None:
    person = b" <a@example.org> 1700000000 +0000\n"
    name = "reviewer".encode("cp037")
    commit_id = put_commit(clone, b"author " + name + person + b"committer x" + person + b"encoding IBM037\n")
    clone.run("push", "origin", f"{commit_id}:refs/heads/agents/{commit_id}")


@pytest.mark.parametrize("encoding", ["", "EBCDIC-US", "IBM037", "nothing"])
def test_no_encoding_hides_the_address_of_the_service(clone: Clone, encoding: str) -> None:
    """Its own commits are believed: of which session they are, and which tag they have.

    git knows encodings that the mirror does not, and would show another address then.
    """
    person = b" 1700000000 +0000\n"
    told = f"encoding {encoding}\n".encode() if encoding else b""
    head = b"author reviewer <a@example.org>" + person + b"committer MemoTree <memotree@localhost>" + person + told
    commit_id = put_commit(clone, head, b"Forged\n\nMemoTree-Session: 0123456789abcdef\nMemoTree-Tag: forged\n")
    with pytest.raises(subprocess.CalledProcessError):
        clone.run("push", "origin", f"{commit_id}:refs/heads/agents/{commit_id}")


def test_a_commit_with_very_much_before_its_message_is_refused(clone: Clone) -> None:
    person = b" <a@example.org> 1700000000 +0000\n"
    junk = b"mergetag " + b"x" * (2 << 20) + b"\n"
    commit_id = put_commit(clone, b"author reviewer" + person + junk + b"committer reviewer" + person)
    with pytest.raises(subprocess.CalledProcessError):
        clone.run("push", "origin", f"{commit_id}:refs/heads/agents/{commit_id}")


def test_commits_of_others_that_the_repository_has_are_no_matter(place: Place, clone: Clone, tmp_path: Path) -> None:
    theirs = cloned(place, "writer", tmp_path)
    theirs.commit()
    theirs.run("push", "origin", "HEAD:agents/theirs")
    clone.run("fetch", "-q", "origin")
    clone.run("push", "origin", "origin/agents/theirs:refs/heads/agents/copied")


def test_an_administrator_brings_histories_of_others(place: Place, tmp_path: Path) -> None:
    clone = cloned(place, "keeper", tmp_path)
    clone.run("add", "-A")
    clone.run("commit", "-q", "-m", "As ada", "--author", "ada <ada@example.org>")
    clone.run("push", "origin", "HEAD:agents/histories")
