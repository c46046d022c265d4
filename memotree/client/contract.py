"""The calls of the contract, found in its descriptors: where a request goes and whether it may be repeated.

The contract names the request of a method after the method, and uses it nowhere else; so a request alone says where it
goes, and no table of methods has to be kept.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from memotree.v1 import (
    forest_service_pb2,
    history_service_pb2,
    job_service_pb2,
    maintenance_service_pb2,
    node_service_pb2,
    session_service_pb2,
    view_service_pb2,
    workspace_service_pb2,
)

_REPEATABLE_VERBS: Final = (
    "Get",
    "List",
    "Search",
    "Diff",
    "Render",
    "Expand",
    "Collapse",
    "Recall",
    "Drill",
    "Suggest",
    "CancelJob",
)
"""Reads, the two calls that set a value in a view, and the end of a job: done twice, they do the same."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the contract.

    Attributes:
        path: Where gRPC finds it, such as ``/memotree.v1.NodeService/GetNode``.
        repeatable: Whether a second call does no more than the first, whatever the request says.
        has_request_id: Whether a request id makes it safe to repeat.
    """

    path: str
    repeatable: bool
    has_request_id: bool


def _methods() -> Iterator[tuple[Descriptor, Method]]:
    for module in (
        forest_service_pb2,
        history_service_pb2,
        job_service_pb2,
        maintenance_service_pb2,
        node_service_pb2,
        session_service_pb2,
        view_service_pb2,
        workspace_service_pb2,
    ):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                request = method.input_type
                yield (
                    request,
                    Method(
                        f"/{service.full_name}/{method.name}",
                        method.name.startswith(_REPEATABLE_VERBS),
                        "request_id" in request.fields_by_name,
                    ),
                )


_BY_REQUEST: Final = {request.full_name: method for request, method in _methods()}


def method_of(request: Message) -> Method:
    """The method that ``request`` belongs to."""
    return _BY_REQUEST[request.DESCRIPTOR.full_name]


def make_repeatable(request: Message) -> bool:
    """Gives ``request`` a fresh request id if it takes one and has none; whether the call may then be repeated."""
    method = method_of(request)
    if method.has_request_id and not getattr(request, "request_id", ""):
        request.request_id = uuid.uuid4().hex  # type: ignore[attr-defined] # the field was just looked up
    return method.repeatable or method.has_request_id
