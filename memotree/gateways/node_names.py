"""Nodes by name in the arguments of a tool: ResolveNode finds the id that a title or a path means, before the call.

So the rules are those of the server, and the same as on the command line. Only here, a name that no node has in this
spelling may be that of one node in another case or with other white space, as models write it.
"""

from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.message import Message
from memotree_storage.errors import MemoTreeError
from memotree_storage.model.node import is_id, is_id_prefix

from memotree.client.errors import MemoTreeClientError
from memotree.gateways.callers import Caller
from memotree.gateways.contract import method
from memotree.gateways.tool import Tool
from memotree.request.node_names import AmbiguousNodeNameError, NoNodeNamedError
from memotree.v1 import node_service_pb2

_MOST_NEAR: Final = 3
"""How many nodes are named in place of one that nobody found."""

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
        near = await _near(caller, question)
        alike = [node for node in near if _plain(node.title) == _plain(name)]
        if len(alike) == 1:
            return str(alike[0].id)
        listed = ", ".join(f"{node.id} ({node.title})" for node in near)
        hint = f"Did you mean one of {listed}?" if near else "Find it with recall, and give the id or the exact title."
        raise NoNodeNamedError(field, name, hint)
    told = [f"{candidate.node.id} ({candidate.path})" for candidate in answer.candidates]
    raise AmbiguousNodeNameError.among(field, name, found, [*told, *(["and others"] if answer.more else [])])


async def _near(caller: Caller, asked: Any) -> list[Any]:
    """The nodes that are most like a name that no node has; none if the search does not answer."""
    search = method("NodeService", "SearchNodes")
    query: Any = message_factory.GetMessageClass(search.input_type)
    request = query(
        workspace=asked.workspace,
        revision=asked.revision,
        query=asked.name,
        search_type=node_service_pb2.SEARCH_TYPE_HYBRID,
        max_results=_MOST_NEAR,
        include_preview=False,
    )
    try:
        answer: Any = await caller.call(search, request)
    except (MemoTreeClientError, MemoTreeError):
        return []
    return [hit.node for hit in answer.hits]


def _plain(title: str) -> str:
    """A title without the difference of case and white space."""
    return " ".join(title.split()).casefold()
