"""Checks the listening address: loopback, or one that is protected, and a port that no other program has."""

import errno
import ipaddress
import socket

from memotree_storage.errors import FailedPreconditionError, InvalidInputError, UnavailableError

from memotree.settings import Settings

_LOCALHOST = "localhost"


class PublicAddressError(FailedPreconditionError):
    """The host is an address that other machines can reach, and calls are not authenticated or go in clear."""

    reason = "PUBLIC_ADDRESS"

    def __init__(self, host: str, missing: str) -> None:
        super().__init__(
            f"MemoTree cannot listen on {host}, which other machines can reach: {missing}. Use 127.0.0.1 (or ::1) as "
            "host, or see docs/how-to/deploy.md."
        )


class HostNotAddressError(InvalidInputError):
    """The host to listen on is not an IP address."""

    reason = "HOST_NOT_ADDRESS"


class PortTakenError(UnavailableError):
    """Another program has the port, or the system does not let us use it."""

    reason = "PORT_TAKEN"

    def __init__(self, host: str, port: int, cause: str, variable: str = "MEMOTREE_PORT") -> None:
        super().__init__(
            f"MemoTree cannot listen on {address(host, port)} ({cause}). Stop the program that has the port, or choose "
            f"another one with {variable} (0 takes any free one)."
        )


def listening_host(settings: Settings) -> str:
    """The address that the settings name, if the server may listen there.

    Errors: ``PublicAddressError`` for an address that other machines can reach, unless calls need API keys and TLS
    protects them; ``HostNotAddressError`` if it is not an address.
    """
    host = settings.host
    if host.lower() == _LOCALHOST:
        return "127.0.0.1"
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise HostNotAddressError.at("host", f"{host!r} is not an IP address; use 127.0.0.1 or ::1.") from None
    if not ip.is_loopback:
        if settings.authentication == "none":
            raise PublicAddressError(host, "nothing would check who calls, as the setting authentication is none")
        if settings.tls_certificate is None and not settings.tls_in_front:
            raise PublicAddressError(
                host, "keys and texts would go over the network in clear, without tls_certificate or tls_in_front"
            )
    return str(ip)


def address(host: str, port: int) -> str:
    """Host and port as gRPC expects them, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def refuse_taken(host: str, port: int, variable: str = "MEMOTREE_PORT") -> None:
    """Check that the port is free. The error has the system's reason; gRPC would only say that binding failed.

    Errors: ``PortTakenError``.
    """
    listening(host, port, variable).close()


def listening(host: str, port: int, variable: str = "MEMOTREE_PORT") -> socket.socket:
    """A listening socket; ``variable`` is the environment variable that sets the port, for the error message.

    Errors: ``PortTakenError``.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()
    except OSError as error:
        found.close()
        cause = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise PortTakenError(host, port, cause, variable) from None
    return found
