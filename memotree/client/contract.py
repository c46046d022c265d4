"""Finds the method of a request, and whether it may be repeated, from the descriptors of the contract.

In the contract each method has its own request message, which no other method uses. So the request determines the
method, and no table of methods is needed.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message

from memotree.v1 import (
    access_service_pb2,
    audit_service_pb2,
    erase_service_pb2,
    forest_service_pb2,
    history_service_pb2,
    index_service_pb2,
    job_service_pb2,
    maintenance_service_pb2,
    memory_service_pb2,
    node_service_pb2,
    query_service_pb2,
    review_service_pb2,
    session_service_pb2,
    settings_service_pb2,
    tool_service_pb2,
    view_service_pb2,
    workspace_service_pb2,
)

_Options = descriptor_pb2.MethodOptions


def is_read(method: MethodDescriptor) -> bool:
    """Whether a method changes nothing, as its ``idempotency_level`` in the contract says."""
    return _level(method) == _Options.NO_SIDE_EFFECTS


def is_repeatable(method: MethodDescriptor) -> bool:
    """Whether a second call changes no more than the first, as its ``idempotency_level`` says."""
    return _level(method) in {_Options.NO_SIDE_EFFECTS, _Options.IDEMPOTENT}


def _level(method: MethodDescriptor) -> int:
    options: descriptor_pb2.MethodOptions = method.GetOptions()
    return options.idempotency_level


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the contract.

    Attributes:
        path: Its gRPC path, such as ``/memotree.v1.NodeService/GetNode``.
        repeatable: Whether a second call has no further effect, whatever the request contains.
        has_request_id: Whether the request has a request id, which makes it safe to repeat.
    """

    path: str
    repeatable: bool
    has_request_id: bool


def _methods() -> Iterator[tuple[Descriptor, Method]]:
    for module in (
        audit_service_pb2,
        erase_service_pb2,
        forest_service_pb2,
        history_service_pb2,
        index_service_pb2,
        job_service_pb2,
        maintenance_service_pb2,
        memory_service_pb2,
        node_service_pb2,
        query_service_pb2,
        review_service_pb2,
        session_service_pb2,
        settings_service_pb2,
        tool_service_pb2,
        access_service_pb2,
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
                        is_repeatable(method),
                        "request_id" in request.fields_by_name,
                    ),
                )


_BY_REQUEST: Final = {request.full_name: method for request, method in _methods()}


def method_of(request: Message) -> Method:
    """The method that ``request`` belongs to."""
    return _BY_REQUEST[request.DESCRIPTOR.full_name]


def make_repeatable(request: Message) -> bool:
    """Fills in a new request id if ``request`` has an empty field for one; returns whether the call is repeatable."""
    method = method_of(request)
    if method.has_request_id and not getattr(request, "request_id", ""):
        request.request_id = uuid.uuid4().hex  # type: ignore[attr-defined] # the field exists, as checked above
    return method.repeatable or method.has_request_id
