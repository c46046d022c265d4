"""Connections and calls are shared, so that nobody can take all: of addresses, and of principals."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.server.calls import RunningCalls, Shares, TooManyAtOnceError
from memotree.server.connections import IdleConnections, close_connection, peer_of, peers_of, too_many

pytestmark = pytest.mark.requirement("STORE-8")


Pair = tuple[socket.socket, socket.socket]
"""The two ends of a connection."""


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def listening(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A listening socket of a family; gRPC listens on IPv4 addresses with sockets for IPv6."""
    host: str = request.param
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listens:
        listens.bind((host, 0))
        listens.listen()
        yield listens


@pytest.fixture
def pairs(listening: socket.socket) -> Iterator[list[Pair]]:
    """Connections to it: the end of the client, and ours."""
    with ExitStack() as stack:
        made = []
        for _ in range(8):
            client = stack.enter_context(socket.create_connection(listening.getsockname()[:2], timeout=60))
            made.append((client, stack.enter_context(listening.accept()[0])))
        yield made


def test_only_the_connection_of_the_peer_is_closed(listening: socket.socket, pairs: list[Pair]) -> None:
    port = listening.getsockname()[1]
    host, number = pairs[1][0].getsockname()[:2]
    plain = host.removeprefix("::ffff:")
    peer = f"ipv6:%5B{plain}%5D:{number}" if ":" in plain else f"ipv4:{plain}:{number}"
    for closed in (port + 1, port):
        close_connection({closed}, peer)
        for each, (client, ours) in enumerate(pairs):
            if closed == port and each == 1:
                assert client.recv(1) == b""
            else:
                ours.sendall(b"x")
                assert client.recv(1) == b"x"


def test_a_client_is_its_address_or_its_subnet() -> None:
    assert peer_of(("192.0.2.7", 5000)) == peer_of(("::ffff:192.0.2.7", 5000, 0, 0)) == "192.0.2.7"
    for address in ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::9"):
        assert peer_of((address, 5000, 0, 0)) == "2001:0db8:0001:0002:"
    assert peer_of(("fe80::1%eth0", 5000, 0, 2)) == "fe80:0000:0000:0000:"
    assert peer_of(None) == ""


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 60_000)), max_size=60, unique=True), st.integers(1, 40)
)
def test_the_address_with_most_loses_its_oldest_connections(made: list[tuple[str, int]], most: int) -> None:
    peers = [f"ipv4:{host}:{port}" for host, port in made]
    closed = too_many(peers, most)
    left = [peer for peer in peers if peer not in closed]
    assert len(left) <= most
    if not closed:
        return
    count = Counter(peer.split(":")[1] for peer in left)
    for host in {host for host, _ in made}:
        own = [peer for peer in peers if peer.split(":")[1] == host]
        gone = [peer for peer in own if peer in closed]
        assert gone == own[: len(gone)]
        assert not gone or count[host] == max(count.values(), default=0), "only those with most lose any"


async def test_idle_connections_are_closed_and_those_with_calls_stay(
    listening: socket.socket, pairs: list[Pair]
) -> None:
    port = listening.getsockname()[1]
    idle = IdleConnections(lambda: {port}, 3)
    with idle.calling(peers_of({port})[0]):
        await idle.look()
    lost = []
    for client, ours in pairs:
        with suppress(OSError):
            ours.sendall(b"x")
        lost.append(client.recv(1) == b"")
    assert lost.count(True) == 4, "three idle ones stay, and the one with a call"
    assert len(peers_of({port}) or ()) >= 4


# --- Shares of the calls among principals -----------------------------------------------------------------------------

PLACES = 12


@pytest.mark.requirement("SERVE-3")
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


@pytest.mark.requirement("SERVE-3")
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


@pytest.mark.requirement("SERVE-3")
def test_streams_leave_places_for_calls_with_one_answer() -> None:
    calls = RunningCalls(8)
    with ExitStack() as held:
        for who in ("ada", "ada", "ben"):
            held.enter_context(calls.streaming(who))
        for who in ("ada", "ben"):
            with pytest.raises(TooManyAtOnceError), calls.streaming(who):
                pass
