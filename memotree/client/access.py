"""Who may call a server: principals, their API keys and roles, and the calls that read and change them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from google.protobuf.duration_pb2 import Duration

from memotree.client.enums import Role, RoleName, from_wire, to_wire
from memotree.client.node_values import moment
from memotree.client.paging import pages
from memotree.client.transport import Transport
from memotree.v1 import access_service_pb2 as pb

_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a workspace.

    Attributes:
        workspace: The id of the workspace; ``*`` for all.
        branches: The branches on which it holds: a name, or the beginning of names and ``*``.
        role: The role.
        tools: The tools that it holds for, as names and as beginnings of names with ``*``; for all calls if empty.
    """

    workspace: str
    branches: str
    role: Role
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a program that calls; ``email`` is the address with which it authors commits."""

    name: str
    email: str
    grants: tuple[Grant, ...]

    @classmethod
    def from_wire(cls, message: pb.Principal) -> Self:
        """Reads the message."""
        grants = (
            Grant(each.workspace, each.branches, from_wire(Role, each.role, Role.NONE), tuple(each.tools))
            for each in message.grants
        )
        return cls(message.name, message.email, tuple(grants))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, without the key itself.

    Attributes:
        id: Names the key; no secret.
        principal: Whose key it is.
        label: What it is for.
        create_time: When it was made.
        expire_time: When it ends; ``None`` if it does not.
        last_use_time: When it was last used, to about a minute; ``None`` if it never was.
    """

    id: str
    principal: str
    label: str
    create_time: datetime | None
    expire_time: datetime | None
    last_use_time: datetime | None

    @classmethod
    def from_wire(cls, message: pb.ApiKey) -> Self:
        """Reads the message."""
        times = (moment(message, name) for name in ("create_time", "expire_time", "last_use_time"))
        return cls(message.id, message.principal, message.label, *times)


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """An API key that was just made; ``key`` is the key itself, which the server shows once."""

    key: str = field(repr=False)
    api_key: ApiKey


class AsyncAccess:
    """Reads and changes who may call the server."""

    _transport: Transport

    async def principal(self, name: str = "") -> Principal:
        """The principal of a name; who calls, if it is empty."""
        answer = await self._transport.call(pb.GetPrincipalRequest(name=name), pb.GetPrincipalResponse)
        return Principal.from_wire(answer.principal)

    def principals(self, workspace: str = "") -> AsyncIterator[Principal]:
        """The principals, by name.

        Args:
            workspace: Only those with roles in this workspace, and only these roles.
        """
        return pages(
            self._transport,
            pb.ListPrincipalsRequest(workspace=workspace, page_size=_PER_PAGE),
            pb.ListPrincipalsResponse,
            lambda page: map(Principal.from_wire, page.principals),
        )

    async def put_principal(self, name: str, *, email: str = "") -> Principal:
        """Adds a principal, or changes the address with which it authors commits."""
        request = pb.PutPrincipalRequest(name=name, email=email)
        return Principal.from_wire((await self._transport.call(request, pb.PutPrincipalResponse)).principal)

    async def delete_principal(self, name: str) -> None:
        """Deletes a principal with its keys and roles; what it has made stays."""
        await self._transport.call(pb.DeletePrincipalRequest(name=name), pb.DeletePrincipalResponse)

    async def create_key(self, principal: str = "", *, label: str = "", ttl: timedelta | None = None) -> NewApiKey:
        """Makes an API key.

        Args:
            principal: Whose key it is; yours if empty.
            label: What it is for.
            ttl: How long it is valid, in whole seconds; without an end if ``None``.
        """
        duration = None if ttl is None else Duration(seconds=int(ttl.total_seconds()))
        request = pb.CreateKeyRequest(principal=principal, label=label, ttl=duration)
        answer = await self._transport.call(request, pb.CreateKeyResponse)
        return NewApiKey(answer.key, ApiKey.from_wire(answer.api_key))

    def keys(self, principal: str = "") -> AsyncIterator[ApiKey]:
        """The API keys of a principal: yours if it is empty, those of everybody for ``*``."""
        return pages(
            self._transport,
            pb.ListKeysRequest(principal=principal, page_size=_PER_PAGE),
            pb.ListKeysResponse,
            lambda page: map(ApiKey.from_wire, page.keys),
        )

    async def delete_key(self, key_id: str) -> None:
        """Ends an API key: from now on it proves nothing."""
        await self._transport.call(pb.DeleteKeyRequest(key_id=key_id), pb.DeleteKeyResponse)

    async def grant_role(
        self, principal: str, role: Role | RoleName, *, workspace: str, branches: str = "", tools: Sequence[str] = ()
    ) -> Principal:
        """Gives a principal a role in a workspace, in place of the one that it had there on the same branches.

        Args:
            principal: Who gets it.
            role: The role.
            workspace: The workspace; ``*`` for all.
            branches: The branches on which it holds: a name, or the beginning of names and ``*``; all if empty.
            tools: The tools that it holds for: names, beginnings of names with ``*``, and names with a folder or
                host that the tool may reach (``read_file:/srv/manuals``); all calls if empty.
        """
        request = pb.GrantRoleRequest(
            principal=principal, workspace=workspace, branches=branches, role=to_wire(Role, role), tools=tools
        )
        return Principal.from_wire((await self._transport.call(request, pb.GrantRoleResponse)).principal)

    async def revoke_role(self, principal: str, *, workspace: str, branches: str = "") -> Principal:
        """Takes a role away.

        Args:
            principal: Who loses it.
            workspace: The workspace; ``*`` for the role in all.
            branches: The branches for which it was given; all if empty.
        """
        request = pb.RevokeRoleRequest(principal=principal, workspace=workspace, branches=branches)
        return Principal.from_wire((await self._transport.call(request, pb.RevokeRoleResponse)).principal)
