"""The memory of one workspace."""

from dataclasses import dataclass
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.git.repository import GitRepository
from memotree_storage.postgres import sessions, tree
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.memory import MemoryOperations
from memotree.v1 import memory_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class Memory:
    """Short calls of the memory operations in the workspace of a world."""

    world: World
    operations: MemoryOperations

    @property
    def store(self) -> Store:
        return self.world.store

    @property
    def repository(self) -> GitRepository:
        return self.world.repository

    async def remember(self, text: str, **fields: Any) -> pb.RememberResponse:
        return await self.operations.remember(pb.RememberRequest(workspace=self.world.workspace, text=text, **fields))

    async def revise(self, **fields: Any) -> pb.ReviseResponse:
        return await self.operations.revise(pb.ReviseRequest(workspace=self.world.workspace, **fields))

    async def forget(self, node_id: str = "", **fields: Any) -> pb.ForgetResponse:
        return await self.operations.forget(pb.ForgetRequest(workspace=self.world.workspace, node_id=node_id, **fields))

    async def restore(self, node_id: str, **fields: Any) -> pb.RestoreResponse:
        return await self.operations.restore(
            pb.RestoreRequest(workspace=self.world.workspace, node_id=node_id, **fields)
        )

    async def change(self, *changes: pb.MemoryChange, **fields: Any) -> pb.BatchChangeMemoryResponse:
        return await self.operations.batch_change_memory(
            pb.BatchChangeMemoryRequest(workspace=self.world.workspace, changes=changes, **fields)
        )

    async def content(self, node_id: str, commit_id: str = "") -> str | None:
        """The content of a node at a commit, or at the head; ``None`` if it is not alive there."""
        state = State(self.world.workspace, commit_id or await self.world.head())
        async with self.store.database.connection() as conn:
            version = (await tree.versions(Snapshot(conn, state), [node_id])).get(node_id)
        return None if version is None else (await self.store.entries.node(self.world.workspace, version)).content

    async def open_sessions(self) -> int:
        async with self.store.database.connection() as conn:
            return len(await sessions.list_sessions(conn, self.world.workspace, closed=True))

    async def subject(self, branch: str = "main") -> str:
        return self.repository.commit_info(await self.world.head(branch)).message.split("\n", 1)[0]


@pytest.fixture
def memory(world: World) -> Memory:
    return Memory(world, MemoryOperations(world.store, world.limits))
