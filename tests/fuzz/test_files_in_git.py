"""What anybody can push: files of entries, commits, tags and packed refs are read, or refused with a reason."""

from contextlib import suppress
from typing import Final

import pytest
from campaigns import effort
from dulwich.errors import PackedRefsException
from fuzz.corpus import damaged, parts, seeds
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.errors import CorruptError, InvalidInputError
from memotree_storage.git.objects import (
    encode_message,
    encode_signature,
    is_hex_id,
    parse_commit,
    parse_tag,
    tag_target,
)
from memotree_storage.git.refs import _decode_packed
from memotree_storage.model.codec import InvalidFileError, decode_entry, encode_entry
from memotree_storage.model.paths import entry_path, parse_path
from memotree_storage.model.trailers import (
    cut_message,
    given_request_id,
    is_request_id,
    marks_of,
    trailers_of,
    with_trailers,
)
from memotree_storage.ports import Signature
from steps import LINEAR, growth

pytestmark = pytest.mark.requirement("GIT-8", "STORE-8")

NODE: Final = "nodes/7x/k2/7xk2m9qd4tnvw0ha.md"
ARCHIVE: Final = "archives/c41hz8rjy6ksm3pe.md"
ENTRIES: Final = seeds("entry_files")
PARTS: Final = parts("entry_files")


HARMFUL: Final = (
    *(b"---\n---\n", b"---\n", b"---", b"", b"\xef\xbb\xbf---\n---\n", b"---\n\x00\n---\n", b"---\n- a\n---\n"),
    *(b'---\nid: "\\U00110000"\n---\n', b'---\nid: "\\ud800"\n---\n', b"---\n? {}\n---\n", b"---\n? [a]\n: b\n---\n"),
    *(
        b"---\na: &a b\nc: *a\n---\n",
        b"---\n%YAML 9.9\n---\n---\n",
        b"---\nid: x\n...\nid: y\n---\n",
        b"---\n--- b\n---\n",
    ),
    *(b"---\n" + part * 5000 + b"\n---\n" for part in (b"[", b"{a: ", b"a: ")),
)
"""Files that once were decoded wrongly, or might be."""


@effort(150)
@given(damaged(ENTRIES, PARTS) | st.binary(max_size=200), st.sampled_from((NODE, ARCHIVE)))
def test_any_file_is_an_entry_or_refused_with_every_fault(data: bytes, path: str) -> None:
    check_file(data, path)


def test_files_that_might_do_harm_are_refused() -> None:
    for data in HARMFUL:
        for path in (NODE, ARCHIVE):
            check_file(data, path)
            check_file(b"---\n" + data + b"\n---\n" + data, path)


def check_file(data: bytes, path: str) -> None:
    """It is an entry, or refused with every fault."""
    try:
        entry = decode_entry(path, data)
    except InvalidFileError as error:
        refusal = error
    else:
        assert decode_entry(path, encode_entry(entry)) == entry
        assert parse_path(entry_path(entry)) == parse_path(path)
        return
    assert refusal.path == path
    assert refusal.violations
    assert len(refusal.message) < 4_000


@effort(6)
@given(st.sampled_from(PARTS), st.sampled_from(PARTS), st.sampled_from(ENTRIES))
def test_the_cost_of_a_file_grows_with_its_size(part: bytes, other: bytes, seed: bytes) -> None:
    end = seed.find(b"---", 4)
    for before, after in ((seed[:4], seed[4:]), (seed[:end], seed[end:]), (seed, b"")):

        def read(size: int, before: bytes = before, after: bytes = after) -> None:
            try:
                decode_entry(NODE, before + (part + other) * size + after)
            except InvalidFileError as error:
                assert error.violations  # noqa: PT017 - any other exception fails the test

        assert growth(read, 4_000 // len(part + other) + 1) < LINEAR


@effort(120)
@given(damaged(seeds("commits"), parts("commits")))
def test_any_commit_or_tag_is_read_or_called_damaged(data: bytes) -> None:
    try:
        info = parse_commit("0" * 40, data)
    except CorruptError:
        pass
    else:
        check_message(info.message)
        for signature in (info.author, info.committer):
            check_signature(signature)
    tag = parse_tag(data)
    check_signature(tag.tagger)
    check_message(tag.message)
    with suppress(CorruptError):
        assert len(tag_target("0" * 40, data)) == 20


def check_message(message: str) -> None:
    """Every store can hold it, and what is read from its trailers is what MemoTree could have written."""
    assert "\0" not in message
    message.encode()
    marks = marks_of(message)
    assert is_request_id(given_request_id(marks.request_id or ""))
    for limit in (60, 300, 32_768):
        cut = cut_message(message, limit)
        assert len(cut) <= max(limit, 5)
        assert len(message) > limit or cut == message
    again = with_trailers("A subject", trailers_of(message))
    assert trailers_of(again) == {key: value for key, value in trailers_of(message).items() if value}


def check_signature(signature: Signature) -> None:
    """Every store can hold it."""
    assert "\0" not in signature.name + signature.email
    (signature.name + signature.email).encode()
    assert signature.when.utcoffset() is not None


@effort(60)
@given(st.text(), st.dictionaries(st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True), st.text(max_size=20)))
def test_messages_and_trailers_of_any_text_are_written_or_refused(message: str, trailers: dict[str, str]) -> None:
    whole = with_trailers(message, trailers)
    try:
        encode_message("message", whole)
        encode_signature("author", Signature(message, "", parse_tag(b"").tagger.when))
    except InvalidInputError as error:
        assert error.violations  # noqa: PT017 - any other exception fails the test
    check_cut(whole)


def check_cut(whole: str) -> None:
    """A cut message keeps its trailers or has none."""
    cut = cut_message(whole, 100)
    assert len(whole) <= 100 or len(cut) <= 100
    assert trailers_of(cut).items() <= trailers_of(whole).items() or len(whole) <= 100


@effort(60)
@given(damaged(seeds("packed_refs"), parts("packed_refs")))
def test_any_file_of_packed_refs_is_read_or_refused(data: bytes) -> None:
    try:
        refs, _ = _decode_packed(data)
    except (PackedRefsException, ValueError):  # what `RefStore` calls damage
        return
    assert all(is_hex_id(value) for value in refs.values())
