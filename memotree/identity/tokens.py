"""Tokens of an OpenID provider (JWT): who they say calls, if they are signed by the provider for this server."""

from datetime import UTC, datetime
from typing import Any, Final

import jwt

from memotree.identity.bearer import EMAIL, NAME, PREFIX, Bearer
from memotree.identity.errors import TokenRefusedError
from memotree.identity.provider import Provider

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key that only the provider has. A symmetric one (HS256) could be made with its public key."""

_LEEWAY_SECONDS: Final = 30
_LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999; a later end counts as this one."""


class Tokens:
    """Checks tokens.

    Args:
        provider: Signs them.
        audience: What they must be for: the name that the provider has of this server.
        claim: The claim that names who calls.
    """

    def __init__(self, provider: Provider, audience: str, claim: str) -> None:
        self._provider = provider
        self._audience = audience
        self._claim = claim

    async def bearer(self, token: str) -> Bearer:
        """Who a token says calls.

        Raises:
            TokenRefusedError: It is none of the provider for this server, or not valid now.
            ProviderUnavailableError: The keys of the provider are not known, and it does not answer.
        """
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise TokenRefusedError("it is neither an API key nor a JWT") from None
        if header.get("alg") not in _ALGORITHMS:
            raise TokenRefusedError(f"it must be signed with one of {', '.join(_ALGORITHMS)}")
        key_id = header.get("kid")
        key = await self._provider.key(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise TokenRefusedError("the provider has no key of its key id")
        claims = self._claims(token, header["alg"], key)
        named = claims.get(self._claim)
        if not isinstance(named, str) or not NAME.fullmatch(named):
            raise TokenRefusedError(f"its claim {self._claim} is no text that can be a name")
        email = claims.get("email")
        is_verified = claims.get("email_verified") is True and isinstance(email, str) and EMAIL.fullmatch(email)
        ends = datetime.fromtimestamp(min(int(claims["exp"]) + _LEEWAY_SECONDS, _LAST_SECOND), UTC)
        return Bearer(PREFIX + named, str(email) if is_verified else "", ends)

    def _claims(self, token: str, algorithm: str, key: jwt.PyJWK) -> dict[str, Any]:
        if algorithm != key.algorithm_name:
            raise TokenRefusedError("the provider's key is for another kind of signature")
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._provider.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "verify_signature": True},
            )
        except jwt.ExpiredSignatureError:
            raise TokenRefusedError("it has expired") from None
        except jwt.InvalidAudienceError:
            raise TokenRefusedError(f"it is not for {self._audience}") from None
        except jwt.PyJWTError:
            raise TokenRefusedError("it is not signed by the provider, or not valid now") from None
