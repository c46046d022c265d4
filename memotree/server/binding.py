"""Binds operations to the services of the contract, using only the descriptors.

An operation is an async method that takes the request message and returns the response message; for a streaming RPC it
is an async generator of response messages. Its name is the RPC's name in snake case. No servicer classes are needed.
"""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from memotree_storage.errors import FailedPreconditionError

from memotree.error_mapping import UnimplementedError
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

_FILES: Final = (
    memory_service_pb2,
    workspace_service_pb2,
    session_service_pb2,
    node_service_pb2,
    view_service_pb2,
    history_service_pb2,
    maintenance_service_pb2,
    forest_service_pb2,
    job_service_pb2,
    review_service_pb2,
    audit_service_pb2,
    erase_service_pb2,
    index_service_pb2,
    settings_service_pb2,
    tool_service_pb2,
    query_service_pb2,
    access_service_pb2,
)

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class OperationsMismatchError(FailedPreconditionError):
    """The operations given to the server do not match the contract; every fault is listed."""

    reason = "OPERATIONS_MISMATCH"


class OperationMissingError(UnimplementedError):
    """The contract has the RPC, but this server has no operation for it."""

    reason = "OPERATION_MISSING"

    def __init__(self, method: str) -> None:
        super().__init__(f"This server does not have {method} yet; GetStatus gives its version. Use a newer server.")


@cache
def contract() -> Mapping[str, ServiceDescriptor]:
    """The services of ``memotree.v1`` by their short names."""
    return {name: service for file in _FILES for name, service in file.DESCRIPTOR.services_by_name.items()}


def operation_name(method: MethodDescriptor) -> str:
    """The name of the operation behind an RPC: ``OpenSession`` is ``open_session``."""
    return _WORD_START.sub("_", method.name).lower()


def faults(operations: Mapping[str, object], *, partial: bool = False) -> list[str]:
    """The mismatches between the contract and the operations, one sentence each.

    Args:
        operations: The object with the operations of each service, by the service's short name.
        partial: Whether operations may be missing; their calls answer UNIMPLEMENTED.
    """
    found = [f"{name} is not a service of the contract" for name in operations if name not in contract()]
    for name, subject in operations.items():
        if name in contract():
            found += [
                fault for method in contract()[name].methods for fault in _method_faults(method, subject, partial)
            ]
    return found


def _method_faults(method: MethodDescriptor, subject: object, partial: bool) -> list[str]:
    name, place = operation_name(method), type(subject).__name__
    operation = getattr(subject, name, None)
    if operation is None:
        return [] if partial else [f"{place} has no method {name} for {method.full_name}"]
    plain = inspect.unwrap(operation)
    if method.server_streaming and inspect.iscoroutinefunction(plain):
        return [f"{place}.{name} must be an async generator, since {method.full_name} streams"]
    if not method.server_streaming and inspect.isasyncgenfunction(plain):
        return [f"{place}.{name} must return one message, since {method.full_name} does not stream"]
    return []


def check(operations: Mapping[str, object], *, partial: bool = False) -> None:
    """Check that the operations match the contract.

    Errors: ``OperationsMismatchError``, which lists every fault.
    """
    found = faults(operations, partial=partial)
    if found:
        raise OperationsMismatchError(f"The server cannot start: {'; '.join(found)}.")


def handlers(service: ServiceDescriptor, subject: object) -> dict[str, Any]:
    """The ``grpc.RpcMethodHandler`` of each RPC of ``service``, by the RPC's name."""
    return {method.name: _handler(method, getattr(subject, operation_name(method), None)) for method in service.methods}


def _handler(method: MethodDescriptor, operation: Callable[[Message], Any] | None) -> Any:
    """The gRPC handler of one method; the message classes come from the pool that the generated modules fill."""
    request, response = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    coding: dict[str, Any] = {"request_deserializer": request.FromString, "response_serializer": _encoder(response)}
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(method, operation), **coding)
    return grpc.unary_unary_rpc_method_handler(_single(method, operation), **coding)


def _encoder(kind: type[Message]) -> Callable[[Message], bytes]:
    """An encoder for messages of one type; protobuf would encode any type, which the client would decode wrongly."""

    def encode(message: Message) -> bytes:
        if not isinstance(message, kind):
            wrong = f"the operation returned a {type(message).__name__}, but the contract says {kind.__name__}"
            raise TypeError(wrong)
        return message.SerializeToString()

    return encode


def _single(
    method: MethodDescriptor, operation: Callable[[Message], Awaitable[Message]] | None
) -> Callable[[Message, object], Awaitable[Message]]:
    async def answer(request: Message, _context: object) -> Message:
        if operation is None:
            raise OperationMissingError(method.full_name)
        return await operation(request)

    return answer


def _streaming(
    method: MethodDescriptor, operation: Callable[[Message], AsyncIterator[Message]] | None
) -> Callable[[Message, object], AsyncIterator[Message]]:
    async def missing(_request: Message, _context: object) -> AsyncIterator[Message]:
        raise OperationMissingError(method.full_name)
        yield  # makes this function a generator

    def answer(request: Message, _context: object) -> AsyncIterator[Message]:
        # Return the operation's own generator, so that closing it runs its clean-up at once.
        return operation(request) if operation is not None else missing(request, _context)

    return answer
