"""The server speaks TLS, also to other machines, and takes a renewed certificate without a restart."""

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from integration.authorities import Authority
from integration.test_git_over_http import SERVE
from memotree_storage.errors import MemoTreeError

from memotree.client import AsyncClient, Client, MemoTreeClientError
from memotree.server.announcement import Announcement, read_announcement
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls") / "data"


@pytest.fixture(scope="module")
def server(authority: Authority, folder: Path) -> Iterator[tuple[Announcement, str]]:
    """A server with TLS and keys, and the address of its TLS port."""
    told = 'lambda server: print("up", server.address, flush=True)'
    program = SERVE.replace('lambda _: print("up", flush=True)', told)
    assert program != SERVE
    process = subprocess.Popen(  # noqa: S603 - this interpreter and the program above
        [sys.executable, "-c", program, str(folder), "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ
        | {
            "MEMOTREE_AUTHENTICATION": "keys",
            "MEMOTREE_TLS_CERTIFICATE": str(authority.certificate),
            "MEMOTREE_TLS_KEY": str(authority.key),
        },
    )
    try:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("up "):
            assert line, "the server ended"
        announced = read_announcement(folder)
        assert announced is not None
        yield announced, line.split()[1]
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def key(server: tuple[Announcement, str], folder: Path) -> str:
    assert server
    return (folder / "admin.key").read_text().strip()


def serial_over_http(url: str, authority: Authority) -> int:
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=authority.root)
    with socket.create_connection((host, int(port))) as raw, context.wrap_socket(raw, server_hostname=host) as wrapped:
        found = wrapped.getpeercert(binary_form=True)
        assert found is not None
        return x509.load_der_x509_certificate(found).serial_number


def serial_over_grpc(address: str) -> int:
    host, port = address.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port))) as raw, context.wrap_socket(raw) as wrapped:
        found = wrapped.getpeercert(binary_form=True)
        assert found is not None
        return x509.load_der_x509_certificate(found).serial_number


def test_clients_call_over_tls(server: tuple[Announcement, str], authority: Authority, key: str) -> None:
    _, address = server
    with Client(address, key=key, tls=authority.root) as client:
        client.create_workspace("over-tls", exist_ok=True)
        assert "over-tls" in [each.name for each in client.workspaces()]


async def test_asynchronous_clients_call_over_tls(
    server: tuple[Announcement, str], authority: Authority, key: str
) -> None:
    async with AsyncClient(server[1], key=key, tls=str(authority.root)) as client:
        assert (await client.principal()).name == "admin"


def test_a_client_that_does_not_trust_the_certificate_sends_nothing(server: tuple[Announcement, str], key: str) -> None:
    with Client(server[1], key=key, tls=True, attempts=1) as client, pytest.raises(MemoTreeClientError) as caught:
        client.status()
    assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(ValueError, match="cannot be read"):
        Client(server[1], key=key, tls="/nowhere/root.pem")


def test_nothing_is_answered_in_clear_on_the_ports_of_the_settings(server: tuple[Announcement, str], key: str) -> None:
    announced, address = server
    with Client(address, key=key, attempts=1, timeout=5) as client, pytest.raises(MemoTreeClientError):
        client.status()
    with pytest.raises(httpx2.TransportError):
        httpx2.get(announced.url.replace("https://", "http://") + "/livez")


def test_http_and_git_speak_tls(
    server: tuple[Announcement, str], authority: Authority, key: str, tmp_path: Path
) -> None:
    announced, address = server
    assert announced.url.startswith("https://")
    trusted = ssl.create_default_context(cafile=authority.root)
    assert httpx2.get(f"{announced.url}/livez", verify=trusted).json() == {"status": "alive"}
    proof = {"authorization": f"Bearer {key}"}
    named = httpx2.get(f"{announced.url}/api/tools", verify=trusted, headers={"host": "memory.example.org"} | proof)
    assert named.status_code == 200
    foreign = httpx2.get(f"{announced.url}/api/tools", verify=trusted, headers={"origin": "https://x.example"} | proof)
    assert foreign.status_code == 403
    with Client(address, key=key, tls=authority.root) as client:
        client.create_workspace("cloned", exist_ok=True)
    url = announced.url.replace("https://", f"https://me:{key}@") + "/git/cloned"
    subprocess.run(  # noqa: S603 - git, with our arguments
        ["git", "clone", "-q", url, str(tmp_path / "clone")],  # noqa: S607
        check=True,
        capture_output=True,
        timeout=120,
        env=os.environ | {"GIT_SSL_CAINFO": str(authority.root)},
    )


def test_programs_on_this_machine_find_a_port_on_loopback(server: tuple[Announcement, str], key: str) -> None:
    announced, address = server
    assert announced.address.startswith("127.0.0.1:")
    assert announced.address != address
    with Client(announced.address, key=key) as client:
        assert client.principal().name == "admin"
    with pytest.raises(MemoTreeClientError), Client(announced.address, key="", attempts=1) as client:
        client.status()  # there, too, a call needs a key


def test_a_renewed_certificate_is_used_by_new_connections_and_a_broken_one_never(
    server: tuple[Announcement, str], authority: Authority, key: str
) -> None:
    announced, address = server
    with Client(address, key=key, tls=authority.root) as client:
        assert client.status()
        serial = authority.renew()
        assert serial_over_http(announced.url, authority) == serial
        assert serial_over_grpc(address) == serial
        assert client.status()
    whole = authority.certificate.read_bytes()
    authority.certificate.write_bytes(b"no certificate")
    assert serial_over_http(announced.url, authority) == serial
    assert serial_over_grpc(address) == serial
    authority.certificate.write_bytes(whole)
    again = authority.renew()
    assert serial_over_grpc(address) == again
    assert serial_over_http(announced.url, authority) == again


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
