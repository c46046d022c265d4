"""Calls a Qdrant server once, to learn why it cannot be used before anything else is started.

The call is made without Qdrant's client, whose import takes longer than all of this.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import grpc
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_fixed

from memotree_storage.errors import FailedPreconditionError, InvalidInputError, UnavailableError

PATIENCE_SECONDS: Final = 1.0
"""How long a server that does not answer is called again."""

_ATTEMPT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.25
_REST_PORT: Final = 6333
_GRPC_PORT: Final = 6334
_LIST: Final = "/qdrant.Collections/List"
_KEY_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_log = structlog.get_logger(__name__)


class QdrantUnreachableError(UnavailableError):
    """The Qdrant server does not answer at the start."""

    reason = "QDRANT_UNREACHABLE"


class QdrantKeyRefusedError(FailedPreconditionError):
    """The Qdrant server refuses the key, or needs one."""

    reason = "QDRANT_KEY_REFUSED"


def grpc_port(url: str) -> int:
    """The port of the gRPC interface: that of the URL; without one, or with the REST interface's 6333, the default.

    Errors: ``InvalidInputError`` if it is no URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidInputError.at(
            "qdrant_url", f"{url!r} is not an address; write http(s)://host or http(s)://host:port."
        )
    return _GRPC_PORT if parts.port in {None, _REST_PORT} else parts.port or _GRPC_PORT


def is_on_loopback(url: str) -> bool:
    """Whether a URL names this machine, so that no proxy leads there."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


async def wait_until_usable(
    url: str, api_key: str | None = None, log_wait: Callable[[str], None] | None = None
) -> None:
    """Call the server, and call again for a moment if it does not answer.

    Args:
        url: The URL of the server.
        api_key: Its key.
        log_wait: Called with the cause before the call is made again; by default it is logged.

    Raises:
        QdrantUnreachableError: It does not answer.
        QdrantKeyRefusedError: It refuses the key.
    """
    tell = log_wait or _log_wait

    def before_sleep(state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            tell(str(state.outcome.exception()))

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(QdrantUnreachableError),
        stop=stop_after_delay(PATIENCE_SECONDS),
        wait=wait_fixed(_PAUSE_SECONDS),
        before_sleep=before_sleep,
        reraise=True,
    )
    await retrying(_call, url, api_key)


def _log_wait(why: str) -> None:
    _log.warning("waiting for Qdrant", why=why)


async def _call(url: str, api_key: str | None) -> None:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    target = f"{host}:{grpc_port(url)}"
    secure = parts.scheme == "https"
    options = [
        ("grpc.use_local_subchannel_pool", 1),  # a failed connection must not delay the client's own
        ("grpc.enable_http_proxy", 0 if is_on_loopback(url) else 1),
    ]
    async with (
        grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
        if secure
        else grpc.aio.insecure_channel(target, options=options)
    ) as channel:
        try:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_LIST)
            await call(b"", timeout=_ATTEMPT_SECONDS, metadata=(("api-key", api_key),) if api_key else ())
        except grpc.aio.AioRpcError as error:
            raise _error(target, error) from None


def _error(target: str, error: grpc.aio.AioRpcError) -> UnavailableError | FailedPreconditionError:
    if error.code() in _KEY_REFUSED:
        return QdrantKeyRefusedError(f"Qdrant at {target} refuses the key. Correct MEMOTREE_QDRANT_API_KEY.")
    cause = (error.details() or error.code().name).rpartition("Failed to connect to remote host: ")[2].splitlines()[0]
    return QdrantUnreachableError(
        f"Qdrant at {target} does not answer: {cause}. Check MEMOTREE_QDRANT_URL (it needs the gRPC port, 6334 by "
        "default), and whether Qdrant runs there."
    )
