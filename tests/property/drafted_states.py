"""A model of commits, branches and sessions as dictionaries of entries, which machines of reading compare with."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from by_hand import file_changes
from memotree_storage.model.node import Entry, Node
from memotree_storage.model.position import many_between
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import sessions, staging, tree
from memotree_storage.postgres.staging import Edit
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store
from property.store_harness import StoreHarness, WorkspaceMachine, numbered_id, pick

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
PLACES: Final = many_between(None, None, 8, Random(3))

Wanted = list[tuple[str, int, int]]
"""Changes that a machine is to make: a kind, and two numbers that choose among nodes and values."""


@dataclass
class Draft:
    """A session of the model."""

    id: str
    base: str
    branch: str
    changes: dict[str, Entry | None] = field(default_factory=dict)
    detached: bool = False


class DraftedStates(WorkspaceMachine):
    """Writes commits with git's own commands and edits sessions; what stands where is known."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        first = self._git().refs()["refs/heads/main"]
        self.states: dict[str, dict[str, Entry]] = {first: {}}
        self.order = [first]
        self.parents: dict[str, str] = {}
        self.refs = {"main": first}
        self.drafts: list[Draft] = []

    @property
    def store(self) -> Store:
        return self.harness.store

    def _git(self) -> Any:
        return self.store.repositories.get(self.workspace)

    async def _follow(self) -> None:
        """Let the mirror catch up, without the index."""
        await self.store.catch_up(self.workspace)
        await self.store.indexer.stop()

    def _state_of(self, draft: Draft) -> dict[str, Entry]:
        return _alive(self.states[draft.base] | draft.changes)

    def _node(self, node_id: str, parent: Node | None, number: int) -> Node:
        """A node whose texts follow from a number."""
        raise NotImplementedError

    def _changed(self, kind: str, nodes: list[Node], first: int, second: int) -> Node:
        """One of some nodes with a change of a kind that only this machine has."""
        raise NotImplementedError

    def _changes(self, before: dict[str, Entry], wanted: Wanted) -> dict[str, Entry | None]:
        """The entries that some changes, one after the other, leave behind; ``None`` for a deleted one."""
        after: dict[str, Entry | None] = dict(before)
        changes: dict[str, Entry | None] = {}
        for kind, first, second in wanted:
            nodes = [entry for entry in after.values() if isinstance(entry, Node)]
            ever = {key for state in self.states.values() for key in state} - after.keys()
            if kind == "again" and ever:
                made = self._node(pick(sorted(ever), first), None, second)
            elif kind in {"create", "again"} or not nodes:
                self.count += 1
                made = self._node(numbered_id(self.count), pick([None, *nodes], first), second)
            elif kind == "delete":
                gone = pick(childless(nodes), first)
                changes[gone.id] = after[gone.id] = None
                continue
            elif kind == "move":
                made = replace(pick(nodes, first), position=pick(PLACES, second))
            elif kind == "edit":
                node = pick(nodes, first)
                made = replace(self._node(node.id, None, second), parent_id=node.parent_id, archive_id=node.archive_id)
            else:
                made = self._changed(kind, nodes, first, second)
            changes[made.id] = after[made.id] = made
        return changes

    def _commit(self, branch: str, changes: dict[str, Entry | None], *, follow: bool = True) -> None:
        parent = self.refs[branch]
        self.count += 1
        by = Signature("A person", "", START + timedelta(minutes=self.count))
        files = file_changes(self._git(), parent, changes)
        commit_id = self._git().write_commit(CommitDraft(parent, files, f"Commit {self.count}\n", by, by)).commit_id
        assert self._git().move_ref(f"refs/heads/{branch}", parent, commit_id)
        self.refs[branch] = commit_id
        self.order.append(commit_id)
        self.parents[commit_id] = parent
        self.states[commit_id] = _alive(self.states[parent] | changes)
        if follow:
            self.harness.run(self._follow())

    def _point(self, branch: str, commit_id: str) -> None:
        """Create a branch at any commit, or move it."""
        ref = f"refs/heads/{branch}"
        assert self._git().move_ref(ref, self._git().refs().get(ref), commit_id)
        self.refs[branch] = commit_id
        self.harness.run(self._follow())

    def _open(self, branch: str) -> None:
        """Open a session on a branch."""
        self.count += 1
        draft = Draft(numbered_id(10_000_000 + self.count), self.refs[branch], branch)
        self.harness.run(self._open_session(draft))
        self.drafts.append(draft)

    async def _open_session(self, draft: Draft) -> None:
        async with self.store.database.transaction() as conn:
            base = Snapshot(conn, State(self.workspace, draft.base))
            await sessions.open_session(base, draft.id, branch=draft.branch, agent="tester", ttl=timedelta(days=1))
        assert self._git().move_ref(f"refs/memotree/keep/{draft.id}", None, draft.base)

    def _stage(self, draft: Draft, changes: dict[str, Entry | None]) -> None:
        """Change a session; an entry that is again as in the base is no change."""
        self.harness.run(self._write(draft, changes))
        base = self.states[draft.base]
        draft.changes = {key: each for key, each in (draft.changes | changes).items() if each != base.get(key)}

    async def _write(self, draft: Draft, changes: dict[str, Entry | None]) -> None:
        async with self.store.database.transaction() as conn:
            session = await sessions.hold_session(conn, self.workspace, draft.id)
            before = await tree.versions(Snapshot(conn, session.tree), list(changes))
            staged = [Edit(entry, before.get(key)) for key, entry in changes.items()]
            await staging.stage(conn, session, [edit for edit in staged if edit.entry or edit.before])


def childless(nodes: list[Node]) -> list[Node]:
    parents = {node.parent_id for node in nodes}
    return [node for node in nodes if node.id not in parents]


def _alive(entries: dict[str, Any]) -> dict[str, Entry]:
    return {key: entry for key, entry in entries.items() if entry is not None}
