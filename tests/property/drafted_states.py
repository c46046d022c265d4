"""A model of commits, branches and sessions as dictionaries of entries, which machines of reading compare with."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from by_hand import file_changes
from memotree_storage.model.node import Entry
from memotree_storage.ports import CommitDraft, Signature
from memotree_storage.postgres import sessions, staging, tree
from memotree_storage.postgres.staging import Edit
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store
from property.store_harness import StoreHarness, WorkspaceMachine, numbered_id

START: Final = datetime(2024, 1, 1, tzinfo=UTC)


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


def _alive(entries: dict[str, Any]) -> dict[str, Entry]:
    return {key: entry for key, entry in entries.items() if entry is not None}
