"""The operations of AccessService: principals, their API keys, and their roles."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Protocol

from memotree_storage.errors import FailedPreconditionError, InvalidInputError, NotFoundError
from memotree_storage.model.access import ALL_WORKSPACES
from memotree_storage.model.protection import is_pattern
from memotree_storage.model.tool_patterns import is_tool_limit, names_tool
from memotree_storage.model.validation import check_author, check_text
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.postgres import access, registry
from memotree_storage.postgres.access import GrantRow, KeyRow
from memotree_storage.postgres.database import Connection, Database

from memotree.identity.access import Access
from memotree.identity.api_keys import digest, new_key
from memotree.identity.bearer import CERTIFICATE_NAME, CERTIFICATE_PREFIX, EMAIL, NAME, PREFIX, Bearer
from memotree.identity.errors import KeyRefusedError, NotAuthenticatedError, RoleMissingError
from memotree.request.lookup import needed
from memotree.request.messages import timestamp
from memotree.request.nearest_names import nearest, shown
from memotree.request.pages import PageTokens, page_size
from memotree.request.principal import ALL_BRANCHES, Grant, Principal, Role, act_as, principal
from memotree.v1 import access_service_pb2 as pb

_NAME: Final = re.compile(
    rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,99}}|{PREFIX}{NAME.pattern}|{CERTIFICATE_PREFIX}{CERTIFICATE_NAME.pattern}"
)
_LABEL_CHARS: Final = 200
_MOST_SECONDS: Final = 100 * 366 * 86_400
_EVERYBODY: Final = "*"
MOST_KEYS: Final = 100
"""The most API keys of a principal."""

MOST_GRANTS: Final = 1_000
"""The most roles of a principal in one workspace, and in all of them: each call looks at those of its workspace."""

MOST_TOOLS: Final = 200
"""The most entries of the tools that a role is limited to."""


class PrincipalNotFoundError(NotFoundError):
    """No principal has that name."""

    reason = "PRINCIPAL_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no principal {name[:100]!r}. List them with ListPrincipals, or add one with PutPrincipal.",
            "principal",
            name[:100],
        )


class KeyNotFoundError(NotFoundError):
    """No API key that the caller may see has that id."""

    reason = "KEY_NOT_FOUND"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is no API key {key_id[:100]!r}. List them with ListKeys.", "key", key_id[:100])


class GrantNotFoundError(NotFoundError):
    """The principal has no role there."""

    reason = "GRANT_NOT_FOUND"

    def __init__(self, name: str, workspace: str, branches: str) -> None:
        super().__init__(
            f"{name} has no role in {workspace} that was given for the branches {branches!r}. GetPrincipal lists its "
            "roles.",
            "grant",
            name,
        )


class ChecksTokens(Protocol):
    """Checks the tokens of an OpenID provider."""

    async def bearer(self, token: str) -> Bearer:
        """Who a token says calls.

        Raises:
            TokenRefusedError: It is none of the provider for this server, or not valid now.
            ProviderUnavailableError: The keys of the provider are not known, and it does not answer.
        """
        ...


class ChecksCertificates(Protocol):
    """Checks certificates of clients."""

    def bearer(self, certificate: bytes) -> Bearer:
        """Who a certificate says calls.

        Args:
            certificate: As DER or PEM; TLS has verified it.

        Raises:
            CertificateRefusedError: It is signed by none that is trusted, is not valid now, or names nobody.
        """
        ...


class TooManyKeysError(FailedPreconditionError):
    """The principal has as many API keys as it may have."""

    reason = "TOO_MANY_KEYS"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has {MOST_KEYS} API keys, the most that a principal may have. Delete some first.")


class TooManyGrantsError(FailedPreconditionError):
    """The principal has as many roles in the workspace as it may have."""

    reason = "TOO_MANY_GRANTS"

    def __init__(self, name: str, workspace: str) -> None:
        super().__init__(
            f"{name} has {MOST_GRANTS:,} roles in {workspace}, the most that a principal may have in a workspace. "
            "Revoke some first, or give one on all branches whose names begin alike ('agents/*')."
        )


class AccessOperations:
    """Reads and changes who may call.

    Args:
        known: The principals, keys and roles.
        database: Finds workspaces.
        pages: Makes and reads page tokens.
        tokens: Checks tokens of an OpenID provider; ``None`` if there is none.
        certificates: Checks certificates of clients; ``None`` if they prove nothing.
        tools: Returns the names of all tools that a role may be limited to; ``None`` if there may be others.
        resource_fault: Returns why a tool cannot be limited to a folder or host; empty if it can.
    """

    def __init__(
        self,
        known: Access,
        database: Database,
        pages: PageTokens,
        tokens: ChecksTokens | None = None,
        certificates: ChecksCertificates | None = None,
        tools: Callable[[], Collection[str] | None] = lambda: None,
        resource_fault: Callable[[str, str], str] = lambda _tool, _resource: "",
    ) -> None:
        self._tools = tools
        self._resource_fault = resource_fault
        self._tokens = tokens
        self._certificates = certificates
        self._known = known
        self._database = database
        self._pages = pages

    def principal_of_key(self, text: str) -> Principal:
        """Whose key a text is.

        Raises:
            KeyRefusedError: It is no key, or is valid no more.
        """
        return self._known.principal_of_key(text)

    async def principal_of_token(self, text: str) -> Principal:
        """The principal of a token of the OpenID provider; one that nobody has given a role has none.

        Raises:
            KeyRefusedError: There is no provider.
            TokenRefusedError: It is no token of the provider for this server, or is valid no more.
            ProviderUnavailableError: The keys of the provider are not known, and it does not answer.
        """
        if self._tokens is None:
            raise KeyRefusedError
        return self._principal_of(await self._tokens.bearer(text))

    def principal_of_certificate(self, certificate: bytes) -> Principal:
        """The principal of a client certificate; one that nobody has given a role has none.

        Args:
            certificate: As DER or PEM; TLS has verified it.

        Raises:
            NotAuthenticatedError: Certificates prove nothing here.
            CertificateRefusedError: It is signed by none that is trusted, is not valid now, or names nobody.
        """
        if self._certificates is None:
            raise NotAuthenticatedError
        return self._principal_of(self._certificates.bearer(certificate))

    def _principal_of(self, bearer: Bearer) -> Principal:
        found = self._known.find(bearer.name) or Principal(bearer.name)
        return replace(found, email=found.email or bearer.email, expires_at=bearer.expires_at)

    # --- Principals --------------------------------------------------------------------------------------------------

    async def get_principal(self, request: pb.GetPrincipalRequest) -> pb.GetPrincipalResponse:
        """One principal with its roles."""
        who = principal()
        if request.name in {"", who.name}:
            whole = self._known.renewed(who) if who.is_known else who  # with roles that do not hold for this call
            return pb.GetPrincipalResponse(principal=principal_message(whole))
        _check_server_role("GetPrincipal")
        return pb.GetPrincipalResponse(principal=principal_message(self._find(request.name)))

    async def list_principals(self, request: pb.ListPrincipalsRequest) -> pb.ListPrincipalsResponse:
        """The principals, by name; with a workspace, those that have roles in it."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str})
        found: Iterable[Principal] = self._known.all_principals()
        if request.workspace:
            workspace_id = await self._administered(request.workspace, "ListPrincipals")
            found = (_within(each, workspace_id) for each in found if each.grants_in(workspace_id))
        else:
            _check_server_role("ListPrincipals")
        after = cursor["after"] if cursor else ""
        listed = list(islice((each for each in found if each.name > after), size + 1))
        last = {"after": listed[size - 1].name} if len(listed) > size else None
        return pb.ListPrincipalsResponse(
            principals=[principal_message(each) for each in listed[:size]],
            next_page_token=self._pages.write(request, last),
        )

    async def put_principal(self, request: pb.PutPrincipalRequest) -> pb.PutPrincipalResponse:
        """Add a principal, or change its address."""
        if not _NAME.fullmatch(needed("name", request.name)):
            raise InvalidInputError.at(
                "name",
                "must begin with a letter or digit and have up to 100 letters, digits, '.', '_', '@' and '-'; or be "
                "`cert:` and such a name, that of a client certificate; or be `oidc:` and the name of a user of the "
                "OpenID provider.",
            )
        if request.email and not EMAIL.fullmatch(request.email):
            raise InvalidInputError.at("email", "is no address: give one such as ada@example.org, or none.")
        check_author(request.name, request.email, "principal")

        async def put(conn: Connection) -> set[str]:
            self._renew_caller()
            _check_server_role("PutPrincipal")
            await access.put_principal(conn, request.name, request.email)
            return {request.name}

        await self._known.change(put)
        return pb.PutPrincipalResponse(principal=principal_message(self._find(request.name)))

    async def delete_principal(self, request: pb.DeletePrincipalRequest) -> pb.DeletePrincipalResponse:
        """Delete a principal with its keys and roles."""
        name = self._find(request.name).name

        async def delete(conn: Connection) -> set[str]:
            self._renew_caller()
            _check_server_role("DeletePrincipal")
            if not await access.delete_principal(conn, name):
                raise PrincipalNotFoundError(name)
            return {name}

        await self._known.change(delete)
        return pb.DeletePrincipalResponse()

    # --- Keys --------------------------------------------------------------------------------------------------------

    async def create_key(self, request: pb.CreateKeyRequest) -> pb.CreateKeyResponse:
        """Make an API key; it is in the answer alone."""
        owner = self._owner(request.principal, "CreateKey")
        check_text("label", request.label, max_chars=_LABEL_CHARS)
        expires_at = None
        if request.HasField("ttl"):
            seconds = request.ttl.seconds
            if not 0 < seconds <= _MOST_SECONDS:
                raise InvalidInputError.at("ttl", "must be between a second and 100 years.")
            expires_at = datetime.fromtimestamp(datetime.now(UTC).timestamp() + seconds, UTC)
        key = new_key()

        async def add(conn: Connection) -> set[str]:
            who = self._renew_caller()
            self._owner(request.principal, "CreateKey")
            if who.name == owner and who.expires_at is not None and (expires_at is None or expires_at > who.expires_at):
                raise InvalidInputError.at("ttl", "must end the key no later than the proof that you call with ends.")
            if await access.missing_principal(conn, owner):
                raise PrincipalNotFoundError(owner)
            if len(self._known.keys_of(owner)) >= MOST_KEYS:
                raise TooManyKeysError(owner)
            await access.add_key(conn, key.key_id, owner, digest(key.text), label=request.label, expires_at=expires_at)
            return {owner}

        await self._known.change(add)
        row = self._known.key(key.key_id)
        if row is None:  # somebody has deleted it meanwhile
            raise KeyNotFoundError(key.key_id)
        return pb.CreateKeyResponse(key=key.text, api_key=self._key_message(row))

    async def list_keys(self, request: pb.ListKeysRequest) -> pb.ListKeysResponse:
        """The API keys of the caller, of another principal, or of all."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": str})
        if request.principal == _EVERYBODY:
            _check_server_role("ListKeys")
            found: Sequence[KeyRow] = self._known.all_keys()
        else:
            found = self._known.keys_of(self._owner(request.principal, "ListKeys"))
        ordered = sorted(found, key=lambda each: each.key_id)
        after = cursor["after"] if cursor else ""
        listed = [each for each in ordered if each.key_id > after][: size + 1]
        last = {"after": listed[size - 1].key_id} if len(listed) > size else None
        return pb.ListKeysResponse(
            keys=[self._key_message(each) for each in listed[:size]], next_page_token=self._pages.write(request, last)
        )

    async def delete_key(self, request: pb.DeleteKeyRequest) -> pb.DeleteKeyResponse:
        """End an API key."""
        key_id = needed("key_id", request.key_id)

        async def delete(conn: Connection) -> set[str]:
            who = self._renew_caller()
            row = self._known.key(key_id)
            if row is None or (row.principal != who.name and who.server_role < Role.ADMIN):
                raise KeyNotFoundError(key_id)
            await access.delete_key(conn, key_id)
            return {row.principal}

        await self._known.change(delete)
        return pb.DeleteKeyResponse()

    # --- Roles -------------------------------------------------------------------------------------------------------

    async def grant_role(self, request: pb.GrantRoleRequest) -> pb.GrantRoleResponse:
        """Give a principal a role in a workspace, or in all."""
        workspace_id = await self._administered(request.workspace, "GrantRole")
        name, branches = self._find(request.principal, "principal").name, _pattern(request.branches)
        if request.role not in pb.Role.values()[1:]:
            raise InvalidInputError.at("role", "is needed: READER, WRITER, REVIEWER or ADMIN.")
        role, tools = Role(request.role), self._limits(request.tools)
        if role is Role.READER and branches != ALL_BRANCHES:
            raise InvalidInputError.at(
                "branches",
                "limits nothing for READER, which reads the whole workspace: the commits of one branch are reached "
                "from another. Leave it out, or keep what not all of them may read in a workspace of its own.",
            )

        async def put(conn: Connection) -> set[str]:
            self._check_still_administers(workspace_id, "GrantRole")
            if await access.missing_principal(conn, name):
                raise PrincipalNotFoundError(name)
            held = self._known.acting(name).grants_in(workspace_id)
            if len(held) >= MOST_GRANTS and all(grant.branches != branches for grant in held):
                raise TooManyGrantsError(name, request.workspace)
            await access.put_grant(conn, GrantRow(name, workspace_id, branches, role.name.lower(), tools))
            return {name}

        await self._known.change(put)
        return pb.GrantRoleResponse(principal=principal_message(self._as_seen(name, workspace_id)))

    async def revoke_role(self, request: pb.RevokeRoleRequest) -> pb.RevokeRoleResponse:
        """Take a role away."""
        workspace_id = await self._administered(request.workspace, "RevokeRole")
        name, branches = needed("principal", request.principal), _pattern(request.branches)

        async def delete(conn: Connection) -> set[str]:
            self._check_still_administers(workspace_id, "RevokeRole")
            if not await access.delete_grant(conn, name, workspace_id, branches):
                raise GrantNotFoundError(name, request.workspace, branches)
            return {name}

        await self._known.change(delete)
        return pb.RevokeRoleResponse(principal=principal_message(self._as_seen(name, workspace_id)))

    def _limits(self, tools: Collection[str]) -> tuple[str, ...]:
        return _limits(tools, self._tools(), self._resource_fault)

    def _find(self, name: str, field: str = "name") -> Principal:
        found = self._known.find(needed(field, name))
        if found is None:
            raise PrincipalNotFoundError(name)
        return found

    def _renew_caller(self) -> Principal:
        """Look at the caller again, within a change: its key or role may have gone while the change waited.

        Raises:
            KeyRefusedError: Its proof is valid no more.
        """
        who = principal()
        if who.is_known:
            who = self._known.renewed(who).calling()  # no call of this service is a tool
            act_as(who)
        return who

    def _check_still_administers(self, workspace_id: str, call: str) -> None:
        who = self._renew_caller()
        if not who.administers(workspace_id):
            raise RoleMissingError(who.name, call, Role.ADMIN.name, "on all branches of the workspace")

    def _owner(self, name: str, call: str) -> str:
        """Whose keys are meant: those of the caller, or of somebody else if it administers the server."""
        who = principal()
        if name in {"", who.name}:
            return who.name
        _check_server_role(call)
        return self._find(name).name

    async def _administered(self, workspace: str, call: str) -> str:
        """The id of a workspace that the caller administers, or `ALL_WORKSPACES`."""
        who = principal()
        if needed("workspace", workspace) == ALL_WORKSPACES:
            _check_server_role(call)
            return ALL_WORKSPACES
        async with self._database.connection() as conn:
            found = await registry.find_workspace(conn, workspace)
        if not who.reads(found.workspace_id):
            raise WorkspaceNotFoundError(workspace)
        if not who.administers(found.workspace_id):
            raise RoleMissingError(who.name, call, Role.ADMIN.name, f"on all branches of the workspace {found.name}")
        return found.workspace_id

    def _as_seen(self, name: str, workspace_id: str) -> Principal:
        """A principal with the roles that the caller may see: all, or those in the workspace that it administers."""
        found = self._known.find(name) or Principal(name)
        return found if principal().server_role >= Role.ADMIN else _within(found, workspace_id)

    def _key_message(self, row: KeyRow) -> pb.ApiKey:
        used_at = self._known.last_use(row)
        return pb.ApiKey(
            id=row.key_id,
            principal=row.principal,
            label=row.label,
            create_time=timestamp(row.created_at),
            expire_time=None if row.expires_at is None else timestamp(row.expires_at),
            last_use_time=None if used_at is None else timestamp(used_at),
        )


def principal_message(who: Principal) -> pb.Principal:
    """A principal as a message."""
    return pb.Principal(
        name=who.name,
        email=who.email,
        grants=[
            pb.Grant(workspace=grant.workspace_id, branches=grant.branches, role=_role(grant), tools=grant.tools)
            for grant in who.grants
        ],
    )


def _role(grant: Grant) -> pb.Role.ValueType:
    return pb.Role.Value(f"ROLE_{grant.role.name}")


def _within(who: Principal, workspace_id: str) -> Principal:
    """A principal with its roles in one workspace alone."""
    return Principal(who.name, who.email, tuple(who.grants_in(workspace_id)))


def _limits(
    given: Collection[str], known: Collection[str] | None, resource_fault: Callable[[str, str], str]
) -> tuple[str, ...]:
    """The tools that a role is limited to, each once, in their order; none for a role without that limit."""
    if len(given) > MOST_TOOLS:
        raise InvalidInputError.at("tools", f"has {len(given)} entries; a role may have {MOST_TOOLS}.")
    for number, each in enumerate(given):
        field = f"tools[{number}]"
        if not is_tool_limit(each):
            raise InvalidInputError.at(
                field,
                "must be the name of a tool, the beginning of names and '*', or a name with a folder or host "
                "(read_file:/srv/manuals).",
            )
        if known is not None and not any(names_tool((each,), name) for name in known):
            near = nearest(each.partition(":")[0].rstrip("*"), known)
            guess = f" Did you mean {near}?" if near else ""
            raise InvalidInputError.at(field, f"{shown(each)!r} names no tool.{guess}")
        name, colon, resource = each.partition(":")
        if colon and (fault := resource_fault(name, resource)):
            raise InvalidInputError.at(field, fault)
    return tuple(sorted(set(given)))


def _pattern(branches: str) -> str:
    pattern = branches or ALL_BRANCHES
    if not is_pattern(pattern):
        raise InvalidInputError.at("branches", "must be the name of a branch, or the beginning of names and '*'.")
    return pattern


def _check_server_role(call: str) -> None:
    who = principal()
    if who.server_role < Role.ADMIN:
        raise RoleMissingError(who.name, call, Role.ADMIN.name, "in all workspaces")
