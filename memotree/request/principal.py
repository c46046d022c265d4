"""Who calls, and what they may do: found once for each call by the interface that it came through.

It is read by the check before each operation, and by whatever makes something that belongs to whoever calls.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from itertools import chain
from typing import Final

from memotree_storage.model.access import ALL_JOBS, ALL_WORKSPACES, JobSight
from memotree_storage.model.protection import names_branch
from memotree_storage.model.tool_patterns import names_tool, resources_in

ALL_BRANCHES: Final = "*"
"""The pattern that every branch matches; who has a role on it has it for tags and the workspace itself, too."""

_MOST_KEPT: Final = 64
"""For how many kinds of calls it is kept which roles of a principal hold."""


class Role(IntEnum):
    """What somebody may do in a workspace; each role may do all that the ones before it may."""

    NONE = 0
    READER = 1
    WRITER = 2
    REVIEWER = 3
    ADMIN = 4


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a workspace, on some of its branches.

    Attributes:
        workspace_id: The workspace, or `ALL_WORKSPACES`.
        branches: The name of a branch, or the beginning of names and ``*``.
        role: The role.
        tools: The tools that it holds for, as patterns of names, some with what the tool may reach; for all calls if
            there are none.
    """

    workspace_id: str
    branches: str
    role: Role
    tools: tuple[str, ...] = ()

    def permits(self, tools: Collection[str]) -> bool:
        """Whether it holds for a call that is made as one of some tools; a call of none needs a role for all calls."""
        return not self.tools or any(names_tool(self.tools, name) for name in tools)


class _GrantIndex:
    """The grants of a principal by workspace, with what each call asks of them; made once for the same grants.

    Attributes:
        grants: The grants.
        by_workspace: Those of each workspace, and those of all under `ALL_WORKSPACES`.
        on_any: The highest role of each workspace on any branch.
        on_all: The highest role of each workspace on all branches.
        is_limited: Whether one of them holds for some tools alone.
    """

    __slots__ = ("_permitting", "by_workspace", "grants", "is_limited", "on_all", "on_any")

    def __init__(self, grants: tuple[Grant, ...]) -> None:
        self.grants = grants
        self.by_workspace: dict[str, list[Grant]] = defaultdict(list)
        self.on_any: dict[str, Role] = {}
        self.on_all: dict[str, Role] = {}
        for grant in grants:
            self.by_workspace[grant.workspace_id].append(grant)
            for roles in (self.on_any, self.on_all) if grant.branches == ALL_BRANCHES else (self.on_any,):
                roles[grant.workspace_id] = max(grant.role, roles.get(grant.workspace_id, Role.NONE))
        self.is_limited = any(grant.tools for grant in grants)
        self._permitting: dict[tuple[str, ...], _GrantIndex] = {}

    def permitting(self, tools: tuple[str, ...]) -> "_GrantIndex":
        """The index of those grants alone that hold for a call, which is made as one of these tools."""
        found = self._permitting.get(tools)
        if found is None:
            found = _GrantIndex(tuple(grant for grant in self.grants if grant.permits(tools)))
            if len(self._permitting) >= _MOST_KEPT:
                self._permitting.clear()
            self._permitting[tools] = found
        return found


_NO_GRANTS: Final = _GrantIndex(())


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a program that calls.

    Attributes:
        name: The unique name.
        email: The address with which it authors commits; empty for that of the settings.
        grants: Its roles, as they were when the operation began.
        is_known: Whether it has proved who it is; only `LOCAL` has not.
        key_id: The API key that proved it; empty for another proof.
        expires_at: When the proof ends; ``None`` if it does not.
    """

    name: str
    email: str = ""
    grants: tuple[Grant, ...] = ()
    is_known: bool = True
    key_id: str = ""
    expires_at: datetime | None = None
    _index: _GrantIndex = field(default=_NO_GRANTS, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._index.grants is not self.grants:  # a copy by `replace` with the same grants keeps the index
            object.__setattr__(self, "_index", _GrantIndex(self.grants))

    @property
    def has_ended(self) -> bool:
        """Whether the proof has ended."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)

    @property
    def is_limited(self) -> bool:
        """Whether a role of it holds for some tools alone."""
        return self._index.is_limited

    def calling(self, *tools: str) -> "Principal":
        """The principal with those of its roles alone that hold for a call, which is made as one of these tools."""
        if not self.is_limited:
            return self
        found = self._index.permitting(tools)
        return replace(self, grants=found.grants, _index=found)

    def may_call(self, tool: str) -> bool:
        """Whether its roles let it call a tool at all; one without roles is not limited to any tools."""
        return not self.is_limited or any(grant.permits((tool,)) for grant in self.grants)

    def reach(self, tool: str, role: Role) -> tuple[str, ...] | None:
        """The folders or hosts to which a tool is limited that needs a role everywhere; ``None`` if it is not."""
        found: list[str] = []
        for grant in self.grants_in(ALL_WORKSPACES):
            if grant.branches != ALL_BRANCHES or grant.role < role or not grant.permits((tool,)):
                continue
            limits = resources_in(grant.tools, tool) if grant.tools else None
            if limits is None:
                return None
            found += limits
        return tuple(dict.fromkeys(found))

    @property
    def owner(self) -> str:
        """The name that what it makes is kept under; empty if it is not known."""
        return self.name if self.is_known else ""

    def grants_in(self, workspace_id: str) -> Sequence[Grant]:
        """Its roles that were given in this workspace; with `ALL_WORKSPACES`, those that were given in all."""
        return self._index.by_workspace.get(workspace_id, ())

    def within(self, workspace_id: str) -> Iterator[Grant]:
        """Yield its roles that hold in a workspace."""
        own = () if workspace_id == ALL_WORKSPACES else self.grants_in(workspace_id)
        return chain(own, self.grants_in(ALL_WORKSPACES))

    def role(self, workspace_id: str, branch: str | None = None) -> Role:
        """Its highest role in a workspace: on a branch, or on any branch if ``None``."""
        if branch is None:
            return _higher(self._index.on_any, workspace_id)
        found = (grant.role for grant in self.within(workspace_id) if names_branch(grant.branches, branch))
        return max(found, default=Role.NONE)

    def role_on_all(self, workspace_id: str) -> Role:
        """Its highest role on all branches of a workspace."""
        return _higher(self._index.on_all, workspace_id)

    @property
    def server_role(self) -> Role:
        """Its highest role in all workspaces, which is its role for the server itself."""
        return self.role_on_all(ALL_WORKSPACES)

    def administers(self, workspace_id: str) -> bool:
        """Whether it may see what others have made in a workspace: their sessions and jobs."""
        return self.role_on_all(workspace_id) >= Role.ADMIN

    def reads(self, workspace_id: str) -> bool:
        """Whether it may read a workspace."""
        return self.role(workspace_id) >= Role.READER

    @property
    def readable(self) -> frozenset[str] | None:
        """The ids of the workspaces that it may read; ``None`` for all."""
        read = frozenset(each for each, role in self._index.on_any.items() if role >= Role.READER)
        return None if ALL_WORKSPACES in read else read

    @property
    def jobs(self) -> JobSight:
        """Which jobs it sees: its own in workspaces that it may read, and all of those that it administers."""
        if self.server_role >= Role.ADMIN:
            return ALL_JOBS
        ids = self._index.by_workspace
        return JobSight(self.owner, sorted(each for each in ids if self.administers(each)), self.readable)


def _higher(roles: Mapping[str, Role], workspace_id: str) -> Role:
    """The higher one of the roles in a workspace and in all of them."""
    return max(roles.get(workspace_id, Role.NONE), roles.get(ALL_WORKSPACES, Role.NONE))


LOCAL: Final = Principal("local", grants=(Grant(ALL_WORKSPACES, ALL_BRANCHES, Role.ADMIN),), is_known=False)
"""Whoever calls a server without authentication: it serves only this machine, and everybody there may do everything."""

_CURRENT: ContextVar[Principal] = ContextVar("principal", default=LOCAL)

_CHECK: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("check", default=None)

_FUNCTION: ContextVar[str] = ContextVar("function", default="")


def principal() -> Principal:
    """Who makes the call that runs now."""
    return _CURRENT.get()


def act_as(who: Principal) -> None:
    """Let the rest of what runs in this context be done by a principal; each call has a context of its own."""
    _CURRENT.set(who)


async def check_again() -> None:
    """Look whether the stream that runs now may go on: its key or roles may have changed while it waited.

    From then on `principal` has the roles that it has now. Calls that are no streams, or of a server without
    authentication, go on.

    Raises:
        MemoTreeError: It may not go on; the error is the one of a call that begins now.
    """
    check = _CHECK.get()
    if check is not None:
        await check()


def check_again_with(check: Callable[[], Awaitable[None]]) -> None:
    """Let `check_again` do this in the rest of what runs in this context."""
    _CHECK.set(check)


@contextmanager
def acting_as(who: Principal) -> Iterator[None]:
    """Context manager in which calls are made by a principal."""
    token = _CURRENT.set(who)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def calling_function() -> str:
    """The tool whose function makes the calls that run now; empty if none does."""
    return _FUNCTION.get()


@contextmanager
def within_function(tool: str) -> Iterator[None]:
    """Context manager in which calls are made by the function of a tool, which the caller may call."""
    token = _FUNCTION.set(tool)
    try:
        yield
    finally:
        _FUNCTION.reset(token)
