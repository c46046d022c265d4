"""Trees: only changed parts are read and written, and entries of other programs are kept."""

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.conformance.drafts import WHO, draft, files
from memotree_storage.git.objects import BLOB, COMMIT, TREE, encode_commit
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.trees import Tree
from memotree_storage.ports import PathChange
from unit.storage.git.judge import Judge


@pytest.fixture
def reads(store: GitRepository, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many objects of each kind are read from disk."""
    counted: Counter[int] = Counter()
    original = store._objects.read

    def read(name: bytes) -> tuple[int, bytes]:
        found = original(name)
        counted[found[0]] += 1
        return found

    monkeypatch.setattr(store._objects, "read", read)
    return counted


def test_a_commit_reads_and_writes_only_the_trees_along_its_paths(store: GitRepository, reads: Counter[int]) -> None:
    base = store.write_commit(draft(None, {f"nodes/{a:02}/{b:02}/x.md": b"0" for a in range(30) for b in range(30)}))
    store._trees.clear()
    packs = set(store.path.rglob("*.pack"))
    after = store.write_commit(draft(base.commit_id, {"nodes/07/07/x.md": b"1"}))
    assert reads[TREE] == 4, "root, nodes, 07, 07"
    (pack,) = set(store.path.rglob("*.pack")) - packs
    objects = Judge(store.path).run("verify-pack", "-v", str(pack)).splitlines()
    assert sum(" tree " in line for line in objects) == 4
    assert sum(" blob " in line for line in objects) == 1
    reads.clear()
    assert len(list(store.diff(base.commit_id, after.commit_id))) == 1
    assert reads[TREE] <= 4, "equal subtrees are not looked into"
    assert reads[BLOB] == 0


def test_a_filled_cache_needs_no_tree_from_disk_and_an_unchanged_file_writes_neither_blob_nor_tree(
    store: GitRepository, reads: Counter[int]
) -> None:
    base = store.write_commit(draft(None, {"nodes/ab/cd/x.md": b"0"}))
    for number in range(3):
        base = store.write_commit(draft(base.commit_id, {"nodes/ab/cd/x.md": b"%d" % number}))
    packs = set(store.path.rglob("*.pack"))
    again = store.write_commit(draft(base.commit_id, {"nodes/ab/cd/x.md": b"2"}))
    assert again.blobs == base.blobs
    assert (reads[TREE], reads[BLOB]) == (0, 0)
    (pack,) = set(store.path.rglob("*.pack")) - packs
    listing = Judge(store.path).run("verify-pack", "-v", str(pack))
    assert " blob " not in listing
    assert " tree " not in listing


def test_entries_of_other_kinds_are_not_changed(store: GitRepository, judge: Judge) -> None:
    module = "160000 commit " + "1" * 40 + "\tmodule\n"
    base = committed(judge, b"100755 blob BLOB\trun\n120000 blob BLOB\tsymlink\n" + module.encode())
    assert [change.path for change in store.diff(None, base)] == ["run", "symlink"]
    assert store.read_path(base, "module") is None
    after = store.write_commit(draft(base, {"new/file": b"1"}))
    listed = judge.run("ls-tree", "-r", after.commit_id)
    assert all(entry in listed for entry in ("100755 blob", "120000 blob", module))
    assert files(store, after.commit_id) == {"run": b"x", "symlink": b"x", "new/file": b"1"}


def committed(judge: Judge, listing: bytes) -> str:
    """A commit of a tree that git makes of the listing, in which the file ``x`` is called BLOB."""
    blob = judge.run("hash-object", "-w", "--stdin", stdin=b"x").strip().encode()
    tree = judge.run("mktree", "--missing", stdin=listing.replace(b"BLOB", blob)).strip()
    return judge.run("commit-tree", "-m", "by hand", tree).strip()


def test_a_change_of_mode_alone_is_no_difference(store: GitRepository, judge: Judge) -> None:
    plain, runnable = (committed(judge, b"%s blob BLOB\ta\n" % mode) for mode in (b"100644", b"100755"))
    assert plain != runnable
    assert list(store.diff(plain, runnable)) == []


def test_names_that_are_no_unicode_are_read_and_kept(store: GitRepository, judge: Judge) -> None:
    base = committed(judge, b"100644 blob BLOB\tcaf\xe9\n")
    (change,) = store.diff(None, base)
    blob = judge.run("hash-object", "--stdin", stdin=b"x").strip()
    assert change == PathChange("caf\udce9", None, blob)
    assert store.read_path(base, change.path) == b"x"
    assert len(files(store, store.write_commit(draft(base, {"a": b"1"})).commit_id)) == 2


@pytest.mark.requirement("GIT-8")
def test_trees_deeper_than_python_recurses_are_read(store: GitRepository) -> None:
    depth = 2 * sys.getrecursionlimit()
    with PackWriter(store.path / "objects" / "pack") as pack:
        commits = []
        for content in (b"1", b"2"):
            row = b"100644 f\0" + pack.add(BLOB, content)
            for _ in range(depth):
                row = b"40000 d\0" + pack.add(TREE, row)
            commits.append(pack.add(COMMIT, encode_commit(pack.add(TREE, row), [], WHO, WHO, "deep")).hex())
        pack.finish()
    path = "d/" * depth + "f"
    assert [change.path for change in store.diff(*commits)] == [path]
    assert [change.path for change in store.diff(None, commits[0])] == [path]
    assert store.read_path(commits[1], path) == b"2"


@given(st.dictionaries(st.sampled_from([b"a", b"a.b", b"a0", b"b", b"c"]), st.booleans()))
def test_a_tree_is_parsed_back_to_what_was_encoded(entries: dict[bytes, bool]) -> None:
    tree = Tree()
    for name, is_folder in entries.items():
        mode = b"40000" if is_folder else b"100644"
        tree.put(name + b"/" if is_folder else name, mode + b" " + name + b"\0" + name.ljust(20, b"\n"))
    again = Tree.parse(tree.encode())
    assert (again.keys, again.rows) == (tree.keys, tree.rows)
    assert again.keys == sorted(again.keys)


@pytest.mark.parametrize("data", [b"100644 a\0short", b"100644 a", b"nonsense", b"40000 a\0" + b"x" * 19])
def test_bytes_that_are_no_tree_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Tree.parse(data)
