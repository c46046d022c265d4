"""The server speaks TLS, also to other machines, and takes a renewed certificate without a restart."""

import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from integration.authorities import Authority
from integration.tls_servers import TlsServer, tls_server
from memotree_storage.errors import MemoTreeError

from memotree.client import AsyncClient, Client, MemoTreeClientError
from memotree.server.certificates import Certificates, CertificateUnusableError
from memotree.server.listen import PublicAddressError, listening_host
from memotree.settings import load_settings

pytestmark = pytest.mark.requirement("SERVE-3")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.renew()
    return made


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(authority, tmp_path_factory.mktemp("tls")) as made:
        yield made


def serial(address: str, *protocols: str) -> int:
    """The serial number of the certificate that a port shows to a new connection."""
    host, port = address.removeprefix("https://").split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    with socket.create_connection((host, int(port))) as raw, context.wrap_socket(raw) as wrapped:
        found = wrapped.getpeercert(binary_form=True)
        assert found is not None
        return x509.load_der_x509_certificate(found).serial_number


def serials(server: TlsServer) -> set[int]:
    """The serial numbers of the certificates over HTTP and gRPC."""
    return {serial(server.announced.url, "http/1.1"), serial(server.address, "h2")}


async def test_both_clients_call_over_tls_and_from_this_machine_on_loopback(server: TlsServer) -> None:
    async with AsyncClient(server.address, key=server.key, tls=str(server.authority.root)) as over_tls:
        assert (await over_tls.principal()).name == "admin"
    assert server.announced.address.startswith("127.0.0.1:")
    assert server.announced.address != server.address
    with server.admin() as client:
        assert client.principal().name == "admin"
    with pytest.raises(MemoTreeClientError), Client(server.announced.address, key="", attempts=1) as client:
        client.status()  # there, too, a call needs a key


def test_nothing_is_sent_without_trust_or_answered_in_clear(server: TlsServer) -> None:
    untrusting = Client(server.address, key=server.key, tls=True, attempts=1)
    with untrusting, pytest.raises(MemoTreeClientError) as caught:
        untrusting.status()
    assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(ValueError, match="cannot be read"):
        Client(server.address, key=server.key, tls="/nowhere/root.pem")
    with Client(server.address, key=server.key, attempts=1, timeout=5) as client, pytest.raises(MemoTreeClientError):
        client.status()
    with pytest.raises(httpx2.TransportError):
        httpx2.get(server.announced.url.replace("https://", "http://") + "/livez")


def test_http_and_git_speak_tls(server: TlsServer, tmp_path: Path) -> None:
    assert server.announced.url.startswith("https://")
    assert server.get("/livez", None).json() == {"status": "alive"}
    proof = {"authorization": f"Bearer {server.key}"}
    assert server.get("/api/tools", None, {"host": "memory.example.org"} | proof).status_code == 200
    assert server.get("/api/tools", None, {"origin": "https://x.example"} | proof).status_code == 403
    with Client(server.address, key=server.key, tls=server.authority.root) as client:
        client.create_workspace("cloned", exist_ok=True)
    url = server.announced.url.replace("https://", f"https://me:{server.key}@") + "/git/cloned"
    trust = os.environ | {"GIT_SSL_CAINFO": str(server.authority.root)}
    subprocess.run(["git", "clone", "-q", url, tmp_path / "clone"], check=True, timeout=120, env=trust)  # noqa: S603, S607


def test_a_renewed_certificate_is_used_by_new_connections_and_a_broken_one_never(server: TlsServer) -> None:
    with Client(server.address, key=server.key, tls=server.authority.root) as client:
        assert client.status()
        first = server.authority.renew()
        assert serials(server) == {first}
        assert client.status()
    whole = server.authority.certificate.read_bytes()
    server.authority.certificate.write_bytes(b"no certificate")
    assert serials(server) == {first}
    server.authority.certificate.write_bytes(whole)
    again = server.authority.renew()
    assert serials(server) == {again}


def test_other_machines_reach_only_a_server_with_keys_and_tls() -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - only a protected server listens there
    certificate = {"tls_certificate": "a.pem", "tls_key": "a.key"}
    for given in ({}, certificate, {"tls_in_front": True}):
        with pytest.raises(PublicAddressError, match="would check who calls"):
            listening_host(load_settings(host=everywhere, **given))
        if given:
            protected = load_settings(host=everywhere, authentication="keys", **given)
            assert listening_host(protected) == everywhere
    with pytest.raises(PublicAddressError, match="in clear"):
        listening_host(load_settings(host=everywhere, authentication="keys"))
    with pytest.raises(MemoTreeError, match="MEMOTREE_TLS_KEY: is needed with tls_certificate"):
        load_settings(tls_certificate="a.pem")


def test_what_cannot_be_used_as_a_certificate_is_told(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    other.renew()
    for certificate, key in (
        (tmp_path / "none.pem", authority.key),
        (authority.key, authority.key),
        (other.certificate, authority.key),
    ):
        with pytest.raises(CertificateUnusableError, match="cannot be used"):
            Certificates(certificate, key)
    with_passphrase = tmp_path / "locked.key"
    secret = serialization.load_pem_private_key(other.key.read_bytes(), None)
    with_passphrase.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    with pytest.raises(CertificateUnusableError):
        Certificates(other.certificate, with_passphrase)
    assert isinstance(Certificates(other.certificate, other.key).for_grpc(of_clients=False), grpc.ServerCredentials)
