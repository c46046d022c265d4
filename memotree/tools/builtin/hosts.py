"""Which hosts tools may reach, and at which addresses: names of a list, and public addresses only.

A name is resolved once, and the connection goes to the address that was checked, so a second answer of a name server
changes nothing. Addresses in other addresses (IPv4 in IPv6, 6to4, Teredo, NAT64) are refused as a whole.
"""

import asyncio
import copy
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError, UnavailableError

LONGEST_URL: Final = 4096
PORTS: Final = {"http": 80, "https": 443}
"""The schemes with their usual ports, which are allowed for a host that is listed without a port."""

_LONGEST_NAME: Final = 253
_LAST_PORT: Final = 65_535
_RESOLVERS: Final = 4

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:/[!-\"$-~]*)?(?:\?[!-\"$-~]*)?)(?:#[!-~]*)?"
)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PATTERN: Final = re.compile(r"(?P<host>\*|(?:\*\.)?[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")

_REFUSED: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # the metadata of a cloud, at a public address
            "192.88.99.0/24",  # relays of 6to4
            "100.64.0.0/10",
            "192.0.0.0/24",
            "198.18.0.0/15",
        ),
    )
)
_PUBLIC_6: Final = ipaddress.ip_network("2000::/3")
_REFUSED_6: Final = tuple(map(ipaddress.ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name."""


class HostNotAllowedError(FailedPreconditionError):
    """Tools may not reach the host: it is not listed, or its address is not a public one."""

    reason = "HOST_NOT_ALLOWED"

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host!r} {why}")


class UrlError(InvalidInputError):
    """A text is no URL that can be asked."""

    reason = "INVALID_URL"

    def __init__(self, field: str, told: str) -> None:
        super().__init__(f"{field} {told}", [FieldViolation(field, told)])


class HostUnreachableError(UnavailableError):
    """A host does not answer, or its name has no address."""

    reason = "HOST_UNREACHABLE"

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host!r} {why}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a URL leads.

    Attributes:
        scheme: ``http`` or ``https``.
        host: The host in small letters, without a last dot; an IPv6 address without brackets.
        port: The port.
        target: The path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host and, if it is not the usual one, the port, as they stand in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.target}"


def place_of(url: str, field: str = "url") -> Place:
    """Where a URL leads; one that two programs could read in two ways is refused.

    Raises:
        UrlError: It is none, or has a name or password, a backslash, white space, or signs beyond ASCII.
    """
    if len(url) > LONGEST_URL:
        raise UrlError(field, f"is longer than {LONGEST_URL} characters.")
    found = _URL.fullmatch(url)
    if found is None:
        raise UrlError(
            field,
            "must be a URL such as https://host/path?query, in ASCII (other signs as %XX, other names as xn--…), "
            "without a name or password.",
        )
    scheme = found["scheme"].lower()
    if scheme not in PORTS:
        raise UrlError(field, "must begin with https:// or http://.")
    port = PORTS[scheme] if found["port"] is None else int(found["port"])
    target = found["target"]
    return Place(
        scheme, host_of(found["host"], field), _port(port, field), target if target[:1] == "/" else f"/{target}"
    )


def host_of(text: str, field: str = "host") -> str:
    """A host in its one spelling: small letters, no last dot, addresses as usual.

    Raises:
        UrlError: It is none, or an address in an odd spelling: decimal, octal, hexadecimal, shortened.
    """
    host = text.lower().removesuffix(".")
    try:
        if host.startswith("[") or ":" in host:
            return str(ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]")))
        labels = host.split(".")
        if _NUMBER.fullmatch(labels[-1]):
            return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise UrlError(field, "has an address in an odd spelling; write it as 203.0.113.7 or 2001:db8::7.") from None
    if len(host) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise UrlError(field, "has no valid host name.")
    return host


def _port(port: int, field: str) -> int:
    if not 0 < port <= _LAST_PORT:
        raise UrlError(field, f"must have a port from 1 to {_LAST_PORT}.")
    return port


@dataclass(frozen=True, slots=True)
class _Pattern:
    host: str
    port: int | None

    def allows(self, host: str, port: int) -> bool:
        if port not in (PORTS.values() if self.port is None else (self.port,)):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and host != self.host[1:]
        return self.host in {"*", host}


class AllowedHosts:
    """The hosts that tools may reach.

    Args:
        patterns: ``name``, ``name:port``, ``*.name`` for those below a name, or ``*`` for all.
        is_public: Whether an address may be reached.
        resolve: Finds the addresses of a name; the system's resolver if ``None``.

    Raises:
        UrlError: A pattern is none.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        is_public: Callable[[Address], bool] | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._patterns = [_pattern(each) for each in patterns]
        self._within: tuple[_Pattern, ...] | None = None
        self._is_public = is_public or is_public_address
        self._resolve = resolve or _resolver()

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def within(self, patterns: Sequence[str]) -> "AllowedHosts":
        """Those of the hosts that other patterns have, too.

        Raises:
            UrlError: A pattern is none.
        """
        narrower = copy.copy(self)
        narrower._within = tuple(map(_pattern, patterns))  # noqa: SLF001 - another one of this class
        return narrower

    def check(self, host: str, port: int) -> None:
        """Check that a host is listed.

        Raises:
            HostNotAllowedError: It is not.
        """
        if not any(pattern.allows(host, port) for pattern in self._patterns):
            raise HostNotAllowedError(
                f"{host}:{port}", "is not among the hosts that tools may reach (the server's setting tools_hosts)."
            )
        if self._within is not None and not any(pattern.allows(host, port) for pattern in self._within):
            raise HostNotAllowedError(f"{host}:{port}", "is not among the hosts that your role lets this tool reach.")

    async def address(self, host: str, port: int) -> str:
        """The address at which a listed host may be reached; whoever connects must use it.

        Raises:
            HostNotAllowedError: It is not listed, or one of its addresses is not public.
            HostUnreachableError: It has no address.
        """
        self.check(host, port)
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):
            raise HostUnreachableError(host, "has no address; check the name.") from None
        for each in found:
            if "%" in each or not self._is_public(ipaddress.ip_address(each)):
                raise HostNotAllowedError(host, "leads to an address that is not public, which tools may not reach.")
        if not found:
            raise HostUnreachableError(host, "has no address; check the name.")
        return found[0]


def check_host_pattern(text: str) -> None:
    """Check that a text names hosts.

    Raises:
        UrlError: It does not.
    """
    _pattern(text)


def refuse_own(host: str, here: str, there: str) -> None:
    """Refuse a connection that leads to this machine by a public address of its own.

    Raises:
        HostNotAllowedError: Both ends have one public address.
    """
    if here == there and is_public_address(ipaddress.ip_address(there)):
        raise HostNotAllowedError(host, "leads to the server itself, which tools may not reach.")


def _pattern(text: str) -> _Pattern:
    found = _PATTERN.fullmatch(text.strip())
    if found is None:
        raise UrlError("tools_hosts", f"{text!r} is no host; write name, name:port, *.name or *.")
    host = found["host"].lower()
    port = None if found["port"] is None else _port(int(found["port"]), "tools_hosts")
    if host == "*":
        return _Pattern(host, port)
    if host.startswith("*."):
        return _Pattern(f"*.{host_of(host[2:], 'tools_hosts')}", port)
    return _Pattern(host_of(host, "tools_hosts"), port)


def is_public_address(address: Address) -> bool:
    """Whether an address is one of the public internet, and of one machine."""
    if isinstance(address, ipaddress.IPv6Address):
        if address not in _PUBLIC_6 or any(address in network for network in _REFUSED_6):
            return False
    elif any(address in network for network in _REFUSED):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _resolver() -> Resolve:
    """The resolver of the system, in threads of its own: a name server that does not answer must hold up no others."""
    threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="memotree-resolver")

    async def resolve(host: str, port: int) -> Sequence[str]:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(threads, look_up)
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    return resolve
