"""The port of the metrics answers only what Prometheus asks, and nobody can make threads without end."""

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry, Counter

from memotree.metrics.listening import MetricsListener
from memotree.server.listen import listening

pytestmark = pytest.mark.requirement("TOOL-12")


@pytest.fixture
def place() -> Iterator[socket.socket]:
    place = listening("127.0.0.1", 0)
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    listener = MetricsListener(place, registry)
    listener.start()
    yield place
    listener.stop()


def fetched(place: socket.socket, path: str, method: str = "GET") -> tuple[int, str]:
    url = f"http://127.0.0.1:{place.getsockname()[1]}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=300) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_metrics_are_at_one_path(place: socket.socket) -> None:
    status, text = fetched(place, "/metrics")
    assert (status, "things_total 1.0" in text) == (200, True)
    assert fetched(place, "/")[0] == 404
    assert fetched(place, "/metrics/../etc/passwd")[0] == 404
    assert fetched(place, "/metrics", "POST")[0] == 405


async def test_clients_that_send_nothing_are_few_and_others_are_answered_later(place: socket.socket) -> None:
    address = place.getsockname()[:2]
    silent = [socket.create_connection(address) for _ in range(8)]
    one_more = socket.create_connection(address)
    one_more.settimeout(300)
    assert await asyncio.to_thread(one_more.recv, 1) == b""  # turned away
    for each in (*silent, one_more):
        each.close()
    status = 0
    while not status:  # the places are free once their threads have seen that
        with suppress(OSError):
            status, _ = await asyncio.to_thread(fetched, place, "/metrics")
    assert status == 200
