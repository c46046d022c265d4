"""Puts a check of who calls around the operations, so that no interface can go past it.

gRPC, HTTP, MCP and calls within the process reach the same checked operations.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import wraps
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from memotree.request.principal import Principal, act_as, acting_as, check_again_with, principal
from memotree.server.binding import contract, operation_name

Admit = Callable[[str, Message, Principal], Awaitable[Principal]]
"""Lets a call pass or raises why not, given the service and the RPC (``NodeService.GetNode``), the request, and who
calls; returns who calls with the roles that it has now."""

Changes = Callable[[], int]
"""Returns a number that is another one when what `Admit` answers may be another."""


def checked(operations: Mapping[str, object], admit: Admit, changes: Changes) -> dict[str, object]:
    """The operations of a server, each behind a check.

    A stream is checked when it begins, and again before its next message when keys or roles have changed or the proof
    of who calls has ended. If that refuses it, it ends with this error.

    Args:
        operations: The object with the operations of each service, by the service's short name.
        admit: The check, which is asked about each call: also one whose principal is not known, and must refuse that.
        changes: Counts the changes of keys and roles.
    """
    return {name: _Checked(contract()[name], subject, admit, changes) for name, subject in operations.items()}


class _Checked:
    """The operations of a service behind a check; all else of their object stays as it is."""

    def __init__(self, service: ServiceDescriptor, subject: object, admit: Admit, changes: Changes) -> None:
        methods = {operation_name(method): method for method in service.methods}
        for name in dir(subject):
            if name.startswith("_"):
                continue
            found = getattr(subject, name)
            method = methods.get(name)
            setattr(self, name, found if method is None else _behind(admit, changes, method, found))


def _behind(
    admit: Admit, changes: Changes, method: MethodDescriptor, operation: Callable[[Message], Any]
) -> Callable[[Message], Any]:
    call = f"{method.containing_service.name}.{method.name}"
    if method.server_streaming:

        @wraps(operation)
        async def stream(request: Message) -> AsyncIterator[Message]:
            seen = changes()
            who = await admit(call, request, principal())
            act_as(who)

            async def check() -> None:
                nonlocal seen, who
                if seen != changes() or who.has_ended:
                    seen = changes()
                    who = await admit(call, request, who)
                    act_as(who)

            check_again_with(check)
            async with aclosing(operation(request)) as messages:
                async for message in messages:
                    await check()
                    yield message

        return stream

    @wraps(operation)
    async def single(request: Message) -> Message:
        with acting_as(await admit(call, request, principal())):
            answer: Message = await operation(request)
            return answer

    return single
