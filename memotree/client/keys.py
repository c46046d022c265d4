"""What a client proves with who it is: an API key that it sends with each call, or a certificate."""

import ipaddress
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio

from memotree.environment import API_KEY_VARIABLE, CERTIFICATE_KEY_VARIABLE, CERTIFICATE_VARIABLE, TLS_VARIABLE

File = str | os.PathLike[str]

_HEADER: Final = "authorization"


def is_on_this_machine(address: str) -> bool:
    """Whether a host and port is an address of this machine by its form alone, without asking a name server."""
    host = address.rpartition(":")[0] if address.count(":") == 1 or "]:" in address else address
    host = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def api_key(given: str | None) -> str:
    """The key that is given, or that of the environment variable; empty without both."""
    return os.environ.get(API_KEY_VARIABLE, "").strip() if given is None else given


def credentials(
    tls: "bool | File | None", certificate: "File | tuple[File, File] | None" = None
) -> grpc.ChannelCredentials | None:
    """The credentials of a channel with TLS; ``None`` without TLS.

    Args:
        tls: Whether to use TLS, with the certificates that the system trusts; or a PEM file with those to trust;
            what the environment variable says if ``None``.
        certificate: The PEM file with the certificate to present, those between it and the root, and its key; or two
            files, the second with the key. What the environment variables say if ``None``; none if empty.

    Raises:
        ValueError: A file cannot be read, or there is a certificate and no TLS.
    """
    given = os.environ.get(TLS_VARIABLE, "").strip() if tls is None else tls
    presented = _presented(certificate)
    if not given or given in {"0", "false"}:
        if presented is not None:
            raise ValueError(f"A certificate proves who calls only over TLS. Use it (tls=True, or {TLS_VARIABLE}=1).")
        return None
    trusted = None
    if given is not True and given not in {"1", "true"}:
        trusted = _read(given, "The certificates to trust")
    if presented is None:
        return grpc.ssl_channel_credentials(trusted)
    chain = _read(presented[0], "The certificate to present")
    key = _read(presented[1], "The key of the certificate to present")
    return grpc.ssl_channel_credentials(trusted, private_key=key, certificate_chain=chain)


def _presented(certificate: "File | tuple[File, File] | None") -> "tuple[File, File] | None":
    """The files with the certificate to present and its key."""
    if certificate is None:
        found = os.environ.get(CERTIFICATE_VARIABLE, "").strip()
        return (found, os.environ.get(CERTIFICATE_KEY_VARIABLE, "").strip() or found) if found else None
    if isinstance(certificate, tuple):
        return certificate
    return (certificate, certificate) if certificate else None


def _read(file: "File | bool", what: str) -> bytes:
    try:
        return Path(str(file)).read_bytes()
    except OSError as error:
        raise ValueError(f"{what} cannot be read from {file}: {error.strerror}.") from None


def check_private(address: str, key: str, channel: grpc.ChannelCredentials | None) -> None:
    """Refuses to send a key in clear over a network.

    Raises:
        ValueError: There is a key and no TLS, and the address is that of another machine.
    """
    if key and channel is None and not is_on_this_machine(address):
        raise ValueError(
            f"The API key would go to {address} in clear text, for everybody between to read. Use TLS (tls=True, or "
            f"{TLS_VARIABLE}=1)."
        )


def key_metadata(key: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call that sends a key; nothing if it is empty."""
    return ((_HEADER, f"Bearer {key}"),) if key else ()


def _with_key(details: Any, key: str, kind: Any) -> Any:
    return kind(details, (*(details.metadata or ()), *key_metadata(key)))


class _Details(grpc.ClientCallDetails):
    """The details of a call with other metadata."""

    def __init__(self, details: Any, metadata: Any) -> None:
        self.method, self.timeout, self.metadata = details.method, details.timeout, metadata
        self.credentials, self.wait_for_ready = details.credentials, details.wait_for_ready
        self.compression = details.compression


class KeySender(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds the key to the calls of stubs over a blocking channel."""

    def __init__(self, key: str) -> None:
        self._key = key

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Make a call with the key."""
        return continuation(_with_key(details, self._key, _Details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Make a streaming call with the key."""
        return continuation(_with_key(details, self._key, _Details), request)


def key_senders(key: str) -> list[aio.ClientInterceptor]:
    """What adds a key to the calls of stubs over an asynchronous channel, which takes one for each kind of call."""
    return [_AioKeySender(key), _AioStreamKeySender(key)] if key else []


class _AioKeySender(aio.UnaryUnaryClientInterceptor):
    def __init__(self, key: str) -> None:
        self._key = key

    async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Make a call with the key."""
        return await continuation(_with_key(details, self._key, _aio_details), request)


class _AioStreamKeySender(aio.UnaryStreamClientInterceptor):
    def __init__(self, key: str) -> None:
        self._key = key

    async def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Make a streaming call with the key."""
        return await continuation(_with_key(details, self._key, _aio_details), request)


def _aio_details(details: Any, metadata: Any) -> Any:
    return aio.ClientCallDetails(
        details.method, details.timeout, aio.Metadata(*metadata), details.credentials, details.wait_for_ready
    )
