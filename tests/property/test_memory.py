"""Any calls of Remember, Revise, Forget and Restore, alone, in batches and repeated, do what a dictionary does.

The model has, for each commit, the texts of all notes that are alive there. A call that is refused changes nothing.
"""

from typing import Any

import pytest
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from memotree_storage.errors import MemoTreeError
from memotree_storage.postgres import sessions, tree
from memotree_storage.postgres.tree import Snapshot, State
from property.store_harness import StoreHarness, WorkspaceMachine

from memotree.memory import MemoryOperations
from memotree.request.limits import ServiceLimits
from memotree.v1 import memory_service_pb2 as pb

choices = st.integers(0, 1000)
texts = st.sampled_from(
    ["Tea is green.", "Tea is black.", "The gate is shut at nine.", "Die Tür ist zu.", "茶是绿的。"]
)
archives = st.sampled_from(["", "notes", "rules"])
kinds = st.sampled_from(["remember", "remember", "revise", "forget", "restore"])


class Memories(WorkspaceMachine):
    """Random calls on one branch."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        self.memory = MemoryOperations(harness.store, ServiceLimits())
        self.notes: dict[str, str] = {}
        self.ever: dict[str, str] = {}
        self.last: dict[str, str] = {}
        """The text that a note had when it was forgotten last."""
        self.states: list[tuple[str, dict[str, str]]] = []
        self.requests: list[tuple[Any, Any, Any]] = []

    # --- steps ---

    @rule(kind=kinds, choice=choices, text=texts, archive=archives)
    def one(self, kind: str, choice: int, text: str, archive: str) -> None:
        change = self._change(kind, choice, text, archive)
        request = getattr(change, kind)
        request.workspace = self.workspace
        self.count += 1
        request.request_id = f"r{self.count}"
        call = getattr(self.memory, kind)
        answer = self._called(call, request, [change])
        if answer is not None:
            self.requests.append((call, request, answer))

    @rule(wanted=st.lists(st.tuples(kinds, choices, texts, archives), min_size=1, max_size=4))
    def batch(self, wanted: list[tuple[str, int, str, str]]) -> None:
        changes = [self._change(*each) for each in wanted]
        self.count += 1
        request = pb.BatchChangeMemoryRequest(workspace=self.workspace, changes=changes, request_id=f"r{self.count}")
        answer = self._called(self.memory.batch_change_memory, request, changes)
        if answer is not None:
            self.requests.append((self.memory.batch_change_memory, request, answer))

    @rule(choice=choices)
    def again(self, choice: int) -> None:
        if self.requests:
            call, request, answer = self.requests[choice % len(self.requests)]
            assert self.harness.run(call(request)) == answer

    @rule(choice=choices)
    def at_an_old_state(self, choice: int) -> None:
        if self.states:
            commit_id, notes = self.states[choice % len(self.states)]
            assert self.harness.run(self._alive(commit_id)) == notes

    # --- checks ---

    @invariant()
    def the_branch_has_what_the_model_has(self) -> None:
        if self.states:
            assert self.harness.run(self._alive(self.states[-1][0])) == self.notes

    @invariant()
    def no_session_is_left(self) -> None:
        assert self.harness.run(self._sessions()) == 0

    # --- the model ---

    def _change(self, kind: str, choice: int, text: str, archive: str) -> pb.MemoryChange:
        known = list(self.ever)
        node_id = known[choice % len(known)] if known else "zzzzzzzzzzzzzzzz"
        if kind == "remember":
            return pb.MemoryChange(remember=pb.RememberRequest(text=text, archive=archive))
        if kind == "revise":
            return pb.MemoryChange(revise=pb.ReviseRequest(node_id=node_id, text=text))
        if kind == "forget":
            return pb.MemoryChange(forget=pb.ForgetRequest(node_id=node_id))
        return pb.MemoryChange(restore=pb.RestoreRequest(node_id=node_id))

    def _called(self, call: Any, request: Any, changes: list[pb.MemoryChange]) -> Any:
        expected = self._expected(changes)
        if expected is None:
            with pytest.raises(MemoTreeError):
                self.harness.run(call(request))
            return None
        answer = self.harness.run(call(request))
        if expected == self.notes:  # nothing was changed, and no commit made
            assert answer.commit_id == self.states[-1][0]
            return answer
        results = answer.results if isinstance(answer, pb.BatchChangeMemoryResponse) else [answer]
        ids = [result.node.id for result in results]
        notes = dict(self.notes)
        for change, node_id in zip(changes, ids, strict=True):
            self._apply(notes, self.last, change, node_id)
        self.notes = notes
        self.ever |= self.notes
        self.states.append((answer.commit_id, dict(self.notes)))
        return answer

    def _expected(self, changes: list[pb.MemoryChange]) -> dict[str, str] | None:
        """What the notes would be; ``None`` if the call must be refused."""
        notes, last = dict(self.notes), dict(self.last)
        for number, change in enumerate(changes):
            if not self._apply(notes, last, change, f"new{number}"):
                return None
        return notes

    def _apply(self, notes: dict[str, str], last: dict[str, str], change: pb.MemoryChange, new: str) -> bool:
        """Make a change; return whether it is allowed."""
        kind = change.WhichOneof("change") or ""
        node_id = new if kind == "remember" else getattr(change, kind).node_id
        if kind == "restore":
            allowed = node_id not in notes and node_id in last
        else:
            allowed = kind == "remember" or node_id in notes
        if not allowed:
            return False
        if kind == "forget":
            # Forgotten and restored in one batch, it comes back as it was before the batch.
            last[node_id] = self.notes.get(node_id, notes[node_id])
            del notes[node_id]
        else:
            notes[node_id] = last[node_id] if kind == "restore" else getattr(change, kind).text
        return True

    async def _alive(self, commit_id: str) -> dict[str, str]:
        async with self.harness.store.database.connection() as conn:
            found = await tree.everything(Snapshot(conn, State(self.workspace, commit_id)))
        versions = [version for version in found if not version.is_archive]
        entries = await self.harness.store.entries.load(self.workspace, versions)
        return {version.entry_id: entries[version.blob].content for version in versions}  # type: ignore[union-attr]

    async def _sessions(self) -> int:
        async with self.harness.store.database.connection() as conn:
            return len(await sessions.list_sessions(conn, self.workspace, closed=True))


@pytest.mark.requirement("USE-1", "STORE-2")
def test_any_calls_do_what_a_dictionary_does(harness: StoreHarness) -> None:
    run_state_machine_as_test(lambda: Memories(harness), settings=effort(4, steps=25, shrink=False))
