"""Commits to write in the tests of a `CommitStore`: valid and refused names, drafts, and a plain model of files."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from hypothesis import strategies as st

from memotree_storage.ports import CommitDraft, CommitStore, FileContent, Signature, TagDraft

MAIN: Final = "refs/heads/main"
ABSENT: Final = "0123456789abcdef0123456789abcdef01234567"
WHO: Final = Signature("Ada Lovelace", "ada@example.org", datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC))

Changes = Mapping[str, bytes | None]

REFUSED_REFS: Final = (
    "",
    "main",
    "HEAD",
    "refs",
    "refs/heads",
    "refs/heads/",
    "refs/heads//a",
    "refs/heads/a/",
    "refs/heads/.a",
    "refs/heads/a.",
    "refs/heads/a..b",
    "refs/heads/../../config",
    "refs/heads/a.lock",
    "refs/heads/a.lock/b",
    "refs/heads/a b",
    "refs/heads/a~1",
    "refs/heads/a^",
    "refs/heads/a:b",
    "refs/heads/a?",
    "refs/heads/a*",
    "refs/heads/a[b",
    "refs/heads/a\\b",
    "refs/heads/@{u}",
    "refs/heads/a\nb",
    "refs/heads/a\x7f",
    "refs/heads/a\0b",
    "refs/heads/\ud800",
    "refs/heads/-a",
    "refs/heads/HEAD",
    "refs/tags/-a",
    "refs/heads/" + "a" * 300,
    "/refs/heads/a",
)
"""Ref names that Git, or one of its commands, refuses."""

REFUSED_PATHS: Final = (
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "./a",
    ".git",
    ".GIT/config",
    "a/.git",
    "a/.Git ",
    "git~1",
    "a/.g\u200cit",
    "a\0b",
    "a\ud800",
    "a" * 300,
    "/".join("a" * 100),
)
"""Paths that a Git tree cannot store or that cannot be checked out."""

names: Final = st.sampled_from(["a", "a-b", "a.b", "a0", "b", "nodes", "é", "z"])
paths: Final = st.lists(names, min_size=1, max_size=4).map("/".join)
contents: Final = st.one_of(st.none(), st.binary(max_size=40))
"""Only a few names, so that changes often concern the same paths; some sort differently as a file and as a folder."""


def draft(
    parent: str | None,
    changes: Mapping[str, FileContent | None],
    message: str = "Change",
    *,
    author: Signature = WHO,
    committer: Signature = WHO,
    tag: TagDraft | None = None,
) -> CommitDraft:
    """Create a commit draft with defaults for what a test does not check."""
    return CommitDraft(parent, changes, message, author, committer, tag)


def files(store: CommitStore, commit_id: str) -> dict[str, bytes]:
    """Return all files of a commit, read through ``diff``."""
    listed = store.diff(None, commit_id)
    return {change.path: store.read_blob(change.new_blob) for change in listed if change.new_blob is not None}


def in_order(changes: Mapping[str, object]) -> list[str]:
    """Sort paths in the order that `CommitStore.diff` promises: by their bytes."""
    return sorted(changes, key=str.encode)


def acceptable(model: Mapping[str, bytes], changes: Changes) -> bool:
    """Whether no path would be both a file and a folder; the plain model of which changes are accepted."""
    after = apply_model(model, changes)
    folders = {path[:place] for path in after for place, character in enumerate(path) if character == "/"}
    return not folders & after.keys()


def apply_model(model: Mapping[str, bytes], changes: Changes) -> dict[str, bytes]:
    """Apply changes to the plain model of a commit, a dictionary of files."""
    after = {path: data for path, data in model.items() if path not in changes}
    return after | {path: data for path, data in changes.items() if data is not None}
