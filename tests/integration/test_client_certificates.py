"""Client certificates prove who calls; foreign, ended and ambiguous ones prove nothing, and no header is one."""

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from integration.authorities import DAY, Authority, named, replace
from integration.tls_servers import TlsServer, tls_server
from memotree_storage.errors import MemoTreeError
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import AsyncClient, Client, MemoTreeClientError, NotFoundError, UnauthenticatedError
from memotree.identity import certificates as certificates_module
from memotree.identity.access import Access
from memotree.identity.certificates import ClientCertificates
from memotree.identity.errors import CertificateRefusedError
from memotree.request.principal import Principal
from memotree.server.certificates import Certificates, CertificateUnusableError
from memotree.settings import load_settings
from memotree.v1 import access_service_pb2 as pb

pytestmark = pytest.mark.requirement("SERVE-3")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.renew()
    return made


@pytest.fixture(scope="module")
def place(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(authority, tmp_path_factory.mktemp("optional")) as made, made.admin() as admin:
        admin.create_workspace("notes")
        for name in ("cert:ada", "cert:ben"):
            admin.put_principal(name)
            admin.grant_role(name, "WRITER", workspace="notes")
        yield made


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of authorities of the strict server, which tests may change."""
    return tmp_path_factory.mktemp("trusted") / "clients.pem"


@pytest.fixture(scope="module")
def strict(authority: Authority, trusted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server whose every connection needs a certificate."""
    shutil.copy(authority.root, trusted)
    with tls_server(authority, tmp_path_factory.mktemp("required"), is_strict=True, tls_client_ca=trusted) as made:
        yield made


def certificates(authority: Authority) -> ClientCertificates:
    return ClientCertificates(authority.root)


def read_whole(path: Path) -> bytes:
    """The certificate of a file with a certificate and its key, as gRPC gives it."""
    return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.PEM)


def test_a_certificate_has_the_roles_of_its_principal_over_every_interface(place: TlsServer, tmp_path: Path) -> None:
    certificate = place.authority.client("ada")
    with place.client(certificate) as client:
        assert client.principal().name == "cert:ada"
        made = client.workspace("notes").remember("Written with a certificate.")
        assert client.workspace("notes").show(made.commit_id).commit.author.name == "cert:ada"
    assert place.get("/api/tools", certificate).status_code == 200
    subprocess.run(  # noqa: S603 - git, with our arguments
        ["git", "clone", "-q", f"{place.announced.url}/git/notes", str(tmp_path / "clone")],  # noqa: S607
        check=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"GIT_SSL_CAINFO": str(place.authority.root), "GIT_SSL_CERT": str(certificate)},
    )


async def test_asynchronous_clients_present_one_too_with_its_key_in_another_file(place: TlsServer) -> None:
    both = place.authority.client("ada")
    text = both.read_text()
    certificate, key = both.with_suffix(".crt"), both.with_suffix(".key")
    certificate.write_text(text[: text.index("-----BEGIN PRIVATE")])
    key.write_text(text[text.index("-----BEGIN PRIVATE") :])
    given = (str(certificate), str(key))
    async with AsyncClient(place.mutual, key="", tls=place.authority.root, certificate=given) as client:
        assert (await client.principal()).name == "cert:ada"


def test_the_command_line_presents_the_certificate_of_its_environment(place: TlsServer, tmp_path: Path) -> None:
    environment = {
        "MEMOTREE_ADDRESS": place.mutual,
        "MEMOTREE_TLS": str(place.authority.root),
        "MEMOTREE_CERTIFICATE": str(place.authority.client("ada")),
        "MEMOTREE_API_KEY": "",
        "MEMOTREE_DATA": str(tmp_path),
    }
    ran = CliRunner().invoke(app, ["access", "show"], env=environment)
    assert ran.exit_code == 0, ran.stderr
    assert "cert:ada" in ran.stdout
    for wrong, told in (
        ({"MEMOTREE_TLS": ""}, "only over TLS"),
        ({"MEMOTREE_CERTIFICATE": str(tmp_path / "none.pem")}, "cannot be read"),
    ):
        ran = CliRunner().invoke(app, ["access", "show"], env=environment | wrong)
        assert isinstance(ran.exception, SystemExit), wrong
        assert ran.exit_code != 0
        assert told in " ".join(ran.stderr.split())


def test_without_roles_a_certificate_shows_nothing_and_none_names_a_principal_with_keys(place: TlsServer) -> None:
    for name in ("admin", "nobody"):
        with place.client(place.authority.client(name)) as client:
            assert client.principal().name == f"cert:{name}"
            assert client.principal().grants == ()
            assert list(client.workspaces()) == []
            with pytest.raises(NotFoundError):
                client.workspace("notes").info()


def test_a_key_wins_over_the_certificate_and_a_wrong_one_is_not_made_good_by_it(place: TlsServer) -> None:
    certificate = place.authority.client("ada")
    with place.client(certificate, place.key) as client:
        assert client.principal().name == "admin"
    wrong = "mt_" + "A" * 43
    with place.client(certificate, wrong) as client, pytest.raises(UnauthenticatedError) as caught:
        client.principal()
    assert caught.value.reason == "KEY_REFUSED"
    for header in (f"Bearer {wrong}", "Bearer x", "Negotiate abc", "Basic YTpi", ""):
        assert place.get("/api/tools", certificate, {"authorization": header}).status_code == 401, header
    assert place.get("/api/tools", None, {"authorization": f"Bearer {place.key}"}).status_code == 200


def test_no_header_is_a_certificate(place: TlsServer) -> None:
    pem = read_whole(place.authority.client("ada")).decode()
    one_line = pem.replace("\n", "%0A")
    for name in ("x-forwarded-client-cert", "ssl-client-cert", "x-ssl-cert", "memotree.certificate", "client-cert"):
        answer = place.get("/api/tools", None, {name: one_line})
        assert answer.status_code == 401, name
    with Client(place.address, key="", tls=place.authority.root) as client, pytest.raises(grpc.RpcError) as caught:
        client.raw.access.GetPrincipal(pb.GetPrincipalRequest(), metadata=(("x509_pem_cert", one_line),))
    assert "UNAUTHENTICATED" in str(caught.value)


def test_a_web_page_of_another_site_uses_no_certificate_of_its_visitor(place: TlsServer) -> None:
    certificate = place.authority.client("ada")
    for headers in ({"origin": "https://x.example"}, {"sec-fetch-site": "cross-site"}):
        assert place.get("/api/tools", certificate, headers).status_code == 403


def test_connections_with_a_bad_certificate_are_refused(place: TlsServer, tmp_path: Path) -> None:
    own = place.authority
    for bad in (
        Authority(tmp_path).client("ada"),  # of another authority with the same name
        Authority(tmp_path, "ada").client("ada"),
        own.client("ada", since=-2 * DAY, until=-DAY),
        own.client("ada", since=DAY),
        own.client("ada", usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
    ):
        with place.client(bad) as client, pytest.raises(MemoTreeClientError) as caught:
            client.principal()
        assert caught.value.code in {"UNAVAILABLE", "UNAUTHENTICATED"}
        with pytest.raises((httpx2.TransportError, ssl.SSLError)):
            place.get("/livez", bad)
    with place.client(own.client("ada")) as client:  # the server goes on
        assert client.principal().name == "cert:ada"
    with pytest.raises(CertificateRefusedError, match="has signed it"):
        certificates(own).bearer(read_whole(Authority(tmp_path).client("ada")))


def of(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(*each) for each in attributes])


def test_names_that_could_be_read_in_two_ways_are_refused(place: TlsServer) -> None:
    common, organization = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
    texts = ("ada\0.example.org", "ada\n", " ada", "ada ", "\u0430da", "ädä", "xn--d-1fa", "mail.XN--d-1fa.example")
    marked = ("cert:ada", "oidc:ada", "*.example.org", "ada <ada@example.org>", "../ada", "ada\u202e")
    several = (
        of((common, "ada"), (common, "ben")),
        of((common, "ada"), (common, "ada")),
        of(),
        of((organization, "ada")),
    )
    for name in (*map(named, (*texts, *marked)), *several):
        path = place.authority.client(name)
        with pytest.raises(CertificateRefusedError):
            certificates(place.authority).bearer(read_whole(path))
    with place.client(path) as client, pytest.raises(UnauthenticatedError) as caught:
        client.principal()
    assert caught.value.reason == "CERTIFICATE_REFUSED"
    answer = place.get("/api/tools", path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "CERTIFICATE_REFUSED")


def test_plain_names_are_taken_as_they_are(authority: Authority) -> None:
    for name in ("ada", "Ada", "ada@example.org", "svc-1.example.org", "a" * 64):
        found = certificates(authority).bearer(read_whole(authority.client(name)))
        assert (found.name, found.email) == (f"cert:{name}", "")


def test_removing_roles_or_the_principal_revokes_a_certificate_at_once(place: TlsServer) -> None:
    with place.admin() as admin, place.client(place.authority.client("carl")) as client:
        admin.put_principal("cert:carl")
        admin.grant_role("cert:carl", "READER", workspace="notes")
        assert client.workspace("notes").info()
        admin.revoke_role("cert:carl", workspace="notes")
        with pytest.raises(NotFoundError):
            client.workspace("notes").info()
        admin.grant_role("cert:carl", "READER", workspace="notes")
        admin.delete_principal("cert:carl")
        with pytest.raises(NotFoundError):
            client.workspace("notes").info()


def test_a_connection_or_a_call_that_waited_does_not_outlive_its_certificate(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call asks for the bearer again, also over a connection that is open (see the one of other authorities)."""
    known, certificate = certificates(authority), read_whole(authority.client("ada", until=DAY))
    assert known.bearer(certificate).name == "cert:ada"

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + DAY

    monkeypatch.setattr(certificates_module, "datetime", Tomorrow)
    with pytest.raises(CertificateRefusedError, match="it has expired"):
        known.bearer(certificate)
    waited = Principal("cert:ada", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(CertificateRefusedError, match="expired"):
        Access(None).renewed(waited)  # type: ignore[arg-type] # it reads no table


def test_where_certificates_are_required_there_is_no_connection_without_one(strict: TlsServer) -> None:
    with (
        Client(strict.address, key=strict.key, tls=strict.authority.root, attempts=1, timeout=5) as client,
        pytest.raises(MemoTreeClientError) as caught,
    ):
        client.status()
    assert caught.value.code in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    with pytest.raises((httpx2.TransportError, ssl.SSLError)):
        strict.get("/livez", None)
    certificate = strict.authority.client("ada")
    assert strict.get("/livez", certificate).status_code == 200
    with strict.client(certificate, strict.key) as client:
        assert client.principal().name == "admin"
    with Client(strict.announced.address, key=strict.key) as client:  # for programs on this machine
        assert client.principal().name == "admin"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_other_authorities_are_trusted_without_a_restart_and_the_ones_before_no_more(
    strict: TlsServer, trusted: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    other = Authority(tmp_path, "another root")
    before, after = strict.authority.client("ada"), other.client("ada")
    context = ssl.create_default_context(cafile=strict.authority.root)
    context.load_cert_chain(before)
    context.minimum_version = context.maximum_version = version
    answered, session = asked(strict, context, None)
    assert answered.startswith("HTTP/1.1 200")
    try:
        with strict.client(before) as client, httpx2.Client(verify=context) as browser:
            assert client.principal().name == "cert:ada"
            assert browser.get(f"{strict.announced.url}/api/tools").status_code == 200
            trusted.write_text("no certificates")  # nothing changes
            assert client.principal().name == "cert:ada"
            assert strict.get("/api/tools", before).status_code == 200
            replace(trusted, other.root.read_bytes())
            with pytest.raises(UnauthenticatedError) as caught:  # over the connection that is open
                client.principal()
            assert caught.value.reason == "CERTIFICATE_REFUSED"
            assert browser.get(f"{strict.announced.url}/api/tools").status_code == 401
        with pytest.raises((httpx2.TransportError, ssl.SSLError)):
            strict.get("/livez", before)
        try:
            resumed, _ = asked(strict, context, session)
        except (OSError, ssl.SSLError):
            resumed = ""
        assert not resumed.startswith("HTTP/1.1 200")
        with strict.client(after) as client:
            assert client.principal().name == "cert:ada"
        assert strict.get("/api/tools", after).status_code == 200
    finally:
        replace(trusted, strict.authority.root.read_bytes())


def asked(
    place: TlsServer, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[str, ssl.SSLSession | None]:
    """The beginning of the answer to a request, and the session of TLS that another connection may resume."""
    host, port = place.announced.url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), 20) as raw,
        context.wrap_socket(raw, server_hostname=host, session=session) as wrapped,
    ):
        wrapped.sendall(f"GET /api/tools HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
        return wrapped.recv(64).decode(errors="replace"), wrapped.session


def test_settings_that_do_not_agree_are_told() -> None:
    given: dict[str, Any] = {"tls_client_ca": "a.pem", "tls_certificate": "a.pem", "tls_key": "a.key"}
    keyed = given | {"authentication": "keys"}
    for settings, told in (
        ({"tls_client_ca": "a.pem"}, "tls_certificate is needed|is needed with tls_client_ca"),
        ({"tls_client_required": True}, "is needed with tls_client_required"),
        ({"tls_client_port": 9}, "is needed with tls_client_port"),
        (given, "must be keys with tls_client_ca"),
        (keyed | {"tls_client_required": True, "tls_client_port": 9}, "is not needed with tls_client_required"),
        (keyed | {"port": 7000, "tls_client_port": 7001}, "must not be the same"),
    ):
        with pytest.raises(MemoTreeError, match=told):
            load_settings(**settings)


def test_a_file_without_certificates_keeps_a_server_from_starting(authority: Authority, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for file in (empty, tmp_path / "none.pem", authority.key):
        with pytest.raises(CertificateUnusableError, match="tls_client_ca"):
            Certificates(authority.certificate, authority.key, file)
