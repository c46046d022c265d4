"""Streams and requests are divided among principals, so that nobody can take all of them."""

from collections import Counter
from contextlib import AbstractContextManager, ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.server.calls import RunningCalls, Shares, TooManyAtOnceError

pytestmark = pytest.mark.requirement("SERVE-3")

PLACES = 12


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh")), max_size=80))
def test_nobody_gets_more_than_what_is_left_and_a_newcomer_always_one(steps: list[tuple[bool, str]]) -> None:
    shares = Shares(PLACES)
    held: list[tuple[str, AbstractContextManager[None]]] = []
    for begins, who in steps:
        count = Counter(name for name, _ in held)
        if begins:
            place = shares.holding(who)
            fits = not count[who] or count[who] < PLACES - len(held)
            with suppress(TooManyAtOnceError):
                place.__enter__()
                assert fits
                held.append((who, place))
                continue
            assert not fits
        elif count[who]:
            found = next(each for each in held if each[0] == who)
            found[1].__exit__(None, None, None)
            held.remove(found)


def test_one_alone_gets_half_and_unknown_callers_any_number() -> None:
    shares = Shares(PLACES)
    with ExitStack() as held:
        for _ in range(PLACES // 2):
            held.enter_context(shares.holding("ada"))
        with pytest.raises(TooManyAtOnceError, match="ada"), shares.holding("ada"):
            pass
        held.enter_context(shares.holding("ben"))
        for _ in range(3 * PLACES):
            held.enter_context(shares.holding(""))


def test_streams_leave_places_for_calls_with_one_answer() -> None:
    calls = RunningCalls(8)
    with ExitStack() as held:
        for who in ("ada", "ada", "ben"):
            held.enter_context(calls.streaming(who))
        for who in ("ada", "ben"):
            with pytest.raises(TooManyAtOnceError), calls.streaming(who):
                pass
