"""Notes are found by what they are called, tagged and described as, and are shown with their titles."""

from dataclasses import replace

import pytest
from integration.recall.talks import MUCH, Models, leaves
from integration.worlds import World
from memotree_storage.index.search import SearchQuery
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.position import many_between
from memotree_storage.postgres.tree import State

from memotree.forest.recall.passages import FAR_BELOW
from memotree.forest.recall.recall import Recall
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("USE-2")

PEOPLE = ["Nora", "Pavel", "Quentin", "Ruth", "Sami", "Tove", "Umar", "Vera", "Wim", "Yara", "Zoe", "Ahmed"]


async def recalled(world: World, query: str, **fields: object) -> pb.RecallResponse:
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    request = pb.RecallRequest(workspace=world.workspace, query=query, **fields)  # type: ignore[arg-type]
    return await recalling.recall(request)


def best(answer: pb.RecallResponse) -> pb.RecalledNode:
    return max(leaves(answer), key=lambda one: one.score)


def notes(world: World, *facts: tuple[str, str], **fields: object) -> list[Node]:
    places = many_between(None, None, len(facts))
    return [
        world.node(title, position=place, content=content, **fields)
        for place, (title, content) in zip(places, facts, strict=True)
    ]


def phones(world: World) -> list[Node]:
    return notes(
        world, *((f"Phone number of {name}", f"0151 {number:04d}") for number, name in enumerate(PEOPLE, 1000))
    )


async def test_a_note_is_found_by_its_title_and_shown_with_it(world: World) -> None:
    await world.put(*phones(world))
    for number, name in [*enumerate(PEOPLE, 1000)][::4]:
        answer = await recalled(world, f"What is the phone number of {name}?", token_budget=20)
        assert best(answer).node.title == f"Phone number of {name}"
        assert f"Phone number of {name}: 0151 {number}" in answer.text
        assert answer.tokens_used == sum(one.tokens for one in leaves(answer)) <= 20


async def test_notes_come_best_first_and_what_is_far_below_fills_the_budget_behind_a_line(world: World) -> None:
    others = [(f"Lunch on day {number}", f"There is soup number {number}.") for number in range(20)]
    await world.put(*notes(world, *others, ("Office", "The office is in Oslo."), ("Old office", "It was in Bergen.")))
    answer = await recalled(world, "Where is the office?", token_budget=MUCH)
    assert [one.node.title for one in leaves(answer)][:2] == ["Office", "Old office"]
    assert "Office: The office is in Oslo." in answer.text.split("\n\n")[1]
    near, far = answer.text.split(FAR_BELOW)
    assert "Lunch" not in near
    assert "Lunch" in far
    assert answer.passages[0].nodes[0].node.title == "Office"


async def test_notes_that_say_the_same_are_shown_once_and_named(world: World) -> None:
    same = notes(world, *[("Office", "The office is in Oslo.")] * 3, ("Lunch", "There is soup on Monday."))
    await world.put(*same)
    answer = await recalled(world, "Where is the office?")
    assert answer.text.count("The office is in Oslo.") == 1
    (office,) = {one.node.id for one in leaves(answer)} - {same[3].id}
    others = {node.id for node in same[:3]} - {office}
    assert f"[{office}] (also in " in answer.text
    assert all(other in answer.text for other in others)
    assert {one.node_id for one in answer.receipt.dropped if one.reason == pb.DROP_REASON_COPY} == others


async def test_many_notes_that_say_the_same_leave_the_budget_to_others(world: World) -> None:
    home = Archive(new_id(), "elsewhere")
    said = [("Office", "The office is in Oslo.")] * 20
    same = [replace(node, archive_id=home.id) for node in notes(world, *said)]
    await world.put(home, *same, *notes(world, *said, ("Key", "Ann has the key of the office.")))
    answer = await recalled(world, "Where is the office?", token_budget=60)
    assert answer.text.count("The office is in Oslo.") == 1
    assert "Ann has the key of the office." in answer.text


async def test_a_note_that_answers_in_other_words_is_kept_while_there_is_room(world: World) -> None:
    """Of four notes, one once took ten of two thousand tokens, and the one that answers was dropped."""
    facts = ["Mara drinks tea.", "The rent is due on the first.", "Turing, a grey cat, lives here.", "Ann is a pilot."]
    await world.put(*notes(world, *((fact, fact) for fact in facts)))
    answer = await recalled(world, "What is the pet of Mara called?")
    assert "Turing" in answer.text


async def test_nothing_far_below_the_best_fills_the_budget_if_probably_nothing_answers(world: World) -> None:
    others = [(f"Lunch on day {number}", f"There is soup number {number}.") for number in range(20)]
    await world.put(*notes(world, *others, ("Office", "The office is in Oslo.")))
    answer = await recalled(world, "Which moons does Jupiter have?", token_budget=MUCH)
    assert answer.confidence == types_pb2.CONFIDENCE_NONE
    assert FAR_BELOW not in answer.text


async def test_one_word_finds_the_note_of_that_name_and_every_strategy_answers_with_a_text(world: World) -> None:
    await world.put(*notes(world, ("Timeouts", "Ten seconds."), ("Retries", "At most five."), ("Ports", "7319")))
    answer = await recalled(world, "retries")
    assert best(answer).node.title == "Retries"
    assert "Retries: At most five." in answer.text
    for strategy in (pb.RECALL_STRATEGY_LCA, pb.RECALL_STRATEGY_COLLAPSED):
        answer = await recalled(world, "retries", strategy=strategy, top_k=1)
        assert answer.text == f"[{answer.nodes[0].node.id}] Retries: At most five."


async def test_a_staged_note_is_found_by_its_title_before_the_commit(world: World) -> None:
    await world.put(*phones(world))
    session = await world.open()
    (staged,) = notes(world, ("Phone number of Bashir", "0151 9999"))
    await world.stage(session, staged)
    answer = await recalled(world, "Bashir", revision=session)
    assert best(answer).node.id == staged.id
    assert staged.id not in {one.node.id for one in leaves(await recalled(world, "Bashir", token_budget=MUCH))}


async def test_a_note_is_found_by_tags_and_attributes_in_recall_and_search(world: World) -> None:
    (wanted,) = notes(world, ("Contact", "Room 12"), tags=("billing",), attributes={"office_city": "Lisbon"})
    commit = await world.put(*phones(world), wanted)
    for asked in ("billing", "Lisbon", "office"):
        assert best(await recalled(world, asked)).node.id == wanted.id
        hits = await world.store.search.find(State(world.workspace, commit), SearchQuery(asked, 5))
        assert [hit.version.entry_id for hit in hits] == [wanted.id]
