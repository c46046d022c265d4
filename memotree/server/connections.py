"""The connections of listening ports, by the files of this process: gRPC has no call that lists or closes them."""

import asyncio
import os
import socket
import stat
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

import structlog

LOOK_SECONDS: Final = 1.0
"""How often the connections of gRPC are counted."""

_SUBNET_BITS: Final = 64
"""How much of an IPv6 address is that of one client: providers give each at least all addresses that begin so."""

log = structlog.get_logger("memotree.server")


def close_connection(ports: Container[int], peer: str) -> None:
    """Close the connection that a peer has to some ports of this process, as if the peer had closed it.

    It looks at all files of this process, which takes a while if there are thousands.

    Args:
        ports: The ports that this process listens on.
        peer: The address of the other side, as gRPC writes it: ``ipv4:127.0.0.1:50000``, ``ipv6:%5B::1%5D:50000``.

    Errors: ``OSError`` if the files cannot be listed, because no further one may be opened.
    """
    close_connections(ports, {peer})


def close_connections(ports: Container[int], peers: Collection[str]) -> None:
    """Close the connections of several peers, as ``close_connection`` does that of one."""
    left = len(peers)
    for connection, peer in _connections(ports):
        if peer in peers:
            connection.shutdown(socket.SHUT_RDWR)
            left -= 1
            if not left:
                return


def peers_of(ports: Container[int]) -> list[str]:
    """The other sides of all connections to some ports of this process, as gRPC writes them."""
    return [peer for _, peer in _connections(ports)]


def peer_of(address: object) -> str:
    """What the connections of one client have in common: its address, or that of its subnet for IPv6.

    Args:
        address: The address of the other side, as sockets give it.
    """
    if not isinstance(address, tuple):
        return ""
    try:
        found = ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return str(address[0])
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.exploded[: _SUBNET_BITS // 16 * 5]


class IdleConnections:
    """Closes connections of gRPC on which no call runs, if there are too many.

    The oldest ones of the address that has most are closed first, so nobody shuts out others with them. A client
    connects again by itself with its next call.

    Args:
        ports: Returns the ports that this process listens on.
        most: How many connections there may be, apart from those on which calls run.
    """

    def __init__(self, ports: Callable[[], Container[int]], most: int) -> None:
        self._ports = ports
        self._most = most
        self._busy: Counter[str] = Counter()
        self._since: dict[str, int] = {}
        self._looks = 0

    @contextmanager
    def calling(self, peer: str) -> Iterator[None]:
        """Context manager while which a call of a peer runs: its connection is not closed."""
        self._busy[peer] += 1
        try:
            yield
        finally:
            self._busy[peer] -= 1
            if not self._busy[peer]:
                del self._busy[peer]

    async def watch(self) -> None:
        """Look now and then, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except OSError as error:  # no further file may be opened
                log.warning("the connections could not be counted", cause=error.strerror)

    async def look(self) -> None:
        """Count the connections, and close some if there are too many.

        Errors: ``OSError`` if the files cannot be listed.
        """
        if await asyncio.to_thread(_count_files) <= self._most:
            self._since = {}
            return
        found = await asyncio.to_thread(peers_of, self._ports())
        self._looks += 1
        self._since = {peer: self._since.get(peer, self._looks) for peer in found}
        idle = sorted((peer for peer in found if peer not in self._busy), key=self._since.__getitem__)
        chosen = too_many(idle, self._most)
        if chosen:
            log.warning("idle connections are closed", count=len(chosen), most=self._most)
            await asyncio.to_thread(close_connections, self._ports(), chosen)


def too_many(peers: Collection[str], most: int) -> set[str]:
    """Those of these peers, the oldest first, that have to go for ``most`` to stay: of the address that has most."""
    by_address: dict[str, list[str]] = {}
    for peer in peers:
        by_address.setdefault(address_of(peer), []).append(peer)
    # the level to which every address is cut, so that all together fit
    sizes = sorted(map(len, by_address.values()))
    left, level = most, 0
    for number, size in enumerate(sizes):
        level = left // (len(sizes) - number)
        if size > level:
            break
        left -= size
        level = size
    return {peer for each in by_address.values() for peer in each[: max(0, len(each) - level)]}


def address_of(peer: str) -> str:
    """The address of a peer that gRPC has written, as ``peer_of`` gives it."""
    host = peer.partition(":")[2].rpartition(":")[0]
    return peer_of((host.removeprefix("%5B").removesuffix("%5D"),))


def _count_files() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - names alone, without a path for each of thousands


def _connections(ports: Container[int]) -> Iterator[tuple[socket.socket, str]]:
    """Yield the connections to some ports of this process, with the other side of each as gRPC writes it."""
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the file was closed meanwhile, or has no other side
            file = os.dup(int(path.name))  # it stays the same file whatever gRPC does with its own
            if not stat.S_ISSOCK(os.fstat(file).st_mode):
                os.close(file)
                continue
            with socket.socket(fileno=file) as connection:
                if connection.family in {socket.AF_INET, socket.AF_INET6} and connection.getsockname()[1] in ports:
                    yield connection, _written(*connection.getpeername()[:2])


def _written(host: str, port: int) -> str:
    """An address as gRPC writes it."""
    address = ip_address(host)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return f"ipv6:%5B{host}%5D:{port}"
        address = address.ipv4_mapped
    return f"ipv4:{address}:{port}"
