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


def unpadded(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def spelled(value: object) -> str:
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(written).rstrip(b"=").decode()


def refuses(request: Any, shape: dict[str, type] | None = None, tokens: PageTokens = TOKENS) -> None:
    with pytest.raises(InvalidPageTokenError) as caught:
        tokens.read(request, shape or SHAPE)
    assert [violation.field for violation in caught.value.violations] == ["page_token"]


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
        refuses(other)


def test_a_token_of_another_rpc_is_refused() -> None:
    token = TOKENS.write(history.ListTagsRequest(workspace="w"), {"after": "x"})
    refuses(history.ListBranchesRequest(workspace="w", page_token=token))  # the same fields on the wire
    refuses(sessions.ListSessionsRequest(workspace="w", page_token=token))


def test_only_who_has_the_key_makes_tokens() -> None:
    """All else that a token is made of is public."""
    token = PageTokens(b"k" * KEY_BYTES).write(listing(), {"after": "x"})
    assert PageTokens(b"k" * KEY_BYTES).read(listing(page_token=token), SHAPE) == {"after": "x"}
    for other in (PageTokens(), PageTokens(bytes(KEY_BYTES))):
        refuses(listing(page_token=token), tokens=other)
    told = [b"memotree.v1.ListCommitsRequest", listing().SerializeToString(deterministic=True), b'{"after":"x"}']
    checksum = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in told)).hexdigest()[:32]
    refuses(listing(page_token=spelled([1, checksum, {"after": "x"}])))


async def test_tokens_stay_valid_when_the_server_starts_again(tmp_path: Path) -> None:
    token = (await open_page_tokens(tmp_path)).write(listing(), {"after": "x"})
    assert (await open_page_tokens(tmp_path)).read(listing(page_token=token), SHAPE) == {"after": "x"}
    file = tmp_path / PAGE_KEY_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("damaged")
    again = await open_page_tokens(tmp_path)
    refuses(listing(page_token=token), tokens=again)
    assert (await open_page_tokens(tmp_path)).write(listing(), {"after": "x"}) == again.write(listing(), {"after": "x"})


async def test_a_data_folder_that_takes_no_key_is_told(tmp_path: Path) -> None:
    (tmp_path / PAGE_KEY_FILE).mkdir()
    with pytest.raises(LocalKeyUnwritableError) as caught:
        await open_page_tokens(tmp_path)
    assert PAGE_KEY_FILE in caught.value.message


def test_a_forged_token_is_refused() -> None:
    code = json.loads(unpadded(TOKENS.write(listing(), {"after": "x"})))[1]
    for token in (
        *("x", "0", "=", "....", "é", "a" * 22, "A" * 20_000, "1 OR 1=1", "\x00", spelled("[" * 9_000), spelled({})),
        *(spelled([1, "", value]) for value in (None, [], {}, {"after": "x"})),
        spelled([2, code, {"after": "x"}]),
        base64.urlsafe_b64encode(b"[" * 12_000).decode(),
        base64.urlsafe_b64encode(b'[1,"0",{"after":"\\ud800"}]').rstrip(b"=").decode(),
    ):
        refuses(listing(page_token=token))


@given(st.data())
def test_a_token_with_one_character_changed_is_refused(data: st.DataObject) -> None:
    token = TOKENS.write(listing(), {"after": "node", "number": 7})
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_=").filter(lambda letter: letter != token[place]))
    refuses(listing(page_token=token[:place] + letter + token[place + 1 :]), {"after": str, "number": int})


def test_a_cursor_of_another_shape_is_refused() -> None:
    request = listing(page_token=TOKENS.write(listing(), {"after": "x", "line": 3}))
    assert TOKENS.read(request, {"after": str, "line": int}) is not None
    for shape in (SHAPE, {"after": int, "line": int}, {"after": str, "line": int, "more": int}):
        refuses(request, shape)


def test_a_value_that_no_query_takes_is_refused_even_with_the_right_code() -> None:
    times = ("yesterday", "2024-01-01T00:00:00", "2024-01-01", 1_700_000_000)  # the second one of no zone
    for kind, values in ((str, (None, "a\0b", ["x"])), (int, (True, 1.0, 1 << 63)), (datetime, times)):
        for value in values:
            refuses(listing(page_token=TOKENS.write(listing(), {"after": value})), {"after": kind})


def test_a_time_keeps_its_zone() -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, 10, timezone(timedelta(hours=2)))
    cursor = TOKENS.read(listing(page_token=TOKENS.write(listing(), {"used": when})), {"used": datetime})
    assert cursor is not None
    assert (cursor["used"], cursor["used"].utcoffset()) == (when, timedelta(hours=2))


def test_a_token_has_one_spelling() -> None:
    token = TOKENS.write(listing(), {"after": "x?>"})
    raw = unpadded(token)
    spellings = {token + tail for tail in ("=", "==", "\n")} | {base64.b64encode(raw).decode()} - {token}
    spellings.add(base64.urlsafe_b64encode(raw.replace(b",", b", ")).rstrip(b"=").decode())
    for spelling in spellings:
        refuses(listing(page_token=spelling))


def test_a_page_size_is_bounded_and_a_negative_one_is_an_error_that_names_the_field() -> None:
    assert [page_size(given) for given in (0, 1, 1000, 1001, 1_000_000)] == [50, 1, 1000, 1000, 1000]
    with pytest.raises(InvalidPageSizeError) as caught:
        page_size(-1, field="max_results")
    assert [violation.field for violation in caught.value.violations] == ["max_results"]
