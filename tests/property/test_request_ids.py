"""Request ids belong to their principal: others with the same id neither get its answer nor are refused for it."""

from typing import Any

import pytest
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from memotree_storage.model.trailers import given_request_id, marks_of, owned_request_id, with_trailers
from memotree_storage.postgres.registry import WorkspaceExistsError
from memotree_storage.postgres.requests import RequestIdReusedError
from property.store_harness import StoreHarness, WorkspaceMachine

from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.memory import MemoryOperations
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.request.principal import ALL_BRANCHES, ALL_WORKSPACES, LOCAL, Grant, Principal, Role, acting_as
from memotree.sessions import SessionOperations
from memotree.v1 import memory_service_pb2 as pb
from memotree.v1 import session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("STORE-2", "SERVE-3")

EVERYTHING = (Grant(ALL_WORKSPACES, ALL_BRANCHES, Role.ADMIN),)
CALLERS = [LOCAL, Principal("ada", grants=EVERYTHING), Principal("ben", grants=EVERYTHING)]
callers = st.sampled_from(CALLERS)
ids = st.sampled_from(["r1", "r2", "r3"])
texts = st.sampled_from(["Tea is green.", "The gate is shut at nine."])


class Calls(WorkspaceMachine):
    """The same few request ids, used by several principals for several calls. The model is one dictionary."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        self.memory = MemoryOperations(harness.store, ServiceLimits())
        self.sessions = SessionOperations(
            harness.store, PageTokens(), ServiceLimits(), resolver=ConflictResolution(harness.store, ServiceLimits())
        )
        self.committed: dict[tuple[str, str], tuple[str, str]] = {}
        """By principal and id: the call, and the commit that it made, which has the id too."""
        self.opened: dict[tuple[str, str], Any] = {}
        """The same of calls that make no commit; they are forgotten with their results."""

    @rule(who=callers, request_id=ids, text=texts, in_batch=st.booleans())
    def remember(self, who: Principal, request_id: str, text: str, in_batch: bool) -> None:
        if in_batch:
            change = pb.MemoryChange(remember=pb.RememberRequest(text=text))
            batch = pb.BatchChangeMemoryRequest(workspace=self.workspace, changes=[change], request_id=request_id)
            call: Any = self.memory.batch_change_memory(batch)
        else:
            call = self.memory.remember(pb.RememberRequest(workspace=self.workspace, text=text, request_id=request_id))
        self._compare(who, request_id, f"{text} {in_batch}", call)

    @rule(who=callers, request_id=st.sampled_from(["s1", "s2"]))
    def open_session(self, who: Principal, request_id: str) -> None:
        request = session_service_pb2.OpenSessionRequest(workspace=self.workspace, request_id=request_id)
        answer = self._called(who, self.sessions.open_session(request))
        assert self.opened.setdefault((who.owner, request_id), answer) == answer

    @rule(rebuilds=st.booleans())
    def forget(self, rebuilds: bool) -> None:
        """The results are lost, and what knows of a call is its commit alone."""
        self.opened.clear()

        async def lose() -> None:
            async with self.harness.store.database.transaction() as conn:
                await conn.execute("delete from work.request where workspace_id = %s", (self.workspace,))
            if rebuilds:
                await self.harness.store.rebuild(self.workspace)

        self.harness.run(lose())

    @invariant()
    def every_session_has_its_own_call(self) -> None:
        sessions = [each.session.id for each in self.opened.values()]
        assert len(set(sessions)) == len(sessions)

    @invariant()
    def every_call_has_its_own_answer(self) -> None:
        commits = [commit_id for _, commit_id in self.committed.values()]
        assert len(set(commits)) == len(commits)

    def _compare(self, who: Principal, request_id: str, call: str, made: Any) -> None:
        key = who.owner, request_id
        try:
            commit_id = self._called(who, made).commit_id
        except RequestIdReusedError:
            assert self.committed[key][0] != call
            return
        assert self.committed.setdefault(key, (call, commit_id)) == (call, commit_id)

    def _called(self, who: Principal, call: Any) -> Any:
        with acting_as(who):
            return self.harness.run(call)


def test_every_principal_has_request_ids_of_its_own(harness: StoreHarness) -> None:
    run_state_machine_as_test(lambda: Calls(harness), settings=effort(6, steps=20, shrink=False))


def test_a_workspace_is_no_answer_to_another_principal(harness: StoreHarness) -> None:
    operations = WorkspaceOperations(harness.store, PageTokens(), ServiceLimits())
    names = {}
    for who in CALLERS:
        name = f"of-{who.name}"
        request = workspace_service_pb2.CreateWorkspaceRequest(name=name, request_id="once")
        with acting_as(who):
            names[who.name] = harness.run(operations.create_workspace(request)).workspace.id
    assert len(set(names.values())) == len(CALLERS)
    taken = workspace_service_pb2.CreateWorkspaceRequest(name="hers", request_id="again")
    with acting_as(CALLERS[1]):
        made = harness.run(operations.create_workspace(taken))
        assert harness.run(operations.create_workspace(taken)) == made
    with acting_as(CALLERS[2]), pytest.raises(WorkspaceExistsError):
        harness.run(operations.create_workspace(taken))


def test_a_trailer_keeps_the_id_of_its_owner() -> None:
    for request_id in ("once", "r" * 128, "a:b", "0" * 24 + ":x"):
        kept = owned_request_id("ada", request_id)
        assert kept != owned_request_id("ben", request_id)
        assert kept != owned_request_id("", request_id) == request_id
        assert given_request_id(kept) == request_id
        assert repr(request_id) in RequestIdReusedError.of(kept).message
        assert marks_of(with_trailers("A subject", {"MemoTree-Request": kept})).request_id == kept
        assert marks_of(with_trailers("A subject", {"MemoTree-Request": kept + "r" * 128})).request_id is None
