"""Changes are proposed on a branch of their own, reviewed by others, and merged; all of it is recorded in Git."""

from dataclasses import replace

import psycopg
import pytest
from integration.histories import git
from integration.pushes import OpenAgain, rewind, session_of
from integration.recall.talks import Models
from integration.review.conftest import PROPOSALS, REJECT, Review, called
from integration.sides import Sides
from memotree_storage.commit.proposals import ProposalClosedError, ProposalExistsError, ProposalNotFoundError
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres.sessions import SessionRewoundError
from memotree_storage.verify import Difference, verify

from memotree.forest.recall.recall import Recall
from memotree.review import ReviewOperations
from memotree.review.proposals import ProposalEmptyError, ProposalMergedError
from memotree.review.reviewing import OwnProposalError, ProposalBlockedError, ProposalMovedError
from memotree.v1 import review_service_pb2 as pb
from memotree.v1 import session_service_pb2

pytestmark = pytest.mark.requirement("GIT-9")


async def test_a_session_commits_to_a_branch_that_others_can_look_at(review: Review) -> None:
    world = review.world
    before = await world.head()
    session_id = await review.edited()
    proposal = await review.propose("Say it better", description="It was vague.", session_id=session_id)
    assert (proposal.number, proposal.branch, proposal.target_branch) == (1, "proposals/1", "main")
    assert (proposal.author, proposal.status) == ("bot", pb.PROPOSAL_STATUS_OPEN)
    assert await world.head() == before, "the target has not moved"
    assert await world.head("proposals/1") == proposal.head_commit_id
    message = git(world, "show", "-s", "--format=%an|%s|%b", proposal.head_commit_id)
    assert message.startswith("bot|Say it better|It was vague.")
    request = session_service_pb2.GetSessionRequest(workspace=world.workspace, session_id=session_id)
    session = (await world.sessions.get_session(request)).session
    now = (session.branch, session.change_count, session.base_commit_id)
    assert now == ("proposals/1", 0, proposal.head_commit_id)


async def test_an_approved_proposal_is_merged_with_its_reviewers_in_the_commit(review: Review) -> None:
    world = review.world
    proposal = await review.propose()
    await review.review("ada")
    merged = await review.merge(author=called("bot"))
    assert merged.commit_id == await world.head() == merged.proposal.merge_commit_id
    assert merged.proposal.status == pb.PROPOSAL_STATUS_MERGED
    assert git(world, "show", "-s", "--format=%P", "main").split()[1] == proposal.head_commit_id
    message = git(world, "show", "-s", "--format=%B", "main")
    assert message.startswith("Merge proposal 1: Say it better\n")
    assert "MemoTree-Proposal: 1\nReviewed-by: ada\n" in message
    assert review.recorded() == [
        "bot: Merge 1: Say it better",
        "ada: Approve 1: Say it better",
        "bot: Propose 1: Say it better",
        "MemoTree: Begin refs/memotree/proposals",
    ]
    again = await review.merge()
    assert again.commit_id == merged.commit_id, "merging it again says where it is"
    with pytest.raises(ProposalMergedError):
        await review.update(title="Too late")


async def test_nobody_approves_what_they_have_proposed_or_committed(review: Review) -> None:
    await review.propose(author=called("front"), session_id=await review.edited(agent="helper"))
    for name in ("front", "FRONT", "\N{FULLWIDTH LATIN SMALL LETTER F}ront", "helper"):
        with pytest.raises(OwnProposalError):
            await review.review(name)
    with pytest.raises(InvalidInputError):
        await review.review(" front ")
    assert not (await review.get()).proposal.approved_by
    await review.world.put(replace(review.node, title="By a third"), branch="proposals/1", author="third")
    with pytest.raises(OwnProposalError):
        await review.review("third")
    await review.review("ada")


async def test_an_approval_falls_when_the_branch_moves(review: Review) -> None:
    await review.protect()
    session_id = await review.edited()
    await review.propose(session_id=session_id)
    await review.review("ada")
    seen = await review.get()
    assert not seen.blockers
    await review.world.stage(session_id, replace(review.node, title="Smuggled"))
    commit_id = await review.world.commit(session_id)
    with pytest.raises(ProposalMovedError):  # a review is of the commit that was seen
        await review.review("eve", head_commit_id=seen.proposal.head_commit_id)
    found = await review.get()
    assert found.proposal.head_commit_id == commit_id, "later commits of the session come to the proposal"
    assert (list(found.proposal.approved_by), list(found.proposal.stale_approvals)) == ([], ["ada"])
    assert "of ada are of an earlier commit" in found.blockers[0]
    with pytest.raises(ProposalBlockedError):
        await review.merge()
    await review.review("ada")
    await review.merge()


async def test_a_rejection_needs_a_reason_and_takes_the_approvals(review: Review) -> None:
    await review.propose()
    await review.review("ada")
    with pytest.raises(InvalidInputError):
        await review.review("eve", verdict=REJECT)
    await review.review("eve", verdict=REJECT, text="Not true.")
    for call in (review.merge(), review.review("ada")):
        with pytest.raises(ProposalClosedError):
            await call
    proposal = await review.update(status=pb.PROPOSAL_STATUS_OPEN, text="It is true: see the note.")
    assert (proposal.status, list(proposal.approved_by)) == (pb.PROPOSAL_STATUS_OPEN, [])


async def test_the_last_missing_approval_merges_one_that_asks_for_it(review: Review) -> None:
    await review.protect(required_approvals=2)
    await review.propose(merge_when_approved=True)
    first = await review.review("ada")
    assert (first.proposal.status, len(first.blockers)) == (pb.PROPOSAL_STATUS_OPEN, 1)
    with pytest.raises(ProposalBlockedError, match="1 more approval"):
        await review.merge()
    for spelling in ("ada", "ADA"):
        assert (await review.review(spelling)).proposal.status == pb.PROPOSAL_STATUS_OPEN, "one principal counts once"
    second = await review.review("eve")
    assert second.proposal.merge_commit_id == await review.world.head()


async def test_a_merge_that_conflicts_keeps_the_approval_and_says_why(review: Review) -> None:
    await review.propose(merge_when_approved=True)
    await review.world.put(replace(review.node, title="Ours meanwhile"))
    answer = await review.review("ada")
    assert answer.proposal.status == pb.PROPOSAL_STATUS_OPEN
    assert "conflict" in answer.blockers[0]
    assert list((await review.get()).proposal.approved_by) == ["ada"]


async def test_comments_are_on_the_proposal_or_on_a_field(review: Review) -> None:
    await review.propose()
    await review.comment("Why?")
    await review.comment("A better title exists.", by="eve", node_id=review.node.id, field="title")
    events = (await review.get()).events
    assert [(event.by, event.text, event.node_id, event.field) for event in events] == [
        ("ada", "Why?", "", ""),
        ("eve", "A better title exists.", review.node.id, "title"),
    ]
    assert [event.text for event in (await review.get(page_size=1)).events] == ["Why?"]
    assert "eve: Comment on 1: Say it better" in review.recorded()


async def test_an_existing_branch_is_proposed_and_only_once(review: Review, sides: Sides) -> None:
    await sides.fork(review.world.node("Fork"))
    with pytest.raises(ProposalEmptyError):
        await review.propose(branch="side")
    await review.world.put(replace(review.node, title="On the side"), branch="side")
    proposal = await review.propose(branch="side")
    assert (proposal.branch, proposal.author) == ("side", "agent")
    with pytest.raises(ProposalExistsError):
        await review.propose(branch="side")
    with pytest.raises(InvalidInputError):
        await review.propose(branch="main")
    with pytest.raises(BranchNotFoundError):
        await review.propose(branch="nowhere")


async def test_a_session_without_changes_or_with_conflicts_is_not_proposed(review: Review, sides: Sides) -> None:
    with pytest.raises(NothingToCommitError):
        await review.propose(session_id=await review.world.open())
    await sides.fork(review.world.node("Fork"))
    await review.world.put(replace(review.node, title="Ours"))
    await review.world.put(replace(review.node, title="Theirs"), branch="side")
    session_id = await review.world.open()
    await sides.merge(session_id=session_id)
    with pytest.raises(ConflictError):
        await review.propose(session_id=session_id)
    assert await review.numbers() == []
    assert git(review.world, "for-each-ref", "refs/heads/proposals") == ""


async def test_a_repeated_call_makes_one_proposal(review: Review) -> None:
    session_id = await review.edited()
    first = await review.propose(session_id=session_id, request_id="once")
    again = await review.propose(session_id=session_id, request_id="once")
    assert again == first
    assert await review.numbers() == [1]


async def test_proposals_are_listed_by_status_and_target(review: Review) -> None:
    for number in range(1, 6):
        session_id = await review.edited(f"Edit {number}")
        await review.propose(session_id=session_id)
    await review.review("ada", 2, REJECT, text="No.")
    await review.merge(4)
    await review.update(5, status=pb.PROPOSAL_STATUS_WITHDRAWN)
    assert await review.numbers(page_size=2) == [5, 4, 3, 2, 1]
    assert await review.numbers(status=pb.PROPOSAL_STATUS_OPEN, page_size=1) == [3, 1]
    assert await review.numbers(status=pb.PROPOSAL_STATUS_REJECTED) == [2]
    assert await review.numbers(status=pb.PROPOSAL_STATUS_MERGED, target_branch="main") == [4]
    assert await review.numbers(target_branch="other") == []
    with pytest.raises(ProposalNotFoundError):
        await review.get(6)


async def test_the_branch_is_deleted_on_request_and_its_commits_stay_in_git(review: Review) -> None:
    proposal = await review.propose()
    await review.merge(delete_branch=True, style=3)  # squashed: no commit of a branch reaches the proposed one
    assert git(review.world, "for-each-ref", "refs/heads/proposals") == ""
    assert git(review.world, "rev-list", "--count", f"{proposal.head_commit_id}", f"^{PROPOSALS}").strip() == "0"
    assert (await review.get()).proposal.head_commit_id == ""


async def test_a_session_whose_branch_was_rewound_is_carried_over_before_it_is_proposed(review: Review) -> None:
    world = review.world
    session_id = await review.edited()
    base = (await session_of(world, session_id)).base_commit
    await rewind(world, world.repository.commit_info(base).parents[0])
    with pytest.raises(SessionRewoundError):
        await review.propose(session_id=session_id)
    assert not (await session_of(world, session_id)).branch.startswith("proposals/")


async def test_proposals_survive_the_loss_of_postgresql(review: Review, again: OpenAgain, database_url: str) -> None:
    await review.propose()
    await review.comment("Why?")
    before = await review.get()
    await review.world.store.close()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute("drop schema mirror, work cascade")
    async with again() as store:
        world = review.world.on(store)
        recalling = Recall(store, world.limits, Models(store.embedder))
        fresh = ReviewOperations(store, world.pages, world.limits, world.sessions, recalling)
        found = await replace(review, world=world, operations=fresh).get()
        assert found == before
        assert [one async for one in verify(store, world.workspace) if isinstance(one, Difference)] == []


async def test_checks_tell_conflicts_and_new_faults(review: Review) -> None:
    await review.propose()
    checks = {check.name: check for check in (await review.get(run_checks=True)).checks}
    assert all(check.passed for check in checks.values()), checks
    await review.world.put(replace(review.node, title="Ours meanwhile"))
    checks = {check.name: check for check in (await review.get(run_checks=True)).checks}
    assert not checks["conflicts"].passed
    assert "title" in checks["conflicts"].detail
