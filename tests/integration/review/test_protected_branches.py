"""A protected branch changes only by the merge of an approved proposal."""

from dataclasses import replace

import pytest
from integration.histories import branch, git
from integration.review.conftest import Review, called
from integration.sides import Sides
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.protection import PROTECTIONS_REF, BranchProtectedError, ProtectionsDamagedError
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft

from memotree.history import HistoryOperations
from memotree.review.protections import ProtectionNotFoundError
from memotree.review.reviewing import ProposalBlockedError
from memotree.v1 import history_service_pb2 as history_pb
from memotree.v1 import review_service_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-9")


async def test_every_way_to_change_a_protected_branch_is_refused(review: Review, sides: Sides) -> None:
    world, other = review.world, review.world.node("Another")
    await sides.fork(other)
    await world.put(replace(review.node, title="Theirs"), branch="side")
    session_id = await review.edited("Direct")
    await review.protect(author=called("ada"))
    before = git(world, "for-each-ref", "refs/heads")
    with pytest.raises(BranchProtectedError, match="CreateProposal"):
        await world.commit(session_id)
    for call in (
        sides.merge(),
        sides.merge(style=2),
        sides.merge(style=3),
        sides.pick("side"),
        sides.revert(),
        commit_entries(world.store, world.workspace, "main", [replace(other, title="Imported")], "Import"),
        review.put_tests(pb.MemoryTest(name="one", question="When?", expected_texts=["nine"])),
    ):
        with pytest.raises(BranchProtectedError):
            await call
    with pytest.raises(BranchProtectedError):
        await sides.history.delete_branch(history_pb.DeleteBranchRequest(workspace=world.workspace, name="main"))
    assert git(world, "for-each-ref", "refs/heads") == before
    await review.propose(session_id=session_id)
    await review.review("ada")
    await review.merge()
    await review.unprotect()
    await world.put(replace(other, title="Free again"))


async def test_checks_that_are_needed_block_the_merge(review: Review) -> None:
    world = review.world
    await review.put_tests(
        pb.MemoryTest(name="ferry", question="When does the ferry leave?", expected_texts=["at nine"])
    )
    await review.protect(checks_required=True)
    session_id = await world.open(agent="bot")
    await world.stage(session_id, replace(review.node, content="The ferry to the island leaves at ten."))
    await review.propose(session_id=session_id)
    await review.review("ada")
    with pytest.raises(ProposalBlockedError, match=r"ferry: The answer does not have 'at nine'"):
        await review.merge()
    changed = pb.MemoryTest(
        name="ferry", question="When does the ferry leave?", expected_texts=["at ten"], unwanted_texts=["at nine"]
    )
    await review.put_tests(changed, branch="proposals/1", author=called("bot"))
    found = await review.get(run_checks=True)
    (check,) = [check for check in found.checks if check.name == "memory tests"]
    assert check.passed
    assert "changes the tests ferry" in check.detail, "whoever reviews sees that the test was changed"
    await review.review("ada")
    await review.merge()


async def test_the_longest_pattern_counts(review: Review, sides: Sides) -> None:
    await review.protect("release/*", required_approvals=2)
    await review.protect("*")
    await review.protect("release/*", required_approvals=3, author=called("ada"))
    listed = [(one.pattern, one.required_approvals, one.protected_by) for one in await review.protections()]
    assert listed == [("*", 1, "agent"), ("release/*", 3, "ada")]
    await branch(sides.history, review.world, "release/1")
    with pytest.raises(BranchProtectedError):
        await review.world.put(review.world.node("More"), branch="release/1")


ODD_PATTERNS: list[str] = ["", "a b", "a*b", "**", "-x", "refs/heads/main", "a..b"]


async def test_odd_and_unknown_patterns_are_refused(review: Review, subtests: pytest.Subtests) -> None:
    for pattern in ODD_PATTERNS:
        with subtests.test(pattern=pattern), pytest.raises(InvalidInputError):
            await review.protect(pattern)
    with pytest.raises(ProtectionNotFoundError):
        await review.unprotect("nothing")


async def test_damaged_protections_stop_changes_rather_than_letting_them_in(review: Review) -> None:
    await review.protect("other")
    repository = review.world.repository
    tip, by = repository.ref(PROTECTIONS_REF), service_signature()
    written = repository.write_commit(CommitDraft(tip, {"protections.json": b"{"}, "Damage\n", by, by))
    assert repository.move_ref(PROTECTIONS_REF, tip, written.commit_id)
    with pytest.raises(ProtectionsDamagedError):
        await review.world.put(review.world.node("More"))


async def test_the_list_of_branches_tells_protected_ones(review: Review, history: HistoryOperations) -> None:
    await branch(history, review.world, "kept")
    await branch(history, review.world, "free")
    await review.protect("kept")
    answer = await history.list_branches(history_pb.ListBranchesRequest(workspace=review.world.workspace))
    assert {one.name: one.protected for one in answer.branches} == {"main": True, "kept": True, "free": False}
