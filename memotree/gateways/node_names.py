"""Nodes by name in the arguments of a tool: ResolveNode finds the id that a title or a path means, before the call.

So the rules are those of the server, and the same as on the command line.
"""

from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.message import Message
from memotree_storage.model.node import is_id, is_id_prefix

from memotree.gateways.callers import Caller
from memotree.gateways.contract import method
from memotree.gateways.tool import Tool
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError

_STATES: Final = ("session_id", "revision", "branch")
"""The fields of a request that may say at which state its nodes are looked up."""


async def put_ids(caller: Caller, tool: Tool, request: Message) -> None:
    """Replace the names of nodes in a request by their ids.

    Raises:
        NoNodeNamedError: No node has this title or path.
        AmbiguousNodeNameError: Several have it.
        MemoTreeClientError: The names could not be looked up.
    """
    for name in tool.named:
        given = getattr(request, name)
        if isinstance(given, str):
            if given:
                setattr(request, name, await _id(caller, request, name, given))
            continue
        for number, each in enumerate(given):
            given[number] = await _id(caller, request, f"{name}[{number}]", each)


async def _id(caller: Caller, request: Any, field: str, name: str) -> str:
    """The id of the node that ``name`` means; the beginning of ids stays, since the call may know deleted nodes too."""
    if is_id(name):
        return name
    resolve = method("NodeService", "ResolveNode")
    query: Any = message_factory.GetMessageClass(resolve.input_type)
    states = [getattr(request, state) for state in _STATES if state in request.DESCRIPTOR.fields_by_name]
    question = query(workspace=request.workspace, revision=next(filter(None, states), ""), name=name)
    answer: Any = await caller.call(resolve, question)
    found = [candidate.node for candidate in answer.candidates]
    if len(found) == 1:
        return str(found[0].id)
    if is_id_prefix(name) and all(node.id.startswith(name) for node in found):
        return name
    if not found:
        raise NoNodeNamedError(field, name, "Find it with recall, and give the id or the exact title.")
    told = [f"{candidate.node.id} ({candidate.path})" for candidate in answer.candidates]
    raise AmbiguousNodeNameError.among(field, name, found, [*told, *(["and others"] if answer.more else [])])
