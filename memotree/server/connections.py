"""The connections of a listening port, by the files of this process: gRPC has no call that closes one."""

import os
import socket
import stat
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path


def close_connection(port: int, peer: str) -> None:
    """Close the connection that a peer has to a port of this process, as if the peer had closed it.

    It looks at all files of this process, which takes a while if there are thousands.

    Args:
        port: The port that this process listens on.
        peer: The address of the other side, as gRPC writes it: ``ipv4:127.0.0.1:50000``, ``ipv6:%5B::1%5D:50000``.

    Errors: ``OSError`` if the files cannot be listed, because no further one may be opened.
    """
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the file was closed meanwhile, or has no other side
            file = os.dup(int(path.name))  # it stays the same file whatever gRPC does with its own
            if not stat.S_ISSOCK(os.fstat(file).st_mode):
                os.close(file)
                continue
            with socket.socket(fileno=file) as connection:
                if connection.family in {socket.AF_INET, socket.AF_INET6} and (
                    connection.getsockname()[1] == port and _written(*connection.getpeername()[:2]) == peer
                ):
                    connection.shutdown(socket.SHUT_RDWR)
                    return


def _written(host: str, port: int) -> str:
    """An address as gRPC writes it."""
    address = ip_address(host)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return f"ipv6:%5B{host}%5D:{port}"
        address = address.ipv4_mapped
    return f"ipv4:{address}:{port}"
