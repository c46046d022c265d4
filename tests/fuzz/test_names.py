"""Ids, names, times and filters: any text is understood, or refused with the error of its kind."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest
import qdrant_client  # noqa: F401 - before the engine's own loading of its messages
from campaigns import effort
from fuzz.corpus import repeated, texts
from fuzz.requests import messages_of
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.errors import InvalidInputError
from memotree_storage.git.refs import check_ref_name
from memotree_storage.index.preview import make_preview
from memotree_storage.index.terms import count_terms, query_terms
from memotree_storage.model.node import ID_LENGTH, MIN_PREFIX, is_id, is_id_prefix
from memotree_storage.model.paths import archive_path, node_path, parse_path, slug
from memotree_storage.model.position import check_position
from memotree_storage.model.times import read_time
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens
from memotree_storage.model.validation import check_archive_name, check_author, check_name, check_text
from memotree_storage.qdrant.engine.errors import MalformedError, UnsupportedError
from memotree_storage.qdrant.engine.filters import read_filter
from memotree_storage.qdrant.engine.wire import qdrant
from steps import LINEAR, growth

from memotree.cli.arguments.times import BadTimeError, said_time, sent_time
from memotree.forest.recall.excerpts import best_stretch
from memotree.forest.tree_building.titles import leaf_title
from memotree.models.extractive import brief_of, digest_of, summary_of
from memotree.models.parsing import first_object
from memotree.request.idempotency import check_request_id
from memotree.request.naming import check_branch_name, check_tag_name, check_workspace_name

pytestmark = pytest.mark.requirement("STORE-8", "SERVE-2")

SHORT: Final = [text for text in texts("strange") if len(text) < 1000]
TEXTS: Final = st.one_of(
    st.sampled_from(SHORT),
    st.text(max_size=60),
    st.lists(st.one_of(st.sampled_from(SHORT), st.text(max_size=3)), max_size=5).map("".join),
    st.text(st.sampled_from("0123456789abcdefghjkmnpqrstvwxyzilou"), max_size=20),
    st.text(st.sampled_from("refs/heads/tags.@{}~^:lock-HEAD"), max_size=30),
    st.text(st.sampled_from("0123456789-:T Zz+.,amp"), max_size=30),
    st.text(st.sampled_from('{}[]",:\\ 0123456789eE+-.truefalsn'), max_size=60),
    st.text(st.characters(), max_size=20),  # with halves of surrogate pairs
)
CHECKS: Final = (
    check_ref_name, check_branch_name, check_tag_name, check_workspace_name, check_request_id, check_position,
    lambda text: check_name("name", text), lambda text: check_archive_name("name", text),
    lambda text: check_author(text, ""), lambda text: check_author("Ada", text),
    lambda text: check_text("text", text, required=True, max_chars=20, max_bytes=30),
    lambda text: check_text("text", text, multiline=True),
)  # fmt: skip
NOW: Final = datetime(2026, 3, 31, 12, tzinfo=UTC)


@effort(120)
@given(TEXTS)
def test_any_text_is_a_valid_name_or_refused_with_its_fault(text: str) -> None:
    for check in CHECKS:
        try:
            check(text)
        except InvalidInputError as error:
            assert error.violations  # noqa: PT017 - any other exception fails the test
        else:
            text.encode()
    assert not is_id(text) or len(text) == ID_LENGTH
    assert not is_id_prefix(text) or MIN_PREFIX <= len(text) <= ID_LENGTH


@effort(120)
@given(TEXTS)
def test_any_text_is_read_as_a_time_a_query_or_a_title_without_harm(text: str) -> None:
    found = read_time(text)
    assert found is None or found.utcoffset() is not None
    try:
        said = said_time("--at", text, NOW)
    except BadTimeError:
        said = None
    assert said is None or said.utcoffset() is not None
    sent_time(text, NOW)
    first_object(text)
    ending = slug(text)
    assert ending == slug(ending)
    for path in (node_path("0" * ID_LENGTH, text), archive_path("0" * ID_LENGTH, text)):
        assert parse_path(path) is not None
        assert len(path.encode()) < 255
    assert parse_path(text) is None or text.endswith(".md")
    terms = query_terms(text)
    preview = make_preview(text, terms)
    assert len(preview.text) <= 10_000
    for budget in (0, 1, 7):
        cut = truncate_to_tokens(text, budget)
        assert text.startswith(cut)
        assert count_tokens(cut) <= budget


@effort(5)
@given(st.sampled_from(SHORT), st.sampled_from(SHORT))
def test_the_cost_of_a_text_grows_with_its_size(one: str, other: str) -> None:
    def read(size: int) -> None:
        text = (one + other) * size
        query_terms(text[:8192])
        make_preview(text, query_terms("apple"))
        slug(text)
        first_object(text)
        read_time(text)
        count_tokens(truncate_to_tokens(text, size))
        for check in CHECKS:
            try:
                check(text)
            except InvalidInputError as error:
                assert error.violations  # noqa: PT017 - any other exception fails the test

    assert growth(read, 12_000 // (len(one + other) or 1)) < LINEAR


def read_long(text: str) -> None:
    """What a call makes of a text while others wait, since none of it lets go of Python's lock."""
    brief_of("title", text)
    summary_of("title", text)
    digest_of([text[:3000], text[:3000]])
    leaf_title(text, "Part 1")
    leaf_title(text, "Part 1", is_code=True)
    best_stretch(text, "apple word", 50)
    count_terms(text)
    make_preview(text, query_terms("apple word"))
    count_tokens(text)


@pytest.mark.parametrize("text", texts("costly"))
def test_texts_that_once_took_minutes(text: str) -> None:
    read_long(repeated(text))


UNITS: Final = st.one_of(st.sampled_from(SHORT), st.sampled_from(texts("parts_of_prose")), st.text(max_size=3))


@effort(4, shrink=False)
@given(UNITS, st.lists(UNITS, min_size=1, max_size=3).map("".join), UNITS)
def test_no_long_text_takes_for_ever(before: str, unit: str, after: str) -> None:
    """The steps of regular expressions cannot be counted; if they grow with the square, this takes minutes."""
    read_long(before + unit * (100_000 // (len(unit) or 1)) + after)


@effort(50, shrink=False)
@given(messages_of(qdrant.Filter.DESCRIPTOR))
def test_any_filter_is_understood_whole_or_refused(message: Any) -> None:
    """A part that is ignored would show one tenant the nodes of another."""
    try:
        found = read_filter(message)
    except (UnsupportedError, MalformedError, ValueError, TypeError, OverflowError):
        return  # the engine's server answers all of these with the status of a bad request
    for name in ("must", "should", "must_not"):
        assert len(getattr(found, name) or ()) == len(getattr(message, name))
