"""Servers that speak TLS, need keys, and take the certificates of clients."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from crash.service import Service
from integration.authorities import Authority
from ports import kept_ports

from memotree.client import Client
from memotree.server.announcement import Announcement, read_announcement


@dataclass(frozen=True)
class TlsServer:
    """A server that takes client certificates.

    Attributes:
        authority: Signs its certificate and those of its clients.
        announced: Where programs on this machine find it.
        address: Its gRPC port for clients without certificates.
        mutual: Its gRPC port for clients with certificates.
        key: An administrator's key.
    """

    authority: Authority
    announced: Announcement
    address: str
    mutual: str
    key: str

    def client(self, certificate: Path | str, key: str = "") -> Client:
        return Client(
            self.mutual, key=key, tls=self.authority.root, certificate=str(certificate), attempts=1, timeout=60
        )

    def admin(self) -> Client:
        return Client(self.announced.address, key=self.key)

    def get(self, path: str, certificate: Path | None, headers: dict[str, str] | None = None) -> httpx2.Response:
        context = ssl.create_default_context(cafile=self.authority.root)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return httpx2.get(f"{self.announced.url}{path}", verify=context, headers=headers)


@contextmanager
def tls_server(authority: Authority, folder: Path, *, is_strict: bool = False, **settings: Any) -> Iterator[TlsServer]:
    """A server with a certificate of the authority; a strict one answers no client without a certificate."""
    port, mutual = kept_ports(2)
    given = {
        "authentication": "keys",
        "tls_certificate": authority.certificate,
        "tls_key": authority.key,
        "tls_client_ca": authority.root,
        "port": port,
        **({"tls_client_required": True} if is_strict else {"tls_client_port": mutual}),
    }
    service = Service(folder / "data", folder / "server.log", http=True, **given | settings)
    service.begin()
    try:
        asyncio.run(service.ready())
        announced = read_announcement(service.data)
        assert announced is not None
        address = f"127.0.0.1:{port}"
        key = (service.data / "admin.key").read_text().strip()
        yield TlsServer(authority, announced, address, address if is_strict else f"127.0.0.1:{mutual}", key)
        assert asyncio.run(service.stop()) == 0
    finally:
        service.kill()
