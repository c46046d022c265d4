"""Refusals of calls for who makes them."""

from collections.abc import Collection
from pathlib import Path
from typing import Self

from memotree_storage.errors import FailedPreconditionError, UnavailableError

from memotree.error_mapping import ForbiddenError, UnauthenticatedError
from memotree.extras import install


class NotAuthenticatedError(UnauthenticatedError):
    """The call does not prove who makes it."""

    reason = "NOT_AUTHENTICATED"

    def __init__(self) -> None:
        super().__init__(
            "This server needs an API key. Send it as the header `authorization: Bearer KEY`; the clients of MemoTree "
            "take it from MEMOTREE_API_KEY. An administrator makes one with `memotree access create-key`."
        )


class KeyRefusedError(UnauthenticatedError):
    """The API key is none, or is valid no more; the message does not tell which."""

    reason = "KEY_REFUSED"

    def __init__(self) -> None:
        super().__init__(
            "The API key is not valid, or not any more. Look for a spelling mistake, or ask an administrator for "
            "another one (`memotree access create-key`)."
        )


class RoleMissingError(ForbiddenError):
    """The caller's role does not permit the call."""

    reason = "ROLE_MISSING"

    def __init__(self, who: str, call: str, role: str, place: str) -> None:
        super().__init__(
            f"{who} may not call {call}: it needs the role {role} {place}. Ask an administrator for it "
            f"(`memotree access grant {who} {role}`)."
        )


class ToolNotPermittedError(ForbiddenError):
    """The caller has a role that would permit the call, if it were not limited to tools; or a tool needs another role.

    Args:
        told: Why, and what to do.
    """

    reason = "TOOL_NOT_PERMITTED"

    @classmethod
    def of_call(cls, who: str, call: str, tools: Collection[str]) -> Self:
        """The error of a call that the roles of somebody do not hold for."""
        as_tool = f"which is the tool {' or '.join(sorted(tools))}" if tools else "which is no tool"
        return cls(
            f"{who} may not call {call}, {as_tool}: the roles of {who} are limited to other tools. Ask an "
            "administrator for a role with this one (`memotree access grant … --tools`)."
        )

    @classmethod
    def of_tool(cls, who: str, tool: str) -> Self:
        """The error of the call of a tool that the roles of somebody do not hold for."""
        return cls(
            f"{who} may not call {tool}: the roles of {who} are limited to other tools. Ask an administrator for "
            "a role with this one (`memotree access grant … --tools`)."
        )


class LastAdministratorError(FailedPreconditionError):
    """Nobody could administer the server any more."""

    reason = "LAST_ADMINISTRATOR"

    def __init__(self) -> None:
        super().__init__(
            "Nobody could administer the server then. Make somebody else an administrator of all workspaces first."
        )


class TokenRefusedError(UnauthenticatedError):
    """The token is not one of the provider for this server, or is valid no more."""

    reason = "TOKEN_REFUSED"

    def __init__(self, why: str) -> None:
        super().__init__(f"The token is not accepted: {why}. Ask the OpenID provider for another one.")


class CertificateRefusedError(UnauthenticatedError):
    """The client certificate is none of the authorities that the server trusts, or not valid now, or names nobody."""

    reason = "CERTIFICATE_REFUSED"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The client certificate is not accepted: {why}. Ask an administrator for another one, or send an API key."
        )


class CertificateLibraryMissingError(FailedPreconditionError):
    """The settings name the authorities of client certificates, and the library for them is not installed."""

    reason = "CERTIFICATE_LIBRARY_MISSING"

    def __init__(self) -> None:
        super().__init__(f"The setting tls_client_ca needs a library; install it with `{install('mtls')}`.")


class ProviderUnavailableError(UnavailableError):
    """The OpenID provider did not answer, and its keys are not known."""

    reason = "IDENTITY_PROVIDER_UNAVAILABLE"

    def __init__(self) -> None:
        super().__init__("The OpenID provider does not answer at the moment; send the same call again soon.")


class TokenLibrariesMissingError(FailedPreconditionError):
    """The settings name an OpenID provider, and the libraries for its tokens are not installed."""

    reason = "TOKEN_LIBRARY_MISSING"

    def __init__(self) -> None:
        super().__init__(f"The setting oidc_issuer needs more libraries; install them with `{install('oidc')}`.")


class LocalKeyUnwritableError(FailedPreconditionError):
    """A key of the server cannot be written into the data folder."""

    reason = "LOCAL_KEY_UNWRITABLE"

    def __init__(self, path: Path, why: str | None) -> None:
        super().__init__(f"A key of the server cannot be written to {path} ({why}); move what is in its place away.")
