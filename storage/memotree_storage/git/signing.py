"""Signs commits and tags with an SSH key, as ``git commit -S`` with ``gpg.format = ssh`` does.

In this process, since starting ``ssh-keygen`` for each commit would take longer than the commit. The format is
``PROTOCOL.sshsig`` of OpenSSH: what is signed is a hash of the text, with the namespace ``git``.
"""

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memotree_storage.errors import FailedPreconditionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    SigningKey = Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey

BEGIN: Final = b"-----BEGIN SSH SIGNATURE-----"
END: Final = b"-----END SSH SIGNATURE-----"

_MAGIC: Final = b"SSHSIG"
_VERSION: Final = (1).to_bytes(4, "big")
_NAMESPACE: Final = b"git"
_HASH: Final = b"sha512"
_LINE: Final = 70
_SMALLEST_RSA: Final = 2048


class SigningKeyError(FailedPreconditionError):
    """The key for signatures cannot be used."""

    reason = "SIGNING_KEY_UNUSABLE"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} cannot sign commits: {why}. Give a private key of OpenSSH without a passphrase, such as "
            '`ssh-keygen -t ed25519 -N "" -f KEY` makes.'
        )


class Signer:
    """Signs with one key; every method may be called from any thread.

    Args:
        key: The private key.
        public: Its public half in the format of an ``authorized_keys`` file.
    """

    def __init__(self, key: "SigningKey", public: bytes) -> None:
        self._key = key
        self._public = base64.b64decode(public.split()[1])

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key, as ``ssh-keygen -l`` shows it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self._public).digest()).decode().rstrip("=")

    def sign(self, text: bytes) -> bytes:
        """The armoured signature of a text, with a line break at its end."""
        hashed = hashlib.sha512(text).digest()
        signed = _MAGIC + b"".join(map(_string, (_NAMESPACE, b"", _HASH, hashed)))
        fields = (self._public, _NAMESPACE, b"", _HASH, self._signature(signed))
        blob = base64.b64encode(_MAGIC + _VERSION + b"".join(map(_string, fields)))
        lines = [blob[start : start + _LINE] for start in range(0, len(blob), _LINE)]
        return b"\n".join([BEGIN, *lines, END, b""])

    def sign_commit(self, commit: bytes) -> bytes:
        """A commit object with its signature as the last line before the message."""
        head, _, message = commit.partition(b"\n\n")
        signature = self.sign(commit).rstrip(b"\n").replace(b"\n", b"\n ")
        return head + b"\ngpgsig " + signature + b"\n\n" + message

    def sign_tag(self, tag: bytes) -> bytes:
        """A tag object with its signature after the message."""
        return tag + self.sign(tag)

    def _signature(self, signed: bytes) -> bytes:
        """The signature of OpenSSH's key formats: the algorithm, and what that makes."""
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - few servers have a key
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils  # noqa: PLC0415 - see above

        if isinstance(self._key, rsa.RSAPrivateKey):
            made = self._key.sign(signed, padding.PKCS1v15(), hashes.SHA512())
            return _string(b"rsa-sha2-512") + _string(made)
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            digest = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}[self._key.key_size]
            pair = utils.decode_dss_signature(self._key.sign(signed, ec.ECDSA(digest)))
            algorithm = b"ecdsa-sha2-nistp" + str(self._key.key_size).encode()
            return _string(algorithm) + _string(b"".join(_string(_mpint(each)) for each in pair))
        return _string(b"ssh-ed25519") + _string(self._key.sign(signed))


def load_signer(path: Path) -> Signer:
    """Load a private key of OpenSSH.

    Raises:
        SigningKeyError: There is none, it has a passphrase, or it is of another kind than Ed25519, ECDSA and RSA.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - few servers have a key
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - see above
        Encoding,
        PublicFormat,
        load_ssh_private_key,
    )

    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise SigningKeyError(path, (error.strerror or type(error).__name__).lower()) from error
    except TypeError as error:
        raise SigningKeyError(path, "it has a passphrase") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SigningKeyError(path, "it is no private key of OpenSSH") from error
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < _SMALLEST_RSA:
        raise SigningKeyError(path, f"it has {key.key_size} bits, and OpenSSH wants {_SMALLEST_RSA}")
    if not isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise SigningKeyError(path, "it is neither an Ed25519, an ECDSA nor an RSA key")
    return Signer(key, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _mpint(number: int) -> bytes:
    """A positive number, with a zero before it if its first bit would make it negative."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big")
