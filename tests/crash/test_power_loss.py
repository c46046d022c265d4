"""A power cut at any step of a commit loses nothing that was acknowledged, and leaves a repository that works.

The disk is simulated (`crash.simulated_disk`), so that every step of a commit is tried, on any machine. The bench cuts
the power of real disk images as well (``bench/power_cut.py``).
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from campaigns import TIMES, dice
from crash.simulated_disk import PowerCut, SimulatedDisk
from crash.test_restore_kill import back_up
from memotree_storage.backup.restoring import restore_backup
from memotree_storage.git import locks, recovery
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.workspace import WorkspaceInfo
from memotree_storage.ports import CommitDraft, Signature, TagDraft

pytestmark = pytest.mark.requirement("GIT-1", "STORE-1")

MAIN = "refs/heads/main"
_FEW = 20
"""Power cuts of each kind of work that are tried in each run."""

INFO = WorkspaceInfo("abcdefghjkmnpqrs", "notes", "", datetime(2024, 1, 1, tzinfo=UTC))
BY = Signature("A tester", "tester@example.org", datetime(2024, 1, 1, tzinfo=UTC))


def commit(store: GitRepository, parent: str | None, number: int, *, tag: bool = False) -> str:
    """Write a commit of a few files and move the branch to it, as the write path does."""
    changes = {f"nodes/{number % 3}/{name}.md": f"{name} of {number}\n".encode() * 50 for name in ("one", "two")}
    draft = TagDraft(f"v{number}", f"Version {number}\n", BY) if tag else None
    written = store.write_commit(CommitDraft(parent, changes, f"Commit {number}\n", BY, BY, draft))
    assert store.move_ref(MAIN, parent, written.commit_id)
    if written.tag_id is not None:
        assert store.move_ref(f"refs/tags/v{number}", None, written.tag_id)
    return written.commit_id


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[GitRepository]:
    with GitRepository.create(tmp_path / "repository", description="test") as store:
        yield store


def cuts_of(disk: SimulatedDisk, folder: Path) -> Iterator[tuple[PowerCut, str, Path]]:
    """States that a power cut may leave, as folders: the least after the last step, and some drawn for each run."""
    states = [(cut, kind) for cut in disk.cuts for kind in cut.kinds]
    last = len(states) - len(disk.cuts[-1].kinds)
    few = range(len(states)) if TIMES else {last, *dice("power cuts", last).sample(range(len(states)), min(_FEW, last))}
    for number in sorted(few):
        cut, kind = states[number]
        cut.write(folder / str(number), kind)
        yield cut, kind, folder / str(number)
        shutil.rmtree(folder / str(number))


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this process one that began after the power came back: the owners of locks are of an earlier boot."""

    def boot() -> None:
        now = time.time() + 3600
        monkeypatch.setattr(locks, "_boot", lambda: "rebooted")
        monkeypatch.setattr(recovery, "booted_at", lambda: now)

    return boot


def check(path: Path, acknowledged: str | None, told: str) -> None:
    """Open what a power cut left: what was acknowledged is there with all its objects, and a commit can be made."""
    with GitRepository.open(path) as store:
        store.recover(exclusive=True)
        head = store.refs().get(MAIN)
        history = [] if head is None else store.history([head], lambda _: False)
        ids = [info.commit_id for info in history]
        assert acknowledged is None or acknowledged in ids, told
        for info in history:
            for change in store.diff(None, info.commit_id):
                assert change.new_blob is not None
                assert store.read_blob(change.new_blob), told
        commit(store, head, 99)
    if shutil.which("git"):
        command = ["git", "-C", str(path), "fsck", "--full", "--strict", "--no-dangling"]
        found = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - our own
        assert found.returncode == 0, (told, found.stderr)


def test_a_power_cut_at_any_step_of_commits_loses_nothing(
    repository: GitRepository, tmp_path: Path, reboot: Callable[[], None]
) -> None:
    disk = SimulatedDisk(repository.path)
    head, acknowledged = None, list[tuple[str, PowerCut]]()
    with disk.recording():
        for number in range(3):
            head = commit(repository, head, number, tag=number == 2)
            disk.mark = head
            acknowledged.append((head, disk.cuts[-1]))
    assert len(disk.cuts) > 20
    reboot()
    for cut, kind, path in cuts_of(disk, tmp_path):
        check(path, cut.mark, f"{kind} after {cut.step}")
    for number, (head, cut) in enumerate(acknowledged):  # only then is a commit acknowledged
        cut.write(tmp_path / f"after {number}", "least")
        check(tmp_path / f"after {number}", head, "the least after the last step")


def test_a_power_cut_while_refs_of_sessions_come_and_go_loses_no_branch(
    repository: GitRepository, tmp_path: Path, reboot: Callable[[], None]
) -> None:
    head = commit(repository, None, 0)
    disk = SimulatedDisk(repository.path, mark=head)
    with disk.recording():
        for name in ("refs/memotree/keep/a", "refs/heads/side"):
            assert repository.move_ref(name, None, head)
            assert repository.move_ref(name, head, None)
    reboot()
    for cut, kind, path in cuts_of(disk, tmp_path):
        check(path, cut.mark, f"{kind} after {cut.step}")


def test_a_power_cut_after_the_first_workspace_of_a_new_data_folder_keeps_it(
    tmp_path: Path, reboot: Callable[[], None]
) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    disk.root.mkdir()
    data = disk.root / "new" / "data"
    with disk.recording():
        repositories = Repositories(data / "workspaces", data / "trash")
        repositories.create(INFO)
        disk.mark = "workspaces"
        repositories.discard(INFO.workspace_id)
        disk.mark = "trash"
    reboot()
    for cut, kind, path in cuts_of(disk, tmp_path):
        left = Repositories(path / "new" / "data" / "workspaces", path / "new" / "data" / "trash")
        there, thrown = left.descriptions().readable, list((path / "new" / "data" / "trash").glob("*.git"))
        if cut.mark == "workspaces":
            assert there == [INFO] or len(thrown) == 1, f"{kind} after {cut.step}"
        if cut.mark == "trash":
            assert len(thrown) == 1, f"{kind} after {cut.step}"
        for repository in thrown:
            check(repository, None, f"{kind} after {cut.step}")


@pytest.mark.skipif(shutil.which("git") is None, reason="a backup needs a git program")
def test_a_power_cut_after_a_restore_keeps_it(tmp_path: Path, reboot: Callable[[], None]) -> None:
    repositories = Repositories(tmp_path / "first" / "workspaces", tmp_path / "first" / "trash")
    repositories.create(INFO)
    repositories.close()
    backup = tmp_path / "backup.tar"
    back_up(tmp_path / "first", backup)
    disk = SimulatedDisk(tmp_path / "disk")
    disk.root.mkdir()
    with disk.recording():
        restore_backup([backup], disk.root / "data")
    reboot()
    disk.cuts[-1].write(tmp_path / "after", "least")
    assert Repositories(tmp_path / "after" / "data" / "workspaces", tmp_path / "trash").descriptions().readable == [
        INFO
    ]
    check(tmp_path / "after" / "data" / "workspaces" / f"{INFO.workspace_id}.git", None, "the least")


def test_a_power_cut_while_refs_are_packed_loses_none_and_brings_none_back(
    repository: GitRepository, tmp_path: Path, reboot: Callable[[], None]
) -> None:
    first = commit(repository, None, 0)
    for name in ("kept", "other", "deleted"):
        assert repository.move_ref(f"refs/heads/{name}", None, first)
    disk = SimulatedDisk(repository.path, mark="packing")
    with disk.recording():
        assert repository.pack_refs() == 4
        second = commit(repository, first, 1)
        assert repository.pack_refs() >= 1
        assert repository.move_ref("refs/heads/unpacked", None, second)
        assert repository.move_ref("refs/heads/deleted", first, None)
        assert repository.move_ref("refs/heads/unpacked", second, None)
        disk.mark = "deleted"
        commit(repository, second, 2)
    reboot()
    for cut, kind, path in cuts_of(disk, tmp_path):
        told = f"{kind} after {cut.step}"
        check(path, second if cut.mark == "deleted" else first, told)
        with GitRepository.open(path) as store:
            refs = store.refs()
        assert (refs.get("refs/heads/kept"), refs.get("refs/heads/other")) == (first, first), told
        assert cut.mark != "deleted" or not {"refs/heads/deleted", "refs/heads/unpacked"} & refs.keys(), told
