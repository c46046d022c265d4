"""Which file of a commit holds an entry, if people name files as they like."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memotree_storage.cache import BoundedCache
from memotree_storage.conformance.drafts import draft
from memotree_storage.git.entry_files import EntryDifference, EntryFile, SecondFile, diff_entries, entry_files
from memotree_storage.git.objects import TREE
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.trees import Tree
from memotree_storage.model.paths import ENTRY_PATHS, archive_path, node_path, parse_path
from memotree_storage.ports import PathChange

ID, OTHER = "7xk2m9qd4tnvw0ha", "7xk2m9qd4tnvw0hb"
STEM, OTHER_STEM = f"nodes/7x/k2/{ID}", f"nodes/7x/k2/{OTHER}"
ARCHIVE = f"archives/{ID}-a.md"


def paths(store: GitRepository, commit_id: str) -> list[str]:
    return [file.path for file in entry_files(store, commit_id, [ID])[ID]]


def test_an_entry_is_found_under_every_name(store: GitRepository) -> None:
    head = None
    for name in (f"{STEM}.md", f"{STEM}-a.md", f"{STEM}-.md", f"{STEM}-\u00e4 b.md"):
        others = {f"{OTHER_STEM}.md": b"2", f"{STEM}~HEAD.md": b"3"}
        head = store.write_commit(draft(None, {name: b"1", **others})).commit_id
        assert paths(store, head) == [name]
    assert head is not None
    assert entry_files(store, head, ["0" * 16, OTHER]) == {
        "0" * 16: [],
        OTHER: [EntryFile(f"{OTHER_STEM}.md", "node", next(store.files_beginning(head, [OTHER_STEM]))[1][0][1])],
    }


def test_of_several_files_with_one_id_the_first_by_path_is_the_entry(store: GitRepository) -> None:
    names = [f"{STEM}.md", f"{STEM}-b.md", f"{STEM}-a.md", ARCHIVE]
    head = store.write_commit(draft(None, {name: name.encode() for name in names})).commit_id
    assert paths(store, head) == [ARCHIVE, f"{STEM}-a.md", f"{STEM}-b.md", f"{STEM}.md"]
    first, *others = diff_entries(store, None, head)
    assert isinstance(first, EntryDifference)
    assert first.new is not None
    assert first.new.path == ARCHIVE
    assert [file.path for file in others if isinstance(file, SecondFile)] == paths(store, head)[1:]


@pytest.mark.parametrize("with_parent", [True, False])
def test_the_first_file_is_the_same_one_however_a_commit_came_about(store: GitRepository, *, with_parent: bool) -> None:
    after = {f"{STEM}-b.md": b"b", f"{STEM}.md": b"plain"}
    empty = store.write_commit(draft(None, {"x": b""})).commit_id
    one = store.write_commit(draft(empty, {f"{STEM}.md": b"plain"})).commit_id
    two = store.write_commit(draft(one, {f"{STEM}-b.md": b"b"})).commit_id
    whole = store.write_commit(draft(None, {"x": b"", **after})).commit_id
    assert store.commit_info(two).tree_id == store.commit_info(whole).tree_id
    base = empty if with_parent else None
    assert list(diff_entries(store, base, two)) == list(diff_entries(store, base, whole))
    (difference, second) = diff_entries(store, one, two)
    assert isinstance(difference, EntryDifference)
    assert isinstance(second, SecondFile)
    assert difference.old is not None
    assert difference.new is not None
    assert (difference.old.path, difference.new.path) == (second.path, second.read) == (f"{STEM}.md", f"{STEM}-b.md")


def test_removing_the_first_file_brings_the_second_up(store: GitRepository) -> None:
    two = store.write_commit(draft(None, {f"{STEM}-a.md": b"a", f"{STEM}.md": b"plain"})).commit_id
    one = store.write_commit(draft(two, {f"{STEM}-a.md": None})).commit_id
    (difference,) = diff_entries(store, two, one)
    assert isinstance(difference, EntryDifference)
    assert difference.new is not None
    assert store.read_blob(difference.new.blob) == b"plain"


def test_a_new_name_is_no_change_of_the_entry(store: GitRepository) -> None:
    one = store.write_commit(draft(None, {f"{STEM}.md": b"text", f"{OTHER_STEM}.md": b"text"})).commit_id
    renamed = {f"{STEM}.md": None, f"{STEM}-a.md": b"text", f"{OTHER_STEM}.md": None, f"{OTHER_STEM}-a.md": b"new"}
    two = store.write_commit(draft(one, renamed)).commit_id
    found = {each.entry_id: each for each in diff_entries(store, one, two) if isinstance(each, EntryDifference)}
    assert {entry_id: each.same_entry for entry_id, each in found.items()} == {ID: True, OTHER: False}


def test_a_changed_second_file_is_told_and_changes_nothing(store: GitRepository) -> None:
    one = store.write_commit(draft(None, {f"{STEM}-a.md": b"a", f"{STEM}.md": b"1"})).commit_id
    two = store.write_commit(draft(one, {f"{STEM}.md": b"2"})).commit_id
    (difference, second) = diff_entries(store, one, two)
    assert isinstance(difference, EntryDifference)
    assert difference.old == difference.new
    assert isinstance(second, SecondFile)
    assert f"{STEM}-a.md" in second.fault


def test_finding_a_name_reads_no_other_folder(store: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"nodes/{a}x/{b}y/{a}x{b}y{'0' * 12}.md": b"0" for a in range(10) for b in range(10)}
    head = store.write_commit(draft(None, {**files, ARCHIVE: b""})).commit_id
    store._trees.clear()
    kinds: list[int] = []
    read = store._objects.read
    monkeypatch.setattr(store._objects, "read", lambda name: (kinds.append((found := read(name))[0]), found)[1])
    assert len(entry_files(store, head, ["3x4y000000000000"])["3x4y000000000000"]) == 1
    assert kinds.count(TREE) == 5, "root, archives, nodes, 3x, 4y"


@pytest.mark.requirement("STORE-8")
def test_a_folder_too_large_for_the_cache_is_read_once_however_many_of_its_entries_change(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everyone can push a folder of a million names, which is small if all are the same file."""
    ids = [f"{number * 10**12:016}" for number in range(1200)]
    nodes = {node_path(entry_id): b"a" for entry_id in ids}
    base = store.write_commit(draft(None, nodes)).commit_id
    archives = {archive_path(entry_id): b"b" for entry_id in ids}
    head = store.write_commit(draft(base, {node_path(ids[0]): b"b", **archives})).commit_id
    parsed: Counter[bytes] = Counter()
    parse = Tree.parse
    monkeypatch.setattr(Tree, "parse", lambda data: (parsed.update([data]), parse(data))[1])
    monkeypatch.setattr(store._trees, "_cache", BoundedCache[bytes, Tree](0))
    assert len(list(diff_entries(store, base, head))) == 1200 + 1200
    assert max(parsed.values()) <= 4, "by the comparison, and by those who look for archives and for nodes"
    parsed.clear()
    assert all(len(files) == 2 for files in entry_files(store, head, ids).values())
    assert max(parsed.values()) <= 2


NAMES = ["nodes", "archives", "other", "7x", "k2", "ab", "7xk2", ID, OTHER, f"{ID}.md", f"{OTHER}-b.md"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).map("/".join)
TREES = st.sets(PATHS | st.sampled_from([f"{STEM}.md", f"{OTHER_STEM}-a.md", ARCHIVE, f"nodes/ab/k2/{ID}.md"]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.none() | TREES, after=TREES)
def test_the_scope_of_entries_has_all_of_them(store: GitRepository, before: set[str] | None, after: set[str]) -> None:
    """Whatever else is in the tree, walking the scope alone finds the same entries as walking everything."""
    old = None if before is None else committed(store, before, b"before")
    new = committed(store, after, b"after")

    def entries(changes: Iterable[PathChange]) -> list[PathChange]:
        return [change for change in changes if parse_path(change.path) is not None]

    assert entries(store.diff(old, new, ENTRY_PATHS)) == entries(store.diff(old, new))


def committed(store: GitRepository, paths: set[str], content: bytes) -> str:
    """A commit with these files, less those that are the folder of another one."""
    folders = {path[:place] for path in paths for place, character in enumerate(path) if character == "/"}
    return store.write_commit(draft(None, {path: content + path.encode() for path in paths - folders})).commit_id
