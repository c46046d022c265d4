"""Repacking during commits: no object is lost, and reads still work."""

import subprocess
import sys
import threading

import pytest
from memotree_storage.conformance.drafts import MAIN, draft, files
from memotree_storage.git.maintenance import MaintenanceFailedError, count_packs, maintain
from memotree_storage.git.repository import GitRepository
from memotree_storage.ports import WrittenCommit
from unit.storage.git.judge import Judge


def has_graph(store: GitRepository) -> bool:
    return (store.path / "objects" / "info" / "commit-graph").exists()


def commit_some(store: GitRepository, count: int) -> tuple[str, list[WrittenCommit]]:
    """Make ``count`` commits on main, and as many that no ref reaches."""
    head = store.refs().get(MAIN)
    unnamed = []
    for number in range(count):
        unnamed.append(store.write_commit(draft(head, {"lost": b"%d" % number}, "unnamed")))
        written = store.write_commit(draft(head, {f"f{number}": b"%d" % number}))
        assert store.move_ref(MAIN, head, written.commit_id)
        head = written.commit_id
    assert head is not None
    return head, unnamed


@pytest.mark.requirement("STORE-1")
def test_a_repack_keeps_objects_that_no_ref_reaches_yet(store: GitRepository, judge: Judge) -> None:
    head, unnamed = commit_some(store, 30)
    assert count_packs(store.path) == 60
    report = maintain(store.path)
    assert report.packs == count_packs(store.path) <= 3
    assert has_graph(store)
    with GitRepository.open(store.path) as fresh:
        for reader in (store, fresh):
            assert len(files(reader, head)) == 30
            for number, written in enumerate(unnamed):
                assert reader.read_path(written.commit_id, "lost") == b"%d" % number
    assert store.move_ref("refs/heads/late", None, unnamed[0].commit_id), "its commit may move a ref even now"
    judge.check()
    judge.run("commit-graph", "verify")


@pytest.mark.requirement("STORE-1")
def test_commits_of_several_processes_survive_maintenance_beside_them(store: GitRepository, judge: Judge) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from memotree_storage.conformance.drafts import draft\n"
        "from memotree_storage.git.repository import GitRepository\n"
        "store = GitRepository.open(Path(sys.argv[1])); ref = sys.argv[2]; head = None\n"
        "for number in range(60):\n"
        "    written = store.write_commit(draft(head, {f'{number}': ref.encode()}))\n"
        "    assert store.move_ref(ref, head, written.commit_id); head = written.commit_id\n"
    )
    branches = ["refs/heads/a", "refs/heads/b"]
    writers = [subprocess.Popen([sys.executable, "-c", program, str(store.path), name]) for name in branches]  # noqa: S603
    while any(writer.poll() is None for writer in writers):
        maintain(store.path, pack_limit=4)
        for head in store.refs().values():
            assert files(store, head)
    assert [writer.wait() for writer in writers] == [0, 0]
    maintain(store.path, pack_limit=4)
    for name in branches:
        assert files(store, store.refs()[name]) == {str(number): name.encode() for number in range(60)}
    judge.check()


def test_reads_work_during_repacks(store: GitRepository) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    head, _ = commit_some(store, 5)
    expected = files(store, head)

    def read() -> None:
        with GitRepository.open(store.path) as reader:
            while not stop.is_set():
                try:
                    reader._blobs.clear()
                    reader._trees.clear()
                    assert files(reader, head) == expected
                except BaseException as error:
                    failures.append(error)
                    raise

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(5):
        commit_some(store, 4)
        maintain(store.path, pack_limit=1)
    stop.set()
    thread.join()
    assert failures == []


def test_few_packs_are_left_alone_and_so_are_many_without_a_git_program(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_some(store, 2)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        report = maintain(store.path, pack_limit=1)
    assert not has_graph(store)
    assert "no git program" in report.note
    assert report.packs == maintain(store.path).packs == 4
    assert has_graph(store)


def test_two_repacks_never_run_at_the_same_time(store: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_some(store, 2)
    notes = []

    def run_another(*_: object) -> None:
        monkeypatch.undo()
        notes.append(maintain(store.path, pack_limit=1).note)

    monkeypatch.setattr("memotree_storage.git.maintenance._run", run_another)
    maintain(store.path)
    assert "Another process" in notes[0]
    assert maintain(store.path, pack_limit=1).packs == 1


def test_a_failure_of_git_is_reported_with_its_output(store: GitRepository) -> None:
    head, _ = commit_some(store, 3)
    (store.path / "config").write_text("[core\n")
    with pytest.raises(MaintenanceFailedError, match="config"):
        maintain(store.path, pack_limit=1)
    assert len(files(store, head)) == 3
