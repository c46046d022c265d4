"""Checks the listening address: only loopback, and a port that no other program has."""

import errno
import ipaddress
import socket

from memotree_storage.errors import FailedPreconditionError, InvalidInputError, UnavailableError

_LOCALHOST = "localhost"


class PublicAddressError(FailedPreconditionError):
    """The host is an address that other machines can reach, and the server has no authentication."""

    reason = "PUBLIC_ADDRESS"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"MemoTree cannot listen on {host}: it has no authentication yet, so it serves only this machine. "
            "Use 127.0.0.1 (or ::1) as host."
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


def loopback(host: str) -> str:
    """The loopback address that ``host`` names.

    Errors: ``PublicAddressError`` for any other address, ``HostNotAddressError`` if it is not an address.
    """
    if host.lower() == _LOCALHOST:
        return "127.0.0.1"
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise HostNotAddressError.at("host", f"{host!r} is not an IP address; use 127.0.0.1 or ::1.") from None
    if not ip.is_loopback:
        raise PublicAddressError(host)
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
