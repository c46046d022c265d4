"""After a push git runs a hook: MemoTree takes the push in at once, and tells what is wrong with it."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from integration.clones import Clone, lost_node, new_node, refused, remote_lines
from integration.http_servers import Served, notes, served
from memotree_storage.git.hooks import install_hook
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.paths import entry_path

from memotree.client.blocking import Workspace
from memotree.local.after_push import branches, told
from memotree.server.announcement import Announcement, announce

__all__ = ["notes", "served"]

pytestmark = pytest.mark.requirement("GIT-8", "STORE-8")

HOOK = "hooks/post-receive"


def heads(notes: Workspace) -> dict[str, str]:
    return {branch.name: branch.commit_id for branch in notes.branches()}


@pytest.fixture
def repository(served: Served, notes: Workspace) -> Path:
    return served.folder / notes.info().repository


@pytest.fixture
def clone(tmp_path: Path, repository: Path) -> Clone:
    return Clone(tmp_path / "clone", repository)


def test_what_is_pushed_is_there_at_once(notes: Workspace, clone: Clone) -> None:
    node = new_node(notes, "Pushed", "By a person.")
    clone.commit(node)
    assert remote_lines(clone.run("push", "origin", "main")) == ["MemoTree has taken in main."]
    assert notes.at("main").node(node.id).title == "Pushed"
    clone.run("tag", "v1")
    assert remote_lines(clone.run("push", "origin", "v1")) == []
    assert [tag.name for tag in notes.tags()] == ["v1"]
    clone.run("push", "-q", "origin", "main:side")
    assert list(heads(notes)) == ["main", "side"]
    assert remote_lines(clone.run("push", "origin", ":side")) == []
    assert list(heads(notes)) == ["main"]


def test_a_push_is_told_what_has_no_place_or_cannot_be_read(notes: Workspace, clone: Clone) -> None:
    lost, damaged = lost_node(notes), new_node(notes, "Damaged", "No end.")
    named = entry_path(lost).replace("lost", "a-name-of-theirs")
    clone.write(named, encode_entry(lost))
    clone.write(entry_path(damaged), encode_entry(damaged).replace(b"\nid:", b"\nodd\x1b[31m: 1\nid:", 1))
    clone.commit()
    first, orphan, unreadable = remote_lines(clone.run("push", "origin", "main"))
    assert first == "MemoTree has taken in main. It has faults:"
    assert orphan.strip().startswith(f"{named}:4: The node stands below {lost.parent_id}, which is deleted")
    assert "MoveNode" in orphan
    assert entry_path(damaged) in unreadable
    assert "\x1b" not in unreadable
    assert len(list(notes.at("main").faults())) == 2


@pytest.mark.requirement("GIT-9")
def test_a_push_to_a_protected_branch_is_refused_whole(notes: Workspace, clone: Clone) -> None:
    clone.commit(new_node(notes, "Pushed", "By a person."))
    notes.protect("main")
    before = heads(notes)
    for refs in (["main"], [":main"], ["main", "main:side"]):  # a hook does not see whether a push is forced
        assert "Branch main is protected" in "".join(refused(clone, "--atomic", *refs))
    assert heads(notes) == before
    assert remote_lines(clone.run("push", "origin", "main:idea")) == ["MemoTree has taken in idea."]
    notes.unprotect("main")
    assert remote_lines(clone.run("push", "origin", "main")) == ["MemoTree has taken in main."]


@pytest.mark.requirement("GIT-9")
def test_no_push_writes_what_memotree_keeps_in_refs(notes: Workspace, clone: Clone, repository: Path) -> None:
    notes.protect("main")
    (repository / "config").write_text((repository / "config").read_text().replace("hideRefs", "unusedKey"))
    for target in ("refs/memotree/protections", "refs/memotree/proposals", "refs/memotree/other"):
        assert "below refs/memotree/" in "".join(refused(clone, "--force", f"main:{target}"))
    assert [one.pattern for one in notes.protections()] == ["main"]


def test_a_push_that_rewinds_a_branch_needs_permission_and_no_protection(notes: Workspace, clone: Clone) -> None:
    clone.run("push", "-q", "origin", "main:draft/one", "main:done")
    clone.write("README", b"Not a node.\n")
    clone.run("commit", "-q", "--amend", "-a", "-m", "Another beginning")
    before = heads(notes)
    lines = sorted(refused(clone, "--force", "main", "main:draft/one"))
    for line, branch in zip(lines, ("draft/one", "main"), strict=True):
        assert line.startswith(f"{branch} would be rewound")
        assert f"memotree branch pushes --rewindable {branch}" in line
    assert heads(notes) == before
    notes.set_push_policy(rewindable=["draft/*"])
    (line,) = refused(clone, "--atomic", "--force", "main:draft/one", "main:done")
    assert line.startswith("done would be rewound")
    assert heads(notes) == before
    told = remote_lines(clone.run("push", "--force", "origin", "main:draft/one"))
    assert told == ["MemoTree has taken in draft/one."]
    assert heads(notes)["draft/one"] != before["draft/one"]
    clone.run("push", "-q", "origin", ":done")
    assert "done" not in heads(notes), "DeleteBranch allows that, too"
    notes.set_push_policy(rewindable=["*"])
    notes.protect("main")
    (line,) = refused(clone, "--force", "main")
    assert "protected" in line


def test_a_strict_workspace_refuses_a_push_that_brings_faults_and_tells_them(notes: Workspace, clone: Clone) -> None:
    before_all = lost_node(notes)
    clone.commit(before_all)
    clone.run("push", "-q", "origin", "main")
    policy = notes.set_push_policy(strict=True)
    assert (policy.strict, policy.rewindable, notes.push_policy()) == (True, (), policy)
    clone.commit(replace(before_all, content="Edited."))
    assert remote_lines(clone.run("push", "origin", "main"))[0] == "MemoTree has taken in main. It has a fault:"
    lost, good, before = lost_node(notes), new_node(notes, "Good", "At its place."), heads(notes)
    clone.commit(lost, good)
    for target in ("main", "new"):
        first, *faults = refused(clone, f"main:{target}")
        assert first == f"{target} takes no faults, and this push would bring some. Mend them, and push again:"
        assert faults[0].strip().startswith(f"{entry_path(lost)}:4: The node stands below {lost.parent_id}")
    assert heads(notes) == before
    (told,) = notes.check_push(clone.head, old_commit_id=before["main"])
    assert (told.node_id, told.path) == (lost.id, entry_path(lost)), "as git has received it"
    clone.run("rm", "-q", entry_path(lost))
    clone.commit()
    clone.run("push", "origin", "main")
    assert notes.at("main").node(good.id).title == "Good"


def test_many_faults_are_told_up_to_a_limit(notes: Workspace, clone: Clone) -> None:
    clone.commit(*(lost_node(notes, f"Lost {number}") for number in range(25)))
    lines = remote_lines(clone.run("push", "origin", "main"))
    assert len(lines) == 22
    assert "memotree faults" in lines[-1]


def test_hooks_of_another_program_stay_and_an_old_or_empty_one_is_replaced_by_ours(tmp_path: Path) -> None:
    theirs = "#!/bin/sh\nexit 0\n"
    for folder, content in (("theirs", theirs), ("none", None), ("empty", "")):
        repository = tmp_path / folder
        (repository / "hooks").mkdir(parents=True)
        if content is not None:
            (repository / HOOK).write_text(content)
        for argument in ("one", os.fsdecode(b"it's \xff")):
            install_hook(repository, ["/usr/bin/true", argument])
        written = (repository / HOOK).read_bytes()
        assert written == theirs.encode() if content else b"exec /usr/bin/true 'it'\"'\"'s \xff'\n" in written
        assert [each.name for each in (repository / "hooks").iterdir()] == ["post-receive"]
    shared, linked = tmp_path / "shared", tmp_path / "linked"
    for folder in (shared, linked):
        folder.mkdir()
    (linked / "hooks").symlink_to(shared)
    install_hook(linked, ["/usr/bin/true"])
    assert list(shared.iterdir()) == []
    (tmp_path / "no folder").touch()
    install_hook(tmp_path / "no folder", ["/usr/bin/true"])  # the disk refuses


def test_without_a_server_a_push_says_when_it_is_taken_in_but_a_strict_workspace_takes_none(
    notes: Workspace, repository: Path, clone: Clone, tmp_path: Path
) -> None:
    """A copy of a data folder asks its own server, and there is none."""
    copied, strict = (tmp_path / name / "workspaces" / repository.name for name in ("copy", "strict"))
    shutil.copytree(repository, copied)
    notes.set_push_policy(strict=True)
    shutil.copytree(repository, strict)
    clone.write("README", b"Not a node.\n")
    clone.commit()
    told = "MemoTree is not running. A server takes this in when it starts."
    assert remote_lines(clone.run("push", str(copied), "main")) == [told]
    clone.run("remote", "set-url", "origin", str(strict))
    (line,) = refused(clone, "main")
    assert "memotree serve" in line


def test_a_branch_with_the_name_of_a_tag_is_told_about(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    clone.run("tag", "v1")
    clone.run("push", "-q", "origin", "v1")
    told = remote_lines(clone.run("push", "origin", *(f"main:refs/heads/v{number}" for number in range(1, 13))))
    assert told[0] == "MemoTree has taken in v1."
    assert len(told) == 11
    assert "2 more branches" in told[-1]


def test_a_server_that_does_not_answer_is_told_and_hides_nothing(tmp_path: Path) -> None:
    announce(tmp_path, Announcement("127.0.0.1:1", 1, "1"))
    (line,) = told(tmp_path, "a" * 16, ["main"])
    assert line.startswith("MemoTree cannot say yet what it made of this: ")


def test_tags_and_deleted_branches_are_no_branches_to_tell_about() -> None:
    none, some = "0" * 40, "a" * 40
    updates = [f"{none} {some} refs/tags/v1\n", f"{some} {none} refs/heads/old\n", f"{none} {some} refs/heads/a b/c\n"]
    assert branches(updates) == ["a b/c"]
