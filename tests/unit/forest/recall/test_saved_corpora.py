"""A saved corpus is equal to the last bit when it is read again; what is damaged or of something else is never used."""

import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.forest.recall.trees import WIDE, Tree, changed

from memotree.forest.recall.saved.array_files import FACTS
from memotree.forest.recall.saved.corpus_arrays import arrays_of, corpus_of
from memotree.forest.recall.saved.saved_corpora import SavedCorpora, SavedOf
from memotree.forest.recall.scoring.leaf_rows import LeafRows
from memotree.forest.recall.scoring.row_blocks import RowBlocks
from memotree.forest.recall.search_corpus import SearchCorpus, changed_corpus, make_corpus
from memotree.forest.recall.snapshot_comparison import same
from memotree.forest.recall.superseded import Superseded

pytestmark = pytest.mark.requirement("FOREST-8")

MODEL = f"a model {WIDE}"
OF = SavedOf("garden", "c" * 40, (3, 7), {"a0": 5})
LIMIT = 1 << 20


def saved_in(folder: Path, *, limit: int = LIMIT, model: str = MODEL) -> SavedCorpora:
    return SavedCorpora(folder / "recall", limit, model)


def corpus_from(seed: int, archives: int = 3, steps: int = 12) -> tuple[list[Tree], SearchCorpus]:
    chance = random.Random(seed)
    trees = [Tree(chance, f"a{number}") for number in range(archives)]
    for tree in trees:
        for _ in range(chance.randint(0, steps)):
            tree.change()
    return trees, make_corpus([tree.whole() for tree in trees], WIDE)


def identical(one: object, other: object) -> bool:
    """Whether two values are equal to the last bit, however wide their texts are stored."""
    if isinstance(one, RowBlocks) and isinstance(other, RowBlocks):
        one, other = one.array, other.array
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype.kind == "S":
            return one.tolist() == other.tolist()
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    if isinstance(one, LeafRows) and isinstance(other, LeafRows):
        both = (one.packed().segments[0], other.packed().segments[0])
        return all(identical(getattr(both[0], name), getattr(both[1], name)) for name in ("vectors", "terms"))
    if is_dataclass(one) and type(one) is type(other):
        names = [field.name for field in fields(one) if field.name not in {"number", "change"}]
        return all(identical(getattr(one, name), getattr(other, name)) for name in names)
    return one == other


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 3))
def test_what_is_read_is_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory, seed: int, archives: int, steps: int
) -> None:
    trees, kept = corpus_from(seed, archives)
    for _ in range(steps):
        snapshots = [changed(tree, each, tree.change()) for tree, each in zip(trees, kept.snapshots, strict=True)]
        kept = changed_corpus(kept, snapshots, {}) or make_corpus(snapshots, WIDE)
    saved = saved_in(tmp_path_factory.mktemp("saved"))
    assert saved.save(OF, kept, lambda: True)
    found = saved.find("garden")
    assert found is not None
    assert found.of == OF
    assert found.archive_ids == [tree.archive for tree in trees]
    ended = {key: Superseded(0.0, is_over=True, by=()) for key in trees[0].nodes}
    read = found.read(ended)
    again = replace(kept, validity=make_corpus(kept.snapshots, WIDE, ended).validity)
    assert identical(_by_label(read), _by_label(again))
    assert all(same(one, tree.whole()) for one, tree in zip(read.snapshots, trees, strict=True))
    if not steps:
        assert identical(read.leaf_index, make_corpus([tree.whole() for tree in trees], WIDE).leaf_index)
    # What follows from it is what follows from the one that was saved.
    changes = [tree.change() for tree in trees]
    one, other = (
        [changed(tree, each, ids) for tree, each, ids in zip(trees, corpus.snapshots, changes, strict=True)]
        for corpus in (read, kept)
    )
    assert all(map(same, one, other))
    joined = changed_corpus(read, one, ended)
    assert joined is not None or sum(map(bool, map(len, one))) <= 1


def _by_label(corpus: SearchCorpus) -> SearchCorpus:
    """Returns a corpus with names instead of numbers of labels: one that followed from another has other numbers."""
    index = corpus.leaf_index
    names = np.array([index.labels[number].encode() for number in index.label_of], dtype="S")
    return replace(corpus, leaf_index=replace(index, labels=(), label_of=names))  # type: ignore[arg-type]


@pytest.mark.parametrize("archives", [1, 2, 3])
def test_a_loaded_corpus_counts_as_one_that_was_made(tmp_path: Path, archives: int) -> None:
    saved, corpus = saved_in(tmp_path), corpus_from(8, archives)[1]
    saved.save(OF, corpus, lambda: True)
    found = saved.find("garden")
    assert found is not None
    weights = []
    for each in (corpus, found.read({})):
        segments = {id(one): one for part in (each, *each.snapshots) for one in part.segments}
        weights.append(sum(one.weight for one in segments.values()))
    assert weights[0] == weights[1]


def test_a_loaded_corpus_never_changes() -> None:
    arrays, facts = arrays_of(corpus_from(5)[1])
    vectors = arrays["vectors"]
    whole = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    whole["vectors"] = np.concatenate(list(vectors.parts))  # type: ignore[union-attr]
    for array in whole.values():
        array.flags.writeable = False
    read = corpus_of(whole, facts, {})
    for each in read.snapshots:
        with pytest.raises(ValueError, match="read-only"):
            each.ids[:] = b""


# --- What is not used ------------------------------------------------------------------------------------------------


def _unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "emptied": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "unreadable": _unreadable,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["vectors.npy", "text.bounds.npy", "sizes.npy", FACTS])
def test_a_damaged_file_is_never_used(tmp_path: Path, name: str, damage: str) -> None:
    saved, corpus = saved_in(tmp_path), corpus_from(3)[1]
    saved.save(OF, corpus, lambda: True)
    DAMAGES[damage](tmp_path / "recall/garden/1" / name)
    found = saved.find("garden")
    if name == FACTS:
        assert found is None
        assert not (tmp_path / "recall/garden/1").exists()
        return
    assert found is not None
    with pytest.raises(Exception, match=r"array cannot be read|another size or checksum"):
        found.read({})
    saved.discard(found.folder, "damaged")
    assert saved.find("garden") is None
    assert saved.save(OF, corpus, lambda: True)
    assert saved.find("garden") is not None


def _rewritten(folder: Path, **facts: object) -> None:
    """Writes other facts with a right checksum."""
    told = json.loads((folder / FACTS).read_bytes().split(b"\n", 1)[1])
    told["facts"] |= facts
    text = json.dumps(told).encode()
    (folder / FACTS).write_bytes(b"%08x\n" % zlib.crc32(text) + text)


@pytest.mark.parametrize(
    "facts",
    [{"workspace": "meadow"}, {"made_by": [0, "0.0", MODEL]}, {"row": []}, {"counts": None, "made_by": None}],
    ids=["another workspace", "another format", "no row", "no facts"],
)
def test_what_is_of_something_else_is_not_used(tmp_path: Path, facts: dict[str, object]) -> None:
    saved = saved_in(tmp_path)
    saved.save(OF, corpus_from(3)[1], lambda: True)
    _rewritten(tmp_path / "recall/garden/1", **facts)
    assert saved.find("garden") is None
    assert not (tmp_path / "recall/garden/1").exists()


@pytest.mark.parametrize(
    "archives", [[], [{"archive": "a0"}], "everything"], ids=["none", "without their facts", "of another kind"]
)
def test_facts_that_do_not_fit_the_arrays_are_not_used(tmp_path: Path, archives: object) -> None:
    saved = saved_in(tmp_path)
    saved.save(OF, corpus_from(3)[1], lambda: True)
    _rewritten(tmp_path / "recall/garden/1", archives=archives)
    found = saved.find("garden")
    assert found is not None
    with pytest.raises(Exception, match="not those of a corpus"):
        found.read({})


def test_vectors_of_another_model_are_not_used(tmp_path: Path) -> None:
    saved_in(tmp_path).save(OF, corpus_from(3)[1], lambda: True)
    assert saved_in(tmp_path, model="another model 4").find("garden") is None
    assert saved_in(tmp_path).find("garden") is None, "it is deleted, since nobody would use it any more"


# --- What is kept and deleted ----------------------------------------------------------------------------------------


def test_the_latest_one_that_is_whole_replaces_those_before_and_those_that_a_kill_left(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    home = tmp_path / "recall/garden"
    for commit_id in ("c" * 40, "d" * 40):
        assert saved.save(replace(OF, commit_id=commit_id), corpus_from(3)[1], lambda: True)
    assert [path.name for path in home.iterdir()] == ["2"]
    for name in ("3", "4.unfinished"):
        (home / name).mkdir()
        (home / name / "vectors.npy").write_bytes(b"torn")
    found = saved.find("garden")
    assert found is not None
    assert (found.folder.name, found.of.commit_id) == ("2", "d" * 40)
    saved.clear(["garden"])
    assert [path.name for path in home.iterdir()] == ["2"]


def test_what_was_forgotten_meanwhile_is_not_saved(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    saved.save(OF, corpus_from(3)[1], lambda: True)
    saved.forget("garden")
    assert saved.find("garden") is None
    assert not saved.save(OF, corpus_from(3)[1], lambda: False)
    assert saved.find("garden") is None
    saved.clear(["garden"])
    assert list((tmp_path / "recall").iterdir()) == []


def test_all_together_stay_within_the_limit_and_those_of_workspaces_that_are_gone_are_deleted(tmp_path: Path) -> None:
    saved, corpus = saved_in(tmp_path), corpus_from(3)[1]
    for age, workspace in enumerate(("orchard", "meadow", "garden")):
        saved.save(replace(OF, workspace_id=workspace), corpus, lambda: True)
        for path in (tmp_path / "recall" / workspace / "1").iterdir():
            os.utime(path, (1000 - age, 1000 - age))
    size = sum(path.stat().st_size for path in (tmp_path / "recall/garden/1").iterdir())
    small = saved_in(tmp_path, limit=2 * size + size // 2)
    small.save(replace(OF, workspace_id="wood"), corpus, lambda: True)
    assert [key for key in ("garden", "meadow", "orchard", "wood") if small.find(key)] == ["orchard", "wood"]
    small.clear(["wood"])  # the other workspaces are gone
    assert [path.name for path in (tmp_path / "recall").iterdir()] == ["wood"]
    assert not saved_in(tmp_path, limit=10).save(replace(OF, workspace_id="field"), corpus, lambda: True)
    paths = [tmp_path / "recall", *(tmp_path / "recall").rglob("*")]
    assert {path.stat().st_mode & 0o77 for path in paths} == {0}, "nobody else may read what is saved"


PROGRAM: Final = """
import os, sys
from pathlib import Path
from memotree_storage import faults
from unit.forest.recall.test_saved_corpora import OF, corpus_from, saved_in
for folder in map(Path, sys.argv[1:]):
    process = os.fork()
    if not process:
        faults._target, faults._left, faults._signal = faults._parse(folder.name)
        saved_in(folder).save(OF, corpus_from(4)[1], lambda: True)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(process, 0)[1]), folder
"""
"""Saves into each folder, and is killed at the fault point of this name."""


def test_a_kill_while_saving_leaves_the_one_before(tmp_path: Path) -> None:
    folders = [tmp_path / fault for fault in ("recall.array_saved:1", "recall.array_saved:20", "recall.corpus_written")]
    corpus = corpus_from(3)[1]
    for folder in folders:
        folder.mkdir()
        saved_in(folder).save(replace(OF, commit_id="b" * 40), corpus, lambda: True)
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", PROGRAM, *map(str, folders)], check=True, env=os.environ | paths)  # noqa: S603 - this interpreter and the program above
    for folder in folders:
        saved = saved_in(folder)
        assert len(list((folder / "recall/garden").iterdir())) == 2, folder.name
        found = saved.find("garden")
        assert found is not None, folder.name
        assert found.of.commit_id == "b" * 40, folder.name
        assert identical(found.read({}), corpus), folder.name
        saved.clear(["garden"])
        assert [path.name for path in (folder / "recall/garden").iterdir()] == ["1"], folder.name
        assert saved.save(OF, corpus, lambda: True), folder.name
