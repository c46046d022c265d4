"""Walking commits: each one once, parents first."""

import random
import sys

import pytest
from by_hand import tags_of_tags
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memotree_storage.conformance.drafts import ABSENT, MAIN, WHO, draft
from memotree_storage.git import objects
from memotree_storage.git.objects import (
    BLOB,
    COMMIT,
    TREE,
    ObjectMissingError,
    TooManyParentsError,
    encode_commit,
    parse_commit,
    parse_tag,
)
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from memotree_storage.model import trailers
from memotree_storage.ports import CommitParents, TagDraft
from steps import Steps
from unit.storage.git.judge import Judge


def write_graph(store: GitRepository, parents_of: list[list[int]]) -> list[str]:
    """Commits without files, each with the given earlier ones as parents."""
    ids: list[str] = []
    with PackWriter(store.path / "objects" / "pack") as pack:
        tree = pack.add(TREE, b"")
        for number, parents in enumerate(parents_of):
            above = [ids[parent] for parent in parents]
            ids.append(pack.add(COMMIT, encode_commit(tree, above, WHO, WHO, f"commit {number}")).hex())
        pack.finish()
    return ids


def assert_replayable(found: list[CommitParents], ids: set[str]) -> None:
    seen: set[str] = set()
    for info in found:
        assert info.commit_id not in seen
        assert all(parent in seen for parent in info.parents if parent in ids)
        seen.add(info.commit_id)
    assert seen == ids


def nothing_known(_: str) -> bool:
    return False


@pytest.mark.parametrize("seed", range(5))
def test_any_graph_is_walked_parents_first_without_known_commits(store: GitRepository, seed: int) -> None:
    rng = random.Random(seed)
    graph = [rng.sample(range(number), k=min(number, rng.choice([0, 1, 1, 1, 2, 3]))) for number in range(60)]
    ids = write_graph(store, graph)
    tips = rng.sample(ids, 4)
    listed = set(Judge(store.path).run("rev-list", *tips).split())
    assert_replayable(store.history(tips, nothing_known), listed)
    old = rng.sample(ids, 3)
    known = set(Judge(store.path).run("rev-list", *old).split())
    assert_replayable(store.history(tips, known.__contains__), listed - known)


def test_a_first_parent_chain_is_listed_contiguously_however_deep_it_is(store: GitRepository) -> None:
    ids = write_graph(store, [[], [0], [1], [0], [3], [2, 4]])
    assert [info.commit_id for info in store.history([ids[5]], nothing_known)] == ids
    count = 4 * sys.getrecursionlimit()  # deeper than Python recurses
    ids = write_graph(store, [[number - 1] if number else [] for number in range(count)])
    assert [info.commit_id for info in store.history([ids[-1]], nothing_known)] == ids
    recent = store.history([ids[-1]], lambda commit_id: commit_id == ids[-6])
    assert [info.commit_id for info in recent] == ids[-5:]


def test_tips_may_be_tags_and_repeat_and_lead_to_no_commit(store: GitRepository, judge: Judge) -> None:
    written = store.write_commit(draft(None, {"a": b"1"}, tag=TagDraft("t", "x", WHO)))
    assert written.tag_id is not None
    blob = written.blobs["a"]
    judge.run("tag", "-a", "-m", "a blob", "odd", blob)
    odd = store.refs()["refs/tags/odd"]
    found = store.history([written.tag_id, written.commit_id, blob, odd, written.tag_id], nothing_known)
    assert found == [CommitParents(written.commit_id, ())]
    assert store.history([], nothing_known) == []
    with pytest.raises(ObjectMissingError):
        store.history([ABSENT], nothing_known)


@pytest.mark.requirement("GIT-8")
@pytest.mark.parametrize(
    ("header", "name", "year"),
    [
        (b"author A <a@b> 99999999999999 +0000", "A", 9999),
        (b"author A <a@b> -5 +0000", "A", 1969),
        (b"author A <a@b> -99999999999999 +0000", "A", 1),
        (b"author A <a@b> 0 +9999", "A", 1970),
        (b"author A <a@b> 0 nonsense", "A", 1970),
        (b"author A <a@b> nonsense", "A", 1970),
        (b"author no address at all", "", 1970),
        (b"author \xff\xfe <\xff> 0 -0130", "\ufffd\ufffd", 1969),
        (b"x-author missing", "", 1970),
    ],
)
def test_malformed_commits_of_other_programs_can_be_read(
    store: GitRepository, judge: Judge, header: bytes, name: str, year: int
) -> None:
    tree = store.commit_info(store.write_commit(draft(None, {})).commit_id).tree_id.encode()
    text = b"tree " + tree + b"\n" + header + b"\ncommitter C <c@d> 1 +0100\nencoding latin-1\n\nSm\xf8rrebr\xf8d"
    text = text if b"\xff" not in header else text.replace(b"encoding latin-1\n", b"")
    commit_id = judge.run("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=text).strip()
    info = store.commit_info(commit_id)
    assert (info.author.name, info.author.when.year) == (name, year)
    assert info.committer.name == "C"
    assert store.history([commit_id], nothing_known) == [CommitParents(commit_id, ())]
    if b"\xff" not in header:
        assert info.message == "Smørrebrød"


def test_signed_commits_and_merge_tags_are_read(store: GitRepository, judge: Judge) -> None:
    first = store.write_commit(draft(None, {"a": b"1"}))
    assert store.move_ref(MAIN, None, first.commit_id)
    info = store.commit_info(first.commit_id)
    text = (
        f"tree {info.tree_id}\nparent {first.commit_id}\nauthor A <a@b> 5 +0000\ncommitter A <a@b> 5 +0000\n"
        "mergetag object 0000000000000000000000000000000000000000\n type commit\n tag x\n author Z <z> 9\n \n text\n"
        "gpgsig -----BEGIN PGP SIGNATURE-----\n \n parent nonsense\n -----END PGP SIGNATURE-----\n\nSigned\n"
    )
    commit_id = judge.run("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=text.encode()).strip()
    signed = store.commit_info(commit_id)
    assert (signed.parents, signed.author.name, signed.message) == ((first.commit_id,), "A", "Signed\n")


HEAD = f"tree {'0' * 40}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n"


@pytest.mark.requirement("STORE-8", "GIT-8")
def test_a_message_is_read_in_the_encoding_of_its_commit_or_as_utf_8_if_that_is_none_of_texts() -> None:
    """Some of Python's codecs are no encodings of text; that of punycode takes quadratic time."""
    none_of_texts = ["punycode", "base64", "unicode_escape", "no-such", "x" * 100_000, "\xff", "\0latin-1"]
    actual = dict.fromkeys(["latin-1", "ISO-8859-1", "windows-1252", "CP1252"], "latin-1")
    for encoding, codec in (actual | dict.fromkeys(none_of_texts, "utf-8")).items():
        data = f"{HEAD}encoding {encoding}\n\n".encode("latin-1") + "Smørrebrød\n".encode(codec)
        assert parse_commit("0" * 40, data).message == "Smørrebrød\n", encoding[:20]


WORDS = st.sampled_from(["\n", "\n\n", "\n\n\n", "Key: value\n", "K: 记", "word ", "😀", "ä", " ", "x" * 30])


@pytest.mark.requirement("STORE-8")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.lists(WORDS, max_size=60).map("".join), repeated=st.sampled_from([1, 50]), limit=st.integers(8, 200))
def test_a_long_message_is_cut_as_if_all_of_it_were_read(
    monkeypatch: pytest.MonkeyPatch, message: str, repeated: int, limit: int
) -> None:
    monkeypatch.setattr(trailers, "LONGEST_MESSAGE", limit)
    whole = message * repeated
    assert parse_commit("0" * 40, f"{HEAD}\n{whole}".encode()).message == trailers.cut_message(whole, limit)


@pytest.mark.requirement("STORE-8")
def test_no_more_of_a_commit_or_tag_is_decoded_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push of a few kilobytes can bring any number of commits with a message of 40 MB."""
    decoded: list[int] = []
    decode = objects._decode

    def noted(data: bytes, encoding: str) -> str:
        decoded.append(len(data) + len(encoding))
        return decode(data, encoding)

    monkeypatch.setattr(objects, "_decode", noted)
    long = b"x" * 2_000_000
    head = HEAD.encode().replace(b"author A <a@b>", b"author " + long + b"<" + long + b">") + b"encoding " + long
    info = parse_commit("0" * 40, head + b"\n\n" + long + b"\n\n" + b"Key: value\n" * 200_000)
    tag = parse_tag(b"tag " + long + b"\ntagger " + long + b"<a@b> 1 " + long + b"\n\n" + long)
    assert [len(info.message), len(tag.message)] == [32_768, 65_536]
    assert [len(info.author.name), len(info.author.email), len(tag.tagger.name)] == [1000, 1000, 1000]
    assert max(decoded) < 300_000
    assert sum(decoded) < 500_000


def test_only_the_first_lines_before_a_message_are_read() -> None:
    lines = f"tree {'0' * 40}\n" + "x y z\n" * 100_000
    with Steps() as steps:
        parse_commit("0" * 40, lines.encode())
        parse_tag(lines.encode())
    assert steps.count < 40_000, "of a hundred thousand lines"


@pytest.mark.requirement("STORE-8")
def test_a_commit_with_more_parents_than_anybody_merges_is_refused() -> None:
    parents = [f"parent {number:040x}\n" for number in range(101)]
    head, rest = HEAD[:46], HEAD[46:]
    assert len(parse_commit("0" * 40, "".join([head, *parents[1:], rest]).encode()).parents) == 100
    with pytest.raises(TooManyParentsError, match="more than 100 parents"):
        parse_commit("0" * 40, "".join([head, *parents, rest]).encode())


@pytest.mark.requirement("STORE-8")
def test_a_tag_leads_through_ten_tags_and_what_leads_to_no_commit_is_remembered(
    store: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push can bring a chain of any length, which would be followed whenever a session is opened."""
    commit_id = store.write_commit(draft(None, {"a": b"1"})).commit_id
    named = tags_of_tags(store, commit_id, COMMIT, 11)
    astray = tags_of_tags(store, store.write_commit(draft(None, {"a": b"1"})).blobs["a"], BLOB, 3)[-1]
    assert [store.peel(each) for each in (commit_id, named[9], named[10], astray)] == [commit_id, commit_id, None, None]
    assert store.commit_info(named[9]).commit_id == commit_id
    for missing in (named[10], astray):
        assert store.history([missing], nothing_known) == []
        with pytest.raises(ObjectMissingError):
            store.commit_info(missing)
    monkeypatch.setattr(store._objects, "read", None)
    assert [store.peel(each) for each in (commit_id, named[9], named[10], astray)] == [commit_id, commit_id, None, None]
