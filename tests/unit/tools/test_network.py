"""HTTP requests to allowed hosts, every way to another host that could be thought of, and the search of the web."""

import asyncio
import ipaddress
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.errors import InvalidInputError, MemoTreeError
from sites import Site, said, site

from memotree.tools.builtin.hosts import (
    Address,
    AllowedHosts,
    HostNotAllowedError,
    HostUnreachableError,
    UrlError,
    is_public_address,
    place_of,
    refuse_own,
)
from memotree.tools.builtin.network import MOST_REDIRECTS, Network, TooManyRedirectsError, _Request
from memotree.tools.builtin.services import ToolOptions, builtin_tools
from memotree.tools.builtin.web_search import SearchUnavailableError, SearxngEngine, WebSearch

pytestmark = pytest.mark.requirement("TOOL-6")

PUBLIC = "93.184.215.14"
CERTIFICATES = ssl.create_default_context()


class Names:
    """A name server: a name may have other addresses each time."""

    def __init__(self, addresses: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._addresses = {name: list(answers) for name, answers in addresses.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._addresses[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def here_is_public(address: Address) -> bool:
    """For tests: this machine is a public host, and no other is."""
    return str(address) == "127.0.0.1"


def network(*patterns: str, names: Names | None = None) -> Network:
    resolve = names or Names({"a.test": [["127.0.0.1"]], "b.test": [["127.0.0.1"]]})
    return Network(AllowedHosts(patterns, here_is_public, resolve), CERTIFICATES)


async def fetched(answer: bytes, **wanted: Any) -> dict[str, Any]:
    """What a request to a host finds that answers so."""
    async with site(lambda *_: answer) as there:
        return await network(f"a.test:{there.port}").http_request(f"http://a.test:{there.port}/", **wanted)


async def test_a_request_is_made_and_its_answer_read() -> None:
    async with site(lambda *_: said("201 Created", "é".encode(), content_type="text/plain", set_cookie="a=b")) as there:
        url = f"http://a.test:{there.port}/path?x=1#part"
        found = await network(f"a.test:{there.port}").http_request(
            url, "POST", {"X-Name": " value ", "Authorization": "Bearer t"}, '{"a": 1}'
        )
    assert (found["status"], found["body"]) == (201, "é")
    assert found["url"] == f"http://a.test:{there.port}/path?x=1"
    assert "set-cookie" not in found["headers"]
    ((line, headers, body),) = there.seen
    assert (line, body) == ("POST /path?x=1 HTTP/1.1", b'{"a": 1}')
    assert headers["host"] == f"a.test:{there.port}"
    assert headers["content-type"] == "application/json"
    assert (headers["x-name"], headers["accept-encoding"]) == ("value", "identity")


@pytest.mark.parametrize(
    "url",
    [
        *("http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/"),
        *("http://017700000001/", "http://127.1/", "http://127.0.1/", "http://127.0.0.01/"),
        *("http://127.0.0.1.:80:80/", "http://1.2.3.4.5/", "http://256.1.1.1/", "http://a.test@127.0.0.1/"),
        *("http://a.test:80@127.0.0.1/", "http://127.0.0.1\\@a.test/", "http://a.test\\.b.test/"),
        *("http://a.test\t.b.test/", "http://a.test /", " http://a.test/", "http://a.test/\r\nHost: b.test"),
        *("http://a.test/a b", "http://a.test\r\n/", "http://a.test\0.b.test/", "http://a.test%00.b.test/"),
        *("http://%61.test/", "http://a。test/", "http://①②⑦.⓪.⓪.①/", "http://ⓐ.test/"),
        "http://а.test/",  # noqa: RUF001 - Cyrillic
        *("http://[::1%25lo]/", "http://[::1", "http://[127.0.0.1]/", "http://::1/", "http://-a.test/"),
        *("http://a..test/", "http://.a.test/", "http:///a.test/", "http:a.test", "//a.test/", "a.test"),
        *("http://a.test:0/", "http://a.test:65536/", "http://a.test:99999999/", "http://a.test:\uff18\uff10/"),
        *("file:///etc/passwd", "gopher://a.test/", "ftp://a.test/", "javascript:alert(1)", "data:text/plain,a"),
        *("unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/"),
        "http://" + "a" * 64 + ".test/",
        "http://" + "a." * 127 + "test/",
        "http://a.test/" + "x" * 5000,
        "\ud800",
        "",
    ],
)
async def test_a_url_with_two_readings_is_no_url(url: str) -> None:
    names = Names({})
    with pytest.raises(UrlError) as refused:
        await network("*", names=names).http_request(url)
    assert refused.value.reason == "INVALID_URL"
    assert names.asked == [], "no name was looked up"


@pytest.mark.parametrize(("text", "host", "port", "target"), [
    ("HTTP://A.Test", "a.test", 80, "/"), ("https://a.test.?q=1", "a.test", 443, "/?q=1"),
    ("https://a.test:8443/x/../y#z", "a.test", 8443, "/x/../y"),
    ("http://[2001:DB8:0:0::1]:80/", "2001:db8::1", 80, "/"), ("http://8.8.8.8/%0d%0a", "8.8.8.8", 80, "/%0d%0a"),
    ("http://xn--bcher-kva.test/", "xn--bcher-kva.test", 80, "/"),
])  # fmt: skip
def test_a_url_has_one_reading(text: str, host: str, port: int, target: str) -> None:
    place = place_of(text)
    assert (place.host, place.port, place.target) == (host, port, target)
    assert place_of(place.url) == place


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),  # noqa: S104
        *("169.254.169.254", "169.254.1.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "203.0.113.9"),
        *("198.51.100.7", "192.88.99.1", "0.1.2.3"),
        *("::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8"),
        *("fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::808:808"),
        *("64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
        *("2001:db8::1", "100::1", "2001:10::1", "2001:20::1", "3fff::1", "4000::1"),
    ],
)
async def test_an_address_that_is_not_public_is_not_reached(address: str) -> None:
    assert not is_public_address(ipaddress.ip_address(address))
    literal = f"[{address}]" if ":" in address else address
    for patterns, url in (
        ((literal,), f"http://{literal}/"),
        (("*",), f"http://{literal}/"),
        (("a.test",), "http://a.test/"),
    ):

        async def resolve(_host: str, _port: int) -> Sequence[str]:
            return [address]

        reached = Network(AllowedHosts(patterns, resolve=resolve), CERTIFICATES)
        with pytest.raises(HostNotAllowedError) as refused:
            await reached.http_request(url)
        assert refused.value.reason == "HOST_NOT_ALLOWED"
        with pytest.raises(HostNotAllowedError):
            await reached.check_host(literal if "a.test" not in url else "a.test", 80)


def test_a_public_address_is_one() -> None:
    for address in ("8.8.8.8", PUBLIC, "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"):
        assert is_public_address(ipaddress.ip_address(address)), address


async def test_one_private_address_among_others_is_enough_to_refuse() -> None:
    names = Names({"a.test": [[PUBLIC, "10.0.0.1"]], "b.test": [["fe80::1%eth0"]], "c.test": [[]]})
    hosts = AllowedHosts(["*"], resolve=names)
    for host in ("a.test", "b.test", "c.test"):
        with pytest.raises(HostUnreachableError if host == "c.test" else HostNotAllowedError):
            await hosts.address(host, 443)


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST", "ip6-localhost"])
async def test_the_names_of_this_machine_lead_nowhere(host: str) -> None:
    with pytest.raises((HostNotAllowedError, HostUnreachableError)):
        await Network(AllowedHosts(["*", "localhost"])).http_request(f"http://{host}/")


async def test_a_name_that_changes_its_address_is_connected_where_it_was_checked() -> None:
    names = Names({"a.test": [["127.0.0.1"], ["10.0.0.1"]]})
    async with site(lambda *_: said("200 OK", b"here")) as there:
        reached = network(f"a.test:{there.port}", names=names)
        assert (await reached.http_request(f"http://a.test:{there.port}/"))["body"] == "here"
        assert names.asked == ["a.test"], "it was looked up once"
        with pytest.raises(HostNotAllowedError):
            await reached.http_request(f"http://a.test:{there.port}/")


@pytest.mark.parametrize(
    ("patterns", "allowed", "refused"),
    [
        (
            ["a.test"],
            ["http://a.test/", "https://A.TEST./"],
            ["http://b.test/", "http://x.a.test/", "http://a.test:81/"],
        ),
        (["*.a.test"], ["https://x.a.test/", "https://y.x.a.test"], ["https://a.test/", "https://xa.test/"]),
        (["a.test:8080"], ["http://a.test:8080/"], ["http://a.test/", "https://a.test/"]),
        (["*"], ["http://b.test/"], ["http://b.test:22/", "http://b.test:6379/", "http://b.test:7320/"]),
        (["a.test", "B.test:99"], ["https://b.test:99/"], ["https://b.test/", "https://a.test.evil/"]),
        (["8.8.8.8"], ["http://8.8.8.8/"], ["http://8.8.4.4/"]),
        ([], [], ["https://a.test/"]),
    ],
)
async def test_only_listed_hosts_and_ports_are_reached(
    patterns: list[str], allowed: list[str], refused: list[str]
) -> None:
    hosts = AllowedHosts(patterns)
    for url in allowed:
        place = place_of(url)
        hosts.check(place.host, place.port)
    names = Names({})
    for url in refused:
        with pytest.raises(HostNotAllowedError, match="tools_hosts"):
            await Network(AllowedHosts(patterns, here_is_public, names)).http_request(url)
    assert names.asked == []


@pytest.mark.parametrize(
    "pattern", ["", "http://a.test", "a.test/", "*.", "**", "a.*", "*.*", "127.1", "a b", "a.test:0"]
)
def test_a_pattern_that_is_none_is_refused_at_the_start(pattern: str) -> None:
    with pytest.raises(UrlError, match="tools_hosts"):
        AllowedHosts([pattern])


@pytest.mark.parametrize(
    "location",
    [
        *("http://169.254.169.254/latest/meta-data/", "//169.254.169.254/", "http://b.test/", "//b.test/"),
        *("http://127.0.0.1:1/", "http://[::1]/", "http://[::1", "http://2130706433/", "http://a.test@b.test/"),
        *("file:///etc/passwd", "http://a.test:22/", "/\\b.test", "\\\\b.test\\", "http://b.test\\@a.test"),
        *("javascript:alert(1)", "http://é.test/", " http://b.test/"),
    ],
)
async def test_a_redirect_to_another_place_is_not_followed(location: str) -> None:
    def answer(line: str, *_: Any) -> bytes:
        return said("302 Found", location=location) if "/first" in line else said("404 Not Found")

    async with site(answer) as there:
        names = Names({"a.test": [["127.0.0.1"]]})
        url = f"http://a.test:{there.port}/first"
        try:
            found = await network(f"a.test:{there.port}", names=names).http_request(url)
        except (HostNotAllowedError, UrlError, HostUnreachableError):
            pass
        else:
            assert found["url"].startswith(f"http://a.test:{there.port}/"), "it is a path of the same host"
    assert set(names.asked) == {"a.test"}


async def test_redirects_are_followed_as_long_as_they_end() -> None:
    def answer(line: str, *_: Any) -> bytes:
        number = int(line.split("/")[1].split(maxsplit=1)[0])
        return said("303 See Other", location=f"/{number - 1}") if number else said("200 OK", line.encode())

    async with site(answer) as there:
        reached, url = network(f"a.test:{there.port}"), f"http://a.test:{there.port}"
        found = await reached.http_request(f"{url}/{MOST_REDIRECTS}", "POST", body="x")
        assert (found["body"], found["url"]) == ("GET /0 HTTP/1.1", f"{url}/0")
        with pytest.raises(TooManyRedirectsError):
            await reached.http_request(f"{url}/{MOST_REDIRECTS + 1}")


async def test_a_key_is_not_sent_along_to_another_host() -> None:
    def answer(line: str, *_: Any) -> bytes:
        location = f"http://b.test:{there.port}/x"
        return said("307 Temporary Redirect", location=location) if "/first" in line else said("200 OK")

    async with site(answer) as there:
        reached = network(f"a.test:{there.port}", f"b.test:{there.port}")
        given_ = {"Authorization": "Bearer t", "X-Api-Key": "k", "X-Other": "o"}
        await reached.http_request(f"http://a.test:{there.port}/first", "POST", given_, "body")
    (_, first, _), (line, second, body) = there.seen
    assert "authorization" in first
    assert not {"authorization", "x-api-key"} & second.keys()
    assert (line, second["x-other"], body) == ("POST /x HTTP/1.1", "o", b"body")


async def test_a_header_cannot_change_how_a_request_is_sent() -> None:
    for name, value in (
        *(("Host", "b.test"), ("content-length", "0"), ("Transfer-Encoding", "chunked"), ("Connection", "upgrade")),
        *(("Proxy-Authorization", "x"), ("X\r\nHost", "b"), ("X Y", "b"), ("", "b"), ("X:", "b"), ("\ud800", "b")),
        *(("X", value) for value in ("a\r\nHost: b.test", "a\n b", "a\0", "é", "a" * 9000)),
    ):
        with pytest.raises(InvalidInputError) as refused:
            await network("*").http_request("http://a.test/", headers={name: value})
        assert refused.value.violations[0].field.startswith("headers[")
        refused.value.message.encode()


async def test_the_end_of_a_long_answer_is_not_read_and_a_compressed_one_not_unpacked() -> None:
    found = await fetched(said("200 OK", b"x" * 3_000_000), most_bytes=100)
    assert (found["body"], found["cut"]) == ("x" * 100, True)
    assert "body_base64" in await fetched(said("200 OK", b"\x1f\x8b\x08\0\0\0\0\0", content_encoding="gzip"))


@pytest.mark.parametrize(("content", "kind", "body"), [
    (b"\x00\x01", "application/octet-stream", {"body_base64": "AAE="}),
    (b"\xff\xfe\xfd\xfc\xfb", "", {"body_base64": "//79/Ps="}),
    (b"\xe9", "text/plain; charset=ISO-8859-1", {"body": "é"}),
    (b"\xe9a", "text/plain; charset=utf-8", {"body": "\ufffda"}),
    (b"QUFB", "text/plain; charset=idna", {"body_base64": "UVVGQg=="}),
    (b"x", "text/plain; charset=unicode_escape", {"body_base64": "eA=="}),
    ("é€".encode()[:4], "application/json", {"body": "é"}),
])  # fmt: skip
async def test_a_body_is_text_or_base_64(content: bytes, kind: str, body: dict[str, str]) -> None:
    found = await fetched(said("200 OK", content, content_type=kind))
    assert {name: value for name, value in found.items() if name.startswith("body")} == body


async def test_a_host_that_answers_wrongly_or_is_not_there_is_told_readably() -> None:
    for answer in (
        *(b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"),
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
    ):
        with pytest.raises(HostUnreachableError, match="does not answer"):
            await fetched(answer)
    async with site(lambda *_: b"") as gone:
        reached = network(f"a.test:{gone.port}")
    with pytest.raises(HostUnreachableError):
        await reached.http_request(f"http://a.test:{gone.port}/")


async def test_a_cancelled_request_ends() -> None:
    begun = asyncio.Event()

    async def never() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    async with site(lambda *_: never()) as there:
        call = asyncio.create_task(network(f"a.test:{there.port}").http_request(f"http://a.test:{there.port}/"))
        await asyncio.wait_for(begun.wait(), 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_host_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with site(lambda *_: said("200 OK")) as there:
        reached = network(f"a.test:{there.port}")
        found = await reached.check_host("A.test", there.port)
        assert (found["reachable"], found["host"], found["address"]) == (True, "a.test", "127.0.0.1")
        assert (await reached.http_request(f"http://a.test:{there.port}/"))["status"] == 200
        with pytest.raises(HostNotAllowedError):
            await reached.check_host("a.test", 22)
    found = await reached.check_host("a.test", there.port)
    assert not found["reachable"]


def test_a_redirect_from_https_to_http_is_refused() -> None:
    sent = _Request("GET", place_of("https://a.test/"), {"authorization": "secret"}, b"")
    assert sent.redirected(302, "/next").place.url == "https://a.test/next"
    with pytest.raises(UrlError, match="from https to http"):
        sent.redirected(302, "http://a.test/next")


def test_a_public_address_of_this_machine_is_refused() -> None:
    with pytest.raises(HostNotAllowedError, match="the server itself"):
        refuse_own("a.test", PUBLIC, PUBLIC)
    refuse_own("a.test", "10.0.0.5", PUBLIC)


@given(st.text(max_size=40) | st.from_regex(r"https?://[a-z0-9.@:\[\]\\/?#%-]{0,30}", fullmatch=True))
async def test_any_url_is_refused_or_leads_to_a_listed_host(url: str) -> None:
    names = Names({})
    with pytest.raises(MemoTreeError) as refused:
        await Network(AllowedHosts(["a.test:7"], here_is_public, names)).http_request(url)
    assert refused.value.reason in {"INVALID_URL", "HOST_NOT_ALLOWED"}
    assert names.asked == []


# --- Search on the web through a search engine of the settings --------------------------------------------------------


def engine(there: Site) -> WebSearch:
    return WebSearch(SearxngEngine(f"http://127.0.0.1:{there.port}/search?lang=en"))


async def test_the_pages_that_were_found_are_told() -> None:
    found = {
        "results": [{"title": f"T{number}", "url": f"https://{number}", "content": "c" * 5000} for number in range(9)]
    }
    async with site(lambda *_: said("200 OK", json.dumps(found).encode())) as there:
        pages = (await engine(there).search_web("two words & more", 3))["pages"]
    assert [page["title"] for page in pages] == ["T0", "T1", "T2"]
    assert len(pages[0]["text"]) == 1000
    assert there.seen[0][0] == "GET /search?lang=en&q=two+words+%26+more&format=json HTTP/1.1"


async def test_an_engine_that_does_not_answer_or_answers_nonsense_is_told() -> None:
    nonsense = (
        b"",
        b"{}",
        b"[]",
        b'{"results": 5}',
        b'{"results": [5]}',
        b'{"results": [{}]}',
        b"[" * 100_000,
        b"\xff",
    )
    for answer, told in (
        *((said("200 OK", body), "no result of a search") for body in nonsense),
        (said("403 Forbidden"), "the status 403"),
        (said("200 OK", b"x" * (5 << 20)), "too much"),
        (b"", "does not answer"),
    ):
        async with site(lambda *_, answer=answer: answer) as there:
            with pytest.raises(SearchUnavailableError, match=told):
                await engine(there).search_web("x")
    with pytest.raises(SearchUnavailableError, match="does not answer"):
        await engine(there).search_web("x")


def test_there_is_no_search_without_an_engine() -> None:
    assert "search_web" not in [tool.name for tool in builtin_tools()]
    options = ToolOptions(search_url="http://127.0.0.1:8080/search")
    assert "search_web" in [tool.name for tool in builtin_tools(options)]
