"""Any calls of proposals, reviews, merges and direct writes do what a small model of the rules does.

The model has one text for each proposal and for ``main``; each proposal changes a note of its own, so none conflicts.
"""

from dataclasses import dataclass, field

import pytest
from campaigns import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from integration.recall.talks import Models
from memotree_storage.errors import AbortedError, FailedPreconditionError
from memotree_storage.model.protection import BranchProtectedError
from memotree_storage.postgres import refs, tree
from memotree_storage.postgres.tree import Snapshot
from property.store_harness import StoreHarness, WorkspaceMachine

from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.forest.recall.recall import Recall
from memotree.history import HistoryOperations
from memotree.memory import MemoryOperations
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.review import ReviewOperations
from memotree.sessions import SessionOperations
from memotree.v1 import history_service_pb2, memory_service_pb2, types_pb2
from memotree.v1 import review_service_pb2 as pb

choices = st.integers(0, 1000)
names = st.sampled_from(["ada", "Ada", "bot", "eve", "kim"])


@dataclass
class Proposed:
    """What the model knows of a proposal."""

    author: str
    status: str = "open"
    text: str = "0"
    committers: set[str] = field(default_factory=set)
    approved: dict[str, str] = field(default_factory=dict)
    branch: str = ""
    note: str = ""

    @property
    def current(self) -> set[str]:
        """The principals whose approval is of the present text."""
        return {name for name, text in self.approved.items() if text == self.text}


class Reviews(WorkspaceMachine):
    """Random calls on one protected branch."""

    def __init__(self, harness: StoreHarness) -> None:
        super().__init__(harness)
        store, limits, pages = harness.store, ServiceLimits(), PageTokens()
        self.memory = MemoryOperations(store, limits)
        self.history = HistoryOperations(store, pages, limits)
        sessions = SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits))
        self.review = ReviewOperations(store, pages, limits, sessions, Recall(store, limits, Models(store.embedder)))
        self.proposals: dict[int, Proposed] = {}
        self.needed = 0
        self.notes: dict[str, str] = {}
        """The texts of the notes of ``main`` by title."""

    @initialize()
    def begin(self) -> None:
        self._remember("First", "ada", "main")  # makes the archive, which branches would each make otherwise
        self.notes["First"] = "First"

    # --- steps ---

    @rule(needed=st.integers(0, 2))
    def protect(self, needed: int) -> None:
        if needed:
            request = pb.ProtectBranchesRequest(workspace=self.workspace, pattern="main", required_approvals=needed)
            self.harness.run(self.review.protect_branches(request))
        elif self.needed:
            request_ = pb.UnprotectBranchesRequest(workspace=self.workspace, pattern="main")
            self.harness.run(self.review.unprotect_branches(request_))
        self.needed = needed

    @rule(name=names)
    def write_directly(self, name: str) -> None:
        self.count += 1
        title = f"Direct {self.count}"
        if self.needed:
            with pytest.raises(BranchProtectedError):
                self._remember(title, name, "main")
        else:
            self._remember(title, name, "main")
            self.notes[title] = title

    @rule(name=names, committer=names)
    def propose(self, name: str, committer: str) -> None:
        self.count += 1
        branch = f"idea{self.count}"
        made_branch = history_service_pb2.CreateBranchRequest(workspace=self.workspace, name=branch)
        self.harness.run(self.history.create_branch(made_branch))
        title = f"Idea {self.count}"
        self._remember(title, committer, branch)
        request = pb.CreateProposalRequest(
            workspace=self.workspace, title=title, branch=branch, author=types_pb2.CommitAuthor(name=name)
        )
        made = self.harness.run(self.review.create_proposal(request)).proposal
        self.proposals[made.number] = Proposed(name, committers={committer.lower()}, branch=branch, note=title)

    @precondition(lambda self: self.proposals)
    @rule(choice=choices, name=names)
    def commit_to_it(self, choice: int, name: str) -> None:
        _, proposed = self._some(choice)
        self.count += 1
        self._remember(f"More {self.count}", name, proposed.branch)
        proposed.committers.add(name.lower())
        proposed.text = str(self.count)
        if proposed.status != "merged":
            proposed.note = f"{proposed.note},More {self.count}"

    @precondition(lambda self: self.proposals)
    @rule(choice=choices, name=names, rejects=st.booleans())
    def decide(self, choice: int, name: str, rejects: bool) -> None:
        number, proposed = self._some(choice)
        request = pb.ReviewProposalRequest(
            workspace=self.workspace,
            number=number,
            reviewer=types_pb2.CommitAuthor(name=name),
            verdict=pb.REVIEW_VERDICT_REJECT if rejects else pb.REVIEW_VERDICT_APPROVE,
            text="So.",
            head_commit_id=self._get(number).head_commit_id,
        )
        own = name.lower() in {proposed.author.lower(), *proposed.committers}
        if proposed.status != "open" or (own and not rejects):
            with pytest.raises(FailedPreconditionError):
                self.harness.run(self.review.review_proposal(request))
            return
        self.harness.run(self.review.review_proposal(request))
        if rejects:
            proposed.status = "rejected"
            proposed.approved.clear()
        else:
            proposed.approved[name] = proposed.text

    @precondition(lambda self: self.proposals)
    @rule(choice=choices)
    def reopen(self, choice: int) -> None:
        number, proposed = self._some(choice)
        request = pb.UpdateProposalRequest(workspace=self.workspace, number=number, status=pb.PROPOSAL_STATUS_OPEN)
        if proposed.status == "merged":
            with pytest.raises(FailedPreconditionError):
                self.harness.run(self.review.update_proposal(request))
        elif proposed.status == "rejected":
            self.harness.run(self.review.update_proposal(request))
            proposed.status = "open"

    @precondition(lambda self: self.proposals)
    @rule(choice=choices)
    def merge(self, choice: int) -> None:
        number, proposed = self._some(choice)
        request = pb.MergeProposalRequest(workspace=self.workspace, number=number)
        principals = {name.lower() for name in proposed.current}
        allowed = proposed.status == "merged" or (proposed.status == "open" and len(principals) >= self.needed)
        if not allowed:
            with pytest.raises((FailedPreconditionError, AbortedError)):
                self.harness.run(self.review.merge_proposal(request))
            return
        answer = self.harness.run(self.review.merge_proposal(request))
        assert answer.proposal.status == pb.PROPOSAL_STATUS_MERGED
        if proposed.status == "open":
            proposed.status = "merged"
            self.notes |= {title: title for title in proposed.note.split(",")}

    # --- checks ---

    @invariant()
    def main_has_what_was_written_or_approved(self) -> None:
        if hasattr(self, "workspace"):
            assert self.harness.run(self._titles()) == set(self.notes)

    @invariant()
    def proposals_are_as_the_model_says(self) -> None:
        for number, proposed in self.proposals.items():
            told = self._get(number)
            assert pb.ProposalStatus.Name(told.status) == f"PROPOSAL_STATUS_{proposed.status.upper()}"
            assert {name.lower() for name in told.approved_by} == {name.lower() for name in proposed.current}

    # --- helpers ---

    def _some(self, choice: int) -> tuple[int, Proposed]:
        number = sorted(self.proposals)[choice % len(self.proposals)]
        return number, self.proposals[number]

    def _get(self, number: int) -> pb.Proposal:
        request = pb.GetProposalRequest(workspace=self.workspace, number=number)
        return self.harness.run(self.review.get_proposal(request)).proposal

    async def _titles(self) -> set[str]:
        """The titles of the notes of ``main``."""
        async with self.harness.store.database.connection() as conn:
            head = await refs.branch_head(conn, self.workspace, "main")
            assert head is not None
            found = await tree.everything(Snapshot(conn, head))
        return {version.title for version in found if not version.is_archive}

    def _remember(self, title: str, agent: str, branch: str) -> None:
        request = memory_service_pb2.RememberRequest(
            workspace=self.workspace, title=title, text=f"What {title} says.", agent=agent, branch=branch
        )
        self.harness.run(self.memory.remember(request))


@pytest.mark.requirement("GIT-9")
def test_the_rules_hold_in_any_order(harness: StoreHarness) -> None:
    run_machine(lambda: Reviews(harness), settings=effort(6, steps=20, shrink=False))
