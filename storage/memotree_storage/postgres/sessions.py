"""Working sessions: opened on a base commit, locked while they are changed, closed when they expire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from memotree_storage.errors import AbortedError, FailedPreconditionError, NotFoundError
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.postgres import registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot, State


class SessionNotFoundError(NotFoundError):
    """No session of this workspace has this id."""

    reason = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"There is no session {session_id!r} in this workspace. Open one with OpenSession.", "session", session_id
        )


class SessionRewoundError(AbortedError):
    """The branch of the session was moved back or aside by a push, and the session was not carried over yet."""

    reason = "BRANCH_REWOUND"

    @classmethod
    def of(cls, branch: str, base_commit: str) -> "SessionRewoundError":
        """The error for a session of this branch that is based on this commit."""
        return cls(
            f"Branch {branch} was rewound: commit {base_commit}, on which the session is based, is no longer on it. "
            "Nothing was written and everything is still staged. Look at the changes (ListChanges), carry them over to "
            "the branch as it is now (RebaseSession), and send the call again."
        )


class SessionClosedError(FailedPreconditionError):
    """The session is closed and accepts no changes."""

    reason = "SESSION_CLOSED"


_WHY_CLOSED: Final = {
    "discarded": "was discarded",
    "expired": "has expired",
    "detached": "belongs to a branch that was deleted",
}


@dataclass(frozen=True, slots=True)
class Session:
    """A working session. ``state`` is ``open``, ``discarded``, ``expired`` or ``detached``.

    `hold_session` counts neither changes nor conflicts; the other functions do, and those that find one session add up
    the bytes of their files. ``why_closed`` completes "Session ..." if the state alone does not say why the session is
    closed. ``has_conflicts`` says that it has conflicts which are not resolved. ``brings`` says that a merge, pick or
    restore was staged in it: the branch is "ours" in its conflicts then. ``merged`` is the commit that it merges
    into its branch, if any: the second parent of its next commit. ``files`` are files that are no entries and that this
    commit brings, by path: the blobs before and after; ``None`` if there is none. ``rewound`` says that its base is no
    longer on its branch, since a push moved that back or aside.
    """

    session_id: str
    workspace_id: str
    branch: str
    base_commit: str
    agent: str
    state: str
    created_at: datetime
    used_at: datetime
    expires_at: datetime
    why_closed: str = ""
    has_conflicts: bool = False
    brings: bool = False
    merged: str | None = None
    files: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    rewound: bool = False
    change_count: int = 0
    change_bytes: int = 0
    conflict_count: int = 0

    @property
    def tree(self) -> State:
        """The state of the tree inside the session."""
        return State(self.workspace_id, self.base_commit, self.session_id)

    @property
    def base(self) -> State:
        """The state that the session's changes are based on."""
        return State(self.workspace_id, self.base_commit)


class ClosedSession(NamedTuple):
    """A session that has expired."""

    workspace_id: str
    session_id: str


_HELD: Final = (
    "session_id, workspace_id, branch, base_commit, agent,"
    " case when state = 'open' and used_at + ttl < now() then 'expired' else state end as state,"
    " created_at, used_at, used_at + ttl as expires_at, why_closed, has_conflicts, brings, merged, files, rewound"
)
_CONFLICTS: Final = "(select count(*) from work.conflict c where c.session_id = session.session_id) as conflict_count"
_SESSION: Final = (
    f"{_HELD}, (select count(*) from work.staged where staged.session_id = session.session_id) as change_count,"  # noqa: S608
    f" {_CONFLICTS}"
)
_COUNTED: Final = f"""
  select {_HELD}, staged.*, {_CONFLICTS} from work.session cross join lateral (
    select count(*) as change_count, coalesce(sum(octet_length(c.data)), 0)::bigint as change_bytes
      from work.staged c where c.session_id = session.session_id) staged"""  # noqa: S608
_FIND: Final = f"{_COUNTED} where workspace_id = %s and session_id = %s"
_FIND_IN: Final = f"""
  with w as (
    select workspace_id from mirror.workspace {registry.BY_ID_OR_NAME})
  select w.workspace_id, found.* from w left join lateral (
    {_COUNTED} where session.workspace_id = w.workspace_id and session_id = %(session)s) found on true"""  # noqa: S608
_HOLD: Final = f"""
  with w as (
    select workspace_id from mirror.workspace {registry.BY_ID_OR_NAME}),
  held as (
    update work.session s set used_at = now() from w
     where s.workspace_id = w.workspace_id and s.session_id = %(session)s and s.state = 'open'
       and s.used_at + s.ttl >= now() returning s.*)
  select {_HELD} from held"""  # noqa: S608

_DIGEST: Final = """
  select base_commit, coalesce(
           (select encode(sha256(convert_to(string_agg(s.entry_id || ' ' || s.blob, ',' order by s.entry_id), 'UTF8')),
                          'hex')
              from work.staged s where s.session_id = %(session)s), '') as digest
    from work.session where session_id = %(session)s and state = 'open'"""


@dataclass(frozen=True, slots=True)
class StagedDigest:
    """The state of an open session at one moment.

    Attributes:
        base_commit: The commit that its changes are based on.
        digest: A hash of its staged changes, 64 hexadecimal digits, or "" for none. Another digest means another state.
    """

    base_commit: str
    digest: str


async def open_session(
    snapshot: Snapshot, session_id: str, *, branch: str, agent: str, ttl: timedelta, principal: str = ""
) -> Session:
    """Create a session on a commit of a branch; ``principal`` owns it."""
    await snapshot.conn.execute(
        "insert into work.session (session_id, workspace_id, branch, base_commit, agent, ttl, principal)"
        " values (%s, %s, %s, %s, %s, %s, %s)",
        (session_id, snapshot.state.workspace_id, branch, snapshot.state.commit_id, agent, ttl, principal),
    )
    return await find_session(snapshot.conn, snapshot.state.workspace_id, session_id)


async def find_session(conn: Connection, workspace_id: str, session_id: str) -> Session:
    """Return a session of a workspace.

    Raises:
        SessionNotFoundError: There is no such session, or it belongs to another workspace.
    """
    found = await find_if_there(conn, workspace_id, session_id)
    if found is None:
        raise SessionNotFoundError(session_id)
    return found


async def find_if_there(conn: Connection, workspace_id: str, session_id: str) -> Session | None:
    """Return a session of a workspace; ``None`` if there is no such session, or it belongs to another workspace."""
    async with conn.cursor(row_factory=class_row(Session)) as cursor:
        await cursor.execute(_FIND, (workspace_id, session_id))
        return await cursor.fetchone()


async def find_in_workspace(conn: Connection, workspace: str, session_id: str) -> tuple[str, Session | None]:
    """Return the id of a workspace, given by id or name, and its session if there is one; in one round trip.

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
    """
    cursor = await conn.execute(_FIND_IN, {"workspace": workspace, "session": session_id})
    row = await cursor.fetchone()
    if row is None:
        raise WorkspaceNotFoundError(workspace)
    return str(row[0]), None if row[1] is None else Session(*row[1:])


async def owner_of(conn: Connection, workspace_id: str, session_id: str) -> str | None:
    """Return who owns a session, open or closed; ``None`` if the workspace has no such session."""
    cursor = await conn.execute(
        "select principal from work.session where workspace_id = %s and session_id = %s", (workspace_id, session_id)
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def branch_of(conn: Connection, workspace_id: str, session_id: str) -> str | None:
    """Return the branch of a session; ``None`` if the workspace has no such session."""
    cursor = await conn.execute(
        "select branch from work.session where workspace_id = %s and session_id = %s", (workspace_id, session_id)
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def has_session(conn: Connection, workspace_id: str, session_id: str) -> bool:
    """Whether a workspace has a session, open or closed."""
    cursor = await conn.execute(
        "select 1 from work.session where workspace_id = %s and session_id = %s", (workspace_id, session_id)
    )
    return await cursor.fetchone() is not None


async def staged_digest(snapshot: Snapshot) -> StagedDigest | None:
    """Return the base and the digest of the staged changes of a state's session; ``None`` if it is no longer open."""
    async with snapshot.conn.cursor(row_factory=class_row(StagedDigest)) as cursor:
        await cursor.execute(_DIGEST, {"session": snapshot.state.session_id})
        return await cursor.fetchone()


async def hold_session(conn: Connection, workspace: str, session_id: str) -> Session:
    """Lock an open session against other changes until the transaction ends, and mark it as used now.

    Args:
        conn: In a transaction.
        workspace: Id or name of the workspace; an id takes precedence over a name.
        session_id: The session.

    Raises:
        WorkspaceNotFoundError: There is no such workspace.
        SessionNotFoundError: There is no such session.
        SessionClosedError: The session is closed.
    """
    async with conn.cursor(row_factory=class_row(Session)) as cursor:
        await cursor.execute(_HOLD, {"workspace": workspace, "session": session_id})
        found = await cursor.fetchone()
    if found is None:
        workspace_id = (await registry.find_workspace(conn, workspace)).workspace_id
        session = await find_session(conn, workspace_id, session_id)
        why = session.why_closed or _WHY_CLOSED.get(session.state, "is closed")
        raise SessionClosedError(f"Session {session_id} {why}. Open a new one with OpenSession.")
    return found


async def mark_used(conn: Connection, session_id: str) -> None:
    """Mark an open session as used now; skip it if a change has locked it, since that change marks it anyway."""
    await conn.execute(
        "update work.session s set used_at = now() from (select session_id from work.session where session_id = %s"
        " and state = 'open' and used_at + ttl >= now() for no key update skip locked) as free"
        " where s.session_id = free.session_id",
        (session_id,),
    )


async def list_sessions(
    conn: Connection,
    workspace_id: str,
    *,
    closed: bool,
    before: tuple[datetime, str] | None = None,
    limit: int | None = None,
    principal: str | None = None,
) -> list[Session]:
    """Return the sessions of a workspace, most recently used first, that come after ``before`` (time, id).

    Only those of ``principal`` are returned, unless it is ``None``.
    """
    wanted = "" if closed else " and state = 'open' and used_at + ttl >= now()"
    further = "" if before is None else " and (used_at, session_id) < (%(when)s, %(id)s)"
    owned = "" if principal is None else " and principal = %(principal)s"
    async with conn.cursor(row_factory=class_row(Session)) as cursor:
        await cursor.execute(
            f"select {_SESSION} from work.session where workspace_id = %(workspace)s{wanted}{further}{owned}"  # noqa: S608
            " order by used_at desc, session_id desc limit %(limit)s",
            {
                "workspace": workspace_id,
                "principal": principal,
                "when": before[0] if before else None,
                "id": before[1] if before else "",
                "limit": limit,
            },
        )
        return await cursor.fetchall()


async def close_session(conn: Connection, session_id: str, state: str) -> None:
    """Delete the staged changes and views of a session and set its final state."""
    # Lock the session before its rows, as every other change of a session does: another order could deadlock.
    await conn.execute("select from work.session where session_id = %s for update", (session_id,))
    await conn.execute("delete from work.staged where session_id = %s", (session_id,))
    await conn.execute("delete from work.conflict where session_id = %s", (session_id,))
    await conn.execute("delete from work.view where scope = %s", (session_id,))
    await conn.execute(
        "update work.session set state = %s, has_conflicts = false, brings = false, merged = null, files = '{}'"
        " where session_id = %s",
        (state, session_id),
    )


async def drop_session(conn: Connection, session_id: str) -> None:
    """Delete a session and its staged changes, as if it had never been opened."""
    await conn.execute("delete from work.session where session_id = %s", (session_id,))


async def close_expired(conn: Connection) -> list[ClosedSession]:
    """Close expired sessions and delete their staged changes; return these sessions.

    This includes detached sessions, and deletes views that were used in a session after it had been closed.
    """
    cursor = await conn.execute(
        "select workspace_id, session_id from work.session where state in ('open', 'detached')"
        " and used_at + ttl < now() for update skip locked"
    )
    expired = [ClosedSession(*row) for row in await cursor.fetchall()]
    for each in expired:
        await close_session(conn, each.session_id, "expired")
    await conn.execute(
        "delete from work.view v using work.session s where v.workspace_id = s.workspace_id"
        " and v.scope = s.session_id and s.state not in ('open', 'detached')"
    )
    return expired


async def set_merged(
    conn: Connection, session_id: str, merged: str | None, files: Mapping[str, tuple[str | None, str | None]]
) -> None:
    """Note that something was brought into a session, and what its next commit has besides what is staged."""
    await conn.execute(
        "update work.session set brings = true, merged = %s, files = %s where session_id = %s",
        (merged, Jsonb(dict(files)), session_id),
    )


async def set_base(conn: Connection, session_id: str, commit_id: str) -> None:
    """Base a session's changes on another commit, which its branch has."""
    await conn.execute(
        "update work.session set base_commit = %s, rewound = false where session_id = %s", (commit_id, session_id)
    )


async def branches_in_use(conn: Connection, workspace_id: str) -> list[str]:
    """Return the branches of the open sessions."""
    cursor = await conn.execute(
        "select distinct branch from work.session where workspace_id = %s and state = 'open'", (workspace_id,)
    )
    return [row[0] for row in await cursor.fetchall()]


async def note_rewound(conn: Connection, workspace_id: str, branch: str, reached: Mapping[int, int]) -> int:
    """Note which open sessions of a branch that has moved are no longer based on a commit of it, and which are again.

    Args:
        conn: In a transaction that holds the workspace's row.
        workspace_id: The workspace.
        branch: The branch.
        reached: For each line that its head reaches, the last seq there (`merge_bases.history_of`).

    Returns:
        For how many sessions this has changed.
    """
    cursor = await conn.execute(
        "with based as ("
        "  select s.session_id, not exists ("
        "    select from mirror.commit c join unnest(%(lines)s::bigint[], %(seqs)s::bigint[]) r (line_id, seq)"
        "      on c.line_id = r.line_id and c.seq <= r.seq"
        "     where c.workspace_id = s.workspace_id and c.commit_id = s.base_commit) as rewound"
        "    from work.session s where s.workspace_id = %(workspace)s and s.branch = %(branch)s and s.state = 'open')"
        " update work.session s set rewound = based.rewound from based"
        " where s.session_id = based.session_id and s.rewound <> based.rewound",
        {
            "workspace": workspace_id,
            "branch": branch,
            "lines": list(reached),
            "seqs": list(reached.values()),
        },
    )
    return cursor.rowcount


async def is_rewound(conn: Connection, session_id: str) -> bool:
    """Whether the base of a session is no longer on its branch."""
    cursor = await conn.execute("select rewound from work.session where session_id = %s", (session_id,))
    row = await cursor.fetchone()
    return row is not None and row[0]


async def set_branch(conn: Connection, session_id: str, branch: str) -> None:
    """Let a session go on on another branch, which is at its base commit."""
    await conn.execute("update work.session set branch = %s where session_id = %s", (branch, session_id))


async def detach_sessions(conn: Connection, workspace_id: str, branch: str) -> int:
    """Detach the open sessions of a deleted branch; return how many of them had not expired."""
    cursor = await conn.execute(
        "update work.session set state = 'detached' where workspace_id = %s and branch = %s and state = 'open'"
        " returning used_at + ttl >= now()",
        (workspace_id, branch),
    )
    return sum(row[0] for row in await cursor.fetchall())


async def detach_without_branch(conn: Connection, workspace_id: str, branches: Sequence[str]) -> None:
    """Detach the open sessions whose branch is not among the given ones."""
    await conn.execute(
        "update work.session set state = 'detached' where workspace_id = %s and state = 'open' and branch <> all(%s)",
        (workspace_id, list(branches)),
    )


async def unclosed_commits(conn: Connection, workspace_id: str) -> dict[str, tuple[str, str | None]]:
    """Return the sessions that are open or detached: base commit and merged commit by session id; lock these."""
    cursor = await conn.execute(
        "select session_id, base_commit, merged from work.session"
        " where workspace_id = %s and state in ('open', 'detached') for update",
        (workspace_id,),
    )
    return {session_id: (base, merged) for session_id, base, merged in await cursor.fetchall()}


async def detach(conn: Connection, session_ids: Sequence[str], why: str) -> None:
    """Detach open sessions, for a reason that completes "Session ..." in the error of the next change."""
    await conn.execute(
        "update work.session set state = 'detached', why_closed = %s where session_id = any(%s) and state = 'open'",
        (why, list(session_ids)),
    )


async def base_is_mirrored(conn: Connection, workspace_id: str) -> dict[str, tuple[str, str]]:
    """Return the sessions whose base commit is mirrored, as id to (branch, base commit)."""
    cursor = await conn.execute(
        "select s.session_id, s.branch, s.base_commit from work.session s join mirror.commit c"
        " on c.workspace_id = s.workspace_id and c.commit_id = s.base_commit where s.workspace_id = %s",
        (workspace_id,),
    )
    return {row[0]: (row[1], row[2]) for row in await cursor.fetchall()}


async def unclosed_ids(conn: Connection, workspace_id: str) -> tuple[set[str], set[str]]:
    """Return the ids of the sessions that are open or detached, and of those among them that bring something."""
    cursor = await conn.execute(
        "select session_id, brings from work.session where workspace_id = %s and state in ('open', 'detached')",
        (workspace_id,),
    )
    found: dict[str, bool] = dict(await cursor.fetchall())
    return set(found), {session_id for session_id, brings in found.items() if brings}
