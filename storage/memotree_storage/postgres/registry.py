"""The workspaces that are registered in PostgreSQL, and the resolution of revision names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import psycopg
import structlog
from psycopg.rows import class_row

from memotree_storage.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from memotree_storage.model.workspace import WorkspaceInfo, WorkspaceNotFoundError
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import State

_log = structlog.get_logger(__name__)


class WorkspaceExistsError(AlreadyExistsError):
    """Another workspace has this name."""

    reason = "WORKSPACE_EXISTS"

    def __init__(self, name: str) -> None:
        super().__init__(f"A workspace named {name!r} exists already. Choose another name.", "workspace", name)


class RevisionNotFoundError(NotFoundError):
    """No session, branch, tag or commit of the workspace has this name."""

    reason = "REVISION_NOT_FOUND"

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"There is no session, branch, tag or commit {revision!r} in this workspace. "
            "List them with ListSessions, ListBranches, ListTags or ListCommits.",
            "revision",
            revision,
        )


class AmbiguousRevisionError(InvalidInputError):
    """A commit prefix matches several commits, or a branch and a tag have the same name."""

    reason = "AMBIGUOUS_REVISION"


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace as it is mirrored."""

    workspace_id: str
    name: str
    description: str
    default_branch: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Resolved:
    """A resolved revision.

    Attributes:
        kind: ``session``, ``branch``, ``tag`` or ``commit``.
        name: The session's id, the branch's or tag's name, or the full commit id.
        state: The state of the tree that the revision names.
        is_use_due: Whether it is an open session that was last marked as used a minute ago, or a tenth of its time to
            live if that is shorter. Then a reader marks it again (`sessions.mark_used`), so reads rarely write.
    """

    kind: str
    name: str
    state: State
    is_use_due: bool = False


@dataclass(frozen=True, slots=True)
class _PlaceRow:
    """A workspace, with one possible interpretation of a revision; ``kind`` is ``None`` if there is none."""

    workspace_id: str
    workspace_name: str
    description: str
    default_branch: str
    created_at: datetime
    kind: str | None
    rank: int | None
    name: str
    commit_id: str
    session_id: str | None
    is_use_due: bool

    def workspace(self) -> Workspace:
        """The workspace."""
        return Workspace(self.workspace_id, self.workspace_name, self.description, self.default_branch, self.created_at)


_WORKSPACE = "workspace_id, name, description, default_branch, created_at"

BY_ID_OR_NAME: Final = (
    "where name = %(workspace)s or workspace_id = %(workspace)s order by workspace_id <> %(workspace)s limit 1"
)
"""Selects one row of ``mirror.workspace``. An id takes precedence over a workspace that has this id as its name."""

_WHOLE_ID, _SESSION, _WHOLE, _BRANCH, _TAG, _PREFIX, _OLD_PREFIX = range(7)
"""The interpretations of a revision, best first; git itself also ignores a ref that is named like a full commit id."""

_PLACE = f"""
  with w as (
    select {_WORKSPACE}, coalesce(nullif(%(revision)s::text, ''), 'refs/heads/' || default_branch) as wanted
      from mirror.workspace {BY_ID_OR_NAME})
  select w.workspace_id, w.name as workspace_name, w.description, w.default_branch, w.created_at, r.*
    from w left join lateral (
      select 'session' as kind, {_SESSION} as rank, s.session_id as name, s.base_commit as commit_id, s.session_id,
             s.state = 'open' and s.used_at + s.ttl >= now()
               and s.used_at < now() - least(s.ttl / 10, interval '1 minute') as is_use_due
        from work.session s where s.workspace_id = w.workspace_id and s.session_id = w.wanted
      union all
      select 'branch', case when b.name = w.wanted then {_WHOLE} else {_BRANCH} end, substr(b.name, 12), b.commit_id,
             null, false from mirror.ref b
       where b.workspace_id = w.workspace_id and b.name in ('refs/heads/' || w.wanted, w.wanted)
         and b.name like 'refs/heads/%%'
      union all
      select 'tag', case when t.name = w.wanted then {_WHOLE} else {_TAG} end, substr(t.name, 11), t.commit_id,
             null, false from mirror.ref t
       where t.workspace_id = w.workspace_id and t.name in ('refs/tags/' || w.wanted, w.wanted)
         and t.name like 'refs/tags/%%'
      union all
      (select 'commit', case when c.commit_id = w.wanted then {_WHOLE_ID} else {_PREFIX} end, c.commit_id, c.commit_id,
              null, false from mirror.commit c
        where w.wanted ~ '^[0-9a-f]{{4,40}}$' and c.workspace_id = w.workspace_id
          and c.commit_id >= w.wanted and c.commit_id < w.wanted || 'g' limit 2)
      union all
      (select 'commit', case when o.old_commit = w.wanted then {_WHOLE_ID} else {_OLD_PREFIX} end, o.new_commit,
              o.new_commit, null, false from mirror.rewritten o
        where w.wanted ~ '^[0-9a-f]{{4,40}}$' and o.workspace_id = w.workspace_id
          and o.old_commit >= w.wanted and o.old_commit < w.wanted || 'g' limit 2)
    ) r on true order by r.rank"""  # noqa: S608 - a constant of this module


async def put_workspace(conn: Connection, info: WorkspaceInfo) -> None:
    """Register a workspace, or update its description.

    Raises:
        WorkspaceExistsError: Another workspace has this name.
    """
    try:
        await conn.execute(
            "insert into mirror.workspace (workspace_id, name, description, created_at) values (%s, %s, %s, %s)"
            " on conflict (workspace_id) do update set name = excluded.name, description = excluded.description,"
            " created_at = excluded.created_at",
            (info.workspace_id, info.name, info.description, info.created_at),
        )
    except psycopg.errors.UniqueViolation as error:
        raise WorkspaceExistsError(info.name) from error


async def find_workspace(conn: Connection, name: str) -> Workspace:
    """Return the workspace with this id or name; an id takes precedence over a name.

    Raises:
        WorkspaceNotFoundError: There is none.
    """
    async with conn.cursor(row_factory=class_row(Workspace)) as cursor:
        await cursor.execute(
            f"select {_WORKSPACE} from mirror.workspace {BY_ID_OR_NAME}",  # noqa: S608 - constants of this module
            {"workspace": name},
        )
        found = await cursor.fetchone()
    if found is None:
        raise WorkspaceNotFoundError(name)
    return found


@dataclass(frozen=True, slots=True)
class MadeWorkspace:
    """A workspace, and the message of its first commit."""

    workspace: Workspace
    message: str


async def made_by_request(conn: Connection, name: str, request_id: str) -> MadeWorkspace | None:
    """Return the workspace with this name if this request created it, by the trailer of its first commit.

    The caller may not have received the first answer, and repeat the request.
    """
    if not request_id:
        return None
    cursor = await conn.execute(
        f"select {_WORKSPACE}, message from mirror.workspace w join mirror.commit c using (workspace_id)"  # noqa: S608
        " where name = %s and c.request_id = %s and cardinality(c.parents) = 0",
        (name, request_id),
    )
    row = await cursor.fetchone()
    return None if row is None else MadeWorkspace(Workspace(*row[:-1]), row[-1])


async def list_workspaces(
    conn: Connection, *, after: str = "", limit: int | None = None, ids: Collection[str] | None = None
) -> list[Workspace]:
    """Return workspaces ordered by name, starting after the given name; only those of ``ids``, if it is given."""
    among = "" if ids is None else " and workspace_id = any(%(ids)s)"
    async with conn.cursor(row_factory=class_row(Workspace)) as cursor:
        await cursor.execute(
            f"select {_WORKSPACE} from mirror.workspace where name > %(after)s{among} order by name limit %(limit)s",  # noqa: S608
            {"after": after, "limit": limit, "ids": None if ids is None else list(ids)},
        )
        return await cursor.fetchall()


async def remove_workspace(conn: Connection, workspace_id: str) -> None:
    """Delete the working state of a workspace; `projector.forget` deletes its mirror."""
    for table in ("session", "view", "request", "job", "access_grant", "conversation"):
        await conn.execute(f"delete from work.{table} where workspace_id = %s", (workspace_id,))  # noqa: S608


async def default_branch(conn: Connection, workspace_id: str) -> str:
    """Return the name of a workspace's default branch; "" if the workspace is gone."""
    cursor = await conn.execute("select default_branch from mirror.workspace where workspace_id = %s", (workspace_id,))
    row = await cursor.fetchone()
    return "" if row is None else str(row[0])


async def lock_workspace(conn: Connection, workspace_id: str, *, alone: bool = False) -> None:
    """Lock the mirror of a workspace for changes until the transaction ends.

    This switches the statement timeout off for the transaction: a ref may have moved, which the mirror must follow.
    With ``alone``, the lock also excludes the indexer, which otherwise runs beside commits.

    Raises:
        WorkspaceNotFoundError: The workspace was deleted.
    """
    strength = "update" if alone else "no key update"
    for _ in range(2):  # a rebuild replaces the row for which the first attempt waited
        cursor = await conn.execute(
            "select set_config('statement_timeout', '0', true) from mirror.workspace where workspace_id = %s"  # noqa: S608
            f" for {strength}",
            (workspace_id,),
        )
        if await cursor.fetchone() is not None:
            return
    raise WorkspaceNotFoundError(workspace_id)


async def resolve(
    conn: Connection, workspace: str, revision: str, field: str = "revision"
) -> tuple[Workspace, Resolved]:
    """Return the workspace with this id or name, and the state that a revision names in it; "" is the default branch.

    A revision is a full commit id, a session, a full ref name (``refs/tags/v1``), a branch or a tag, or a unique prefix
    of a commit id of four digits or more, in this order. The id that a commit had before an erasure stands for the one
    that it has now. ``field`` is the caller's name for the revision.

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
        RevisionNotFoundError: Nothing in the workspace has this name.
        AmbiguousRevisionError: Several commits match the prefix, or a branch and a tag have the name.
    """
    async with conn.cursor(row_factory=class_row(_PlaceRow)) as cursor:
        await cursor.execute(_PLACE, {"workspace": workspace, "revision": revision})
        rows = await cursor.fetchall()
    if not rows:
        raise WorkspaceNotFoundError(workspace)
    best, *others = rows
    if best.kind is None:
        raise RevisionNotFoundError(revision or best.default_branch)
    if best.rank == _BRANCH and others and others[0].rank == _TAG:
        raise AmbiguousRevisionError.at(
            field,
            f"{revision!r} is a branch and a tag; give 'refs/heads/{best.name}' for the branch or "
            f"'refs/tags/{best.name}' for the tag, or delete one of them.",
        )
    if best.rank in {_PREFIX, _OLD_PREFIX} and any(one.rank == best.rank for one in others):
        raise AmbiguousRevisionError.at(
            field, f"{revision!r} could be {best.name[:16]} or {others[0].name[:16]}; give more digits."
        )
    state = State(best.workspace_id, best.commit_id, best.session_id)
    return best.workspace(), Resolved(best.kind, best.name, state, best.is_use_due)


async def register(conn: Connection, info: WorkspaceInfo) -> None:
    """Register a workspace by its name, or by its other name if another workspace has the name."""
    try:
        async with conn.transaction():
            await put_workspace(conn, info)
    except AlreadyExistsError:
        _log.warning("another workspace has the name of this one", name=info.name, registered_as=info.other_name)
        await put_workspace(conn, replace(info, name=info.other_name))


def told_apart(infos: list[WorkspaceInfo], registered: Mapping[str, str]) -> list[WorkspaceInfo]:
    """The workspaces with unique names: of several with one name, one keeps it, the others get their other name.

    The one that is registered with the name keeps it, whatever the files of others say; else the oldest one does.
    Renamed workspaces come first, so that a name is free when the workspace that keeps it is registered.
    """
    first: dict[str, WorkspaceInfo] = {}
    by_right = sorted(infos, key=lambda info: registered.get(info.workspace_id) != info.name)
    later = [info for info in by_right if first.setdefault(info.name, info) is not info]
    for info in later:
        _log.warning("two workspaces have the same name; rename one", name=info.name, registered_as=info.other_name)
    return [*(replace(info, name=info.other_name) for info in later), *first.values()]
