"""The report of git about a push is read in whatever parts it comes, and what the hooks noted goes before it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.gateways.push_outcome import Outcome, PushReport, make_notes, outcome_of, take_notes

pytestmark = pytest.mark.requirement("TOOL-12")

DENIED = Outcome("PERMISSION_DENIED", "ROLE_MISSING")
FAULTS = Outcome("FAILED_PRECONDITION", "PUSH_HAS_FAULTS")


def line(data: bytes) -> bytes:
    return b"%04x%s" % (len(data) + 4, data)


def answer(*report: bytes, banded: bool) -> bytes:
    """The response of git, with a report of these lines."""
    plain = b"".join(map(line, report)) + b"0000"
    if not banded:
        return plain
    half = len(plain) // 2
    bands = (b"\x02Resolving deltas\n", b"\x01" + plain[:half], b"\x02ok ng ok\n", b"\x01" + plain[half:])
    return b"".join(map(line, bands)) + b"0000"


def read(*parts: bytes) -> PushReport:
    report = PushReport()
    for part in parts:
        report.read(part)
    return report


@given(st.booleans(), st.lists(st.integers(0, 300), max_size=5))
def test_the_parts_of_the_response_do_not_matter(banded: bool, cuts: list[int]) -> None:
    whole = answer(b"unpack ok\n", b"ok refs/heads/a\n", b"ng refs/heads/b hook declined\n", banded=banded)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    report = read(*(whole[begin:end] for begin, end in pairwise(places)))
    assert (report.moved, report.refused) == (1, 1)


@pytest.mark.parametrize("banded", [True, False])
def test_a_pack_that_cannot_be_unpacked_is_a_refusal(banded: bool) -> None:
    report = read(answer(b"unpack index-pack abnormal exit\n", b"ng refs/heads/a unpacker error\n", banded=banded))
    assert outcome_of(report, []) == Outcome("FAILED_PRECONDITION", "PUSH_REFUSED")


@given(st.binary(max_size=200))
def test_what_is_no_report_moves_nothing(data: bytes) -> None:
    report = read(data)
    if b"ok " not in data:
        assert report.moved == 0


def test_how_a_push_ended_is_told_by_the_hooks_first_and_by_git_second() -> None:
    nothing, moved = read(b"0000"), read(answer(b"unpack ok\n", b"ok refs/heads/a\n", banded=True))
    partly = read(answer(b"unpack ok\n", b"ok refs/heads/a\n", b"ng refs/heads/b hook declined\n", banded=True))
    assert outcome_of(moved, []) == Outcome()
    assert outcome_of(nothing, []) == Outcome("UNKNOWN", "PUSH_NOT_REPORTED")
    assert outcome_of(nothing, [FAULTS, DENIED]) == DENIED
    assert outcome_of(partly, [FAULTS]) == Outcome("FAILED_PRECONDITION", "PUSH_PARTLY_REFUSED")
    assert outcome_of(partly, []) == Outcome("FAILED_PRECONDITION", "PUSH_PARTLY_REFUSED")


def test_lines_of_the_notes_that_are_none_are_left_out() -> None:
    path = make_notes()
    with open(path, "wb") as file:  # noqa: PTH123 - as a hook does
        file.write(b"PERMISSION_DENIED ROLE_MISSING\nno note\n\xff\nFAILED_PRECONDITION PUSH_HAS_FAULTS\n")
    assert take_notes(path) == [DENIED, FAULTS]
    assert take_notes(path) == []
    assert take_notes("") == []
