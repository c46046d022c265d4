"""Every call of the contract with generated requests, on a real server.

Whatever is sent: the answer is an answer or a refusal with a reason and a sentence that a client can act on, never
INTERNAL or UNKNOWN; it comes; a refused call has changed nothing; a call without side effects has none; the server logs
no error; no job fails with an internal error; and the stores agree afterwards.
"""

import pytest
from fuzz.corpus import files
from fuzz.effort import effort
from fuzz.requests import damaged, methods, request_of, requests
from fuzz.world import World
from google.protobuf import text_format
from google.protobuf.message import Message
from hypothesis import given, note
from hypothesis import strategies as st

pytestmark = pytest.mark.requirement("STORE-8", "SERVE-2")

CALLS = st.sampled_from(sorted(methods())).flatmap(lambda name: st.tuples(st.just(name), requests(methods()[name])))


def told(method: str, request: Message) -> str:
    """The line for the corpus: the name of the call and the request in the text form of protobuf."""
    return f"{method} {text_format.MessageToString(request, as_one_line=True)}"


def read(line: str) -> tuple[str, Message]:
    """The call of a line."""
    method, _, text = line.partition(" ")
    return method, text_format.Parse(text, request_of(methods()[method]))


def kept() -> list[object]:
    """The inputs of the corpus: a file has the calls that are sent one after the other, one on each line."""
    return [
        pytest.param([read(line) for line in data.decode().splitlines()], id=name) for name, data in files("requests")
    ]


@pytest.mark.parametrize("calls", kept())
def test_the_requests_of_the_corpus(world: World, calls: list[tuple[str, Message]]) -> None:
    world.check(*calls)


@pytest.mark.parametrize("method", sorted(methods()))
def test_any_request_of_every_call(world: World, method: str) -> None:
    @effort(4, shrink=False)
    @given(requests(methods()[method]))
    def check(request: Message) -> None:
        note(told(method, request))
        world.check((method, request))

    check()


def test_any_calls_one_after_the_other(world: World) -> None:
    @effort(5, shrink=False)
    @given(st.lists(CALLS, min_size=3, max_size=12))
    def check(calls: list[tuple[str, Message]]) -> None:
        for each in calls:
            note(told(*each))
        world.check(*calls)

    check()


def test_bytes_that_are_hardly_a_request(world: World) -> None:
    @effort(30, shrink=False)
    @given(CALLS, st.data())
    def check(call: tuple[str, Message], data: st.DataObject) -> None:
        method, request = call
        world.check_raw(method, data.draw(st.composite(damaged)(request.SerializeToString())))

    check()
