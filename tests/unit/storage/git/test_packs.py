"""Reading while other programs write, repack and damage packs."""

import os
import random
import struct
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from dulwich.object_format import SHA1
from dulwich.pack import OFS_DELTA, REF_DELTA, pack_object_header, write_pack_index_v2
from memotree_storage.cache import BoundedCache
from memotree_storage.conformance.drafts import MAIN, draft, files
from memotree_storage.git import delta_chains, packfile
from memotree_storage.git.objects import (
    BLOB,
    TREE,
    ObjectDamagedError,
    ObjectTooLargeError,
    object_id,
)
from memotree_storage.git.pack import PackWriter, create_temporary
from memotree_storage.git.packfile import Pack
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


def test_objects_are_read_from_deltas_also_by_a_reader_that_was_open(store: GitRepository, judge: Judge) -> None:
    with GitRepository.open(store.path) as reader:
        for count in (5, 6, 30):
            head, model = grow(store, count)
            assert files(reader, head) == model
            judge.run("repack", "-a", "-d", "-f", "-q", "--depth=50")
            assert len(packs(store)) == 1
            with GitRepository.open(store.path) as fresh:
                assert files(reader, head) == files(fresh, head) == model
                assert len(fresh.history([head], lambda _: False)) == count
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


def test_an_object_is_in_a_pack_once(store: GitRepository, judge: Judge) -> None:
    folder = store.path / "objects" / "pack"
    with PackWriter(folder) as pack:
        assert pack.add(BLOB, b"same") == pack.add(BLOB, b"same")
        assert pack.add(TREE, b"") != pack.add(BLOB, b"")
        assert len(pack) == 3
        written = pack.finish()
    assert len(written.offsets) == 3
    judge.run("verify-pack", str(folder / f"{written.name}.idx"))


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


def test_an_object_under_the_id_of_another_one_is_damaged_and_never_returned(store: GitRepository) -> None:
    wanted = object_id(BLOB, b"this").hex()
    place = store.path / "objects" / wanted[:2] / wanted[2:]
    place.parent.mkdir()
    place.write_bytes(zlib.compress(b"blob 4\0that"))
    with pytest.raises(ObjectDamagedError, match=wanted):
        store.read_blob(wanted)


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
    monkeypatch.setattr(Pack, "unpack", noting(Pack.unpack, unpacked))
    monkeypatch.setattr(delta_chains, "apply_delta", noting(delta_chains.apply_delta, unpacked))
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
        sizes.append(len(found) if isinstance(found, bytes) else sum(map(len, found)))
        return found

    return noted


SIZE = 20_000
"""Bytes of each object of a chain."""

COUNT = 300


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("order", ["up", "down", "any"])
@pytest.mark.parametrize("kept", ["small", "large"])
def test_a_chain_of_deltas_costs_what_its_length_is_in_whichever_order_it_is_read(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch, order: str, kept: str
) -> None:
    """Three hundred objects of 9 MB are a push of some kilobytes. The caches hold sixteen of them here."""
    room = 16 * (SIZE + 200)
    large_bases(monkeypatch, room)
    if kept == "small":
        monkeypatch.setattr(delta_chains, "_SMALL_BYTES", room)
    texts = chain_texts(COUNT)
    names = write_chain(judge, texts)
    unpacked: list[int] = []
    monkeypatch.setattr(Pack, "unpack", noting(Pack.unpack, unpacked))
    monkeypatch.setattr(delta_chains, "apply_delta", noting(delta_chains.apply_delta, unpacked))
    wanted = list(zip(names, texts, strict=True))
    if order == "any":
        random.Random(1).shuffle(wanted)
    with GitRepository.open(store.path) as fresh:
        for name, text in reversed(wanted) if order == "down" else wanted:
            assert fresh._objects.read(bytes.fromhex(name)) == (BLOB, text)
    assert sum(unpacked) < {"up": 2, "down": 20, "any": 30}[order] * COUNT * SIZE, "150 times if nothing is kept"


@pytest.mark.requirement("STORE-8")
def test_a_closed_repository_leaves_no_large_base_in_memory(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = large_bases(monkeypatch, 16 * (SIZE + 200))
    names = write_chain(judge, chain_texts(4))
    with GitRepository.open(store.path) as one, GitRepository.open(store.path) as other:
        one.read_blob(names[-1])
        weight = large.weight
        assert weight > SIZE
        other.read_blob(names[-1])
        assert large.weight == 2 * weight, "none reads what only another one remembers"
        one.close()
        assert large.weight == weight
    assert large.weight == 0


def large_bases(monkeypatch: pytest.MonkeyPatch, room: int) -> BoundedCache[Any, Any]:
    """Have the objects of a chain count as large, and return the cache of them, which has room for some."""
    monkeypatch.setattr(delta_chains, "_SMALL_BYTES", SIZE)
    monkeypatch.setattr(delta_chains, "_LARGE_BYTES", room)
    large = BoundedCache[Any, Any](room, delta_chains._weight, heaviest=room)
    monkeypatch.setattr(delta_chains, "_large", large)
    return large


@pytest.mark.requirement("STORE-8")
def test_deltas_that_name_their_bases_are_read_in_any_number(store: GitRepository, judge: Judge) -> None:
    """Git makes such a pack if it is asked to; Python does not recurse that deep."""
    texts = chain_texts(2_000, size=100)
    names = write_chain(judge, texts, by_name=True)
    with GitRepository.open(store.path) as fresh:
        assert fresh.read_blob(names[-1]) == texts[-1]
        assert fresh.read_blob(names[1_000]) == texts[1_000]


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("by_name", [False, True])
def test_a_chain_that_unpacks_to_too_much_is_refused_whatever_is_cached(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch, *, by_name: bool
) -> None:
    monkeypatch.setattr(delta_chains, "_LEAST_UNPACKED", 0)
    monkeypatch.setattr(delta_chains, "MOST_UNPACKED", 20 * SIZE)
    texts = chain_texts(30)
    names = write_chain(judge, texts, by_name=by_name)
    unpacked: list[int] = []
    monkeypatch.setattr(delta_chains, "apply_delta", noting(delta_chains.apply_delta, unpacked))
    with GitRepository.open(store.path) as fresh:
        with pytest.raises(ObjectTooLargeError, match=r"a chain of deltas of more than 400,000 bytes; `git repack"):
            fresh.read_blob(names[-1])
        assert unpacked == []
        for name, text in zip(names[:15], texts[:15], strict=True):
            assert fresh.read_blob(name) == text
        with pytest.raises(ObjectTooLargeError):
            fresh.read_blob(names[-1])


@pytest.mark.requirement("STORE-8")
def test_a_delta_that_makes_a_large_object_of_a_small_one_is_not_applied(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packfile, "LARGEST_OBJECT", 10_000)
    small, large = b"x" * 8_000, b"x" * 16_000
    pack = Deltas(small)
    name = pack.add(large, [*copied(0, 8_000), *copied(0, 8_000)])
    pack.write(judge)
    unpacked: list[int] = []
    monkeypatch.setattr(delta_chains, "apply_delta", noting(delta_chains.apply_delta, unpacked))
    with GitRepository.open(store.path) as fresh:
        assert fresh.read_blob(object_id(BLOB, small).hex()) == small
        with pytest.raises(ObjectTooLargeError, match="has 16,000 bytes"):
            fresh.read_blob(name)
    assert unpacked == []


@pytest.mark.requirement("STORE-8")
def test_deltas_that_are_based_on_each_other_are_not_followed_for_ever(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git lets nobody push them, but a disk may be damaged."""
    monkeypatch.setattr(delta_chains, "MOST_UNPACKED", 100 * delta_chains._LEAST_UNPACKED)
    one, other = object_id(BLOB, b"one"), object_id(BLOB, b"other")
    packed = [
        bytes(pack_object_header(REF_DELTA, base, 3, object_format=SHA1)) + zlib.compress(bytes([3, 1, 0]))
        for base in (other, one)
    ]
    data = b"PACK" + struct.pack(">LL", 2, 2) + b"".join(packed)
    checksum = sha1(data, usedforsecurity=False).digest()
    path = store.path / "objects" / "pack" / "pack-odd"
    path.with_suffix(".pack").write_bytes(data + checksum)
    with path.with_suffix(".idx").open("wb") as file:
        places = [(one, 12, 0), (other, 12 + len(packed[0]), 0)]
        write_pack_index_v2(file, sorted(places), checksum)
    with GitRepository.open(store.path) as fresh, pytest.raises(ObjectTooLargeError, match="a chain of deltas"):
        fresh.read_blob(one.hex())


def chain_texts(count: int, size: int = SIZE) -> list[bytes]:
    """Texts that differ in their last bytes."""
    return [b"x" * (size - 8) + b"%08d" % number for number in range(count)]


def write_chain(judge: Judge, texts: list[bytes], *, by_name: bool = False) -> list[str]:
    """A pack in which each text is a delta of the one before it; the ids of the texts."""
    pack = Deltas(texts[0], by_name=by_name)
    rest = [pack.add(text, [*copied(0, len(text) - 8), 8, *text[-8:]]) for text in texts[1:]]
    pack.write(judge)
    return [object_id(BLOB, texts[0]).hex(), *rest]


def copied(start: int, length: int) -> list[int]:
    """The bytes of a delta that copy from its base, as in Git's ``Documentation/gitformat-pack``."""
    return [0b1111_1111, *start.to_bytes(4, "little"), *length.to_bytes(3, "little")]


class Deltas:
    """A pack that is made by hand: a blob, and deltas that are each based on what comes before them."""

    def __init__(self, first: bytes, *, by_name: bool = False) -> None:
        self._by_name = by_name
        self._last, self._place = first, 12
        header = pack_object_header(BLOB, None, len(first), object_format=SHA1)
        self._objects = [bytes(header) + zlib.compress(first, 1)]

    def add(self, text: bytes, commands: list[int]) -> str:
        """Add a delta, and return the id of what it makes."""
        place = self._place + len(self._objects[-1])
        base: int | bytes = object_id(BLOB, self._last) if self._by_name else place - self._place
        delta = delta_size(len(self._last)) + delta_size(len(text)) + bytes(commands)
        kind = REF_DELTA if self._by_name else OFS_DELTA
        header = pack_object_header(kind, base, len(delta), object_format=SHA1)
        self._objects.append(bytes(header) + zlib.compress(delta, 1))
        self._last, self._place = text, place
        return object_id(BLOB, text).hex()

    def write(self, judge: Judge) -> None:
        """Have git check the pack and put it into the repository."""
        data = b"PACK" + struct.pack(">LL", 2, len(self._objects)) + b"".join(self._objects)
        judge.run("index-pack", "--stdin", "--strict", stdin=data + sha1(data, usedforsecurity=False).digest())


def delta_size(size: int) -> bytes:
    """A size in a delta: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size])
