"""A receipt says how an answer came about, and gives the same answer again after other commits."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from integration.recall.talks import COLLAPSED, GARDEN, HYBRID, LCA, MUCH, SEA, TRACTOR, Forest, leaves
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.node import Archive, Relation, new_id

from memotree.client import Receipt
from memotree.forest.recall.receipts import ReceiptNotRepeatableError
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("USE-13")

EVERY = [LCA, COLLAPSED, HYBRID]


def same(one: pb.RecallResponse, other: pb.RecallResponse) -> bool:
    return one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


async def crowd(forest: Forest) -> None:
    """Commit what changes the frequencies of words, supersedes a leaf, and matches the question better."""
    world = forest.world
    notes = [replace(node, content=f"{TRACTOR} {SEA[number % 3]}") for number, node in enumerate(world.nodes(30))]
    other = Archive(new_id(), "more")
    await world.put(other, *(replace(node, archive_id=other.id) for node in notes))
    await world.put(world.node("New", content=TRACTOR, relations=(Relation("SUPERSEDES", forest.garden[4].id),)))


async def test_the_same_receipt_gives_the_same_answer_again(forest: Forest) -> None:
    wanted: list[dict[str, Any]] = [{}, {"archives": ["notes"]}, {"tags": ["garden"]}, {"valid_at": "2024-05-01"}]
    asked: list[dict[str, Any]] = [
        {"strategy": strategy, "top_k": 5, "token_budget": 25, "filter": pb.RecallFilter(**each)}
        for strategy, each in product(EVERY, wanted)
    ]
    answers = [await forest(**each) for each in asked]
    await crowd(forest)
    for each, answer in zip(asked, answers, strict=True):
        assert answer.receipt.commit_id == answer.commit_id == forest.commit
        assert same(answer, await forest(receipt=answer.receipt)), each
        assert not same(answer, await forest(**each)) or each["filter"].tags, each
        fresh = await forest.restarted()(receipt=answer.receipt)
        assert same(answer, fresh), f"without anything in memory, too: {each}"


async def test_the_selection_of_archives_by_the_index_is_repeated(forest: Forest) -> None:
    careful = forest.restarted(scan_leaves=6)
    answer = await careful()
    assert list(answer.receipt.selected_archives) == [forest.world.archive.id]
    await crowd(forest)
    again = await careful(receipt=answer.receipt)
    assert (again.text, again.receipt) == (answer.text, answer.receipt)


async def test_a_receipt_names_what_was_dropped_and_why(forest: Forest) -> None:
    answer = await forest(token_budget=25)
    taken = {one.node.id for one in leaves(answer)}
    dropped = answer.receipt.dropped
    assert dropped
    assert taken.isdisjoint(each.node_id for each in dropped)
    assert [each.score for each in dropped] == sorted((each.score for each in dropped), reverse=True)
    assert {each.reason for each in dropped} == {pb.DROP_REASON_BUDGET}
    unlike = await forest("Which moons does Jupiter have?", token_budget=MUCH)
    assert unlike.confidence == types_pb2.CONFIDENCE_NONE
    assert {each.reason for each in unlike.receipt.dropped} == {pb.DROP_REASON_SCORE}
    assert all(each.score < 0.001 * unlike.likelihood for each in unlike.receipt.dropped)
    few = await forest("The tractor, the boat and the roses.", token_budget=12)
    assert pb.DROP_REASON_BUDGET in {each.reason for each in few.receipt.dropped}
    long = forest.world.node(
        "Long", content=f"{TRACTOR} It does since the winter, and nobody in the village knows why."
    )
    other = Archive(new_id(), "copy")
    await forest.world.put(other, long, replace(long, id=new_id(), archive_id=other.id))
    answer = await forest(token_budget=1000)
    assert pb.DROP_REASON_COPY in {each.reason for each in answer.receipt.dropped}
    nodes = await forest(strategy=COLLAPSED, token_budget=10)
    assert {each.reason for each in nodes.receipt.dropped} == {pb.DROP_REASON_BUDGET}


async def test_a_receipt_of_staged_changes_holds_while_they_are_the_same(forest: Forest) -> None:
    world = forest.world
    session = await world.open()
    await world.stage(session, world.node("Staged", content=f"{TRACTOR} It needs oil."))
    answer = await forest(revision=session)
    assert answer.receipt.session_id == session
    await crowd(forest)
    assert same(answer, await forest(receipt=answer.receipt))
    await world.stage(session, world.node("More", content="Something else."))
    with pytest.raises(ReceiptNotRepeatableError, match="staged changes"):
        await forest(receipt=answer.receipt)


def changed(receipt: pb.RecallReceipt, **fields: Any) -> pb.RecallReceipt:
    other = pb.RecallReceipt()
    other.CopyFrom(receipt)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


async def test_a_receipt_of_another_model_or_method_is_refused_with_the_cause(still: Forest) -> None:
    receipt = (await still()).receipt
    for field, cause in (("method", "method"), ("embedding_model", "embedding"), ("rerank_model", "reranking")):
        with pytest.raises(ReceiptNotRepeatableError, match=f"{cause}.* was another and is"):
            await still(receipt=changed(receipt, **{field: "another"}))
    with pytest.raises(ReceiptNotRepeatableError, match="gone"):
        await still(receipt=changed(receipt, commit_id="0" * 40))
    with pytest.raises(ReceiptNotRepeatableError) as long:
        await still(receipt=changed(receipt, method="x" * 100_000))
    assert len(long.value.message) < 500


BESIDE: dict[str, Any] = {
    "revision": "main",
    "strategy": LCA,
    "top_k": 3,
    "token_budget": 9,
    "filter": pb.RecallFilter(tags=["x"]),
}
WRONG: list[dict[str, Any]] = [
    {"commit_id": "main"},
    {"session_id": "main"},
    {"top_k": -1},
    {"token_budget": -5},
    {"strategy": 99},
    {"indexed_versions": 7, "term_counts": b"123"},
]


async def test_what_cannot_be_a_receipt_of_the_question_is_refused_by_that_name(still: Forest) -> None:
    receipt = (await still()).receipt
    for field, value in BESIDE.items():
        with pytest.raises(InvalidInputError, match=field):
            await still(receipt=receipt, **{field: value})
    with pytest.raises(InvalidInputError, match="SHA-256"):
        await still("What about the sea?", receipt=receipt)
    with pytest.raises(InvalidInputError, match="whole receipt"):
        await still(receipt=pb.RecallReceipt(query_sha256=receipt.query_sha256))
    for fields in WRONG:
        with pytest.raises(InvalidInputError) as refused:
            await still(receipt=changed(receipt, **fields))
        assert [fault.field.split(".")[0] for fault in refused.value.violations] == ["receipt"], fields
    receipt.moment.seconds = 1 << 62
    with pytest.raises(InvalidInputError, match=r"receipt\.moment"):
        await still(receipt=receipt)


async def test_a_receipt_is_stored_as_json(still: Forest) -> None:
    answer = await still(token_budget=25)
    stored = Receipt.from_wire(answer.receipt)
    assert Receipt.from_json(stored.text) == stored
    assert stored.to_wire() == answer.receipt
    assert stored.dropped[0].reason == "BUDGET"
    with pytest.raises(ValueError, match="no receipt"):
        Receipt.from_json("{")


async def test_a_forged_receipt_neither_leaves_the_filter_nor_changes_what_others_get(still: Forest) -> None:
    answer = await still(filter=pb.RecallFilter(archives=["notes"]))
    answer.receipt.selected_archives[:] = [still.sea.id]
    fresh, whole = still.restarted(), await still()
    with pytest.raises(InvalidInputError, match="selected"):
        await fresh(receipt=answer.receipt)
    whole.receipt.selected_archives[:] = [still.sea.id] * 2
    assert (await fresh(receipt=whole.receipt)).leaves_considered == len(SEA)
    assert (await fresh()).leaves_considered == len([*SEA, *GARDEN])


async def test_the_receipt_of_a_session_that_corrects_a_fact_holds_after_a_restart(forest: Forest) -> None:
    world = forest.world
    session = await world.open()
    relation = Relation("SUPERSEDES", forest.garden[4].id)
    await world.stage(session, world.node("Sold", content="Ben: The tractor is sold.", relations=(relation,)))
    answer = await forest(revision=session)
    assert forest.garden[4].id not in {one.node.id for one in leaves(answer)}
    assert same(answer, await forest.restarted()(receipt=answer.receipt))
    await world.sessions.discard_session(
        session_service_pb2.DiscardSessionRequest(workspace=world.workspace, session_id=session)
    )
    with pytest.raises(ReceiptNotRepeatableError, match="gone"):
        await forest(receipt=answer.receipt)
