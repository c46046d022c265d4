"""Workspaces for tests: short calls that make, stage and commit archives and nodes as a client does."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from memotree_storage.commit.workspaces import create_workspace
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.position import many_between
from memotree_storage.model.workspace import WorkspaceInfo
from memotree_storage.postgres import registry, sessions, staging, tree
from memotree_storage.postgres.staging import Edit
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.sessions import SessionOperations
from memotree.v1 import session_service_pb2, types_pb2


@dataclass(frozen=True, slots=True)
class World:
    """A store with one workspace and one archive, committed on ``main``."""

    store: Store
    pages: PageTokens
    limits: ServiceLimits
    sessions: SessionOperations
    workspace: str
    archive: Archive

    @classmethod
    async def create(cls, store: Store, pages: PageTokens, limits: ServiceLimits, name: str = "") -> Self:
        """A new workspace with an archive; it gets a name of its own unless one is given."""
        info = WorkspaceInfo(new_id(), name or f"garden-{new_id()}", "", datetime.now(UTC).replace(microsecond=0))
        await create_workspace(store, info)
        world = cls(
            store=store,
            pages=pages,
            limits=limits,
            sessions=SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits)),
            workspace=info.workspace_id,
            archive=Archive(new_id(), "notes", "an-agent", "What the tests remember."),
        )
        await world.put(world.archive, message="Make the archive")
        return world

    def on(self, store: Store) -> "World":
        """The same workspace in another store."""
        resolver = ConflictResolution(store, self.limits)
        return replace(self, store=store, sessions=SessionOperations(store, self.pages, self.limits, resolver=resolver))

    @property
    def repository(self) -> GitRepository:
        """The workspace's Git repository."""
        return self.store.repositories.get(self.workspace)

    def node(self, title: str = "A node", *, parent: Node | str | None = None, **fields: Any) -> Node:
        """A new node of the archive, not yet staged or committed, with a new id and position."""
        parent_id = parent.id if isinstance(parent, Node) else parent
        made = Node(new_id(), self.archive.id, parent_id, "a0", title=title, content=f"What {title} says.")
        return replace(made, **fields)

    def nodes(self, count: int, **fields: Any) -> list[Node]:
        """That many roots in a row."""
        places = many_between(None, None, count)
        return [self.node(f"Node {number}", position=place, **fields) for number, place in enumerate(places)]

    async def open(self, branch: str = "", **fields: Any) -> str:
        """The id of a new session."""
        request = session_service_pb2.OpenSessionRequest(workspace=self.workspace, branch=branch, **fields)
        return (await self.sessions.open_session(request)).session.id

    async def stage(self, session_id: str, *entries: Entry, delete: Iterable[Entry | str] = (), note: str = "") -> None:
        """Stage new values of entries, and deletions."""
        gone = [entry if isinstance(entry, str) else entry.id for entry in delete]
        async with self.store.database.transaction() as conn:
            session = await sessions.hold_session(conn, self.workspace, session_id)
            before = await tree.versions(Snapshot(conn, session.tree), [*(entry.id for entry in entries), *gone])
            edits = [Edit(entry, before.get(entry.id), note) for entry in entries]
            edits += [Edit(None, before[entry_id], note) for entry_id in gone]
            await staging.stage(conn, session, edits)

    async def commit(self, session_id: str, message: str = "Change something", **fields: Any) -> str:
        """Commit a session; return the commit's id."""
        request = session_service_pb2.CommitChangesRequest(
            workspace=self.workspace, session_id=session_id, message=message, **fields
        )
        return (await self.sessions.commit_changes(request)).commit_id

    async def put(
        self,
        *entries: Entry,
        delete: Iterable[Entry | str] = (),
        branch: str = "",
        message: str = "Change something",
        author: str = "",
        tag: str = "",
    ) -> str:
        """Commit new values of entries, and deletions, on a branch; return the commit's id."""
        session_id = await self.open(branch)
        await self.stage(session_id, *entries, delete=delete)
        fields: dict[str, Any] = {"create_tag": True, "tag_name": tag} if tag else {}
        if author:
            fields["author"] = types_pb2.CommitAuthor(name=author)
        commit_id = await self.commit(session_id, message, **fields)
        await self.sessions.discard_session(
            session_service_pb2.DiscardSessionRequest(workspace=self.workspace, session_id=session_id)
        )
        return commit_id

    async def put_all(self, entries: Sequence[Entry]) -> list[str]:
        """Commit each entry separately; return the commits' ids in order."""
        return [await self.put(entry, message=f"Commit {number}") for number, entry in enumerate(entries)]

    async def alive(self, commit_id: str, session_id: str | None = None) -> dict[str, str]:
        """The blob of every entry that is alive at a state, by id."""
        async with self.store.database.connection() as conn:
            found = await tree.everything(Snapshot(conn, State(self.workspace, commit_id, session_id)))
        return {version.entry_id: version.blob for version in found}

    async def head(self, branch: str = "main") -> str:
        """The commit of a branch in the mirror."""
        async with self.store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, self.workspace)
            return (await registry.resolve(conn, workspace.workspace_id, f"refs/heads/{branch}"))[1].state.commit_id
