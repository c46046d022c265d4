"""The default workspace, which is created by the first call that means it."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from memotree.client.errors import AlreadyExistsError, MemoTreeClientError
from memotree.gateways.callers import Caller
from memotree.gateways.contract import method
from memotree.request.principal import within_function

MISSING: Final = "WORKSPACE_NOT_FOUND"
"""The error code of a call for a workspace that does not exist."""


async def create_workspace(caller: Caller, name: str) -> None:
    """Create a workspace, unless somebody else was faster."""
    make = method("WorkspaceService", "CreateWorkspace")
    creation: Any = message_factory.GetMessageClass(make.input_type)
    with suppress(AlreadyExistsError), within_function(""):  # a function may not do it because it may do other things
        await caller.call(make, creation(name=name))


class InDefaultWorkspace:
    """Calls operations; if the default workspace does not exist, it is created first.

    Args:
        caller: Calls the operations.
        workspace: The default workspace.
    """

    def __init__(self, caller: Caller, workspace: str) -> None:
        self._caller = caller
        self._workspace = workspace

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The response of a unary RPC."""
        try:
            return await self._caller.call(method, request)
        except MemoTreeClientError as error:
            if error.reason != MISSING or getattr(request, "workspace", "") != self._workspace:
                raise
        await create_workspace(self._caller, self._workspace)
        return await self._caller.call(method, request)

    def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of a streaming RPC."""
        return self._caller.stream(method, request)
