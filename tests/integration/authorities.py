"""Authorities that sign certificates, as an administrator's tool does."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    """Signs certificates: of a server on 127.0.0.1, and of clients."""

    def __init__(self, folder: Path, name: str = "a root") -> None:
        self.root = folder / "root.pem"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"
        self._folder = folder
        self._name = named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(named(name), self._key, is_root=True)
        self.root.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def renew(self) -> int:
        """Write another certificate of the server with another key; return its serial number."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(named("a server"), key)
        replace(self.key, _pem(key))
        replace(self.certificate, made.public_bytes(serialization.Encoding.PEM))
        return made.serial_number

    def client(
        self,
        subject: str | x509.Name,
        file: str = "",
        *,
        since: timedelta = -DAY,
        until: timedelta = 30 * DAY,
        usages: Sequence[x509.ObjectIdentifier] = (),
    ) -> Path:
        """Write the certificate of a client and its key into one file.

        Args:
            subject: Whom it names: a common name, or a whole subject.
            file: The name of the file.
            since: From when on it is valid, from now.
            until: When it ends, from now.
            usages: Its extended key usages.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = named(subject) if isinstance(subject, str) else subject
        made = self._signed(name, key, (since, until), usages)
        path = self._folder / (file or f"{made.serial_number}.pem")
        replace(path, made.public_bytes(serialization.Encoding.PEM) + _pem(key))
        return path

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        validity: tuple[timedelta, timedelta] = (-DAY, 30 * DAY),
        usages: Sequence[x509.ObjectIdentifier] = (),
        *,
        is_root: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        building = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + validity[0])
            .not_valid_after(now + validity[1])
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        )
        if usages:
            building = building.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return building.sign(self._key, hashes.SHA256())


def named(name: str) -> x509.Name:
    """A subject with one common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def replace(path: Path, data: bytes) -> None:
    """Write a file as programs do that renew certificates: at once."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(data)
    draft.replace(path)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
