"""The trailers at the end of a commit message: written, read, cut, and not believed when they are odd."""

import pytest
from memotree_storage.model.node import new_id
from memotree_storage.model.trailers import (
    LONGEST_REQUEST_ID,
    REQUEST,
    REQUEST_DIGEST,
    SESSION,
    Marks,
    Request,
    cut_message,
    marks_of,
    trailers_of,
    with_trailers,
)

pytestmark = pytest.mark.requirement("STORE-2", "STORE-8")


def test_what_is_written_is_read() -> None:
    message = with_trailers("A subject\n\nA body.\n\n", {SESSION: "s", REQUEST: "", "Key": "a: b"})
    assert message == f"A subject\n\nA body.\n\n{SESSION}: s\nKey: a: b\n"
    assert trailers_of(message) == {SESSION: "s", "Key": "a: b"}
    assert with_trailers("A subject", {REQUEST: ""}) == "A subject\n"


@pytest.mark.parametrize("message", ["Key: value", "Key: value\n", "A subject\n\nKey: value\nno trailer", ""])
def test_what_is_no_last_paragraph_of_trailers_alone_has_none(message: str) -> None:
    assert trailers_of(message) == {}


def test_marks_of_a_commit_of_ours_are_read_and_those_that_memotree_never_writes_are_none() -> None:
    longest = "r" * LONGEST_REQUEST_ID
    assert marks_of(with_trailers("A subject", {SESSION: "../../etc", REQUEST: longest})) == Marks(None, longest)
    assert marks_of(with_trailers("A subject", {REQUEST: longest + "r"})) == Marks(None, None)
    assert marks_of(with_trailers("A subject", {REQUEST: "a\u2028b"})) == Marks(None, None)
    session_id = new_id()
    message = with_trailers("A subject", {SESSION: session_id, **Request("again", "0123").trailers()})
    assert marks_of(message) == Marks(session_id, "again")
    assert marks_of("A subject\n") == Marks(None, None)


def test_a_call_made_the_commits_with_its_digest_or_with_none() -> None:
    call = Request("again", "0123")
    assert call.trailers() == {REQUEST: "again", REQUEST_DIGEST: "0123"}
    assert Request("", "0123").trailers() == {REQUEST: "", REQUEST_DIGEST: ""}
    assert call.made(with_trailers("A subject", call.trailers()))
    assert call.made(with_trailers("A subject", {REQUEST: "again"})), "an earlier version wrote no digest"
    assert not call.made(with_trailers("A subject", Request("again", "4567").trailers()))


def test_a_long_message_is_cut_and_keeps_short_trailers() -> None:
    message = with_trailers("A subject\n\n" + "word " * 100, {REQUEST: "again"})
    cut = cut_message(message, 200)
    assert len(cut) <= 200
    assert cut.startswith("A subject\n\nword")
    assert trailers_of(cut) == {REQUEST: "again"}
    assert cut_message(message, len(message)) == message
    assert trailers_of(cut_message(with_trailers("A subject", {REQUEST: "r" * 300}), 200)) == {}
    assert len(cut_message("x" * 1000, 100)) == 100
