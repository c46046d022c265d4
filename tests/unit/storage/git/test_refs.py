"""Refs shared with the git program: its rules for names, its packed file, its locks."""

import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memotree_storage.conformance.drafts import MAIN, draft
from memotree_storage.git import refs, repository
from memotree_storage.git.locks import LockJournal, RefLockedError, RepositoryBusyError, RepositoryLock
from memotree_storage.git.refs import InvalidRefNameError, PackedRefsDamagedError, RefNameTakenError, check_ref_name
from memotree_storage.git.repository import GitRepository
from steps import Steps
from unit.storage.git.judge import Judge

SOON = 0.05
"""Seconds that a test waits for a lock that is never released."""


def commits(store: GitRepository, count: int) -> list[str]:
    return [store.write_commit(draft(None, {"a": b"%d" % number})).commit_id for number in range(count)]


def is_accepted(name: str) -> bool:
    try:
        check_ref_name(name)
    except InvalidRefNameError:
        return False
    return True


@given(st.lists(st.sampled_from([*"ab./-@{}~^:?*[\\ é\t\x7f", "..", ".lock", "@{"]), max_size=6).map("".join))
@example("@")
@example("a.lock.b")
@example("a/.b")
def test_ref_names_are_accepted_exactly_as_by_git(rest: str) -> None:
    name = f"refs/memotree/{rest}"
    judged = subprocess.run(["git", "check-ref-format", name], check=False).returncode == 0  # noqa: S603, S607 - the judge
    assert is_accepted(name) == judged


@pytest.mark.requirement("STORE-8")
def test_a_name_that_is_too_long_is_refused_unread() -> None:
    with Steps() as steps, pytest.raises(InvalidRefNameError, match="too long"):
        check_ref_name("refs/heads/" + "a/" * 100_000)
    assert steps.count < 5_000


def test_packed_refs_are_read_moved_and_created_around(store: GitRepository, judge: Judge) -> None:
    one, two = commits(store, 2)
    assert store.move_ref(MAIN, None, one)
    assert store.move_ref("refs/tags/t", None, two)
    judge.run("pack-refs", "--all")
    assert not (store.path / MAIN).exists()
    assert store.refs() == {MAIN: one, "refs/tags/t": two}
    assert not store.move_ref(MAIN, None, two), "a packed ref is not absent"
    assert not store.move_ref(MAIN, two, one)
    assert store.move_ref(MAIN, one, two)
    assert store.refs() == {MAIN: two, "refs/tags/t": two}
    with pytest.raises(RefNameTakenError):
        store.move_ref("refs/tags/t/x", None, one)
    assert judge.run("rev-parse", "main").strip() == two


def test_deleting_a_packed_ref_removes_it_everywhere(store: GitRepository, judge: Judge) -> None:
    one, two = commits(store, 2)
    for name in (MAIN, "refs/heads/gone", "refs/heads/loose-too"):
        assert store.move_ref(name, None, one)
    tag = judge.run("tag", "-a", "-m", "annotated", "kept", one)
    assert tag == ""
    judge.run("pack-refs", "--all")
    assert store.move_ref("refs/heads/loose-too", one, two)
    assert not store.move_ref("refs/heads/gone", two, None)
    assert store.move_ref("refs/heads/gone", one, None)
    assert store.move_ref("refs/heads/loose-too", two, None)
    assert store.refs().keys() == {MAIN, "refs/tags/kept"}
    assert judge.run("for-each-ref", "--format=%(refname) %(*objectname)").split() == [MAIN, "refs/tags/kept", one]
    judge.check()


def test_many_refs_become_one_file_that_git_reads(store: GitRepository, judge: Judge) -> None:
    one, two = commits(store, 2)
    for name in (MAIN, "refs/heads/a/b", "refs/tags/light", "refs/memotree/keep/s"):
        assert store.move_ref(name, None, one)
    judge.run("tag", "-a", "-m", "annotated", "kept", two)
    judge.run("tag", "-a", "-m", "a tag of a tag", "twice", "kept")
    judge.run("tag", "tree", f"{one}^{{tree}}")
    judge.run("symbolic-ref", "refs/heads/alias", MAIN)
    shown = judge.run("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)")
    refs_before = store.refs()
    assert store.pack_refs(limit=7) == 0
    assert store.pack_refs(limit=6) == 5
    left = {str(path.relative_to(store.path)) for path in (store.path / "refs").rglob("*") if path.is_file()}
    assert left == {"refs/heads/alias", "refs/tags/tree", "refs/memotree/keep/s"}
    assert store.refs() == refs_before
    assert judge.run("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)") == shown
    judge.check()
    assert store.move_ref(MAIN, one, two)
    assert store.pack_refs() == 1
    assert judge.run("rev-parse", "main", "kept^{commit}", "twice^{commit}").split() == [two] * 3


def test_a_ref_that_moves_while_refs_are_packed_keeps_its_new_value(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = commits(store, 2)
    for name in (MAIN, "refs/heads/gone", "refs/heads/still"):
        assert store.move_ref(name, None, one)

    def move(name: str) -> None:
        if name == "git.refs-packed":
            assert store.move_ref(MAIN, one, two)
            judge.run("branch", "--delete", "--force", "gone")

    monkeypatch.setattr(repository, "point", move)
    assert store.pack_refs() == 3
    assert store.refs() == {MAIN: two, "refs/heads/still": one}
    shown = judge.run("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    assert shown == [f"{MAIN} {two}", f"refs/heads/still {one}"]


def test_a_lock_that_git_left_delays_neither_packing_nor_the_end_of_a_session(tmp_path: Path) -> None:
    GitRepository.create(tmp_path / "a.git").close()
    with GitRepository.open(tmp_path / "a.git", lock_timeout=SOON) as store:
        (one,) = commits(store, 1)
        for name in (MAIN, "refs/heads/other", "refs/memotree/keep/s"):
            assert store.move_ref(name, None, one)
        (store.path / "packed-refs.lock").write_text("")
        assert store.pack_refs() == 0
        assert store.move_ref("refs/memotree/keep/s", one, None)
        with pytest.raises(RefLockedError, match=r"packed-refs\.lock"):
            store.move_ref("refs/heads/other", one, None)
        (store.path / "packed-refs.lock").unlink()
        (store.path / f"{MAIN}.lock").write_text("")
        assert store.pack_refs() == 2
        assert (store.path / MAIN).exists()
        assert not (store.path / "refs/heads/other").exists()
        assert store.refs() == {MAIN: one, "refs/heads/other": one}


@pytest.mark.parametrize("packed", [False, True])
def test_nobody_can_pack_a_ref_that_is_being_deleted(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """As in git: ``packed-refs`` stays locked until the file of the ref is gone."""
    (one,) = commits(store, 1)
    assert store.move_ref(MAIN, None, one)
    if packed:
        judge.run("pack-refs", "--all", "--no-prune")
    refused: list[str] = []
    unlink = Path.unlink

    def packing(path: Path, missing_ok: bool = False) -> None:
        if path == store.path / MAIN:
            with pytest.raises(AssertionError) as error:
                judge.run("-c", "core.packedRefsTimeout=0", "pack-refs", "--all")
            refused.append(str(error.value))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", packing)
    assert store.move_ref(MAIN, one, None)
    (why,) = refused
    assert "packed-refs.lock" in why
    assert store.refs() == {}


def test_deleting_a_ref_frees_the_names_above_it(store: GitRepository) -> None:
    (one,) = commits(store, 1)
    assert store.move_ref("refs/heads/a/b/c", None, one)
    assert store.move_ref("refs/heads/a/b/c", one, None)
    assert not (store.path / "refs/heads/a").exists()
    assert (store.path / "refs/heads").is_dir()
    (store.path / "refs/heads/left/empty").mkdir(parents=True)
    assert store.move_ref("refs/heads/left", None, one)


def test_a_ref_folder_with_foreign_files_is_named_in_the_error(store: GitRepository) -> None:
    (one,) = commits(store, 1)
    folder = store.path / "refs/heads/odd"
    folder.mkdir()
    (folder / "x.lock").write_text("")
    with pytest.raises(RefNameTakenError, match="not refs"):
        store.move_ref("refs/heads/odd", None, one)


def test_symbolic_refs_are_shown_and_never_moved_and_a_broken_ref_is_reported(
    store: GitRepository, judge: Judge
) -> None:
    one, two = commits(store, 2)
    assert store.move_ref(MAIN, None, one)
    judge.run("symbolic-ref", "refs/heads/alias", MAIN)
    (store.path / "refs/heads/broken").write_bytes(b"")
    assert store.refs() == {MAIN: one, "refs/heads/alias": one}
    assert not store.move_ref("refs/heads/alias", one, two)
    assert not store.move_ref("refs/heads/alias", None, two)
    (sentence,) = store.recover()
    assert "refs/heads/broken" in sentence


def test_a_damaged_packed_refs_file_is_an_error_and_not_an_empty_list(store: GitRepository) -> None:
    (store.path / "packed-refs").write_bytes(b"# pack-refs with: peeled fully-peeled sorted \nnonsense\n")
    with pytest.raises(PackedRefsDamagedError):
        store.refs()


def test_a_lock_of_git_is_waited_for_and_never_removed(tmp_path: Path) -> None:
    GitRepository.create(tmp_path / "a.git").close()
    with GitRepository.open(tmp_path / "a.git", lock_timeout=SOON) as store:
        one, two = commits(store, 2)
        assert store.move_ref(MAIN, None, one)
        lock = store.path / f"{MAIN}.lock"
        lock.write_text("")
        with pytest.raises(RefLockedError, match=f"{MAIN}.lock"):
            store.move_ref(MAIN, one, two)
        assert store.recover() == []
        assert lock.exists()
        assert store.refs() == {MAIN: one}
    with GitRepository.open(tmp_path / "a.git", lock_timeout=30) as store:
        timer = threading.Timer(SOON, lock.unlink)
        timer.start()
        assert store.move_ref(MAIN, one, two), "git let go while we waited"
        timer.join()


def test_a_writer_that_holds_a_lock_too_long_is_named_in_the_error(tmp_path: Path) -> None:
    GitRepository.create(tmp_path / "a.git").close()
    with GitRepository.open(tmp_path / "a.git", lock_timeout=SOON) as store:
        (one,) = commits(store, 1)
        with RepositoryLock(store.path).hold(SOON), pytest.raises(RepositoryBusyError):
            store.move_ref(MAIN, None, one)
        assert store.move_ref(MAIN, None, one)


@pytest.mark.requirement("STORE-1")
@pytest.mark.parametrize("ref", [MAIN, "packed-refs"])
def test_a_stale_lock_of_memotree_blocks_no_writer(store: GitRepository, judge: Judge, ref: str) -> None:
    (one,) = commits(store, 1)
    assert store.move_ref(MAIN, None, one)
    judge.run("pack-refs", "--all")
    # A process was killed while it held a lock: the lock file and its journal entry are two names of one inode.
    with LockJournal(store.path).lock(store.path / ref, SOON):
        (entry,) = LockJournal(store.path).entries()
        entry.with_name("dead.boot.1.1.x").hardlink_to(entry)
        lock = store.path / f"{ref}.lock"
        lock.with_name("kept").hardlink_to(lock)
    lock.with_name("kept").rename(lock)
    assert store.move_ref(MAIN, one, None)
    assert store.refs() == {}


def test_recovery_removes_locks_in_the_journal_and_names_their_owners(store: GitRepository) -> None:
    (one,) = commits(store, 1)
    assert store.move_ref(MAIN, None, one)
    journal = LockJournal(store.path)
    with journal.lock(store.path / MAIN, SOON):
        (entry,) = journal.entries()
        entry.with_name("host.boot.4711.99.x").hardlink_to(entry)
        (store.path / "kept").hardlink_to(entry)
    (store.path / "kept").rename(store.path / f"{MAIN}.lock")
    (sentence,) = store.recover()
    assert f"{MAIN}.lock" in sentence
    assert "4711" in sentence
    assert not (store.path / f"{MAIN}.lock").exists()
    assert journal.entries() == []
    assert store.recover() == []


@pytest.mark.requirement("STORE-2")
def test_a_ref_that_git_moves_before_its_lock_is_held_is_not_overwritten(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = commits(store, 3)
    assert store.move_ref(MAIN, None, one)

    def moved(point: str) -> None:
        if point == "git.ref-locked":
            (store.path / MAIN).write_text(f"{two}\n")

    monkeypatch.setattr(refs, "point", moved)
    assert not store.move_ref(MAIN, one, three)
    assert judge.run("rev-parse", MAIN).strip() == two


places = st.sampled_from([None, 0, 1])


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("abc"), places, places), max_size=12))
def test_any_sequence_of_moves_equals_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int | None, int | None]]
) -> None:
    with GitRepository.create(tmp_path_factory.mktemp("refs") / "a.git") as store:
        ids = commits(store, 2)
        model: dict[str, str] = {}
        for number, (letter, before, after) in enumerate(moves):
            name = f"refs/heads/{letter}"
            old, new = (None if at is None else ids[at] for at in (before, after))
            fits = model.get(name) == old
            assert store.move_ref(name, old, new) == fits
            if fits:
                model.pop(name, None)
                if new is not None:
                    model[name] = new
            assert store.refs() == model
            if number % 4 == 3:
                Judge(store.path).run("pack-refs", "--all")
            if number % 4 == 1:
                store.pack_refs()
                assert store.refs() == model


@pytest.mark.parametrize("trusted_after", [refs._FRESH_NS, -refs._FRESH_NS])
def test_a_ref_that_is_replaced_repeatedly_is_always_read_correctly(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch, trusted_after: int
) -> None:
    """With young files, and with files that count as old at once: a new file has another inode."""
    monkeypatch.setattr(refs, "_FRESH_NS", trusted_after)
    ids = commits(store, 2)
    path = store.path / MAIN
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(200):
        fresh = path.with_name(f"main.{number}.lock")
        fresh.write_text(ids[number % 2] + "\n")
        if trusted_after < 0:
            keep = path.with_name("keeps-the-inode.lock")
            keep.unlink(missing_ok=True)
            keep.hardlink_to(fresh)
        fresh.replace(path)
        assert store.refs() == {MAIN: ids[number % 2]}
    path.unlink()
    assert store.refs() == {}


@pytest.mark.requirement("GIT-2")
def test_packed_refs_are_decoded_once_although_they_were_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A young file is read again each time; decoding it each time would let a new branch cost what all refs cost."""
    decoded = 0
    decode = refs._decode_packed

    def counted(data: bytes) -> object:
        nonlocal decoded
        decoded += 1
        return decode(data)

    monkeypatch.setattr(refs, "_decode_packed", counted)
    with GitRepository.create(tmp_path / "a.git") as store:
        (one,) = commits(store, 1)
        assert store.move_ref(MAIN, None, one)
        assert store.pack_refs() == 1
        for number in range(20):
            assert store.move_ref(f"refs/heads/new-{number}", None, one)
            assert len(store.refs()) == number + 2
    assert decoded == 1
