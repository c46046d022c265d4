"""Errors of the disk: one clear error, nothing half done, and the next write works."""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from memotree_storage.conformance.drafts import MAIN, draft, files
from memotree_storage.git.disk import RepositoryUnavailableError
from memotree_storage.git.layout import RepositoryExistsError, RepositoryFormatError, RepositoryMissingError
from memotree_storage.git.repository import GitRepository
from unit.storage.git.judge import Judge

CODES = [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO]


def names(store: GitRepository) -> list[str]:
    """All files of a repository that a failed write could leave behind."""
    ignored = {"write.lock"}
    return sorted(path.relative_to(store.path).as_posix() for path in store.path.rglob("*") if path.name not in ignored)


def failing(original: Callable[..., Any], turn: int, code: int) -> Callable[..., Any]:
    """Wrap the function to fail at its ``turn``-th call."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == turn:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    return call


@pytest.mark.requirement("STORE-1")
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize(("owner", "function"), [(os, "open"), (os, "fsync"), (Path, "rename")])
def test_a_failed_commit_leaves_no_files(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, turn: int, code: int
) -> None:
    head = store.write_commit(draft(None, {"a": b"1"})).commit_id
    assert store.move_ref(MAIN, None, head)
    before = names(store)
    with monkeypatch.context() as patched:
        patched.setattr(owner, function, failing(getattr(owner, function), turn, code))
        with pytest.raises(RepositoryUnavailableError, match="send the same call again"):
            store.write_commit(draft(head, {"a": b"2"}))
    assert names(store) == before
    after = store.write_commit(draft(head, {"a": b"2"}))
    assert store.move_ref(MAIN, head, after.commit_id)
    Judge(store.path).check()


@pytest.mark.requirement("STORE-1")
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("owner", "function", "turn"),
    [*product([os], ["open", "fsync"], [1, 2]), (os, "link", 1), (os, "write", 1), (Path, "rename", 1)],
)
def test_a_failed_move_leaves_the_ref_intact(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, turn: int, code: int
) -> None:
    one = store.write_commit(draft(None, {"a": b"1"})).commit_id
    two = store.write_commit(draft(one, {"a": b"2"})).commit_id
    assert store.move_ref(MAIN, None, one)
    before = names(store)
    with monkeypatch.context() as patched:
        patched.setattr(owner, function, failing(getattr(owner, function), turn, code))
        with pytest.raises(RepositoryUnavailableError, match="could not"):
            store.move_ref(MAIN, one, two)
    assert names(store) == before
    now = store.refs()[MAIN]
    assert now in {one, two}
    assert store.move_ref(MAIN, now, two)
    Judge(store.path).check()


def test_a_failed_creation_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing(os.fsync, 3, errno.ENOSPC))
        with pytest.raises(RepositoryUnavailableError, match="disk is full"):
            GitRepository.create(tmp_path / "a.git")
    assert list(tmp_path.iterdir()) == []
    GitRepository.create(tmp_path / "a.git").close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root may mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False)  # noqa: S603 - fixed
    if done.returncode:
        pytest.skip("this machine lets nobody mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S603, S607 - what was mounted above


def fill(ballast: Path) -> None:
    """Fill every free page of the file system."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.requirement("STORE-1")
def test_a_full_disk_refuses_commits_and_moves_of_refs_until_there_is_room(small_disk: Path) -> None:
    with GitRepository.create(small_disk / "a.git") as store:
        head = store.write_commit(draft(None, {"a": b"1"})).commit_id
        assert store.move_ref(MAIN, None, head)
        ballast = small_disk / "ballast"
        ballast.write_bytes(os.urandom(400_000))
        before = names(store)
        with pytest.raises(RepositoryUnavailableError, match="disk is full"):
            store.write_commit(draft(head, {"large": os.urandom(900_000)}))
        assert names(store) == before
        assert files(store, head) == {"a": b"1"}
        ballast.unlink()
        after = store.write_commit(draft(head, {"large": os.urandom(400_000)})).commit_id
        fill(ballast)
        with pytest.raises(RepositoryUnavailableError):
            store.move_ref(MAIN, head, after)
        assert store.refs() == {MAIN: head}
        ballast.unlink()
        assert store.move_ref(MAIN, head, after)
        Judge(store.path).check()


def test_a_repository_that_was_removed_is_unavailable_and_does_not_miss_objects(store: GitRepository) -> None:
    head = store.write_commit(draft(None, {"a": b"1"})).commit_id
    away = store.path.with_name("away")
    store.path.rename(away)
    with pytest.raises(RepositoryUnavailableError):
        store.write_commit(draft(head, {"a": b"2"}))
    with pytest.raises(RepositoryUnavailableError):
        store.exists("0" * 40)
    away.rename(store.path)
    assert store.write_commit(draft(head, {"a": b"2"}))


def test_creating_a_repository_in_a_used_folder_is_refused(tmp_path: Path) -> None:
    GitRepository.create(tmp_path / "a.git").close()
    (tmp_path / "file").write_text("")
    for name in ("a.git", "file"):
        with pytest.raises(RepositoryExistsError, match=name):
            GitRepository.create(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.git", "file"]


def test_opening_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RepositoryMissingError):
            GitRepository.open(path)


def test_a_format_that_we_do_not_write_is_refused(store: GitRepository, judge: Judge) -> None:
    judge.run("config", "core.repositoryformatversion", "1")
    judge.run("config", "extensions.objectFormat", "sha256")
    with pytest.raises(RepositoryFormatError, match="sha256"):
        GitRepository.open(store.path)


def test_git_accepts_a_new_repository(store: GitRepository, judge: Judge) -> None:
    assert judge.run("rev-parse", "--is-bare-repository").strip() == "true"
    assert judge.run("symbolic-ref", "HEAD").strip() == MAIN
    assert judge.run("config", "gc.auto").strip() == "0"
    assert judge.run("config", "receive.autogc").strip() == "false"
    assert (store.path / "description").read_text() == "under test\n"
    judge.check()
