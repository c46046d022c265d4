"""Checks a call before its operation: who calls must have the role that the RPC needs, where it needs it.

What a principal may not read does not exist for it: the error is the one for a workspace or session that is not there.

A role that is limited to tools holds for the RPCs of these tools alone, whichever way the call comes.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from memotree_storage.cache import BoundedCache
from memotree_storage.model.node import is_id
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.postgres import registry, sessions
from memotree_storage.postgres.registry import RevisionNotFoundError, Workspace
from memotree_storage.postgres.sessions import SessionNotFoundError
from memotree_storage.store import Store

from memotree.identity.access import Access
from memotree.identity.errors import RoleMissingError, ToolNotPermittedError
from memotree.identity.permissions import PERMISSIONS, Permission, Place
from memotree.request import lookup
from memotree.request.principal import Principal, Role, calling_function

SESSION_FIELD: Final = "session_id"
REVISION_FIELDS: Final = ("revision", "old_revision", "new_revision", "tests_at", "source")
"""The fields of requests that may name a session among other things; a session of somebody else is none."""

_OWN_NAME_FIELDS: Final = ("reviewer", "by")
"""The fields that name who does it, for what nobody does in the name of another."""

FOR_ALL: Final = frozenset({"MaintenanceService.GetStatus"})
"""RPCs that are tools and may be called with any role, as without one: so clients look whether a server is there. They
tell of what the roles for this tool reach."""

_MOST_OWNERS: Final = 100_000

BranchesOf = Callable[[str, int], Awaitable[tuple[str, str]]]
"""Returns the branch of a proposal and its target, given the id of its workspace and its number."""


class Guard:
    """Checks calls.

    Args:
        store: Finds workspaces and sessions.
        access: Knows the roles.
        branches_of: Finds the branches of proposals.
        tools: The tools that each RPC stands for, by the service and the RPC; those that are none may be missing.
    """

    def __init__(
        self, store: Store, access: Access, branches_of: BranchesOf, tools: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._tools = tools or {}
        self._store = store
        self._access = access
        self._branches_of = branches_of
        self._deletions = access.deletions
        self._owners: BoundedCache[tuple[str, str], str] = BoundedCache(_MOST_OWNERS)

    def changes(self) -> int:
        """How often it was changed who may call and what: what was admitted before may be refused now."""
        return self._access.changes

    async def admit(self, call: str, request: Any, who: Principal) -> Principal:
        """Let a call pass, or refuse it.

        This changes the request: from here on its workspace is named by its id, and where it names who makes it, that
        is the caller.

        Args:
            call: The service and the RPC, such as ``NodeService.GetNode``.
            request: The request.
            who: Who calls, as it was when the call began.

        Returns:
            Who calls, with the roles that it has now.

        Raises:
            NotAuthenticatedError: It is not proved who calls.
            KeyRefusedError: The proof is valid no more.
            RoleMissingError: A role is missing.
            ToolNotPermittedError: The roles that would permit it are limited to other tools.
            WorkspaceNotFoundError: The workspace is not there, or the caller may not read it.
            SessionNotFoundError: The session is not there, or is somebody else's.
            RevisionNotFoundError: The revision is the session of somebody else.
        """
        who = self._access.renewed(who)
        await self._check(call, request, who)
        if not who.is_limited:
            return who
        function = calling_function()
        return await self._limited(call, request, who, (function,) if function else self._tools.get(call, ()))

    async def admit_work(self, call: str, request: Any, who: Principal) -> None:
        """Let work begin that a call has asked for, such as a job, or refuse it: roles may have changed meanwhile.

        Like `admit`, it changes the request.

        Args:
            call: The service and the RPC that asked for it.
            request: Its request.
            who: For whom it is done.
        """
        who = self._access.acting(who.name)
        await self._check(call, request, who)
        if who.is_limited and call in self._tools:  # what is no tool follows from other calls, which were checked
            await self._limited(call, request, who, self._tools[call])

    async def _limited(self, call: str, request: Any, who: Principal, tools: Collection[str]) -> Principal:
        """Check a permitted call once more, with those roles alone that hold for its tools; returns who has them."""
        limited = who.calling(*tools)
        refused = ToolNotPermittedError.of_call(who.name, _rpc(call), tools)
        if PERMISSIONS[call].place is Place.ANYWHERE:
            if tools and not limited.grants and call not in FOR_ALL:
                raise refused
            return limited
        try:
            await self._check(call, request, limited)
        except (RoleMissingError, WorkspaceNotFoundError, SessionNotFoundError, RevisionNotFoundError):
            raise refused from None
        return limited

    async def _check(self, call: str, request: Any, who: Principal) -> None:
        """Write the caller's name and the workspace's id into the request, and refuse a call that lacks a role."""
        needed = PERMISSIONS.get(call)
        if needed is None:
            raise RoleMissingError(who.name, _rpc(call), Role.ADMIN.name, "that no principal has")
        _write_own_name(request, who)
        if needed.place is Place.ANYWHERE:
            return
        if needed.place is Place.SERVER:
            if who.server_role < needed.role:
                raise _missing(who, call, needed, "in all workspaces")
            return
        named = lookup.needed("workspace", request.workspace)
        workspace = await self._workspace(named)
        if not who.reads(workspace.workspace_id):
            raise WorkspaceNotFoundError(named)
        request.workspace = workspace.workspace_id  # a workspace that gets this name meanwhile is another one
        await self._check_sessions(workspace.workspace_id, request, who)
        await self._check_role(call, needed, workspace, request, who)

    async def _workspace(self, named: str) -> Workspace:
        known = lookup.known_revision(self._store, named, "")
        if known is not None:
            return known.workspace
        async with self._store.database.connection() as conn:
            try:
                return (await lookup.read_revision(self._store, conn, named, "")).workspace
            except RevisionNotFoundError:  # its default branch is gone
                return await registry.find_workspace(conn, named)

    async def _check_sessions(self, workspace_id: str, request: Any, who: Principal) -> None:
        if who.administers(workspace_id):
            return
        for name in _session_fields(request.DESCRIPTOR):
            text = getattr(request, name)
            if is_id(text) and await self._is_of_another(workspace_id, text, who):
                raise SessionNotFoundError(text) if name == SESSION_FIELD else RevisionNotFoundError(text)
        read_in = getattr(getattr(request, "receipt", None), SESSION_FIELD, "")  # of a recall in a session
        if is_id(read_in) and await self._is_of_another(workspace_id, read_in, who):
            raise SessionNotFoundError(read_in)

    async def _is_of_another(self, workspace_id: str, session_id: str, who: Principal) -> bool:
        if self._deletions != self._access.deletions:  # names may mean somebody else now
            self._deletions = self._access.deletions
            self._owners = BoundedCache(_MOST_OWNERS)
        owner = self._owners.get((workspace_id, session_id))
        if owner is None:
            async with self._store.database.connection() as conn:
                owner = await sessions.owner_of(conn, workspace_id, session_id)
            if owner is None:
                return False
            self._owners.put((workspace_id, session_id), owner)
        return owner != who.name

    async def _check_role(
        self, call: str, needed: Permission, workspace: Workspace, request: Any, who: Principal
    ) -> None:
        workspace_id = workspace.workspace_id
        if needed.place is Place.PROPOSAL:
            branches = await self._branches_of(workspace_id, request.number)
            found = max(who.role(workspace_id, branch) for branch in branches)
            place = f"on the branch {branches[0]} or {branches[1]} of {workspace.name}"
        elif needed.place is Place.WORKSPACE:
            found, place = who.role(workspace_id), f"in the workspace {workspace.name}"
        elif needed.place is Place.ALL_BRANCHES:
            found, place = who.role_on_all(workspace_id), f"on all branches of the workspace {workspace.name}"
        else:
            branch = await self._branch(call, needed, workspace, request)
            if branch is None:
                found, place = who.role(workspace_id), f"in the workspace {workspace.name}"
            else:
                found, place = who.role(workspace_id, branch), f"on the branch {branch} of {workspace.name}"
        if found < needed.role:
            raise _missing(who, call, needed, place)
        if call == "ReviewService.MergeProposal" and request.delete_branch:
            source, _ = await self._branches_of(workspace_id, request.number)
            if who.role(workspace_id, source) < Role.WRITER:
                raise RoleMissingError(who.name, "DeleteBranch", Role.WRITER.name, f"on the branch {source}")
        tagged = getattr(request, "create_tag", False) and call == "SessionService.CommitChanges"
        if tagged and who.role_on_all(workspace_id) < needed.role:
            raise _missing(who, call, needed, f"on all branches of the workspace {workspace.name}, to make a tag")

    async def _branch(self, call: str, needed: Permission, workspace: Workspace, request: Any) -> str | None:
        """The branch that a call changes; ``None`` if it only stages in a session."""
        if needed.place is Place.TARGET:
            return (await self._branches_of(workspace.workspace_id, request.number))[1]
        if call == "SessionService.CommitChanges":
            async with self._store.database.connection() as conn:
                return await sessions.branch_of(conn, workspace.workspace_id, request.session_id)
        if call in {"HistoryService.CreateBranch", "HistoryService.DeleteBranch"}:
            return lookup.needed("name", request.name)
        if call == "NodeService.BatchChangeNodes":
            return (request.commit.branch or workspace.default_branch) if request.HasField("commit") else None
        if getattr(request, SESSION_FIELD, ""):
            return None
        return str(request.branch or workspace.default_branch)


@cache
def _session_fields(request: Descriptor) -> tuple[str, ...]:
    """The fields of a request that may name a session."""
    texts = {field.name for field in request.fields if field.type == field.TYPE_STRING and not field.is_repeated}
    return tuple(name for name in (SESSION_FIELD, *REVISION_FIELDS) if name in texts)


def _write_own_name(request: Any, who: Principal) -> None:
    """Write into a request who makes it, in place of the name that it gives: clients fill in a login name."""
    for name in _OWN_NAME_FIELDS:
        field = request.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and field.message_type is None:
            setattr(request, name, who.name)
        elif field is not None:
            getattr(request, name).name = who.name


def _missing(who: Principal, call: str, needed: Permission, place: str) -> RoleMissingError:
    return RoleMissingError(who.name, _rpc(call), needed.role.name, place)


def _rpc(call: str) -> str:
    return call.partition(".")[2]
