"""Of the connections of a port, one is closed."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from memotree.server.connections import close_connection

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
            close_connection(closed, peer)
            for each, (client, ours) in enumerate(pairs):
                if closed == port and each == 1:
                    assert client.recv(1) == b""
                else:
                    ours.sendall(b"x")
                    assert client.recv(1) == b"x"
