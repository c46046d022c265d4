"""Connections to a Qdrant server or the embedded engine, and the translation of its failures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
import structlog
from qdrant_client import AsyncQdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from memotree_storage.errors import FailedPreconditionError
from memotree_storage.ports import IndexUnavailableError
from memotree_storage.qdrant.reach import grpc_port, is_on_loopback

_CALL_TIMEOUT: Final = 60
_CONNECT_TIMEOUT_MS: Final = 5000
"""How long one attempt to connect may take; gRPC names that after the pause between two (grpc/grpc#12830)."""

_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
"""Failures that a retry cannot fix; all others (away, too slow, overloaded, disk full) may be temporary."""

_HTTP_NOT_FOUND: Final = 404
_HTTP_SERVER_FAULT: Final = 500
_log = structlog.get_logger(__name__)


class IndexMissingError(FailedPreconditionError):
    """The collection that the index needs does not exist."""

    reason = "INDEX_MISSING"

    def __init__(self, collection: str) -> None:
        super().__init__(f"The search index has no collection {collection}; rebuild the index from Git.")


class IndexRefusedError(FailedPreconditionError):
    """Qdrant understood the call and refused it."""

    reason = "INDEX_REFUSED"

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The search index refused the call; check Qdrant's version, its limits and the key. The log says why."
        )
        self.detail = detail


def connect(url: str, api_key: str | None = None, *, timeout: int = _CALL_TIMEOUT) -> AsyncQdrantClient:
    """Return a client for the Qdrant at ``url``; it connects with the first call and reconnects automatically.

    All calls use gRPC. The URL's port is that of the gRPC interface; without a port, or with the REST interface's 6333,
    Qdrant's default 6334 is used. ``timeout`` is in seconds and per call. A Qdrant on this machine is reached directly,
    whatever proxy the environment names.
    """
    return AsyncQdrantClient(
        url=url,
        grpc_port=grpc_port(url),
        prefer_grpc=True,
        # As a header, because with api_key the client warns about plain text even on the loopback interface.
        headers={"api-key": api_key} if api_key else None,
        timeout=timeout,
        check_compatibility=False,  # the check uses REST, runs in a thread, and prints
        grpc_options={
            "grpc.initial_reconnect_backoff_ms": 50,
            "grpc.min_reconnect_backoff_ms": _CONNECT_TIMEOUT_MS,
            "grpc.max_reconnect_backoff_ms": 1000,
            "grpc.enable_http_proxy": 0 if is_on_loopback(url) else 1,
        },
    )


@contextmanager
def failures(collection: str) -> Iterator[None]:
    """Translate the client's failures into the store's errors, and log the details, which clients must not see."""
    try:
        with _translated(collection):
            yield
    except (IndexUnavailableError, IndexRefusedError) as error:
        _log.warning("index call failed", collection=collection, reason=error.reason, detail=error.detail)
        raise


@contextmanager
def _translated(collection: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        detail = f"{error.code().name}: {error.details()}"
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise IndexMissingError(collection) from error
        if error.code() in _REFUSALS:
            raise IndexRefusedError(detail) from error
        raise IndexUnavailableError(detail) from error
    except ResponseHandlingException as error:
        raise IndexUnavailableError(str(error)) from error
    except UnexpectedResponse as error:
        if error.status_code == _HTTP_NOT_FOUND:
            raise IndexMissingError(collection) from error
        if error.status_code is None or error.status_code >= _HTTP_SERVER_FAULT:
            raise IndexUnavailableError(str(error)) from error
        raise IndexRefusedError(str(error)) from error
