"""HTTP requests to allowed hosts, and whether such a host can be reached.

Each redirect is a new URL, checked like the first one. Nothing is unpacked, kept or sent along that was not asked for:
no compression, no cookies, no proxy of the environment.
"""

import asyncio
import base64
import re
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urljoin

from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from pydantic import Field

from memotree.tools.builtin.hosts import (
    AllowedHosts,
    HostNotAllowedError,
    HostUnreachableError,
    Place,
    UrlError,
    host_of,
    place_of,
    refuse_own,
)
from memotree.tools.declaration import Permission
from memotree.tools.function_tool import tool

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream

MOST_BYTES: Final = 1 << 20
"""The most bytes of an answer that are read."""

MOST_REDIRECTS: Final = 5

_MOST_HEADERS: Final = 50
_LONGEST_HEADER: Final = 8192
_SHOWN_HEADER: Final = 1000
_CONNECT_SECONDS: Final = 10.0

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_CHARSET: Final = re.compile(r"charset=\"?([A-Za-z0-9_-]+)", re.IGNORECASE)
_NOT_TO_BE_SET: Final = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"),
        *("expect", "accept-encoding", "proxy-authorization", "proxy-connection", "http2-settings"),
    )
)
_OF_ONE_HOST: Final = frozenset({"authorization", "cookie", "x-api-key"})
"""Headers that are not sent along to another host."""

_CHARSETS: Final = frozenset(
    (
        *("utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1250", "windows-1251", "windows-1252"),
        *("utf-16", "gbk", "gb2312", "gb18030", "big5", "shift_jis", "euc-jp", "euc-kr", "koi8-r"),
    )
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD: Final = frozenset({307, 308})

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


class TooManyRedirectsError(FailedPreconditionError):
    """A URL leads on and on."""

    reason = "TOO_MANY_REDIRECTS"


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    place: Place
    headers: Mapping[str, str]
    body: bytes

    def redirected(self, status: int, location: str) -> "_Request":
        """The request that follows a redirect."""
        try:
            place = place_of(urljoin(self.place.url, location), "redirect")
        except ValueError:
            raise UrlError("redirect", "leads to what is no URL.") from None
        if self.place.scheme == "https" and place.scheme == "http":
            raise UrlError("redirect", "leads from https to http, which is not followed.")
        headers = dict(self.headers)
        if (place.host, place.port) != (self.place.host, self.place.port):
            headers = {name: value for name, value in headers.items() if name not in _OF_ONE_HOST}
        if status in _KEEP_METHOD or self.method in {"GET", "HEAD"}:
            return _Request(self.method, place, headers, self.body)
        return _Request("GET", place, {n: v for n, v in headers.items() if n != "content-type"}, b"")


class Network:
    """Reaches allowed hosts.

    Args:
        hosts: The hosts.
        certificates: Checks the certificates of hosts; the system's authorities if ``None``.
    """

    def __init__(self, hosts: AllowedHosts, certificates: ssl.SSLContext | None = None) -> None:
        self._hosts = hosts
        self._certificates = certificates

    def within(self, limits: Sequence[str]) -> "Network":
        """The same for somebody whose roles name the hosts that it may reach."""
        return Network(self._hosts.within(limits), self._certificates)

    @tool(
        category="network",
        title="Make an HTTP request",
        destructive=True,
        open_world=True,
        permissions=(Permission("write", "host"),),
        examples=(
            {"url": "https://api.example.com/v1/status"},
            {"url": "https://api.example.com/v1/notes", "method": "POST", "body": '{"text": "a"}'},
        ),
    )
    async def http_request(
        self,
        url: Annotated[str, Field(min_length=1, max_length=4096)],
        method: Method = "GET",
        headers: dict[str, str] | None = None,
        body: Annotated[str, Field(max_length=1 << 18)] = "",
        most_bytes: Annotated[int, Field(ge=1, le=MOST_BYTES)] = 1 << 16,
    ) -> dict[str, Any]:
        """Make an HTTP request to a host that the server allows, and read the beginning of the answer.

        Args:
            url: Such as https://host/path?query.
            method: GET when not given.
            headers: By name; a body has the type application/json when none is given.
            body: The body, as text.
            most_bytes: How much of the answer is read.
        """
        request = _Request(method, place_of(url), _headers(headers or {}, has_body=bool(body)), body.encode())
        for _ in range(MOST_REDIRECTS + 1):
            found = await self._answer(request, most_bytes)
            location = found["headers"].get("location", "")
            if found["status"] not in _REDIRECTS or not location:
                return {"url": request.place.url, **found}
            request = request.redirected(found["status"], location)
        raise TooManyRedirectsError(f"{url[:200]!r} leads on more than {MOST_REDIRECTS} times.")

    @tool(
        category="network",
        title="Check that a host can be reached",
        read_only=True,
        open_world=True,
        permissions=(Permission("read", "host"),),
        examples=({"host": "api.example.com"},),
    )
    async def check_host(
        self,
        host: Annotated[str, Field(min_length=1, max_length=255)],
        port: Annotated[int, Field(ge=1, le=65_535)] = 443,
    ) -> dict[str, Any]:
        """Tell whether a host that the server allows accepts connections, and how long that takes.

        Args:
            host: Its name.
            port: The port.
        """
        name = host_of(host)
        begin = time.perf_counter()
        address = await self._hosts.address(name, port)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(address, port)
            here, there = (writer.get_extra_info(each)[0] for each in ("sockname", "peername"))
        except OSError as error:  # a timeout is one
            why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or "no answer")
            return {"reachable": False, "host": name, "port": port, "address": address, "why": why}
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        refuse_own(name, here, there)
        took = round(1000 * (time.perf_counter() - begin), 1)
        return {"reachable": True, "host": name, "port": port, "address": address, "ms": took}

    async def _answer(self, request: _Request, most_bytes: int) -> dict[str, Any]:
        """The answer of one request, which follows no redirect."""
        import httpcore2  # noqa: PLC0415 - only a server that allows hosts needs it

        self._hosts.check(request.place.host, request.place.port)
        if self._certificates is None:
            self._certificates = await asyncio.to_thread(ssl.create_default_context)
        limits = dict.fromkeys(("connect", "pool"), _CONNECT_SECONDS)
        backend = _backend(self._hosts)
        try:
            async with (
                httpcore2.AsyncConnectionPool(self._certificates, network_backend=backend, retries=0) as pool,
                pool.stream(
                    request.method,
                    request.place.url,
                    headers=[("Host", request.place.authority), *request.headers.items()],
                    content=request.body or None,
                    extensions={"timeout": limits},
                ) as answer,
            ):
                content, is_whole = await _read(answer.aiter_stream(), most_bytes)
                headers = _shown(answer.headers)
                return {
                    "status": answer.status,
                    "headers": headers,
                    **_body(content, headers.get("content-type", "")),
                    **({} if is_whole else {"cut": True}),
                }
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as error:
            why = "does not answer as it should" if isinstance(error, httpcore2.ProtocolError) else "does not answer"
            raise HostUnreachableError(request.place.host, f"{why}: {type(error).__name__}.") from None


def _backend(hosts: AllowedHosts) -> Any:
    """Connects to the addresses of allowed hosts only."""
    import httpcore2  # noqa: PLC0415 - as above

    class Checked(httpcore2.AnyIOBackend):
        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 - the base class has it
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> "AsyncNetworkStream":
            address = await hosts.address(host, port)
            stream = await super().connect_tcp(address, port, timeout, local_address, socket_options)
            here, there = (stream.get_extra_info(each)[0] for each in ("client_addr", "server_addr"))
            try:
                refuse_own(host, here, there)
            except HostNotAllowedError:
                await stream.aclose()
                raise
            return stream

        async def connect_unix_socket(self, *_: Any, **__: Any) -> "AsyncNetworkStream":
            raise HostUnreachableError("a socket of this machine", "may not be reached.")

    return Checked()


async def _read(chunks: Any, most_bytes: int) -> tuple[bytes, bool]:
    """The beginning of an answer, and whether it is all of it."""
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > most_bytes:
            return bytes(content[:most_bytes]), False
    return bytes(content), True


def _headers(given: Mapping[str, str], *, has_body: bool) -> dict[str, str]:
    """The headers of a request, in small letters.

    Raises:
        InvalidInputError: One of them is none, or would change how the request is sent.
    """
    faults = []
    if len(given) > _MOST_HEADERS:
        faults.append(FieldViolation("headers", f"has more than {_MOST_HEADERS} headers."))
    headers = {"user-agent": "memotree", "accept": "*/*", "accept-encoding": "identity"}
    if has_body:
        headers["content-type"] = "application/json"
    for name, value in list(given.items())[:_MOST_HEADERS]:
        path = f"headers[{name[:100]!r}]".encode("utf-8", "backslashreplace").decode()
        if not _TOKEN.fullmatch(name):
            faults.append(FieldViolation(path, "is no name of a header."))
        elif name.lower() in _NOT_TO_BE_SET:
            faults.append(FieldViolation(path, "cannot be set."))
        elif len(value) > _LONGEST_HEADER or not _VALUE.fullmatch(value):
            faults.append(
                FieldViolation(path, f"must be ASCII without line breaks, up to {_LONGEST_HEADER} characters.")
            )
        else:
            headers[name.lower()] = value.strip()
    if faults:
        told = " ".join(f"{fault.field} {fault.description}" for fault in faults)
        raise InvalidInputError(told, faults)
    return headers


def _shown(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of an answer; cookies are left out."""
    shown: dict[str, str] = {}
    for name, value in headers:
        key = name.decode("latin-1").lower()
        if key != "set-cookie" and len(shown) < _MOST_HEADERS:
            shown.setdefault(
                key[:100], value.decode("latin-1")[: _LONGEST_HEADER if key == "location" else _SHOWN_HEADER]
            )
    return shown


def _body(content: bytes, kind: str) -> dict[str, str]:
    """The body as text if it is one, else in base 64."""
    named = _CHARSET.search(kind)
    charset = named[1].lower() if named else "utf-8"
    if charset in _CHARSETS:
        try:
            text = content.decode(charset, "replace" if named else "strict")
        except UnicodeDecodeError as error:
            # only the last character may be cut
            text = content[: error.start].decode() if error.start > len(content) - 4 else "\0"
        if "\0" not in text:
            return {"body": text}
    return {"body_base64": base64.b64encode(content).decode()}
