"""Memory tests: questions with expected citations, kept as files of a branch, asked at any state."""

from dataclasses import replace
from typing import Any

import pytest
from integration.histories import git
from integration.review.conftest import Review
from integration.sides import Sides
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.memory_test import (
    InvalidMemoryTestError,
    MemoryTest,
    decode_memory_test,
    encode_memory_test,
)

from memotree.review.memory_tests import MemoryTestNotFoundError
from memotree.v1 import review_service_pb2 as pb

pytestmark = pytest.mark.requirement("USE-14")

QUESTION = "When does the ferry to the island leave?"


async def test_a_test_passes_while_the_answer_cites_what_is_expected_and_nothing_unwanted(review: Review) -> None:
    ferry = pb.MemoryTest(
        name="ferry", question=QUESTION, expected_node_ids=[review.node.id], expected_texts=["AT  nine"]
    )
    await review.put_tests(
        pb.MemoryTest(name="corrected", question=QUESTION, unwanted_texts=["leaves at nine"]),
        ferry,
        pb.MemoryTest(name="later", question=QUESTION, expected_texts=["at ten"]),
    )

    async def faults(**fields: Any) -> list[list[str]]:
        results = await review.check(**fields)
        assert [one.passed for one in results] == [not one.faults for one in results]
        return [list(one.faults) for one in results]

    passing = [["The answer has 'leaves at nine'."], [], ["The answer does not have 'at ten'."]]
    assert await faults() == passing
    assert review.node.id in (await review.check(names=["ferry"]))[0].cited_node_ids
    before = await review.world.head()
    session_id = await review.world.open()
    await review.world.stage(session_id, replace(review.node, content="The ferry to the island leaves at ten."))
    failing = [[], ["The answer does not have 'AT  nine'."], []]
    assert await faults(revision=session_id) == failing, "a session is asked before it commits"
    assert await faults() == passing
    await review.world.commit(session_id)
    assert await faults() == failing
    assert await faults(revision=before) == passing, "an old state answers as it did"
    assert await faults(revision="main", tests_at=before) == failing


async def test_a_node_below_the_expected_one_counts(review: Review) -> None:
    world = review.world
    below = world.node("Timetable", parent=review.node, content="The night boat sails at eleven.")
    await world.put(below)
    expected = {"above": review.node.id, "tree": world.archive.id, "absent": "0" * 16}
    await review.put_tests(
        *(
            pb.MemoryTest(name=name, question="When does the night boat sail?", expected_node_ids=[node_id])
            for name, node_id in expected.items()
        )
    )
    found = {one.test.name: one.passed for one in await review.check(page_size=1)}
    assert found == {"above": True, "absent": False, "tree": True}


async def test_tests_are_files_that_git_shows_and_people_write(review: Review, sides: Sides) -> None:
    first = await review.put_tests(pb.MemoryTest(name="ferry", question=QUESTION, expected_texts=["at nine"]))
    shown = git(review.world, "show", f"{first}:memory-tests/ferry.yaml")
    assert shown == f"question: {QUESTION}\ntexts:\n  - at nine\n"
    assert git(review.world, "show", "-s", "--format=%s", first).strip() == "Write memory test ferry"
    await sides.write(
        {
            "memory-tests/by-hand.yaml": b"# Tourists\nquestion: 'When does the ferry leave?'\ntexts: [at nine]\n",
            "memory-tests/broken.yaml": b"question: [",
            "memory-tests/Not A Name.yaml": b"question: x\n",
            "memory-tests/notes.txt": b"no test",
        },
    )
    results = {one.test.name: one for one in await review.check()}
    assert {name: one.passed for name, one in results.items()} == {"broken": False, "by-hand": True, "ferry": True}
    assert "memory-tests/broken.yaml cannot be read" in results["broken"].faults[0]


async def test_the_same_test_again_is_no_commit(review: Review) -> None:
    test = pb.MemoryTest(name="ferry", question=QUESTION, expected_texts=["at nine"])
    first = await review.put_tests(test)
    assert await review.put_tests(test) == first
    gone = await review.put_tests(deleted_names=["ferry"])
    assert git(review.world, "show", "-s", "--format=%s", gone).strip() == "Delete memory test ferry"
    assert await review.check() == []
    with pytest.raises(MemoryTestNotFoundError):
        await review.put_tests(deleted_names=["ferry"])
    with pytest.raises(MemoryTestNotFoundError):
        await review.check(names=["ferry"])


async def test_tests_can_be_listed_without_asking_and_fail_in_an_archive_that_is_not_there(review: Review) -> None:
    await review.put_tests(
        pb.MemoryTest(name="one", question=QUESTION, expected_texts=["x"], token_budget=100, archives=["nowhere"])
    )
    (listed,) = await review.check(list_only=True)
    assert (listed.test.question, listed.test.token_budget, listed.passed) == (QUESTION, 100, False)
    assert "nowhere" in (await review.check())[0].faults[0]


async def test_merging_branches_brings_their_tests_together(review: Review, sides: Sides) -> None:
    await sides.fork(review.world.node("Fork"))
    await review.put_tests(pb.MemoryTest(name="ours", question=QUESTION, expected_texts=["nine"]))
    await review.put_tests(pb.MemoryTest(name="theirs", question=QUESTION, expected_texts=["nine"]), branch="side")
    await sides.merge()
    assert [one.test.name for one in await review.check()] == ["ours", "theirs"]


ODD_TESTS: list[pb.MemoryTest] = [
    pb.MemoryTest(name="", question="x", expected_texts=["y"]),
    pb.MemoryTest(name="../../etc", question="x", expected_texts=["y"]),
    pb.MemoryTest(name="UPPER", question="x", expected_texts=["y"]),
    pb.MemoryTest(name="a", question=" ", expected_texts=["y"]),
    pb.MemoryTest(name="a", question="x" * 9000, expected_texts=["y"]),
    pb.MemoryTest(name="a", question="x"),
    pb.MemoryTest(name="a", question="x", expected_texts=[""]),
    pb.MemoryTest(name="a", question="x", expected_texts=["y"] * 21),
    pb.MemoryTest(name="a", question="x", expected_node_ids=["abcd"]),
    pb.MemoryTest(name="a", question="x", expected_texts=["y"], token_budget=-1),
]


async def test_odd_tests_are_refused(review: Review, subtests: pytest.Subtests) -> None:
    for test in ODD_TESTS:
        with subtests.test(test=test), pytest.raises(InvalidInputError):
            await review.put_tests(test)


def test_a_file_reads_as_it_was_written() -> None:
    test = MemoryTest("a", "Line\nand: more", ("0" * 16,), ("- x", "'"), ("#no",), 10, ("notes", "1e3"))
    assert decode_memory_test("a", encode_memory_test(test)) == test


NO_TESTS: list[bytes] = [b"\xff", b"[]", b"question: x\nwhat: y\n", b"question: &a x\ntexts: [*a]", b"x" * 300_000]


def test_a_file_that_is_no_test_is_told(subtests: pytest.Subtests) -> None:
    for data in NO_TESTS:
        with subtests.test(data=data), pytest.raises(InvalidMemoryTestError):
            decode_memory_test("a", data)
