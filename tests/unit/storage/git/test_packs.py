"""Reading while other programs write, repack and damage packs."""

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from memotree_storage.conformance.drafts import MAIN, draft, files
from memotree_storage.git import packfile
from memotree_storage.git.objects import BLOB, TREE, ObjectDamagedError, ObjectMissingError, ObjectTooLargeError
from memotree_storage.git.pack import PackWriter, create_temporary
from memotree_storage.git.repository import GitRepository
from unit.storage.git.judge import Judge


def grow(store: GitRepository, count: int) -> tuple[str, dict[str, bytes]]:
    """A branch of ``count`` commits over similar files, so that a repack makes deltas."""
    rng = random.Random(count)
    model: dict[str, bytes] = {}
    head = None
    for number in range(count):
        text = "\n".join(f"line {line} {rng.random() if line == number else ''}" for line in range(120))
        model |= {"same.md": text.encode(), f"nodes/{number % 7}/{number}.md": text.encode()}
        changes = {path: model[path] for path in ("same.md", f"nodes/{number % 7}/{number}.md")}
        written = store.write_commit(draft(head, changes, f"commit {number}"))
        assert store.move_ref(MAIN, head, written.commit_id)
        head = written.commit_id
    assert head is not None
    return head, model


def packs(store: GitRepository) -> list[Path]:
    return sorted((store.path / "objects" / "pack").glob("*.pack"))


def test_objects_are_read_from_deltas(store: GitRepository, judge: Judge) -> None:
    head, model = grow(store, 30)
    judge.run("repack", "-a", "-d", "-f", "-q", "--depth=50")
    assert len(packs(store)) == 1
    with GitRepository.open(store.path) as fresh:
        assert files(fresh, head) == model
        assert len(fresh.history([head], lambda _: False)) == 30
    assert files(store, head) == model, "a reader that was open follows"


def test_an_open_reader_follows_packs_that_come_and_go(store: GitRepository, judge: Judge) -> None:
    with GitRepository.open(store.path) as reader:
        for _ in range(3):
            head, model = grow(store, 5)
            assert files(reader, head) == model
            judge.run("repack", "-a", "-d", "-q")
            assert files(reader, head) == model
            assert store.move_ref(MAIN, head, None)


def test_a_pack_too_large_for_the_shared_index_is_read_like_any_other(store: GitRepository, judge: Judge) -> None:
    changes = {f"n/{number % 97:02}/{number}": b"%d" % number for number in range(5000)}
    written = store.write_commit(draft(None, changes))
    assert store.move_ref(MAIN, None, written.commit_id)
    assert files(store, written.commit_id) == changes
    with GitRepository.open(store.path) as fresh:
        assert files(fresh, written.commit_id) == changes
        assert not fresh.exists("0" * 40)
    judge.check()


def test_a_pack_larger_than_the_memory_limit_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    blobs = [rng.randbytes(rng.randrange(3000)) for _ in range(200)]
    names = []
    for spill in (1 << 30, 10_000):
        monkeypatch.setattr("memotree_storage.git.pack._SPILL", spill)
        folder = tmp_path / str(spill)
        folder.mkdir()
        with PackWriter(folder) as pack:
            for blob in blobs:
                pack.add(BLOB, blob)
            names.append(pack.finish().name)
    assert names[0] == names[1]
    assert len({path.read_bytes() for path in tmp_path.rglob("*.pack")}) == 1


def test_an_object_is_in_a_pack_once(tmp_path: Path) -> None:
    with PackWriter(tmp_path) as pack:
        assert pack.add(BLOB, b"same") == pack.add(BLOB, b"same")
        assert pack.add(TREE, b"") != pack.add(BLOB, b"")
        assert len(pack) == 3
        assert len(pack.finish().offsets) == 3


def test_an_unfinished_pack_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memotree_storage.git.pack._SPILL", 10)
    with PackWriter(tmp_path) as pack:
        pack.add(BLOB, b"some bytes that are spilled")
        assert list(tmp_path.iterdir()) != []
    assert list(tmp_path.iterdir()) == []


def test_recovery_removes_only_packs_of_ended_writers(store: GitRepository) -> None:
    folder = store.path / "objects" / "pack"
    alive, file = create_temporary(folder, ".pack")
    with file:
        file.write(b"still being written")
        file.flush()
        (folder / "tmp_memotree_dead.pack").write_bytes(b"half")
        (sentence,) = store.recover()
        assert "tmp_memotree_dead.pack" in sentence
        assert alive.exists()
    (sentence,) = store.recover()
    assert alive.name in sentence


def test_recovery_disturbs_no_writer_beside_it(store: GitRepository) -> None:
    done = threading.Event()

    def write() -> None:
        try:
            grow(store, 15)
        finally:
            done.set()

    with ThreadPoolExecutor(1) as pool, GitRepository.open(store.path) as other:
        writing = pool.submit(write)
        while not done.is_set():
            assert other.recover() == []
        writing.result()


def test_old_leftovers_of_git_are_only_removed_with_exclusive_access(store: GitRepository) -> None:
    leftovers = [f"{MAIN}.lock", "packed-refs.lock", "config.lock", "objects/pack/tmp_pack_x", "objects/ab/tmp_obj_x"]
    leftovers += ["objects/info/commit-graph.lock", "objects/pack/pack-0000.pack"]
    for name in leftovers:
        path = store.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert store.recover() == []
    assert store.recover(exclusive=True) == [], "they are young"
    for name in leftovers:
        os.utime(store.path / name, (0, 0))
    assert store.recover() == []
    sentences = store.recover(exclusive=True)
    assert len(sentences) == len(leftovers)
    for name in leftovers:
        assert not (store.path / name).exists()
        assert any(name in sentence for sentence in sentences)


def test_a_damaged_object_is_named_and_never_returned(store: GitRepository) -> None:
    written = store.write_commit(draft(None, {"a": b"the content"}))
    (pack,) = packs(store)
    damaged = bytearray(pack.read_bytes())
    for place in range(14, len(damaged) - 20):
        damaged[place] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(damaged)
    with GitRepository.open(store.path) as fresh, pytest.raises(ObjectDamagedError, match=written.blobs["a"]):
        fresh.read_blob(written.blobs["a"])


def test_a_damaged_index_hides_no_other_pack(store: GitRepository) -> None:
    one = store.write_commit(draft(None, {"a": b"1"}))
    two = store.write_commit(draft(None, {"b": b"2"}))
    index = next(
        path.with_suffix(".idx")
        for path in packs(store)
        if bytes.fromhex(two.commit_id) in path.with_suffix(".idx").read_bytes()
    )
    index.chmod(0o644)
    index.write_bytes(index.read_bytes()[:100])
    with GitRepository.open(store.path) as fresh:
        assert fresh.read_path(one.commit_id, "a") == b"1"
        with pytest.raises(ObjectDamagedError, match=index.stem):
            fresh.commit_info(two.commit_id)


def test_an_absent_object_is_missing_and_not_damaged(store: GitRepository) -> None:
    store.write_commit(draft(None, {"a": b"1"}))
    with pytest.raises(ObjectMissingError):
        store.read_blob("0" * 40)


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("kept", ["whole", "as a delta", "loose"])
def test_an_object_that_is_too_large_is_refused_before_it_is_unpacked(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """A few kilobytes of a pack can stand for gigabytes."""
    text = "\n".join(f"line {line} {random.Random(line).random()}" for line in range(2000)).encode()
    written = store.write_commit(draft(None, {"small.md": b"small", "one.md": text, "two.md": text + b"more"}))
    assert store.move_ref(MAIN, None, written.commit_id)
    if kept == "as a delta":
        judge.run("repack", "-a", "-d", "-f", "-q")
    elif kept == "loose":
        [pack] = packs(store)
        data = pack.read_bytes()
        for path in (pack, pack.with_suffix(".idx")):
            path.unlink()
        judge.run("unpack-objects", "-q", stdin=data)
    unpacked: list[int] = []
    for name in ("unpack_object_at", "apply_delta"):
        monkeypatch.setattr(packfile, name, noting(getattr(packfile, name), unpacked))
    monkeypatch.setattr(packfile, "LARGEST_OBJECT", 10_000)
    with GitRepository.open(store.path) as fresh:
        assert fresh.read_path(written.commit_id, "small.md") == b"small"
        for path in ("one.md", "two.md"):
            with pytest.raises(ObjectTooLargeError, match=r"bytes, and MemoTree reads at most 10,000"):
                fresh.read_path(written.commit_id, path)
    assert max(unpacked, default=0) < 10_000


def noting(unpack: Callable[..., Any], sizes: list[int]) -> Callable[..., Any]:
    """The function, and a note of the size of what it gives."""

    def noted(*arguments: Any, **options: Any) -> Any:
        found = unpack(*arguments, **options)
        chunks = found[0].decomp_chunks if isinstance(found, tuple) else found
        sizes.append(sum(map(len, chunks)))
        return found

    return noted
