"""Batches of changes that one call makes and commits, without a session that its caller opens."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from google.protobuf.message import Message
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import derived_id
from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.node_messages import nodes_at
from memotree.request import lookup
from memotree.request.batches import naming_change
from memotree.request.idempotency import kept_request_id
from memotree.request.messages import TITLE
from memotree.sessions.editing import SessionEditor
from memotree.sessions.immediate import ImmediateCall, Made, Make, Target
from memotree.sessions.subjects import subject_of
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

TOOL: Final = "BatchChangeNodes"

_VERBS: Final = {"create": "Add", "delete": "Delete", "move": "Move"}
_OF_VIEWS: Final = ("level", "initial_level", "view_name")

ApplyAll = Callable[[SessionEditor, Sequence[pb.NodeChange]], Awaitable[pb.BatchChangeNodesResponse]]
"""Stages changes in order and returns a result for each."""


def committed_batch(
    store: Store, request: pb.BatchChangeNodesRequest, apply_all: ApplyAll
) -> ImmediateCall[pb.BatchChangeNodesResponse]:
    """The call that makes and commits a batch.

    Raises:
        InvalidInputError: The request names a session too, or a change names a view, which belongs to a session.
    """
    if request.session_id:
        raise InvalidInputError.at("session_id", "must be empty with commit: the changes are made without a session.")
    for number, one in enumerate(request.changes):
        with naming_change(number, one.WhichOneof("change") or ""):
            _check_no_view(one)

    async def prepare(head: State, _: str) -> Make:
        changes = _with_ids(head.workspace_id, request)

        async def make(editor: SessionEditor) -> Made:
            answer = await apply_all(editor, changes)

            async def respond(conn: Connection, state: State) -> Message:
                return await _answer(conn, store, state, editor.session.branch, answer)

            return Made(_subject(request, answer), respond)

        return make

    async def again(conn: Connection, state: State, branch: str) -> pb.BatchChangeNodesResponse:
        changes = _with_ids(state.workspace_id, request)
        parents = (await history.read_commit(conn, state.workspace_id, state.commit_id)).parents
        before = State(state.workspace_id, parents[0])
        results = [await _result_again(conn, before, state, one) for one in changes]
        return await _answer(conn, store, state, branch, pb.BatchChangeNodesResponse(results=results))

    commit = request.commit
    target = Target(request.workspace, commit.branch, commit.agent, commit.message)
    return ImmediateCall(request, target, pb.BatchChangeNodesResponse, TOOL, prepare, again)


def _check_no_view(one: pb.NodeChange) -> None:
    kind = one.WhichOneof("change")
    change = getattr(one, kind) if kind else None
    for name in _OF_VIEWS:
        if change is None or name not in change.DESCRIPTOR.fields_by_name:
            continue
        field = change.DESCRIPTOR.fields_by_name[name]
        if change.HasField(name) if field.has_presence else getattr(change, name):
            raise InvalidInputError.at(name, "belongs to a view of a session; leave it out with commit.")


def _with_ids(workspace_id: str, request: pb.BatchChangeNodesRequest) -> list[pb.NodeChange]:
    """The changes; with a request id each new node has an id that the same call gives it again."""
    changes = []
    for number, one in enumerate(request.changes):
        if one.WhichOneof("change") == "create" and request.request_id and not one.create.node_id:
            filled = pb.NodeChange()
            filled.CopyFrom(one)
            filled.create.node_id = derived_id(workspace_id, kept_request_id(request.request_id), number)
            changes.append(filled)
        else:
            changes.append(one)
    return changes


def _subject(request: pb.BatchChangeNodesRequest, answer: pb.BatchChangeNodesResponse) -> str:
    verbs = {_VERBS.get(one.WhichOneof("change") or "", "Change") for one in request.changes}
    titles = dict.fromkeys(result.node.title or result.node.id for result in answer.results)
    return subject_of(verbs.pop() if len(verbs) == 1 else "Change", list(titles), "nodes")


async def _answer(
    conn: Connection, store: Store, state: State, branch: str, answer: pb.BatchChangeNodesResponse
) -> pb.BatchChangeNodesResponse:
    """The response with the nodes as they are in the commit; one that the batch deleted has its id alone."""
    ids = list(dict.fromkeys(result.node.id for result in answer.results))
    nodes = {node.id: node for node in await nodes_at(Snapshot(conn, state), store, ids, TITLE)}
    for result in answer.results:
        result.node.CopyFrom(nodes.get(result.node.id, types_pb2.Node(id=result.node.id)))
    answer.commit_id, answer.branch = state.commit_id, branch
    return answer


async def _result_again(conn: Connection, before: State, state: State, one: pb.NodeChange) -> pb.NodeChangeResult:
    """The result of a change whose commit was made by an earlier call."""
    kind = one.WhichOneof("change")
    if kind == "create":
        return pb.NodeChangeResult(node=types_pb2.Node(id=one.create.node_id))
    if kind != "delete":
        return pb.NodeChangeResult(node=types_pb2.Node(id=await _meant(conn, before, state, getattr(one, kind or ""))))
    node_id = await _meant(conn, before, state, one.delete)
    below = [item.entry_id for item in await tree.subtree(Snapshot(conn, before), [node_id])]
    alive = await tree.versions(Snapshot(conn, state), below)
    gone = [each for each in below if each not in alive and each != node_id]
    return pb.NodeChangeResult(node=types_pb2.Node(id=node_id), deleted_ids=gone)


async def _meant(
    conn: Connection,
    before: State,
    state: State,
    change: pb.UpdateNodeRequest
    | pb.MoveNodeRequest
    | pb.DeleteNodeRequest
    | pb.AddRelationRequest
    | pb.RemoveRelationRequest,
) -> str:
    """The node that a change names: it was there before the commit, or an earlier change of the batch created it."""
    try:
        return await lookup.full_id(Snapshot(conn, before), change.node_id)
    except lookup.NodeNotFoundError:
        return await lookup.full_id(Snapshot(conn, state), change.node_id)
