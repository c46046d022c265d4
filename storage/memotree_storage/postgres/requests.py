"""Idempotent calls: a request id is answered with the result of the first call that used it.

Request ids are kept as `memotree_storage.model.trailers.owned_request_id` makes them: each principal has its own.
"""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.trailers import REQUEST_DIGEST, Request, given_request_id, trailers_of
from memotree_storage.postgres.database import Connection

NO_WORKSPACE: Final = ""
"""Request ids of calls that create a workspace are kept under this workspace id."""


class RequestIdReusedError(InvalidInputError):
    """A request id was sent with other arguments than the first time."""

    reason = "REQUEST_ID_REUSED"

    @classmethod
    def of(cls, request_id: str) -> "RequestIdReusedError":
        """The error for a request id."""
        fault = f"{given_request_id(request_id)!r} was used for another call; choose a fresh id for a new call."
        return cls(f"request_id: {fault}", [FieldViolation("request_id", fault)])


async def begin_request(conn: Connection, workspace_id: str, request_id: str, call: bytes) -> bytes | None:
    """Claim a request id for a call, or return the result of the first call with this id.

    A second call with the same id waits until the transaction of the first has ended.

    Args:
        conn: In the transaction that the effects of the call belong to.
        workspace_id: The workspace.
        request_id: The id; an empty id claims nothing.
        call: The call with its arguments, in a deterministic encoding.

    Returns:
        The first result, or ``None`` if this is the first call.

    Raises:
        RequestIdReusedError: The id was used for another call.
    """
    if not request_id:
        return None
    digest = hashlib.sha256(call).digest()
    cursor = await conn.execute(
        "insert into work.request (workspace_id, request_id, digest) values (%s, %s, %s)"
        " on conflict do nothing returning 1",
        (workspace_id, request_id, digest),
    )
    if await cursor.fetchone():
        return None
    cursor = await conn.execute(
        "select digest, response from work.request where workspace_id = %s and request_id = %s",
        (workspace_id, request_id),
    )
    row = await cursor.fetchone()
    if row is None:  # the first transaction was rolled back between the two statements
        return await begin_request(conn, workspace_id, request_id, call)
    return _result(request_id, row, digest)


async def result_of_request(conn: Connection, workspace_id: str, request_id: str, call: bytes) -> bytes | None:
    """Return the result of an earlier call with this request id; ``None`` if none has ended. Claims nothing.

    Raises:
        RequestIdReusedError: The id was used for another call.
    """
    if not request_id:
        return None
    cursor = await conn.execute(
        "select digest, response from work.request where workspace_id = %s and request_id = %s",
        (workspace_id, request_id),
    )
    row = await cursor.fetchone()
    return None if row is None else _result(request_id, row, hashlib.sha256(call).digest())


def _result(request_id: str, row: tuple[Any, ...], digest: bytes) -> bytes | None:
    if bytes(row[0]) != digest:
        raise RequestIdReusedError.of(request_id)
    return None if row[1] is None else bytes(row[1])


def check_same_request(request: Request, message: str) -> None:
    """Check that a commit with a request id was made by the call that uses this id now.

    Args:
        request: The call.
        message: The message of the commit.

    Raises:
        RequestIdReusedError: Another call made it, whose result is not stored any more.
    """
    if not request.made(message):
        raise RequestIdReusedError.of(request.id)


@dataclass(frozen=True, slots=True)
class RequestedCommit:
    """The commit that a call has made.

    Attributes:
        commit_id: The commit.
        message: Its message, with its trailers.
        branch: The branch whose commits extend its line.
        is_on_branch: Whether it is in the first-parent history of the head that was given.
    """

    commit_id: str
    message: str
    branch: str
    is_on_branch: bool


_OF_REQUEST: Final = """
  select c.commit_id, c.message, l.branch, exists (
           select from mirror.lineage(%(workspace)s, coalesce(%(head)s, (
             select r.commit_id from work.session s join mirror.ref r
                 on r.workspace_id = s.workspace_id and r.name = 'refs/heads/' || s.branch
              where s.session_id = %(session)s and s.workspace_id = %(workspace)s))) line
            where line.line_id = c.line_id and c.seq <= line.seq
         ) as is_on_branch, c.session_id
    from mirror.commit c join mirror.line l using (line_id)
   where c.workspace_id = %(workspace)s and c.request_id = %(request)s
   order by is_on_branch desc, c.committed_at, c.commit_id"""


async def commit_of_request(
    conn: Connection, workspace_id: str, request: Request, *, session_id: str | None = None, head: str | None = None
) -> RequestedCommit | None:
    """Return the commit that a call has made, found by the trailers of commits; ``None`` if there is none.

    ``git cherry-pick`` copies trailers. So of several commits, one on the branch comes first, and then the earliest.

    Args:
        conn: A connection.
        workspace_id: The workspace.
        request: The call.
        session_id: The session that it commits; a commit that has no digest of its call must name the same.
        head: The head of the branch that it commits to; by default that of the session's branch.

    Raises:
        RequestIdReusedError: Another call made a commit with this request id, and its result is not stored any more.
    """
    if not request.id:
        return None
    arguments = {"workspace": workspace_id, "request": request.id, "head": head, "session": session_id}
    rows = await (await conn.execute(_OF_REQUEST, arguments)).fetchall()
    is_used = False
    for *facts, of_session in rows:
        found = RequestedCommit(*facts)
        digest = trailers_of(found.message).get(REQUEST_DIGEST)
        if digest == request.digest or (digest is None and of_session == session_id):
            return found
        is_used = is_used or digest is not None
    if is_used:
        raise RequestIdReusedError.of(request.id)
    return None


async def end_request(conn: Connection, workspace_id: str, request_id: str, response: bytes) -> None:
    """Store the result of a claimed request id."""
    if request_id:
        await conn.execute(
            "update work.request set response = %s where workspace_id = %s and request_id = %s",
            (response, workspace_id, request_id),
        )


async def forget_requests(conn: Connection, workspace_id: str) -> int:
    """Delete all results of a workspace, and those that name no other workspace which is there; return how many.

    Commits keep their request ids in their trailers, so a repeated call still finds its commit if there is one.
    """
    cursor = await conn.execute(
        "delete from work.request r where workspace_id = %(workspace)s or (workspace_id = %(none)s and not exists ("
        "select from mirror.workspace w where w.workspace_id <> %(workspace)s"
        " and position(convert_to(w.workspace_id, 'UTF8') in r.response) > 0))",
        {"workspace": workspace_id, "none": NO_WORKSPACE},
    )
    return cursor.rowcount


async def forget_old_requests(conn: Connection, retention: timedelta) -> None:
    """Delete results that are older than ``retention``."""
    await conn.execute("delete from work.request where created_at < now() - %s", (retention,))


async def is_known_request(conn: Connection, workspace_id: str, request_id: str) -> bool:
    """Whether a call with this id is answered or running."""
    cursor = await conn.execute(
        "select 1 from work.request where workspace_id = %s and request_id = %s", (workspace_id, request_id)
    )
    return await cursor.fetchone() is not None
