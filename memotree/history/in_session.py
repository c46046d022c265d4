"""Merges, reverts and cherry-picks that are staged in a session instead of committed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from memotree_storage.commit.session_merge import stage_merge
from memotree_storage.commit.session_pins import pin_brought
from memotree_storage.commit.transaction import workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.mirror.state_merge import StateMerge
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import registry, sessions
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.sessions import Session
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.idempotency import run_once

_OF_COMMITS: Final = ("branch", "message")

Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class SessionMerge:
    """What is brought into a session.

    Attributes:
        merge: The merge, with the session as our side.
        merged: The second parent of the session's next commit; ``None`` for none.
        message: Why each entry changes.
    """

    merge: StateMerge
    merged: str | None
    message: str


async def stage_in_session(
    store: Store,
    request: Any,
    response_type: type[Response],
    tool: str,
    merge_onto: Callable[[Connection, CommitReader, Session], Awaitable[SessionMerge]],
    told: Callable[[Session, StateMerge, int], Response],
) -> Response:
    """Stage a merge in the session that a request names, once per request id.

    Args:
        store: The store.
        request: Has a ``workspace``, a ``session_id`` and a ``request_id``, and nothing that only a commit needs.
        response_type: The type of the response.
        tool: The tool that brings the changes.
        merge_onto: Merges onto the session, which a transaction holds together with the workspace.
        told: Makes the response, given the session, the merge and the number of conflicts; it runs in a thread.
    """
    for name in _OF_COMMITS:
        if getattr(request, name):
            raise InvalidInputError.at(name, "is of the commit, which CommitChanges makes; leave it empty.")
    if request.HasField("author"):
        raise InvalidInputError.at("author", "is of the commit, which CommitChanges makes; leave it out.")
    async with store.database.connection() as conn:
        workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
    workspace_id, session_id = workspace.workspace_id, request.session_id

    async def run(commit_point: CommitPoint) -> Response:
        async with workspace_transaction(store, workspace_id, commit_point, session_id=session_id) as held:

            async def make() -> Response:
                session = await sessions.hold_session(held.conn, workspace_id, session_id)
                found = await merge_onto(held.conn, held.repository, session)
                conflicts = await stage_merge(
                    *(held.conn, held.repository, session, found.merge),
                    tool=tool,
                    message=found.message,
                    merged=found.merged,
                    max_depth=store.max_depth,
                )
                # Before the rows are committed: a ref without a session is deleted by maintenance.
                await pin_brought(store, workspace_id, session_id, found.merge.theirs)
                return await in_store_thread(partial(told, session, found.merge, conflicts))

            return await run_once(held.conn, workspace_id, request, response_type, make)

    return await finish_past_commit_point(run)
