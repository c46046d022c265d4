"""The Git repository as a `CommitStore`, checked with the git program."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memotree_storage.conformance.commit_store import CommitStoreSuite
from memotree_storage.conformance.drafts import MAIN, WHO, acceptable, apply_model, contents, draft, files, paths
from memotree_storage.git.repository import GitRepository
from memotree_storage.ports import TagDraft
from unit.storage.git.judge import Judge


class TestGitRepository(CommitStoreSuite):
    pass


# One repository serves all examples; each begins with a root commit of its own.
@pytest.mark.requirement("GIT-2")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.dictionaries(paths, contents, max_size=8), min_size=1, max_size=4))
def test_git_lists_exactly_the_files_of_the_model(
    store: GitRepository, steps: list[Mapping[str, bytes | None]]
) -> None:
    judge = Judge(store.path)
    model: dict[str, bytes] = {}
    parent = None
    for changes in steps:
        if acceptable(model, changes):
            model = apply_model(model, changes)
            parent = store.write_commit(draft(parent, changes)).commit_id
    if parent is not None:
        assert judge.files(parent) == model


@pytest.mark.requirement("GIT-2")
def test_git_finds_nothing_wrong_with_what_is_written(store: GitRepository) -> None:
    judge = Judge(store.path)
    head = None
    for number in range(5):
        tag = TagDraft(f"v{number}", "A tag", WHO)
        changes = {
            f"nodes/{number}/x.md": b"%d" % number,
            "README.md": b"%d" % number,
            f"nodes/{number - 1}/x.md": None,
        }
        written = store.write_commit(draft(head, changes, f"Commit {number}\n\nWith a body.", tag=tag))
        assert store.move_ref(MAIN, head, written.commit_id)
        assert store.move_ref(f"refs/tags/v{number}", None, written.tag_id)
        head = written.commit_id
    judge.check()
    assert judge.run("log", "--format=%s", "main").splitlines() == [f"Commit {number}" for number in range(4, -1, -1)]
    assert judge.run("log", "--format=%s", "main", "--", "nodes/2/x.md").splitlines() == ["Commit 3", "Commit 2"]
    assert judge.run("describe", "main").strip() == "v4"
    assert judge.run("show", "main:README.md") == "4"


def test_commits_of_another_open_repository_are_seen_at_once(store: GitRepository) -> None:
    with GitRepository.open(store.path) as other:
        written = other.write_commit(draft(None, {"a": b"1"}))
        assert other.move_ref(MAIN, None, written.commit_id)
        assert store.refs() == {MAIN: written.commit_id}
        assert [store.exists(each) for each in (written.commit_id, "0" * 40, "nonsense")] == [True, False, False]
        assert store.read_path(written.commit_id, "a") == b"1"


@pytest.mark.requirement("GIT-8")
def test_commits_made_with_git_are_read(store: GitRepository, tmp_path: Path) -> None:
    written = store.write_commit(draft(None, {"a": b"1"}))
    assert store.move_ref(MAIN, None, written.commit_id)
    clone = Judge(store.path).clone(tmp_path / "clone")
    (tmp_path / "clone" / "b").write_bytes(b"by hand")
    (tmp_path / "clone" / "link").symlink_to("a")
    clone.run("add", ".")
    clone.run("commit", "-q", "-m", "By hand")
    clone.run("push", "-q", "origin", "main")
    head = store.refs()[MAIN]
    assert files(store, head) == {"a": b"1", "b": b"by hand", "link": b"a"}
    assert store.commit_info(head).parents == (written.commit_id,)
    after = store.write_commit(draft(head, {"a": None}))
    assert store.move_ref(MAIN, head, after.commit_id)
    Judge(store.path).check()
