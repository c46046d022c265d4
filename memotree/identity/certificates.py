"""Certificates of clients (mTLS): who they say calls. TLS has verified them when their connection was made.

A connection may last longer than its certificate, and longer than the trust in whoever signed it; so both are looked at
again with each call. That needs no more than one look at a file, as what a certificate says is cached.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from memotree_storage.cache import BoundedCache

from memotree.identity.bearer import CERTIFICATE_NAME, CERTIFICATE_PREFIX, Bearer
from memotree.identity.errors import CertificateRefusedError

_ASCII_LABEL: Final = re.compile(r"(?:^|[.@_-])xn--", re.IGNORECASE)
"""The beginning of a label of a domain name that is written with other letters than it is shown with."""

_MOST_BYTES: Final = 1 << 16
_MOST_CACHED: Final = 4_096
_PEM: Final = b"-----BEGIN"

log = structlog.get_logger("memotree.access")


class ClientCertificates:
    """Checks certificates of clients.

    Args:
        authorities: The PEM file with the certificates that sign those of clients; it is read again when it changes.
            As long as it cannot be read, those that it had before are trusted.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no certificates.
    """

    def __init__(self, authorities: Path) -> None:
        self._file = authorities
        self._stamp = self._look()
        self._authorities = _certificates(authorities)
        self._known: BoundedCache[bytes, _Identity] = BoundedCache(_MOST_CACHED)

    def bearer(self, certificate: bytes) -> Bearer:
        """Who a certificate says calls.

        Args:
            certificate: As DER or PEM; the client has proved to TLS that it has the key.

        Raises:
            CertificateRefusedError: None of the authorities has signed it, it is not valid now, or names nobody.
        """
        self._renew()
        found = self._known.get(certificate)
        if found is None:
            found = self._read(certificate)
            self._known.put(certificate, found)
        now = datetime.now(UTC)
        if now < found.since:
            raise CertificateRefusedError("it is not valid yet")
        if now >= found.until:
            raise CertificateRefusedError("it has expired")
        return Bearer(CERTIFICATE_PREFIX + found.name, "", found.until)

    def _renew(self) -> None:
        """Read the authorities again if their file has changed."""
        with suppress(OSError):  # it is being replaced, or gone
            stamp = self._look()
            if stamp == self._stamp:
                return
            try:
                self._authorities = _certificates(self._file)
            except ValueError as error:
                log.warning("the authorities of client certificates stay those of before", why=str(error))
            self._stamp = stamp
            self._known = BoundedCache(_MOST_CACHED)

    def _look(self) -> tuple[int, ...]:
        found = self._file.stat()
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self, encoded: bytes) -> "_Identity":
        if len(encoded) > _MOST_BYTES:
            raise CertificateRefusedError("it is too large")
        try:
            load = x509.load_pem_x509_certificate if encoded.startswith(_PEM) else x509.load_der_x509_certificate
            found = load(encoded)
            named = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            is_for_clients = _is_for_clients(found)
            since, until = found.not_valid_before_utc, found.not_valid_after_utc
        except ValueError:
            raise CertificateRefusedError("it cannot be read") from None
        if not any(_has_signed(each, found) for each in self._authorities):
            raise CertificateRefusedError("no certificate that tls_client_ca has has signed it")
        if not is_for_clients:
            raise CertificateRefusedError("it is not for clients (its extended key usage)")
        if len(named) != 1:
            raise CertificateRefusedError(f"its subject has {len(named) or 'no'} common names, and must have one")
        name = named[0].value
        if not isinstance(name, str) or not CERTIFICATE_NAME.fullmatch(name) or _ASCII_LABEL.search(name):
            raise CertificateRefusedError(
                "its common name must begin with a letter or digit and have up to 100 letters, digits, '.', '_', '@' "
                "and '-', all of them ASCII"
            )
        return _Identity(name, since, until)


@dataclass(frozen=True, slots=True)
class _Identity:
    """Whom a certificate names, and from when until when."""

    name: str
    since: datetime
    until: datetime


def _certificates(file: Path) -> Sequence[x509.Certificate]:
    found = x509.load_pem_x509_certificates(file.read_bytes())
    if not found:
        raise ValueError("the file has no certificates")
    return found


def _is_for_clients(certificate: x509.Certificate) -> bool:
    """Whether a certificate may be used by a client: it says nothing of its use, or that."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in uses or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in uses


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether a certificate is signed by an authority; TLS has looked at whether that may sign, and until when."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True
