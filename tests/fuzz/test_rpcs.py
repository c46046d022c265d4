"""Every call of the contract with generated requests, on a real server.

Whatever is sent: the answer is an answer or a refusal with a reason and a sentence that a client can act on, never
INTERNAL or UNKNOWN; it comes; a refused call has changed nothing; a call without side effects has none; the server logs
no error; no job fails with an internal error; and the stores agree afterwards.
"""

import struct

import pytest
from campaigns import dice, sample
from fuzz.corpus import damaged, files
from fuzz.requests import has_effects, methods, request_of, requests
from fuzz.world import World
from google.protobuf import text_format
from google.protobuf.message import Message
from hypothesis import strategies as st

from memotree.server.binding import contract

pytestmark = pytest.mark.requirement("STORE-8", "SERVE-2")

CALLS = st.sampled_from(sorted(methods())).flatmap(lambda name: st.tuples(st.just(name), requests(methods()[name])))


def read(line: str) -> tuple[str, Message]:
    """The call of a line of the corpus."""
    method, _, text = line.partition(" ")
    return method, text_format.Parse(text, request_of(method))


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in files("requests")])
def test_the_requests_of_the_corpus(world: World, data: bytes) -> None:
    """A file has the calls that are sent one after the other, one on each line."""
    world.known = {}
    world.check(*(read(line) for line in data.decode().splitlines()))


@pytest.mark.parametrize("service", sorted(contract()))
def test_any_request_of_every_call(world: World, service: str) -> None:
    calls = [
        (method.name, request) for method in contract()[service].methods for request in sample(requests(method), 2)
    ]
    world.check(*(call for call in calls if not has_effects(call[0])))
    changing = [call for call in calls if has_effects(call[0])]
    dice(service).shuffle(changing)
    for at in range(0, len(changing), 8):
        world.check(*changing[at : at + 8])


def test_any_calls_one_after_the_other(world: World) -> None:
    for calls in sample(st.lists(CALLS, min_size=3, max_size=12), 4):
        world.check(*calls)


def test_bytes_that_are_hardly_a_request(world: World) -> None:
    harmed = CALLS.flatmap(
        lambda call: st.tuples(st.just(call[0]), damaged([call[1].SerializeToString()], [struct.pack("<q", -1)]))
    )
    for method, raw in sample(harmed, 30):
        world.check_raw(method, raw)
