"""Clients that write at random and record every answer, so that the checks can compare the server with it.

A writer owns one session and its nodes. One of its tasks stages edits, the other commits, so edits race commits. Calls
are cancelled now and then. If a call got no answer, its outcome is unknown: both are right until a read shows which one
happened (`Truth.seen`).
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import grpc
from integration.calls import Calls
from memotree_storage.model.node import new_id

from memotree.v1 import node_service_pb2, session_service_pb2, types_pb2

WORKSPACE: Final = "crashes"
_CANCELLED: Final = 0.12
"""The share of calls that their client cancels."""

_PATIENCE: Final = 0.02
"""The most seconds before such a client cancels."""

_UNKNOWN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
_T = TypeVar("_T")


@dataclass(slots=True)
class Truth:
    """The texts that a node may have in its session: the last acknowledged one, or one whose outcome is unknown.

    ``None`` stands for a node that does not exist. ``history`` has every text that was ever tried, in order.
    """

    acknowledged: str | None = None
    unknown: list[str | None] = field(default_factory=list)
    history: list[str | None] = field(default_factory=lambda: [None])

    def may_be(self, text: str | None) -> bool:
        """Whether the node may have this text."""
        return text == self.acknowledged or text in self.unknown

    def seen(self, text: str | None) -> None:
        """Note the text that a read returned."""
        self.acknowledged = text
        self.unknown.clear()

    def not_older(self, than: str | None) -> set[str | None]:
        """All texts from ``than`` on."""
        return set(self.history[self.history.index(than) :])


@dataclass(frozen=True, slots=True)
class Made:
    """An acknowledged commit, and the edits acknowledged in its session before the commit was requested."""

    request: session_service_pb2.CommitChangesRequest
    response: session_service_pb2.CommitChangesResponse
    before: dict[str, str | None]


class Services(Calls):
    """The stubs over one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel, WORKSPACE)


class Writer:
    """One session, its edits and its commits."""

    def __init__(self, number: int, session_id: str, root_id: str, rng: random.Random) -> None:
        self.number = number
        self.session_id = session_id
        self.nodes: dict[str, Truth] = {}
        self.touched: set[str] = set()
        """The nodes that calls have tried to change since the last read."""
        self.made: list[Made] = []
        self.unknown: list[session_service_pb2.CommitChangesRequest] = []
        self.complaints: list[str] = []
        self.acknowledged_edits = 0
        self._root_id = root_id
        self._rng = rng
        self._dirty: set[str] = set()
        self._count = 0

    async def edit(self, services: Services) -> None:
        """Stage edits until the server has ended."""
        while True:
            # A node with an unknown outcome is not changed before the next read: a cancelled call may still be on its
            # way.
            steady = [node_id for node_id, truth in self.nodes.items() if not truth.unknown and truth.acknowledged]
            chance = self._rng.random()
            if not steady or chance < 0.35:
                node_id, text = new_id(), self._text()
                call = services.nodes.CreateNode(self._creation(node_id, text))
            elif chance < 0.93:
                node_id, text = self._rng.choice(steady), self._text()
                call = services.nodes.UpdateNode(self._update(node_id, text))
            else:
                node_id, text = self._rng.choice(steady), None
                call = services.nodes.DeleteNode(self._deletion(node_id))
            if not await self._stage(call, node_id, text):
                return

    async def commit(self, services: Services) -> None:
        """Commit the staged changes again and again until the server has ended."""
        while True:
            request = self._commit_request()
            before = {node_id: truth.acknowledged for node_id, truth in self.nodes.items() if not truth.unknown}
            try:
                response = await self._impatient(services.sessions.CommitChanges(request))
            except grpc.aio.AioRpcError as error:
                if error.code() in _UNKNOWN:
                    self.unknown.append(request)
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    return
                # Nothing is staged, or an earlier commit has a chosen node: the two tasks of the writer race.
                if error.code() not in {*_UNKNOWN, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND}:
                    self.complaints.append(f"CommitChanges: {error.code().name} {error.details()}")
                    return
            except asyncio.CancelledError:
                self.unknown.append(request)
                if _cancelled_ourselves():
                    raise
            else:
                self._dirty -= set(request.specific_nodes) or set(before)
                self.made.append(Made(request, response, {} if request.specific_nodes else before))
            await asyncio.sleep(self._rng.random() * 0.01)  # lets edits accumulate; it waits for no event

    async def _stage(self, call: Any, node_id: str, text: str | None) -> bool:
        truth = self.nodes.setdefault(node_id, Truth())
        truth.history.append(text)
        truth.unknown.append(text)
        self.touched.add(node_id)
        self._dirty.add(node_id)
        try:
            await self._impatient(call)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _UNKNOWN:
                self.complaints.append(f"staging: {error.code().name} {error.details()}")
            return error.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
        except asyncio.CancelledError:
            if _cancelled_ourselves():
                raise
            return True
        truth.seen(text)
        self.acknowledged_edits += 1
        return True

    async def _impatient(self, call: Awaitable[_T]) -> _T:
        """Await a call, or cancel it after a moment."""
        if self._rng.random() >= _CANCELLED:
            return await call
        asyncio.get_running_loop().call_later(self._rng.random() * _PATIENCE, call.cancel)  # type: ignore[attr-defined]
        return await call

    def _text(self) -> str:
        self._count += 1
        word = f"zq{self.number}{self._rng.randbytes(5).hex()}"
        return f"What writer {self.number} has to say for the time {self._count} is {word}"

    def _creation(self, node_id: str, text: str) -> node_service_pb2.CreateNodeRequest:
        return node_service_pb2.CreateNodeRequest(
            workspace=WORKSPACE,
            session_id=self.session_id,
            parent_id=self._root_id,
            node_id=node_id,
            title=f"Node {node_id}",
            content=text,
            request_id=f"create-{node_id}",
        )

    def _update(self, node_id: str, text: str) -> node_service_pb2.UpdateNodeRequest:
        return node_service_pb2.UpdateNodeRequest(
            workspace=WORKSPACE, session_id=self.session_id, node_id=node_id, content=text, commit_message="Say it anew"
        )

    def _deletion(self, node_id: str) -> node_service_pb2.DeleteNodeRequest:
        return node_service_pb2.DeleteNodeRequest(workspace=WORKSPACE, session_id=self.session_id, node_id=node_id)

    def _commit_request(self) -> session_service_pb2.CommitChangesRequest:
        request_id = f"commit-{new_id()}"
        request = session_service_pb2.CommitChangesRequest(
            workspace=WORKSPACE,
            session_id=self.session_id,
            message=f"Writer {self.number} commits",
            author=types_pb2.CommitAuthor(name=f"Writer {self.number}"),
            request_id=request_id,
        )
        if self._rng.random() < 0.4:
            request.create_tag = True
            request.tag_name = f"v/{request_id}"
        steady = [node_id for node_id in self._dirty if not self.nodes[node_id].unknown]
        if steady and self._rng.random() < 0.3:
            request.specific_nodes.extend(self._rng.sample(sorted(steady), min(2, len(steady))))
        return request


def _cancelled_ourselves() -> bool:
    """Whether this task was cancelled, and not the call that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def prepare(services: Services, writers: int, rng: random.Random) -> list[Writer]:
    """Make the workspace with a committed archive and root, and a session for each writer."""
    await services.begin()
    return [
        Writer(number, await services.open(), services.root, random.Random(rng.random())) for number in range(writers)
    ]
