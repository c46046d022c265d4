"""The operations of MemoryService: each makes its changes and the commit in one call."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.errors import FieldViolation, InvalidInputError, UnavailableError
from memotree_storage.model.node import derived_id
from memotree_storage.postgres import history
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.requests import RequestIdReusedError
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.edits import NodeExistsError
from memotree.canvas.node_messages import nodes_at
from memotree.memory.asked import notes_meant
from memotree.memory.changes import REVISE, Change, forget, remember, revise, together
from memotree.memory.repeated import changes_of_commit
from memotree.memory.restoring import restore
from memotree.memory.similar import Similar, same_text, similar_to
from memotree.request.batches import naming_change
from memotree.request.idempotency import kept_request_id
from memotree.request.limits import ServiceLimits
from memotree.request.messages import SUMMARY
from memotree.sessions.editing import SessionEditor
from memotree.sessions.immediate import (
    FollowingSummaries,
    ImmediateCall,
    ImmediateCommits,
    Made,
    Make,
    Target,
)
from memotree.sessions.subjects import subject_of
from memotree.v1 import memory_service_pb2 as pb
from memotree.v1 import types_pb2

_MOST_CHANGES: Final = 100
_SEARCHES_AT_ONCE: Final = 4
_PATIENCE: Final = 5.0

Response = TypeVar("Response", bound=Message)
_Results = Sequence[pb.MemoryResult]
_OF_THE_BATCH: Final = ("workspace", "branch", "agent", "message", "request_id")


class MemoryOperations:
    """Remembers, revises, forgets and restores notes.

    Args:
        store: The store.
        limits: What the service allows.
        summaries: Renews the summaries above changed notes.
        patience: Seconds that the search for similar notes may take; then the change is made without it.
    """

    def __init__(
        self,
        store: Store,
        limits: ServiceLimits,
        summaries: FollowingSummaries | None = None,
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._store = store
        self._patience = patience
        self._commits = ImmediateCommits(store, limits, summaries)

    async def remember(self, request: pb.RememberRequest) -> pb.RememberResponse:
        """Keep a text as a new note."""
        return await self._single(request, pb.MemoryChange(remember=request), pb.RememberResponse, "Remember")

    async def revise(self, request: pb.ReviseRequest) -> pb.ReviseResponse:
        """Correct a note."""
        return await self._single(request, pb.MemoryChange(revise=request), pb.ReviseResponse, "Revise")

    async def forget(self, request: pb.ForgetRequest) -> pb.ForgetResponse:
        """Forget a note."""
        return await self._single(request, pb.MemoryChange(forget=request), pb.ForgetResponse, "Forget")

    async def restore(self, request: pb.RestoreRequest) -> pb.RestoreResponse:
        """Bring back a forgotten note, or set a note back to a revision."""
        return await self._single(request, pb.MemoryChange(restore=request), pb.RestoreResponse, "Restore")

    async def batch_change_memory(self, request: pb.BatchChangeMemoryRequest) -> pb.BatchChangeMemoryResponse:
        """Make several of these changes in one commit."""
        if not 0 < len(request.changes) <= _MOST_CHANGES:
            raise InvalidInputError.at("changes", f"needs 1 to {_MOST_CHANGES} changes.")
        for number, change in enumerate(request.changes):
            with naming_change(number, _kind(change)):
                _check_of_batch(request, change)

        def respond(results: _Results, warnings: Sequence[str], commit_id: str, branch: str) -> Message:
            return pb.BatchChangeMemoryResponse(results=results, warnings=warnings, commit_id=commit_id, branch=branch)

        return await self._run(
            request, list(request.changes), pb.BatchChangeMemoryResponse, "BatchChangeMemory", respond
        )

    async def _single(
        self, request: Any, change: pb.MemoryChange, response_type: type[Response], tool: str
    ) -> Response:
        def respond(results: _Results, warnings: Sequence[str], commit_id: str, branch: str) -> Message:
            (result,) = results
            facts: dict[str, Any] = {
                "similar": result.similar,
                "forgotten_ids": result.node_ids,
                "restored_ids": result.node_ids,
                "previous": result.previous if result.HasField("previous") else None,
            }
            kept = {name: value for name, value in facts.items() if name in response_type.DESCRIPTOR.fields_by_name}
            return response_type(node=result.node, commit_id=commit_id, branch=branch, warnings=warnings, **kept)

        return await self._run(request, [change], response_type, tool, respond)

    async def _run(
        self,
        request: Any,
        changes: Sequence[pb.MemoryChange],
        response_type: type[Response],
        tool: str,
        respond: Callable[[_Results, Sequence[str], str, str], Message],
    ) -> Response:
        in_batch = tool == "BatchChangeMemory"

        request_id = kept_request_id(request.request_id)  # here, where it is known who calls

        def fresh_ids(workspace_id: str) -> list[str]:
            return [
                derived_id(workspace_id, request_id, number) if request_id else "" for number in range(len(changes))
            ]

        async def prepare(head: State, branch: str) -> Make:
            meant = await self._meant(head, changes, in_batch=in_batch)
            similar, unlooked = await self._similar(head, changes, meant)
            fresh = fresh_ids(head.workspace_id)

            async def make(editor: SessionEditor) -> Made:
                done = []
                for number, change in enumerate(changes):
                    with naming_change(number if in_batch else None, _kind(change)):
                        try:
                            done.append(await _apply(editor, change, meant[number], fresh[number], similar[number]))
                        except NodeExistsError:  # the id of a new note is made from the request id alone
                            raise RequestIdReusedError.of(request.request_id) from None
                verbs = {change.verb for change in done}
                verb = verbs.pop() if len(verbs) == 1 else "Change"
                subject = subject_of(verb, [change.title for change in done], "notes")

                async def answer(conn: Connection, state: State) -> Message:
                    remembered = [len(change.remember.text) for change in changes]
                    told = await in_thread_if_long(sum(remembered), _with_same, changes, done)
                    results = await self._results(conn, editor.session.base, state, told)
                    warnings = [*unlooked, *(warning for change in done for warning in change.warnings)]
                    return respond(results, warnings, state.commit_id, branch)

                return Made(subject, answer)

            return make

        async def again(conn: Connection, state: State, branch: str) -> Response:
            parents = (await history.read_commit(conn, state.workspace_id, state.commit_id)).parents
            done = await changes_of_commit(
                Snapshot(conn, state), self._store, changes, fresh_ids(state.workspace_id), request.request_id
            )
            results = await self._results(conn, State(state.workspace_id, parents[0]), state, done)
            response = respond(results, (), state.commit_id, branch)
            assert isinstance(response, response_type)  # noqa: S101 - for the type checker
            return response

        call = ImmediateCall(request, _target(request), response_type, tool, prepare, again, may_change_nothing=True)
        return await self._commits.run(call)

    async def _meant(self, head: State, changes: Sequence[pb.MemoryChange], *, in_batch: bool) -> list[Sequence[str]]:
        """The nodes that each revised or forgotten note means; a query is searched for before the workspace is held."""
        found: list[Sequence[str]] = []
        for number, change in enumerate(changes):
            kind = _kind(change)
            with naming_change(number if in_batch else None, kind):
                is_asked = kind in ("revise", "forget")
                found.append(await notes_meant(self._store, head, getattr(change, kind)) if is_asked else ())
        return found

    async def _similar(
        self, head: State, changes: Sequence[pb.MemoryChange], meant: Sequence[Sequence[str]]
    ) -> tuple[list[Sequence[Similar]], Sequence[str]]:
        """What each remembered or revised text resembles, and a warning if that could not be told.

        A change does not depend on the index: while it does not answer, or is far behind, notes are kept all the same.
        """
        try:
            async with asyncio.timeout(self._patience):
                return await self._resembled(head, changes, meant), ()
        except TimeoutError:
            cause = f"The index did not answer within {self._patience:g} s."
        except UnavailableError as error:
            cause = error.message.split(". ")[0].rstrip(".") + "."  # the rest says to send the call again
        return [()] * len(changes), [f"Similar notes were not looked for. {cause}"]

    async def _resembled(
        self, head: State, changes: Sequence[pb.MemoryChange], meant: Sequence[Sequence[str]]
    ) -> list[Sequence[Similar]]:
        slots = asyncio.Semaphore(_SEARCHES_AT_ONCE)

        async def look(change: pb.MemoryChange, ids: Sequence[str]) -> Sequence[Similar]:
            asked: Any = getattr(change, change.WhichOneof("change") or "remember")
            is_wanted = asked.find_similar if asked.HasField("find_similar") else True
            if not is_wanted or not asked.text.strip():
                return []
            async with slots:
                return await similar_to(self._store, head, asked.title, asked.text, but=ids)

        kinds = ("remember", "revise")
        return list(
            await asyncio.gather(
                *(
                    look(change, ids) if change.WhichOneof("change") in kinds else _nothing()
                    for change, ids in zip(changes, meant, strict=True)
                )
            )
        )

    async def _results(
        self, conn: Connection, before: State, state: State, done: Sequence[Change]
    ) -> list[pb.MemoryResult]:
        """The result of each change, with the nodes as they are now; forgotten ones as they were."""
        alive = [change.node_ids[0] for change in done if not change.is_gone]
        alike = [one.node_id for change in done for one in change.similar]
        changed = [change.node_ids[0] for change in done if change.is_gone or change.verb == REVISE]
        now = await self._nodes(Snapshot(conn, state), [*alive, *alike])
        old = await self._nodes(Snapshot(conn, before), changed)
        was = old | {change.shown.id: change.shown for change in done if change.shown is not None}
        return [
            pb.MemoryResult(
                node=(was if change.is_gone else now).get(change.node_ids[0])
                or was.get(change.node_ids[0])  # changed, and then forgotten by the same call
                or types_pb2.Node(id=change.node_ids[0], title=change.title),
                similar=[
                    pb.SimilarNode(node=now[one.node_id], similarity=one.kind, score=one.score)
                    for one in change.similar
                    if one.node_id in now and one.node_id not in change.node_ids
                ],
                node_ids=change.node_ids,
                previous=old.get(change.node_ids[0]) if change.verb == REVISE else None,
            )
            for change in done
        ]

    async def _nodes(self, snapshot: Snapshot, ids: Sequence[str]) -> dict[str, types_pb2.Node]:
        wanted = list(dict.fromkeys(ids))
        return {node.id: node for node in await nodes_at(snapshot, self._store, wanted, SUMMARY)}


def _target(request: Any) -> Target:
    return Target(request.workspace, request.branch, request.agent, request.message)


def _kind(change: pb.MemoryChange) -> str:
    return change.WhichOneof("change") or ""


async def _nothing() -> Sequence[Similar]:
    return []


async def _apply(
    editor: SessionEditor, change: pb.MemoryChange, meant: Sequence[str], fresh: str, similar: Sequence[Similar]
) -> Change:
    kind = change.WhichOneof("change")
    if kind == "remember":
        return await remember(editor, change.remember, fresh, similar)
    if kind == "revise":
        return together([await revise(editor, change.revise, node_id, similar) for node_id in meant])
    if kind == "forget":
        forgotten: list[Change] = []
        for node_id in meant:
            if not any(node_id in each.node_ids for each in forgotten):  # as one below another of them
                forgotten.append(await forget(editor, change.forget, node_id))
        return together(forgotten)
    return await restore(editor, _in_workspace(editor, change.restore))


def _in_workspace(editor: SessionEditor, request: pb.RestoreRequest) -> pb.RestoreRequest:
    """The request with the workspace of the call, which a change of a batch leaves out."""
    full = pb.RestoreRequest()
    full.CopyFrom(request)
    full.workspace = editor.session.workspace_id
    return full


def _with_same(changes: Sequence[pb.MemoryChange], done: Sequence[Change]) -> list[Change]:
    """The changes, each told which texts remembered before it in the same call say exactly the same."""
    seen: dict[str, list[str]] = {}
    told = []
    for change, result in zip(changes, done, strict=True):
        if change.WhichOneof("change") != "remember":
            told.append(result)
            continue
        same = seen.setdefault(same_text(change.remember.title, change.remember.text), [])
        similar = [Similar(node_id, pb.SIMILARITY_DUPLICATE, 1.0) for node_id in same]
        told.append(replace(result, similar=[*similar, *result.similar]))
        same.append(result.node_ids[0])
    return told


def _check_of_batch(request: pb.BatchChangeMemoryRequest, change: pb.MemoryChange) -> None:
    """Check that a change of a batch leaves to the batch what belongs to it.

    Raises:
        InvalidInputError: It does not, or it is empty.
    """
    kind = change.WhichOneof("change")
    if kind is None:
        fault = "must set one of remember, revise, forget and restore."
        raise InvalidInputError(f"The change {fault}", [FieldViolation("", fault)])
    inner = getattr(change, kind)
    for name in _OF_THE_BATCH:
        if getattr(inner, name) not in ("", getattr(request, name)):
            raise InvalidInputError.at(name, "belongs to the whole batch; leave it out in a single change.")
