"""Tests that every `CommitStore` must pass. Subclass `CommitStoreSuite` and give it a fixture named ``store``.

The tests use only the port, so they state what the service relies on, whatever implements it.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memotree_storage.conformance.drafts import (
    ABSENT,
    MAIN,
    REFUSED_PATHS,
    REFUSED_REFS,
    WHO,
    Changes,
    acceptable,
    apply_model,
    contents,
    draft,
    files,
    in_order,
    paths,
)
from memotree_storage.errors import FailedPreconditionError, InvalidInputError, MemoTreeError, NotFoundError
from memotree_storage.ports import CommitStore, PathChange, Signature, TagDraft, WrittenCommit


class CommitStoreSuite:
    """The promises of `CommitStore`."""

    # --- commits -----------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("STORE-2")
    def test_a_commit_is_readable_at_once_and_named_by_nothing(self, store: CommitStore) -> None:
        """A written commit can be read by its id, and no ref points to it."""
        written = store.write_commit(draft(None, {"a.md": b"one", "b/c.md": b"two"}))
        assert store.refs() == {}
        assert files(store, written.commit_id) == {"a.md": b"one", "b/c.md": b"two"}
        assert {path: store.read_blob(blob) for path, blob in written.blobs.items()} == {
            "a.md": b"one",
            "b/c.md": b"two",
        }

    def test_content_can_be_made_when_it_is_written(self, store: CommitStore) -> None:
        """A function in place of bytes is called once; so a large commit never has all its files in memory."""
        made: list[str] = []

        def content(path: str) -> bytes:
            made.append(path)
            return path.encode()

        names = ("a.md", "b/c.md")
        written = store.write_commit(draft(None, {name: partial(content, name) for name in names}))
        assert sorted(made) == sorted(names)
        assert written == store.write_commit(draft(None, {name: name.encode() for name in names}))

    def test_a_commit_keeps_its_authors_times_message_and_parent(self, store: CommitStore) -> None:
        """`commit_info` returns the values of the draft, with a line break at the end of the message."""
        author = Signature(
            "Ünal 李", "u@example.org", datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=-9.5)))
        )
        committer = Signature("Bot", "", datetime(1970, 1, 1, tzinfo=UTC))
        first = store.write_commit(draft(None, {"a": b"1"}))
        second = store.write_commit(
            draft(first.commit_id, {"a": b"2"}, "Subject\n\nBody\n", author=author, committer=committer)
        )
        info = store.commit_info(second.commit_id)
        assert (info.author, info.committer) == (author, committer)
        assert info.author.when.utcoffset() == timedelta(hours=-9.5)
        assert info.parents == (first.commit_id,)
        assert info.message == "Subject\n\nBody\n"
        assert store.commit_info(first.commit_id).parents == ()
        assert store.commit_info(first.commit_id).message == "Change\n"

    def test_the_same_draft_is_the_same_commit(self, store: CommitStore) -> None:
        """Ids are derived from content, so a repeated write is harmless."""
        one = store.write_commit(draft(None, {"a": b"1"}))
        assert store.write_commit(draft(None, {"a": b"1"})) == one

    def test_a_tag_object_peels_to_its_commit(self, store: CommitStore) -> None:
        """An annotated tag is written with its commit, and its id is accepted wherever a commit id is."""
        tag = TagDraft("v1.0", "First\n", WHO)
        written = store.write_commit(draft(None, {"a": b"1"}, tag=tag))
        assert written.tag_id is not None
        assert store.commit_info(written.tag_id).commit_id == written.commit_id
        assert store.peel(written.tag_id) == store.peel(written.commit_id) == written.commit_id
        assert store.read_path(written.tag_id, "a") == b"1"
        assert store.move_ref("refs/tags/v1.0", None, written.tag_id)
        assert store.refs() == {"refs/tags/v1.0": written.tag_id}

    def test_a_tag_written_later_is_the_tag_written_with_the_commit(self, store: CommitStore) -> None:
        """So a recovery that writes a missing tag writes the same object. No ref moves."""
        tag = TagDraft("v1.0", "First", WHO)
        written = store.write_commit(draft(None, {"a": b"1"}, tag=tag))
        assert store.write_tag(tag, written.commit_id) == written.tag_id
        other = store.write_tag(replace(tag, name="v2.0"), written.commit_id)
        assert store.commit_info(other).commit_id == written.commit_id
        assert store.refs() == {}
        for target in (ABSENT, written.blobs["a"]):
            with pytest.raises(NotFoundError):
                store.write_tag(tag, target)
        for refused in (replace(tag, name="a b"), replace(tag, message="a\0b"), replace(tag, name="")):
            with pytest.raises(InvalidInputError):
                store.write_tag(refused, written.commit_id)

    @pytest.mark.requirement("STORE-2")
    def test_commits_of_an_open_pack_stand_on_each_other_and_are_kept_by_its_end(self, store: CommitStore) -> None:
        """Each can be read before the end, and no ref moves; they are what single writes would have made."""
        first = store.write_commit(draft(None, {"a": b"1", "b/c": b"2"}))
        with store.open_pack() as pack:
            second = pack.write_commit(draft(first.commit_id, {"a": b"3"}))
            third = pack.write_commit(draft(second.commit_id, {"b/c": None, "b/d": b"4"}))
            assert files(store, third.commit_id) == {"a": b"3", "b/d": b"4"}
            assert store.commit_info(third.commit_id).parents == (second.commit_id,)
            assert pack.size > 0
            pack.finish()
        assert files(store, second.commit_id) == {"a": b"3", "b/c": b"2"}
        assert files(store, third.commit_id) == {"a": b"3", "b/d": b"4"}
        assert store.refs() == {}
        assert store.write_commit(draft(first.commit_id, {"a": b"3"})) == second

    @pytest.mark.requirement("STORE-2")
    def test_an_open_pack_that_is_left_unfinished_leaves_nothing(self, store: CommitStore) -> None:
        """Its commits do not exist afterwards, and the same ones can be written again."""
        first = store.write_commit(draft(None, {"a": b"1"}))
        with store.open_pack() as pack:
            second = pack.write_commit(draft(first.commit_id, {"a": b"2", "n/e/w": b"3"}))
            assert store.exists(second.commit_id)
        assert not store.exists(second.commit_id)
        assert not any(store.exists(blob) for blob in second.blobs.values())
        assert store.write_commit(draft(first.commit_id, {"a": b"2", "n/e/w": b"3"})) == second
        assert files(store, second.commit_id) == {"a": b"2", "n/e/w": b"3"}

    @pytest.mark.requirement("GIT-3")
    def test_a_tag_object_is_read_as_it_was_written(self, store: CommitStore) -> None:
        """`read_tag` returns the draft of an annotated tag, and ``None`` for a commit."""
        commit_id = store.write_commit(draft(None, {"a": b"1"})).commit_id
        wanted = TagDraft("v1", "The first.\n", WHO)
        assert store.read_tag(store.write_tag(wanted, commit_id)) == wanted
        assert store.read_tag(commit_id) is None

    @pytest.mark.requirement("STORE-3")
    def test_history_has_parents_before_children_and_stops_at_what_is_known(self, store: CommitStore) -> None:
        """Each commit that a tip reaches is returned once, and none that only a known commit reaches."""
        chain: list[str] = []
        for number in range(4):
            parent = chain[-1] if chain else None
            chain.append(store.write_commit(draft(parent, {"a": b"%d" % number})).commit_id)
        side = store.write_commit(draft(chain[1], {"b": b"side"})).commit_id
        found = [info.commit_id for info in store.history([chain[-1], side], lambda _: False)]
        assert sorted(found) == sorted([*chain, side])
        assert all(found.index(one) < found.index(other) for one, other in pairwise(chain))
        assert found.index(chain[1]) < found.index(side)
        assert [info.commit_id for info in store.history([chain[-1]], {chain[2]}.__contains__)] == [chain[3]]

    def test_an_empty_commit_has_no_files_or_its_parents(self, store: CommitStore) -> None:
        """The store accepts a commit without changes."""
        empty = store.write_commit(draft(None, {}))
        assert files(store, empty.commit_id) == {}
        full = store.write_commit(draft(empty.commit_id, {"a": b""}))
        same = store.write_commit(draft(full.commit_id, {}, "Again"))
        assert files(store, same.commit_id) == {"a": b""}
        assert store.commit_info(same.commit_id).tree_id == store.commit_info(full.commit_id).tree_id

    def test_removing_the_last_file_leaves_nothing(self, store: CommitStore) -> None:
        """Folders that become empty are removed, up to the root."""
        first = store.write_commit(draft(None, {"a/b/c": b"1", "a/d": b"2"}))
        second = store.write_commit(draft(first.commit_id, {"a/b/c": None}))
        third = store.write_commit(draft(second.commit_id, {"a/d": None}))
        assert files(store, second.commit_id) == {"a/d": b"2"}
        assert files(store, third.commit_id) == {}
        assert store.commit_info(third.commit_id).tree_id == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

    def test_removing_what_is_not_there_changes_nothing(self, store: CommitStore) -> None:
        """A removal only requires that the file does not exist afterwards."""
        first = store.write_commit(draft(None, {"a/b": b"1"}))
        second = store.write_commit(draft(first.commit_id, {"x": None, "a": None, "a/b/c": None, "a/c": None}))
        assert files(store, second.commit_id) == {"a/b": b"1"}

    def test_any_bytes_are_kept(self, store: CommitStore) -> None:
        """Content is arbitrary bytes: empty, binary, large."""
        contents = {
            "empty": b"",
            "binary": bytes(range(256)),
            "crlf": b"a\r\nb\r",
            "large": b"0123456789abcdef" * 65536,
        }
        written = store.write_commit(draft(None, contents))
        assert files(store, written.commit_id) == contents

    def test_a_file_may_take_the_place_of_a_folder_and_back(self, store: CommitStore) -> None:
        """A path can be reused if the same changes remove what was there."""
        first = store.write_commit(draft(None, {"a": b"file"}))
        second = store.write_commit(draft(first.commit_id, {"a": None, "a/b": b"below"}))
        third = store.write_commit(draft(second.commit_id, {"a/b": None, "a": b"file again"}))
        assert files(store, second.commit_id) == {"a/b": b"below"}
        assert files(store, third.commit_id) == {"a": b"file again"}

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"a": b"1", "a/b": b"2"}, InvalidInputError),
            ({"old/x": b"1"}, FailedPreconditionError),
            ({"folder": b"1"}, FailedPreconditionError),
            ({"folder/b/c": b"1"}, FailedPreconditionError),
        ],
    )
    def test_a_path_is_never_a_file_and_a_folder(
        self, store: CommitStore, changes: Changes, error: type[MemoTreeError]
    ) -> None:
        """Such changes are refused as a whole: as input if they contradict each other, else as a state to be mended."""
        first = store.write_commit(draft(None, {"old": b"1", "folder/b": b"2"}))
        with pytest.raises(error):
            store.write_commit(draft(first.commit_id, changes))

    @pytest.mark.parametrize("path", REFUSED_PATHS, ids=ascii)
    def test_paths_that_git_cannot_hold_are_refused(self, store: CommitStore, path: str) -> None:
        """The error names the path."""
        with pytest.raises(InvalidInputError) as caught:
            store.write_commit(draft(None, {"fine": b"", path: b"1"}))
        assert caught.value.violations

    @pytest.mark.parametrize(
        "who",
        [
            Signature("", "a@example.org", WHO.when),
            Signature("  ", "a@example.org", WHO.when),
            Signature("A <b>", "a@example.org", WHO.when),
            Signature("A\nB", "a@example.org", WHO.when),
            Signature("A", "a>@example.org", WHO.when),
            Signature("A", "a\0@example.org", WHO.when),
            Signature("A\ud800", "a@example.org", WHO.when),
            Signature("A", "a@example.org", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
            Signature("A", "a@example.org", datetime(2024, 1, 1)),  # noqa: DTZ001 - that is the fault
        ],
        ids=ascii,
    )
    @pytest.mark.parametrize("field", ["author", "committer"])
    def test_people_and_times_that_git_cannot_hold_are_refused(
        self, store: CommitStore, field: str, who: Signature
    ) -> None:
        """The error names the field."""
        good = draft(None, {"a": b"1"})
        bad = replace(good, author=who) if field == "author" else replace(good, committer=who)
        with pytest.raises(InvalidInputError) as caught:
            store.write_commit(bad)
        assert caught.value.violations[0].field.startswith(field)

    @pytest.mark.parametrize("message", ["a\0b", "a\ud800b"], ids=ascii)
    def test_messages_that_git_cannot_hold_are_refused(self, store: CommitStore, message: str) -> None:
        """A NUL would cut the message off; a lone surrogate is not valid text."""
        with pytest.raises(InvalidInputError):
            store.write_commit(draft(None, {"a": b"1"}, message))

    # --- reading -----------------------------------------------------------------------------------------------------

    def test_reading_a_path_gives_the_file_or_nothing(self, store: CommitStore) -> None:
        """Folders and malformed paths give ``None``."""
        commit_id = store.write_commit(draft(None, {"a/b.md": b"text", "c": b""})).commit_id
        assert store.read_path(commit_id, "a/b.md") == b"text"
        assert store.read_path(commit_id, "c") == b""
        for path in ("a", "a/", "b.md", "c/d", "", "/", "a//b.md", "../a/b.md", "a/b.md/", "\ud800", "a\0"):
            assert store.read_path(commit_id, path) is None

    def test_the_files_whose_paths_begin_with_a_text_are_listed_by_path(self, store: CommitStore) -> None:
        """Only the last name may be incomplete; folders are no files."""
        written = store.write_commit(draft(None, dict.fromkeys(("a/b", "a/b-1", "a/b.md", "a/bc/d", "a/c", "b"), b"")))
        beginnings = ["a/b", "a/", "", "a/b-1", "a/bc/", "x/y", "a//b", "\ud800"]
        found = dict(store.files_beginning(written.commit_id, beginnings))
        assert {beginning: [path for path, _ in files] for beginning, files in found.items()} == {
            "a/b": ["a/b", "a/b-1", "a/b.md"],
            "a/": ["a/b", "a/b-1", "a/b.md", "a/c"],
            "": ["b"],
            "a/b-1": ["a/b-1"],
            "a/bc/": ["a/bc/d"],
            "x/y": [],
            "a//b": [],
            "\ud800": [],
        }
        assert found["a/b-1"] == [("a/b-1", written.blobs["a/b-1"])]

    def test_a_difference_names_each_changed_file_once_in_path_order(self, store: CommitStore) -> None:
        """Added, changed and removed files are listed; unchanged ones are not."""
        before = store.write_commit(draft(None, {"a/x": b"1", "a.md": b"2", "a-b/y": b"3", "same": b"4"}))
        after = store.write_commit(draft(before.commit_id, {"a/x": b"changed", "a.md": None, "a0": b"new"}))
        changes = list(store.diff(before.commit_id, after.commit_id))
        assert changes == [
            PathChange("a.md", before.blobs["a.md"], None),
            PathChange("a/x", before.blobs["a/x"], after.blobs["a/x"]),
            PathChange("a0", None, after.blobs["a0"]),
        ]
        assert list(store.diff(after.commit_id, after.commit_id)) == []

    @pytest.mark.parametrize("object_id", [ABSENT, "", "main", ABSENT[:-1], ABSENT.upper(), "g" * 40])
    def test_what_is_not_there_is_a_not_found_error(self, store: CommitStore, object_id: str) -> None:
        """Every method raises the error when it is called, not later."""
        there = store.write_commit(draft(None, {"a": b"1"})).commit_id
        calls: list[Callable[[], object]] = [
            lambda: store.commit_info(object_id),
            lambda: store.read_blob(object_id),
            lambda: store.read_path(object_id, "a"),
            lambda: store.diff(None, object_id),
            lambda: store.diff(object_id, there),
            lambda: store.write_commit(draft(object_id, {"a": b"1"})),
            lambda: store.move_ref(MAIN, None, object_id),
        ]
        for call in calls:
            with pytest.raises(NotFoundError):
                call()
        assert store.refs() == {}

    def test_an_object_of_another_kind_is_not_found(self, store: CommitStore) -> None:
        """A blob is not a commit, and a commit is not a blob."""
        written = store.write_commit(draft(None, {"a": b"1"}))
        for call in (
            lambda: store.commit_info(written.blobs["a"]),
            lambda: store.read_blob(written.commit_id),
            lambda: store.move_ref(MAIN, None, written.blobs["a"]),
        ):
            with pytest.raises(NotFoundError):
                call()

    # --- refs --------------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("STORE-2")
    def test_a_ref_moves_only_from_where_it_is(self, store: CommitStore) -> None:
        """Create, move and delete are compare and swap; `False` means that nothing changed."""
        one = store.write_commit(draft(None, {"a": b"1"})).commit_id
        two = store.write_commit(draft(one, {"a": b"2"})).commit_id
        assert not store.move_ref(MAIN, one, two), "an absent ref has no old value"
        assert not store.move_ref(MAIN, one, None)
        assert store.move_ref(MAIN, None, one)
        assert not store.move_ref(MAIN, None, two), "create is exclusive"
        assert not store.move_ref(MAIN, two, one)
        assert store.move_ref(MAIN, one, two)
        assert not store.move_ref(MAIN, one, None)
        assert store.refs() == {MAIN: two}
        assert store.move_ref(MAIN, two, None)
        assert store.refs() == {}
        assert store.move_ref(MAIN, None, one), "a deleted ref can be created again"
        assert store.refs() == {MAIN: one}

    def test_a_move_to_the_same_place_checks_and_changes_nothing(self, store: CommitStore) -> None:
        """It still returns whether the ref is at the given place."""
        one = store.write_commit(draft(None, {"a": b"1"})).commit_id
        assert store.move_ref(MAIN, None, None)
        assert not store.move_ref(MAIN, one, one)
        assert store.move_ref(MAIN, None, one)
        assert store.move_ref(MAIN, one, one)
        assert not store.move_ref(MAIN, None, None)

    def test_many_refs_of_all_kinds_live_side_by_side(self, store: CommitStore) -> None:
        """Deep, private and non-English names are allowed."""
        one = store.write_commit(draft(None, {"a": b"1"})).commit_id
        wanted = [
            MAIN,
            "refs/heads/feature/deep/er",
            "refs/heads/标签",
            "refs/tags/v1",
            "refs/memotree/keep/x",
            "refs/heads/@",
        ]
        for name in wanted:
            assert store.move_ref(name, None, one)
        assert store.refs() == dict.fromkeys(wanted, one)
        below = [name for name in wanted if name.startswith(("refs/tags/", "refs/memotree/"))]
        assert store.refs("refs/tags", "refs/memotree") == dict.fromkeys(below, one)
        assert store.refs("refs/none") == {}
        assert [store.ref(name) for name in wanted] == [one] * len(wanted)
        assert store.ref("refs/heads/none") is None

    @pytest.mark.parametrize("name", REFUSED_REFS, ids=ascii)
    def test_names_that_git_refuses_are_refused(self, store: CommitStore, name: str) -> None:
        """Create, move and delete refuse them."""
        one = store.write_commit(draft(None, {"a": b"1"})).commit_id
        for old, new in ((None, one), (one, one), (one, None)):
            with pytest.raises(InvalidInputError) as caught:
                store.move_ref(name, old, new)
            assert caught.value.violations
        assert store.refs() == {}

    def test_a_tag_draft_with_a_refused_name_is_refused(self, store: CommitStore) -> None:
        """The draft is refused before anything is written."""
        with pytest.raises(InvalidInputError):
            store.write_commit(draft(None, {"a": b"1"}, tag=TagDraft("a b", "x", WHO)))

    def test_a_ref_cannot_be_a_folder_of_another(self, store: CommitStore) -> None:
        """The error names the ref that is in the way; once that is deleted, the name can be used."""
        one = store.write_commit(draft(None, {"a": b"1"})).commit_id
        assert store.move_ref("refs/heads/a/b", None, one)
        for name in ("refs/heads/a", "refs/heads/a/b/c"):
            with pytest.raises(FailedPreconditionError, match="refs/heads/a/b"):
                store.move_ref(name, None, one)
        assert store.move_ref("refs/heads/a/b", one, None)
        assert store.move_ref("refs/heads/a", None, one)
        with pytest.raises(FailedPreconditionError, match="refs/heads/a "):
            store.move_ref("refs/heads/a/b", None, one)
        assert store.refs() == {"refs/heads/a": one}

    # --- many at once ------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("STORE-2")
    def test_of_many_writers_one_wins_each_round_and_nothing_is_lost(self, store: CommitStore) -> None:
        """Threads retry until they win; in the end, every file of every writer is there."""
        writers, rounds = 4, 6
        base = store.write_commit(draft(None, {"base": b""})).commit_id
        assert store.move_ref(MAIN, None, base)
        start = threading.Barrier(writers)
        losers: list[WrittenCommit] = []

        def work(writer: int) -> None:
            start.wait()
            for number in range(rounds):
                while True:
                    head = store.refs()[MAIN]
                    written = store.write_commit(draft(head, {f"w{writer}/{number}": b"%d" % number}))
                    if store.move_ref(MAIN, head, written.commit_id):
                        break
                    losers.append(written)

        with ThreadPoolExecutor(writers) as pool:
            for done in [pool.submit(work, writer) for writer in range(writers)]:
                done.result()
        head = store.refs()[MAIN]
        expected = {f"w{writer}/{number}": b"%d" % number for writer in range(writers) for number in range(rounds)}
        assert files(store, head) == {"base": b""} | expected
        chain = 0
        while parents := store.commit_info(head).parents:
            (head,) = parents
            chain += 1
        assert chain == writers * rounds
        for lost in losers:
            assert store.commit_info(lost.commit_id), (
                "the objects of a losing writer stay, since another commit may build on them"
            )

    @pytest.mark.requirement("STORE-2")
    def test_of_many_creators_exactly_one_wins(self, store: CommitStore) -> None:
        """`old=None` means that the ref must be absent; it is not a wildcard."""
        commits = [store.write_commit(draft(None, {"a": b"%d" % number})).commit_id for number in range(8)]
        start = threading.Barrier(len(commits))

        def create(commit_id: str) -> bool:
            start.wait()
            return store.move_ref(MAIN, None, commit_id)

        with ThreadPoolExecutor(len(commits)) as pool:
            won = list(pool.map(create, commits))
        assert won.count(True) == 1
        assert store.refs() == {MAIN: commits[won.index(True)]}

    # --- against a plain model ---------------------------------------------------------------------------------------

    # One store serves all examples: commits are independent of each other, and no ref is moved.
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=st.lists(st.dictionaries(paths, contents, max_size=8), min_size=1, max_size=5))
    def test_any_sequence_of_changes_equals_a_dictionary(self, store: CommitStore, steps: list[Changes]) -> None:
        """Files, differences and reads agree with a dictionary; changes that the model refuses are refused."""
        model: dict[str, bytes] = {}
        parent: str | None = None
        for changes in steps:
            if not acceptable(model, changes):
                with pytest.raises((InvalidInputError, FailedPreconditionError)):
                    store.write_commit(draft(parent, changes))
                continue
            after = apply_model(model, changes)
            written = store.write_commit(draft(parent, changes))
            assert files(store, written.commit_id) == after
            assert [change.path for change in store.diff(None, written.commit_id)] == in_order(after)
            if parent is not None:
                self._check_difference(store, (parent, model), (written.commit_id, after))
            for path in {*changes, *model}:
                assert store.read_path(written.commit_id, path) == after.get(path)
            assert written.blobs.keys() == {path for path, data in changes.items() if data is not None}
            model, parent = after, written.commit_id

    @staticmethod
    def _check_difference(
        store: CommitStore, old: tuple[str, Mapping[str, bytes]], new: tuple[str, Mapping[str, bytes]]
    ) -> None:
        differing = {path: None for path in {*old[1], *new[1]} if old[1].get(path) != new[1].get(path)}
        changes = list(store.diff(old[0], new[0]))
        assert [change.path for change in changes] == in_order(differing)
        for change in changes:
            for blob, side in ((change.old_blob, old[1]), (change.new_blob, new[1])):
                assert (None if blob is None else store.read_blob(blob)) == side.get(change.path)
