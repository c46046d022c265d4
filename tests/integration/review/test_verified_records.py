"""Verification names what is wrong with the records of reviews: only Git has them, so no rebuild brings them back."""

import pytest
from integration.damage import differences
from integration.pushes import PERSON
from integration.review.conftest import PROPOSALS, Review
from integration.test_verify import lose
from memotree_storage.ports import CommitDraft

pytestmark = pytest.mark.requirement("STORE-4", "GIT-9")

FILE = "proposals/0000/1.json"


def rewrite(review: Review, ref: str, path: str, old: str, new: str) -> None:
    """Change a text in a record by hand, as somebody with the disk can."""
    repository = review.world.repository
    tip = repository.ref(ref)
    assert tip is not None
    data = (repository.read_path(tip, path) or b"").decode()
    assert old in data
    draft = CommitDraft(tip, {path: data.replace(old, new).encode()}, "By hand\n", PERSON, PERSON)
    assert repository.move_ref(ref, tip, repository.write_commit(draft).commit_id)


async def told(review: Review) -> list[str]:
    return [one.description for one in await differences(review.world) if (one.store, one.what) == ("git", "record")]


async def test_whole_records_have_no_differences(review: Review) -> None:
    await review.propose(session_id=await review.edited())
    await review.protect("main")
    await review.review("eva")
    await review.merge()
    assert await differences(review.world) == []


async def test_an_approval_without_its_commit_and_one_whose_commit_git_has_lost_are_named(review: Review) -> None:
    head = (await review.propose(session_id=await review.edited())).head_commit_id
    await review.review("eva")
    rewrite(review, PROPOSALS, FILE, head, "f" * 40)
    (found,) = await told(review)
    assert found.startswith(f"Proposal 1 has an approval by eva of commit {'f' * 40}, which Git does not have.")
    assert "clone" in found
    rewrite(review, PROPOSALS, FILE, "f" * 40, head)
    lose(review.world.repository, head)
    assert any(f"an approval by eva of commit {head}" in each for each in await told(review))


async def test_a_record_that_cannot_be_read_and_one_that_is_missing_are_named(review: Review) -> None:
    for _ in range(2):
        await review.propose(session_id=await review.edited())
    rewrite(review, PROPOSALS, FILE, "{", "[")
    rewrite(review, PROPOSALS, "index.json", '"next": 3', '"next": 4')
    damaged, missing = await told(review)
    assert damaged.startswith(f"{FILE} on {PROPOSALS} cannot be read")
    assert missing.startswith("The record of proposal 3 is missing.")
    rewrite(review, PROPOSALS, "index.json", "{", "[")
    (found,) = await told(review)
    assert found.startswith(f"index.json on {PROPOSALS} cannot be read")


async def test_a_closed_proposal_that_is_listed_as_open_and_unreadable_protections_are_named(review: Review) -> None:
    await review.propose(session_id=await review.edited())
    rewrite(review, PROPOSALS, FILE, '"open"', '"withdrawn"')
    (found,) = await told(review)
    assert found.startswith("Proposal 1 is withdrawn, and is listed as open.")
    await review.protect("main")
    rewrite(review, "refs/memotree/protections", "protections.json", "{", "[")
    assert any("refs/memotree/protections" in each for each in await told(review))
