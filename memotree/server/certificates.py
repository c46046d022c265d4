"""The certificate of the server, for gRPC and HTTP; it is read again when its files change, without a restart.

So are the authorities that sign the certificates of clients, if these prove who calls.
"""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import grpc
import structlog
from memotree_storage.errors import FailedPreconditionError

from memotree.settings import Settings

_ALPN: Final = ["http/1.1"]
"""The protocols of HTTP that uvicorn speaks."""

_PAUSE_SECONDS: Final = 60.0
"""How long files are left alone that could not be used, unless they change."""

log = structlog.get_logger("memotree.server")


class CertificateUnusableError(FailedPreconditionError):
    """The certificate or its key cannot be used, or the certificates that sign those of clients."""

    reason = "CERTIFICATE_UNUSABLE"

    def __init__(self, why: object) -> None:
        super().__init__(
            f"The certificate and its key cannot be used ({why}). tls_certificate names a PEM file with the "
            "certificate of the server and those between it and the root, tls_key one with its key (no passphrase), "
            "and tls_client_ca, if it is given, one with the certificates that sign those of clients."
        )


class Certificates:
    """A certificate with its key, in two files that some other program renews.

    Args:
        certificate: The PEM file with the certificate, and those between it and the root.
        key: The PEM file with its key.
        authorities: The PEM file with the certificates that sign those of clients; ``None`` if clients need none.
        is_required: Whether each connection needs a certificate of its client.

    Errors: ``CertificateUnusableError``.
    """

    def __init__(
        self, certificate: Path, key: Path, authorities: Path | None = None, *, is_required: bool = False
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._is_required = is_required
        self._reading = Lock()  # gRPC asks in threads of its own
        self._current = self._read()
        self._unusable: tuple[int, ...] | None = None  # when the files were written that could not be used last
        self._tried_at = 0.0

    @classmethod
    def of(cls, settings: Settings) -> "Certificates | None":
        """The certificate that the settings name; ``None`` if they name none.

        Errors: ``CertificateUnusableError``.
        """
        if settings.tls_certificate is None or settings.tls_key is None:
            return None
        required = settings.tls_client_required
        return cls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca, is_required=required)

    def for_grpc(self, *, of_clients: bool) -> grpc.ServerCredentials:
        """The credentials of a gRPC port; each new connection asks whether the files have changed.

        Args:
            of_clients: Whether each connection needs a certificate of its client. gRPC asks for none otherwise: its
                interface for Python cannot ask for one that may be missing.
        """
        fetch: Any = self._renewed_for_grpc(of_clients)  # it may return None, which grpcio's stubs do not know
        return grpc.dynamic_ssl_server_credentials(
            self._current.for_grpc(of_clients=of_clients), fetch, require_client_authentication=of_clients
        )

    def for_http(self) -> ssl.SSLContext:
        """The context of an HTTPS port; each new connection gets the certificate as it is then.

        A client certificate that is sent is verified; one that none of the authorities has signed ends the connection.
        """

        def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self._renewed().context

        context = self._read().context
        context.sni_callback = choose
        return context

    def _renewed_for_grpc(self, of_clients: bool) -> "Callable[[], grpc.ServerCertificateConfiguration | None]":
        given = self._current

        def fetch() -> "grpc.ServerCertificateConfiguration | None":
            nonlocal given
            current = self._renewed()
            if current is given:
                return None
            given = current
            return current.for_grpc(of_clients=of_clients)

        return fetch

    def _renewed(self) -> "_Pair":
        """The certificate as the files have it; the one before, as long as they cannot be used.

        Every handshake asks, so files that cannot be used are not read again each time.
        """
        with self._reading:
            stamp = self._stamp()
            if stamp != self._current.stamp and not self._is_known_unusable(stamp):
                self._tried_at = time.monotonic()
                try:
                    self._current = self._read()
                except CertificateUnusableError as error:
                    self._unusable = stamp
                    log.warning("the renewed certificate cannot be used; the one before stays", why=error.message)
                else:
                    self._unusable = None
                    log.info("the certificate was renewed", file=str(self._certificate))
            return self._current

    def _is_known_unusable(self, stamp: tuple[int, ...]) -> bool:
        """Whether such files could not be used a moment ago; after that the cause may be gone, such as a permission."""
        return stamp == self._unusable and time.monotonic() - self._tried_at < _PAUSE_SECONDS

    def _stamp(self) -> tuple[int, ...]:
        """When the files were written; empty if that cannot be found out."""
        files = [path for path in (self._certificate, self._key, self._authorities) if path is not None]
        try:
            found = [path.stat() for path in files]
        except OSError:
            return ()
        return tuple(part for each in found for part in (each.st_mtime_ns, each.st_size, each.st_ino))

    def _read(self) -> "_Pair":
        stamp = self._stamp()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(_ALPN)
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            authorities = None if self._authorities is None else self._authorities.read_bytes()
            if authorities is not None:
                context.load_verify_locations(cadata=authorities.decode("ascii"))
                context.verify_mode = ssl.CERT_REQUIRED if self._is_required else ssl.CERT_OPTIONAL
            pair = _Pair(stamp, context, self._certificate.read_bytes(), self._key.read_bytes(), authorities)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise CertificateUnusableError(getattr(error, "reason", None) or error) from None
        if self._stamp() != stamp:
            raise CertificateUnusableError("the files are being written")
        return pair


@dataclass(frozen=True, slots=True)
class _Pair:
    """A certificate and its key, which fit each other, who signs those of clients, and when the files had them."""

    stamp: tuple[int, ...]
    context: ssl.SSLContext
    certificate: bytes
    key: bytes
    authorities: bytes | None

    def for_grpc(self, *, of_clients: bool) -> grpc.ServerCertificateConfiguration:
        authorities = self.authorities if of_clients else None
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], authorities)


def _no_password() -> str:
    """Refuse a key with a passphrase; OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a passphrase")
