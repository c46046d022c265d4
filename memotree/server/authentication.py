"""Finds out who makes a call, from what the call sends to prove it: the same for gRPC, HTTP and MCP."""

import base64
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from memotree.identity.api_keys import is_key
from memotree.identity.errors import KeyRefusedError, NotAuthenticatedError
from memotree.request.principal import LOCAL, Principal
from memotree.settings import Settings

HEADER: Final = "authorization"
"""The header, or the key of gRPC's metadata, with the proof."""

_MOST_CHARACTERS: Final = 8_192


@runtime_checkable
class KnowsPrincipals(Protocol):
    """Operations that know whose an API key is."""

    def principal_of_key(self, text: str) -> Principal:
        """The principal of a key.

        Raises:
            KeyRefusedError: It is no key, or is valid no more.
        """
        ...

    async def principal_of_token(self, text: str) -> Principal:
        """The principal of a token of the OpenID provider.

        Raises:
            KeyRefusedError: There is no provider.
            TokenRefusedError: It is no token of the provider for this server, or is valid no more.
            ProviderUnavailableError: The keys of the provider are not known, and it does not answer.
        """
        ...

    def principal_of_certificate(self, certificate: bytes) -> Principal:
        """The principal of a client certificate that TLS has verified.

        Raises:
            NotAuthenticatedError: Certificates prove nothing here.
            CertificateRefusedError: It is signed by none that is trusted, is not valid now, or names nobody.
        """
        ...


class Authentication:
    """Finds the principals of calls.

    Args:
        settings: Whether calls must be authenticated.
        operations: The object with the operations of each service; one of them knows the keys.
    """

    def __init__(self, settings: Settings, operations: Mapping[str, object]) -> None:
        self.is_required = settings.authentication != "none"
        known = [each for each in operations.values() if isinstance(each, KnowsPrincipals)]
        if self.is_required and not known:
            raise ValueError("no operations know the principals; give those of AccessService, or authentication none")
        self._known = known[0] if self.is_required else None

    async def principal(self, proofs: Sequence[str], certificate: bytes = b"", *, basic: bool = False) -> Principal:
        """Who makes a call.

        A key or token wins over a certificate: it belongs to the call, and a certificate to the connection, which
        several callers may share. One that is refused is not made good by a certificate.

        Args:
            proofs: The values of the header `HEADER`: one, ``Bearer`` with a key or token, or ``Basic`` with that as
                the password, which is how git sends it.
            certificate: The certificate with which the client has made the connection, as DER or PEM, verified by TLS;
                empty if there is none.
            basic: Whether ``Basic`` is accepted; a browser would go on to send that by itself.

        Raises:
            NotAuthenticatedError: There is no proof.
            KeyRefusedError: The proof is none, or there are several.
            TokenRefusedError: The token is none of the provider for this server, or is valid no more.
            CertificateRefusedError: The certificate is signed by none that is trusted, is not valid now, or names
                nobody.
            ProviderUnavailableError: The keys of the provider are not known, and it does not answer.
        """
        if self._known is None:
            return LOCAL
        if not proofs:
            if certificate:
                return self._known.principal_of_certificate(certificate)
            raise NotAuthenticatedError
        if len(proofs) > 1 or len(proofs[0]) > _MOST_CHARACTERS:
            raise KeyRefusedError
        scheme, _, text = proofs[0].partition(" ")
        if scheme.lower() not in ({"basic", "bearer"} if basic else {"bearer"}):
            raise NotAuthenticatedError
        proof = _password(text.strip()) if scheme.lower() == "basic" else text.strip()
        if is_key(proof):
            return self._known.principal_of_key(proof)
        return await self._known.principal_of_token(proof)


def _password(text: str) -> str:
    """The password in the value of a ``Basic`` header; empty if it has none."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8").partition(":")[2]
    except ValueError:
        return ""
