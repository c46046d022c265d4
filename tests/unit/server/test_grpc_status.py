"""The details of a status are small enough for any client; cut details are marked."""

from typing import Any
from urllib.parse import quote

import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # the package ships no types
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.conflicts import Conflict, ConflictKind
from memotree_storage.errors import (
    AbortedError,
    FailedPreconditionError,
    FieldViolation,
    InvalidInputError,
    NotFoundError,
)
from steps import Steps

from memotree.server.grpc_status import BUDGET, to_status, wire_size
from memotree.v1 import types_pb2

TEXTS = st.text(max_size=50) | st.builds(lambda text, times: text * times, st.text(max_size=5), st.integers(0, 3000))


def unpacked(status: status_pb2.Status, kind: Any) -> Any:
    message = kind()
    assert next(detail for detail in status.details if detail.Is(kind.DESCRIPTOR)).Unpack(message)
    return message


def facts(status: status_pb2.Status) -> dict[str, str]:
    return dict(unpacked(status, error_details_pb2.ErrorInfo).metadata)


def conflict(number: int, text: str) -> Conflict:
    return Conflict(
        ConflictKind.BOTH_CHANGED,
        f"node{number}",
        "content",
        text,
        text,
        text,
        "Both sides changed the content; choose one.",
    )


def test_a_short_error_is_sent_completely() -> None:
    status = to_status(AbortedError("Choose.", [conflict(0, "short")]), "call")
    assert facts(status) == {}
    assert unpacked(status, types_pb2.ConflictList).conflicts[0].our_value.text == "short"


def test_long_values_are_cut_and_their_length_is_given() -> None:
    status = to_status(AbortedError("Choose.", [conflict(0, "x" * 100_000)]), "call")
    (only,) = unpacked(status, types_pb2.ConflictList).conflicts
    assert only.our_value.text.endswith("… (100000 characters)")
    assert len(only.our_value.text) > 900
    assert facts(status) == {"shortened": "true"}


def test_many_conflicts_are_cut_and_the_rest_is_counted() -> None:
    status = to_status(AbortedError("Choose.", [conflict(number, "x" * 1000) for number in range(500)]), "call")
    shown = len(unpacked(status, types_pb2.ConflictList).conflicts)
    assert shown > 5
    assert facts(status) == {"shortened": "true", "omitted": str(500 - shown)}
    assert 0.9 * BUDGET < wire_size(status) <= BUDGET


def test_a_failed_precondition_always_has_a_violation() -> None:
    only = unpacked(to_status(FailedPreconditionError("Choose another."), "c"), error_details_pb2.PreconditionFailure)
    assert [(each.type, each.subject, each.description) for each in only.violations] == [
        ("FAILED_PRECONDITION", "", "Choose another.")
    ]


def test_a_long_message_of_any_script_is_cut() -> None:
    status = to_status(NotFoundError("记" * 10_000, "node", "忆" * 10_000), "call")
    assert status.message.endswith("记…")
    assert wire_size(status) <= BUDGET


@pytest.mark.requirement("STORE-8")
def test_an_error_about_an_endless_text_costs_no_more_than_one_about_a_long_text() -> None:
    counts = []
    for size in (10_000, 1_000_000):
        name = "\u200b" * size
        error = NotFoundError(f"There is no node {name!r}.", "node", name)
        with Steps() as steps:
            to_status(error, "call")
        counts.append(steps.count)
    assert counts[1] <= 1.1 * counts[0]


def test_a_lone_surrogate_does_not_hide_the_error() -> None:
    status = to_status(NotFoundError("There is no file \udcff; look again.", "file", "\udcff"), "call")
    assert status.message == "There is no file ?; look again."


@given(TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=30), st.integers(1, 60))
def test_no_error_ever_exceeds_the_budget(message: str, faults: list[tuple[str, str]], times: int) -> None:
    violations = [FieldViolation(field, description) for field, description in faults] * times
    conflicts = [
        Conflict(ConflictKind.BOTH_CHANGED, field, field, text, text, text, text) for field, text in faults
    ] * times
    for error in (
        InvalidInputError(message, violations),
        FailedPreconditionError(message, violations),
        AbortedError(message, conflicts),
    ):
        status = to_status(error, "0123456789abcdef")
        assert wire_size(status) <= BUDGET
        assert len(quote(status.message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")) <= wire_size(status)
