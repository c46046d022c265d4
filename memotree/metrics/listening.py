"""Answers ``/metrics`` on a port of its own, in threads, so that a scrape does not hold the event loop."""

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

PATH: Final = "/metrics"

_CLIENT_SECONDS: Final = 10.0
"""How long a client may send nothing or read nothing."""

_MOST_CLIENTS: Final = 8
"""Clients that are answered at once; the others are turned away, so that nobody can make threads without end."""


class MetricsListener:
    """Answers on a socket that listens already.

    Args:
        place: The socket.
        registry: The metrics.
    """

    def __init__(self, place: socket.socket, registry: CollectorRegistry) -> None:
        self._server = _Server(place.getsockname()[:2], _Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = place
        self._server.server_name, self._server.server_port = str(place.getsockname()[0]), place.getsockname()[1]
        self._server.setup_environ()
        self._server.set_app(_only_metrics(make_wsgi_app(registry)))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="memotree-metrics", daemon=True
        )

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more; blocks for up to 0.1 seconds."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a place for one more client."""
        del request, client_address
        return self._places.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one client, then free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away is no event."""


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: a scrape is no event."""


_Start = Callable[..., Any]


def _only_metrics(app: Callable[[dict[str, Any], _Start], Iterable[bytes]]) -> Any:
    def answer(environ: dict[str, Any], start_response: _Start) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"The metrics are at /metrics.\n"]
        if environ.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return []
        return app(environ, start_response)

    return answer
