"""The connections of a port: one is closed, or idle ones of the address that has most."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.server.connections import IdleConnections, close_connection, peer_of, peers_of, too_many

pytestmark = pytest.mark.requirement("STORE-8")


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def listening(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A listening socket of a family; gRPC listens on IPv4 addresses with sockets for IPv6."""
    host: str = request.param
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listens:
        listens.bind((host, 0))
        listens.listen()
        yield listens


def test_only_the_connection_of_the_peer_is_closed(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with ExitStack() as stack:
        pairs = []
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(listening.getsockname()[:2], timeout=60))
            pairs.append((client, stack.enter_context(listening.accept()[0])))
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


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.7", 5000), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5000, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5000, 0, 0), "2001:0db8:0001:0002:"),
        (("2001:db8:1:2::9", 5000, 0, 0), "2001:0db8:0001:0002:"),
        (("fe80::1%eth0", 5000, 0, 2), "fe80:0000:0000:0000:"),
        (None, ""),
    ],
)
def test_a_client_is_its_address_or_its_subnet(address: object, peer: str) -> None:
    assert peer_of(address) == peer


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


async def test_idle_connections_are_closed_and_those_with_calls_stay(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    idle = IdleConnections(lambda: {port}, 3)
    with ExitStack() as stack:
        pairs = []
        for _ in range(8):
            client = stack.enter_context(socket.create_connection(listening.getsockname()[:2], timeout=60))
            pairs.append((client, stack.enter_context(listening.accept()[0])))
        first = peers_of({port})[0]
        with idle.calling(first):
            await idle.look()
        lost = []
        for client, ours in pairs:
            with suppress(OSError):
                ours.sendall(b"x")
            lost.append(client.recv(1) == b"")
        assert lost.count(True) == 4, "three idle ones stay, and the one with a call"
        assert len(peers_of({port}) or ()) >= 4
