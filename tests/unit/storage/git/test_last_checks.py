"""What is looked at once more: a ref when its lock is held, an object when it was read, a pack while it is written."""

import zlib

import pytest
from memotree_storage.conformance.drafts import MAIN, draft
from memotree_storage.git import refs
from memotree_storage.git.objects import BLOB, ObjectDamagedError, object_id
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from unit.storage.git.judge import Judge


@pytest.mark.requirement("STORE-2")
def test_a_ref_that_git_moves_before_its_lock_is_held_is_not_overwritten(
    store: GitRepository, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (store.write_commit(draft(None, {"a": b"%d" % number})).commit_id for number in range(3))
    assert store.move_ref(MAIN, None, one)

    def moved(point: str) -> None:
        if point == "git.ref-locked":
            (store.path / MAIN).write_text(f"{two}\n")

    monkeypatch.setattr(refs, "point", moved)
    assert not store.move_ref(MAIN, one, three)
    assert judge.run("rev-parse", MAIN).strip() == two


def test_an_object_under_the_id_of_another_one_is_damaged_and_never_returned(store: GitRepository) -> None:
    wanted = object_id(BLOB, b"this").hex()
    place = store.path / "objects" / wanted[:2] / wanted[2:]
    place.parent.mkdir()
    place.write_bytes(zlib.compress(b"blob 4\0that"))
    with pytest.raises(ObjectDamagedError, match=wanted):
        store.read_blob(wanted)


def test_git_reads_a_pack_to_which_an_object_was_added_twice(store: GitRepository, judge: Judge) -> None:
    with PackWriter(store.path / "objects" / "pack") as pack:
        for text in (b"same", b"same", b"another"):
            pack.add(BLOB, text)
        written = pack.finish()
    judge.run("verify-pack", str(store.path / "objects" / "pack" / f"{written.name}.idx"))
