"""Page tokens belong to one call; page sizes have bounds."""

import base64
import hashlib
import json
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.composition.page_tokens import open_page_tokens
from memotree.identity.errors import LocalKeyUnwritableError
from memotree.identity.key_file import PAGE_KEY_FILE
from memotree.request.pages import KEY_BYTES, InvalidPageSizeError, InvalidPageTokenError, PageTokens, page_size
from memotree.v1 import history_service_pb2 as history
from memotree.v1 import session_service_pb2 as sessions

TOKENS = PageTokens()
SHAPE = {"after": str}
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**63 - 1)
CURSORS = st.dictionaries(TEXTS, NUMBERS | TEXTS | st.datetimes(timezones=st.just(UTC)))


def listing(**fields: object) -> history.ListCommitsRequest:
    return history.ListCommitsRequest(workspace="w", **fields)  # type: ignore[arg-type]  # the test names real fields


def parts(token: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))


def spelled(value: object) -> str:
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(written).rstrip(b"=").decode()


@given(CURSORS)
def test_a_token_gives_its_cursor_back(cursor: dict[str, object]) -> None:
    token = TOKENS.write(listing(), cursor)
    shape = {name: type(value) for name, value in cursor.items()}
    assert TOKENS.read(listing(page_token=token), shape) == cursor
    assert token.isascii()
    assert not set(token) & set("+/= ")


def test_no_token_is_the_first_page_and_no_cursor_the_last() -> None:
    assert TOKENS.read(listing(), SHAPE) is None
    assert TOKENS.write(listing(), None) == ""


def test_only_the_page_size_may_change_between_pages() -> None:
    token = TOKENS.write(listing(author="ada", page_size=10), {"after": "x"})
    assert TOKENS.read(listing(author="ada", page_size=99, page_token=token), SHAPE) == {"after": "x"}
    for other in (listing(page_token=token), listing(author="eve", page_token=token)):
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(other, SHAPE)


def test_a_token_of_another_rpc_is_refused() -> None:
    token = TOKENS.write(history.ListTagsRequest(workspace="w"), {"after": "x"})
    for request in (
        history.ListBranchesRequest(workspace="w", page_token=token),  # the same fields on the wire
        sessions.ListSessionsRequest(workspace="w", page_token=token),
    ):
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(request, SHAPE)


def test_a_token_of_another_version_is_refused() -> None:
    _, code, cursor = parts(TOKENS.write(listing(), {"after": "x"}))
    with pytest.raises(InvalidPageTokenError) as caught:
        TOKENS.read(listing(page_token=spelled([2, code, cursor])), SHAPE)
    assert [violation.field for violation in caught.value.violations] == ["page_token"]


def test_only_who_has_the_key_makes_tokens() -> None:
    """All else that a token is made of is public."""
    token = PageTokens(b"k" * KEY_BYTES).write(listing(), {"after": "x"})
    assert PageTokens(b"k" * KEY_BYTES).read(listing(page_token=token), SHAPE) == {"after": "x"}
    for other in (PageTokens(), PageTokens(bytes(KEY_BYTES))):
        with pytest.raises(InvalidPageTokenError):
            other.read(listing(page_token=token), SHAPE)
    told = [b"memotree.v1.ListCommitsRequest", listing().SerializeToString(deterministic=True), b'{"after":"x"}']
    checksum = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in told)).hexdigest()[:32]
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=spelled([1, checksum, {"after": "x"}])), SHAPE)


async def test_tokens_stay_valid_when_the_server_starts_again(tmp_path: Path) -> None:
    token = (await open_page_tokens(tmp_path)).write(listing(), {"after": "x"})
    assert (await open_page_tokens(tmp_path)).read(listing(page_token=token), SHAPE) == {"after": "x"}
    file = tmp_path / PAGE_KEY_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("damaged")
    again = await open_page_tokens(tmp_path)
    with pytest.raises(InvalidPageTokenError):
        again.read(listing(page_token=token), SHAPE)
    assert (await open_page_tokens(tmp_path)).write(listing(), {"after": "x"}) == again.write(listing(), {"after": "x"})


async def test_a_data_folder_that_takes_no_key_is_told(tmp_path: Path) -> None:
    (tmp_path / PAGE_KEY_FILE).mkdir()
    with pytest.raises(LocalKeyUnwritableError) as caught:
        await open_page_tokens(tmp_path)
    assert PAGE_KEY_FILE in caught.value.message


@pytest.mark.parametrize(
    "token",
    ["x", "0", "=", "....", "é", "a" * 22, "A" * 20_000, "1 OR 1=1", "\x00", spelled("[" * 9_000), spelled({}),
     spelled([1, "", None]), spelled([1, "", []]), spelled([1, "", {}]), spelled([1, "", {"after": "x"}]),
     base64.urlsafe_b64encode(b"[" * 12_000).decode()],
    ids=str.__len__,
)  # fmt: skip
def test_a_forged_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=token), SHAPE)


@given(st.data())
def test_a_token_with_one_character_changed_is_refused(data: st.DataObject) -> None:
    token = TOKENS.write(listing(), {"after": "node", "number": 7})
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_=").filter(lambda letter: letter != token[place]))
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=token[:place] + letter + token[place + 1 :]), {"after": str, "number": int})


def test_a_cursor_of_another_shape_is_refused() -> None:
    request = listing(page_token=TOKENS.write(listing(), {"after": "x", "line": 3}))
    assert TOKENS.read(request, {"after": str, "line": int}) is not None
    for shape in (SHAPE, {"after": int, "line": int}, {"after": str, "line": int, "more": int}):
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(request, shape)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, str),
        ("a\0b", str),
        (["x"], str),
        (True, int),
        (1.0, int),
        (1 << 63, int),
        ("yesterday", datetime),
        ("2024-01-01T00:00:00", datetime),  # of no zone
        ("2024-01-01", datetime),
        (1_700_000_000, datetime),
    ],
)
def test_a_value_that_no_query_takes_is_refused_even_with_the_right_code(value: object, kind: type) -> None:
    token = TOKENS.write(listing(), {"after": value})
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=token), {"after": kind})


def test_half_of_a_surrogate_pair_is_refused() -> None:
    token = base64.urlsafe_b64encode(b'[1,"0",{"after":"\\ud800"}]').rstrip(b"=").decode()
    with pytest.raises(InvalidPageTokenError):
        TOKENS.read(listing(page_token=token), SHAPE)


def test_a_time_keeps_its_zone() -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, 10, timezone(timedelta(hours=2)))
    cursor = TOKENS.read(listing(page_token=TOKENS.write(listing(), {"used": when})), {"used": datetime})
    assert cursor is not None
    assert (cursor["used"], cursor["used"].utcoffset()) == (when, timedelta(hours=2))


def test_a_token_has_one_spelling() -> None:
    token = TOKENS.write(listing(), {"after": "x?>"})
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    spellings = {token + tail for tail in ("=", "==", "\n")} | {base64.b64encode(raw).decode()} - {token}
    spellings.add(base64.urlsafe_b64encode(raw.replace(b",", b", ")).rstrip(b"=").decode())
    for spelling in spellings:
        with pytest.raises(InvalidPageTokenError):
            TOKENS.read(listing(page_token=spelling), SHAPE)


@pytest.mark.parametrize(("given", "size"), [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (1_000_000, 1000)])
def test_a_page_size_is_bounded(given: int, size: int) -> None:
    assert page_size(given) == size


def test_a_negative_page_size_is_an_error_that_names_the_field() -> None:
    with pytest.raises(InvalidPageSizeError) as caught:
        page_size(-1, field="max_results")
    assert [violation.field for violation in caught.value.violations] == ["max_results"]
