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
from memotree.settings import Settings, load_settings

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


def test_clients_call_over_tls(server: TlsServer) -> None:
    with Client(server.address, key=server.key, tls=server.authority.root) as client:
        client.create_workspace("over-tls", exist_ok=True)
        assert "over-tls" in [each.name for each in client.workspaces()]


async def test_asynchronous_clients_call_over_tls(server: TlsServer) -> None:
    async with AsyncClient(server.address, key=server.key, tls=str(server.authority.root)) as client:
        assert (await client.principal()).name == "admin"


def test_a_client_that_does_not_trust_the_certificate_sends_nothing(server: TlsServer) -> None:
    with (
        Client(server.address, key=server.key, tls=True, attempts=1) as client,
        pytest.raises(MemoTreeClientError) as caught,
    ):
        client.status()
    assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(ValueError, match="cannot be read"):
        Client(server.address, key=server.key, tls="/nowhere/root.pem")


def test_nothing_is_answered_in_clear_on_the_ports_of_the_settings(server: TlsServer) -> None:
    with Client(server.address, key=server.key, attempts=1, timeout=5) as client, pytest.raises(MemoTreeClientError):
        client.status()
    with pytest.raises(httpx2.TransportError):
        httpx2.get(server.announced.url.replace("https://", "http://") + "/livez")


def test_http_and_git_speak_tls(server: TlsServer, tmp_path: Path) -> None:
    assert server.announced.url.startswith("https://")
    trusted = ssl.create_default_context(cafile=server.authority.root)
    assert httpx2.get(f"{server.announced.url}/livez", verify=trusted).json() == {"status": "alive"}
    proof = {"authorization": f"Bearer {server.key}"}
    named = httpx2.get(
        f"{server.announced.url}/api/tools", verify=trusted, headers={"host": "memory.example.org"} | proof
    )
    assert named.status_code == 200
    foreign = httpx2.get(
        f"{server.announced.url}/api/tools", verify=trusted, headers={"origin": "https://x.example"} | proof
    )
    assert foreign.status_code == 403
    with Client(server.address, key=server.key, tls=server.authority.root) as client:
        client.create_workspace("cloned", exist_ok=True)
    url = server.announced.url.replace("https://", f"https://me:{server.key}@") + "/git/cloned"
    subprocess.run(  # noqa: S603 - git, with our arguments
        ["git", "clone", "-q", url, str(tmp_path / "clone")],  # noqa: S607
        check=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"GIT_SSL_CAINFO": str(server.authority.root)},
    )


def test_programs_on_this_machine_find_a_port_on_loopback(server: TlsServer) -> None:
    assert server.announced.address.startswith("127.0.0.1:")
    assert server.announced.address != server.address
    with Client(server.announced.address, key=server.key) as client:
        assert client.principal().name == "admin"
    with pytest.raises(MemoTreeClientError), Client(server.announced.address, key="", attempts=1) as client:
        client.status()  # there, too, a call needs a key


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


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, "would check who calls"),
        ({"tls_certificate": "a.pem", "tls_key": "a.key"}, "would check who calls"),
        ({"tls_in_front": True}, "would check who calls"),
        ({"authentication": "keys"}, "in clear"),
    ],
)
def test_other_machines_reach_only_a_server_with_keys_and_tls(given: dict[str, object], refused: str) -> None:
    with pytest.raises(PublicAddressError, match=refused):
        listening_host(load_settings(host="0.0.0.0", **given))  # noqa: S104 - that is what is refused


@pytest.mark.parametrize("given", [{"tls_certificate": "a.pem", "tls_key": "a.key"}, {"tls_in_front": True}])
def test_a_protected_server_may_listen_on_every_address(given: dict[str, object]) -> None:
    settings: Settings = load_settings(host="0.0.0.0", authentication="keys", **given)  # noqa: S104 - it is protected
    assert listening_host(settings) == "0.0.0.0"  # noqa: S104


def test_half_a_certificate_is_a_fault_of_the_settings() -> None:
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
