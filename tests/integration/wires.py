"""A client of the wire contract for tests: every call by its name, every refusal with all its details."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from memotree_storage.model.node import new_id

from memotree.server.binding import contract
from memotree.v1 import types_pb2

UNBOUNDED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
"""Options of a channel that leaves limits to the server."""

PAGE_KEY = bytes(32)
"""The key of page tokens of the server that tests of the wire share, so that a test can forge a token."""


@cache
def _methods() -> dict[str, MethodDescriptor]:
    return {method.name: method for service in contract().values() for method in service.methods}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a call.

    Attributes:
        code: The name of the status.
        reason: The stable error code.
        message: The sentence.
        fields: The paths of the arguments that are wrong.
        nodes: The nodes that the error names.
        conflicts: The conflicts that the error lists.
    """

    code: str
    reason: str
    message: str
    fields: tuple[str, ...] = ()
    nodes: tuple[types_pb2.Node, ...] = ()
    conflicts: tuple[types_pb2.Conflict, ...] = ()

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> Self:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        nodes, conflicts = types_pb2.NodeList(), types_pb2.ConflictList()
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for detail in status_pb2.Status.FromString(value).details:
                    any(detail.Unpack(kind) for kind in (info, bad, nodes, conflicts))
        return cls(
            error.code().name,
            info.reason,
            error.details() or "",
            tuple(violation.field for violation in bad.field_violations),
            tuple(nodes.nodes),
            tuple(conflicts.conflicts),
        )


_PART = re.compile(r"""(\w+)(?:\[(\d+|'.*'|".*")\])?(?:\.(.+))?""", re.DOTALL)


def has_path(message: Message, path: str) -> bool:
    """Whether a message has a path such as ``changes[3].create.attributes['key']``; its items must exist.

    The name of a ``oneof`` stands for the field that is given, or for all of them if none is.
    """
    found = _PART.fullmatch(path)
    name, index, rest = found.groups() if found else ("", None, None)
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        return name in message.DESCRIPTOR.oneofs_by_name and index is None and rest is None
    value = getattr(message, name)
    if index is not None:
        if not hasattr(value, "__len__") or isinstance(value, (str, bytes)):
            return False
        if hasattr(value, "keys"):
            return not index.isdigit() and rest is None
        if not index.isdigit() or int(index) >= len(value):
            return False
        value = value[int(index)]
    return rest is None or (isinstance(value, Message) and has_path(value, rest))


class Wire:
    """One connection, one workspace and one session; every request uses these unless it names others."""

    def __init__(self, channel: grpc.aio.Channel, workspace: str) -> None:
        self._channel = channel
        self.workspace = workspace
        self.session = ""

    @classmethod
    async def begin(cls, channel: grpc.aio.Channel) -> Self:
        """A new workspace with the archive ``notes`` on its branch, and an open session."""
        wire = cls(channel, f"w-{new_id()}")
        await wire("CreateWorkspace", name=wire.workspace)
        await wire.open()
        await wire("CreateArchive", name="notes")
        await wire.commit("Make the archive")
        return wire

    def request(self, method: str, **fields: Any) -> Message:
        """The request of a call; workspace and session are filled in, but the session of a call that may have none."""
        found = _methods()[method]
        kind = message_factory.GetMessageClass(found.input_type)
        names = kind.DESCRIPTOR.fields_by_name
        session = "" if found.containing_service.name == "HistoryService" else self.session
        own = {"workspace": self.workspace, "session_id": session}
        given = {name: value for name, value in own.items() if name in names and value}
        return kind(**given | fields)

    async def __call__(self, method: str, /, *, timeout: float | None = 30, **fields: Any) -> Any:  # noqa: ASYNC109 - gRPC's deadline
        """Send a call and return its answer."""
        return await self.send(method, self.request(method, **fields).SerializeToString(), timeout=timeout)

    async def send(self, method: str, raw: bytes, *, timeout: float | None = 30) -> Any:  # noqa: ASYNC109 - gRPC's deadline
        """Send any bytes as the request."""
        found = _methods()[method]
        answer = message_factory.GetMessageClass(found.output_type)
        path = f"/{found.containing_service.full_name}/{method}"
        call = self._channel.unary_unary(path, response_deserializer=answer.FromString)
        return await call(raw, timeout=timeout)

    async def refused(self, method: str, /, *, timeout: float | None = 30, **fields: Any) -> Refusal:  # noqa: ASYNC109
        """Send a call that must fail; check that the request has the arguments that the error names."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self(method, timeout=timeout, **fields)
        refusal = Refusal.of(caught.value)
        request = self.request(method, **fields)
        assert [path for path in refusal.fields if not has_path(request, path)] == [], f"{method} has no such fields"
        return refusal

    async def open(self, **fields: Any) -> str:
        """Open a session and work in it from now on."""
        self.session = (await self("OpenSession", agent="tester", **fields)).session.id
        return self.session

    async def other(self) -> "Wire":
        """A client of the same workspace, with another session."""
        wire = Wire(self._channel, self.workspace)
        await wire.open()
        return wire

    async def create(self, title: str = "A node", **fields: Any) -> types_pb2.Node:
        """Stage a node; a root of ``notes`` unless it has a parent."""
        home = {} if "parent_id" in fields else {"archive_id": "notes"}
        node: types_pb2.Node = (await self("CreateNode", title=title, **home, **fields)).node
        return node

    async def get(self, node_id: str, revision: str | None = None, **fields: Any) -> types_pb2.Node:
        """Read a node, in the session unless another revision is named."""
        answer = await self(
            "GetNode", node_id=node_id, revision=self.session if revision is None else revision, **fields
        )
        node: types_pb2.Node = answer.node
        return node

    async def commit(self, message: str = "Change something", **fields: Any) -> str:
        """Commit the session; return the commit's id."""
        return str((await self("CommitChanges", message=message, **fields)).commit_id)

    async def children(self, parent_id: str = "", revision: str | None = None) -> list[str]:
        """The ids below a node, or the roots of ``notes``."""
        where = {"parent_id": parent_id} if parent_id else {"archive": "notes"}
        found = await self("ListChildren", revision=self.session if revision is None else revision, **where)
        return [node.id for node in found.nodes]

    async def tree(self, revision: str | None = None, **fields: Any) -> list[tuple[str, int]]:
        """Titles with depths, in the order of the tree."""
        where = fields or {"archive": "notes"}
        found = await self("GetTree", revision=self.session if revision is None else revision, **where)
        return [(item.node.title, item.depth) for item in found.nodes]

    async def search(self, query: str, revision: str | None = None, **fields: Any) -> list[str]:
        """The titles that a search finds, best first."""
        found = await self(
            "SearchNodes", query=query, revision=self.session if revision is None else revision, **fields
        )
        return [hit.node.title for hit in found.hits]

    async def snapshot(self) -> tuple[bytes, ...]:
        """Everything that a refused call must not change: trees, archives, staged changes, refs and workspaces."""
        where = {"revision": self.session} if self.session else {}
        answers = [
            await self("GetTree", archive=archive.id, level=types_pb2.LEVEL_OF_DETAIL_SUMMARY, **where)
            for archive in (await self("ListArchives", **where)).archives
        ]
        answers += [await self("ListArchives", **where), await self("ListBranches"), await self("ListTags")]
        answers += [await self("ListViews", **where), await self("GetWorkspace")]
        answers += [await self("ListChanges", page_size=1000)] if self.session else []
        sessions = sorted(one.id for one in (await self("ListSessions", include_closed=True)).sessions)
        return (*(answer.SerializeToString(deterministic=True) for answer in answers), repr(sessions).encode())


async def family(wire: Wire) -> tuple[types_pb2.Node, types_pb2.Node, types_pb2.Node]:
    """A root, a child and a grandchild."""
    root = await wire.create("Root", content="The root of all.", brief="root brief", summary="root summary")
    child = await wire.create("Child", parent_id=root.id, content="Child content.", brief="b", summary="child summary")
    leaf = await wire.create("Leaf", parent_id=child.id, content="Leaf content.", summary="leaf summary")
    return root, child, leaf


async def rendered(wire: Wire, **fields: Any) -> str:
    """The Markdown of a view of the session."""
    return str((await wire("RenderView", revision=wire.session, **fields)).markdown)
