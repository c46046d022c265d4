"""Page tokens belong to one call; page sizes have bounds."""

import base64
import multiprocessing
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.request.pages import (
    InvalidPageSizeError,
    InvalidPageTokenError,
    PageTokens,
    page_size,
    read_or_make_key,
)
from memotree.v1 import history_service_pb2 as history
from memotree.v1 import session_service_pb2 as sessions

TOKENS = PageTokens(b"k" * 32)
CURSORS = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text())


def listing(**fields: object) -> history.ListCommitsRequest:
    return history.ListCommitsRequest(workspace="w", **fields)  # type: ignore[arg-type]  # the test names real fields


@given(CURSORS)
def test_a_token_gives_its_cursor_back(cursor: dict[str, object]) -> None:
    token = TOKENS.write(listing(), cursor)
    assert TOKENS.read(listing(page_token=token)) == cursor
    assert token.isascii()
    assert not set(token) & set("+/= ")


def test_no_token_is_the_first_page_and_no_cursor_the_last() -> None:
    assert TOKENS.read(listing()) is None
    assert TOKENS.write(listing(), None) == ""


def test_only_the_page_size_may_change_between_pages() -> None:
    token = TOKENS.write(listing(author="ada", page_size=10), {"after": "x"})
    assert TOKENS.read(listing(author="ada", page_size=99, page_token=token)) == {"after": "x"}
    for other in (listing(page_token=token), listing(author="eve", page_token=token)):
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(other)


def test_a_token_of_another_rpc_is_refused() -> None:
    token = TOKENS.write(history.ListTagsRequest(workspace="w"), {"after": "x"})
    for request in (
        history.ListBranchesRequest(workspace="w", page_token=token),  # the same fields on the wire
        sessions.ListSessionsRequest(workspace="w", page_token=token),
    ):
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(request)


def test_a_token_of_a_server_with_another_key_is_refused() -> None:
    token = PageTokens(b"j" * 32).write(listing(), {"after": "x"})
    with pytest.raises(InvalidPageTokenError) as caught:
        TOKENS.read(listing(page_token=token))
    assert [violation.field for violation in caught.value.violations] == ["page_token"]


@pytest.mark.parametrize("token", ["x", "0", "=", "....", "é", "a" * 22, "A" * 20_000, "1 OR 1=1", "\x00"])
def test_a_made_up_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=token))


@given(st.data())
def test_a_token_with_one_character_changed_is_refused(data: st.DataObject) -> None:
    token = TOKENS.write(listing(), {"after": "node", "number": 7})
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_=").filter(lambda letter: letter != token[place]))
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=token[:place] + letter + token[place + 1 :]))


def test_a_cursor_of_another_shape_is_refused() -> None:
    request = listing(page_token=TOKENS.write(listing(), {"after": "x", "line": 3}))
    assert TOKENS.read(request, {"after": str, "line": (int, str)}) is not None
    for shape in ({"after": str}, {"after": int, "line": int}, {"after": str, "line": int, "more": int}):
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(request, shape)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        PageTokens(b"short")


def test_a_token_has_one_spelling() -> None:
    token = TOKENS.write(listing(), {"after": "x"})
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    spellings = {token + tail for tail in ("=", "==", "\n")} | {base64.b64encode(raw).decode()} - {token}
    for spelling in spellings:
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(listing(page_token=spelling))


@pytest.mark.parametrize(("given", "size"), [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (1_000_000, 1000)])
def test_a_page_size_is_bounded(given: int, size: int) -> None:
    assert page_size(given) == size


def test_a_negative_page_size_is_an_error_that_names_the_field() -> None:
    with pytest.raises(InvalidPageSizeError) as caught:
        page_size(-1, field="max_results")
    assert [violation.field for violation in caught.value.violations] == ["max_results"]


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "page"
    key = read_or_make_key(path)
    assert len(key) == 32
    assert read_or_make_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["page"]


def test_half_a_key_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"half")
    assert len(read_or_make_key(tmp_path / "page")) == 32


def test_processes_that_begin_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        keys = pool.map(read_or_make_key, [tmp_path / "page"] * 4)
    assert len(set(keys)) == 1
