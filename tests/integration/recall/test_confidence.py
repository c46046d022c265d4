"""Every answer says whether anything here answers the question; "nothing is known" is an answer."""

from typing import Any

import pytest
from integration.recall.talks import COLLAPSED, HYBRID, LCA, TRACTOR, Forest, leaves

from memotree.canvas.search import NodeSearch
from memotree.forest.asking.ask import Ask
from memotree.forest.asking.drill_down import DrillDown
from memotree.forest.recall.recall import NOTHING_RELEVANT
from memotree.models.gateway import Models
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import node_service_pb2, types_pb2

pytestmark = pytest.mark.requirement("USE-4")

NONE, STRONG = types_pb2.CONFIDENCE_NONE, types_pb2.CONFIDENCE_STRONG
UNKNOWN = ["What is the capital of France?", "xqzzy blorp", "Who painted the Mona Lisa?"]
KNOWN = [TRACTOR, "When does the ferry to the island leave?", "Who planted roses by the wall?"]


@pytest.mark.parametrize("strategy", [HYBRID, COLLAPSED])
@pytest.mark.parametrize("question", UNKNOWN)
async def test_a_recall_says_when_nothing_answers(still: Forest, question: str, strategy: Any) -> None:
    answer = await still(question, strategy=strategy)
    assert answer.confidence == NONE
    assert answer.likelihood < 0.2
    assert list(answer.warnings) == [NOTHING_RELEVANT]
    assert all(one.score < 0.2 for one in leaves(answer))


@pytest.mark.parametrize("strategy", [HYBRID, COLLAPSED, LCA])
@pytest.mark.parametrize("question", KNOWN)
async def test_a_recall_is_sure_of_what_is_there(still: Forest, question: str, strategy: Any) -> None:
    answer = await still(question, strategy=strategy)
    assert answer.confidence == STRONG
    assert answer.likelihood >= 0.7
    assert not answer.warnings


async def test_the_best_score_of_a_recall_is_its_likelihood(still: Forest) -> None:
    for question in [*UNKNOWN, *KNOWN]:
        answer = await still(question, include_trace=True)
        best = max(leaves(answer), key=lambda one: one.score, default=None)
        if best is not None:
            assert best.score == pytest.approx(answer.likelihood, abs=1e-6)
            assert sum(signal.score for signal in best.trace.signals) == pytest.approx(best.score, abs=1e-6)


async def test_where_nothing_is_stored_nothing_is_known(still: Forest) -> None:
    here = pb.RecallFilter(archives=[still.sea.id], tags=["no-such-tag"])
    answer = await still("ferry", filter=here)
    assert answer.confidence == NONE
    assert not leaves(answer)


@pytest.mark.parametrize("kind", ["SEARCH_TYPE_FULL_TEXT", "SEARCH_TYPE_SEMANTIC", "SEARCH_TYPE_HYBRID"])
async def test_a_search_says_how_sure_it_is(still: Forest, kind: str) -> None:
    async def searched(query: str) -> node_service_pb2.SearchNodesResponse:
        request = node_service_pb2.SearchNodesRequest(
            workspace=still.world.workspace,
            query=query,
            search_type=node_service_pb2.SearchType.Value(kind),
        )
        return await NodeSearch(still.world.store, request, still.world.limits).run()

    nothing = await searched("xqzzy blorp")
    assert nothing.confidence == NONE
    assert bool(nothing.warnings) == bool(nothing.hits)
    assert (await searched("diesel engine of the tractor")).confidence == STRONG


@pytest.mark.parametrize("question", UNKNOWN)
async def test_ask_says_that_nothing_is_known(still: Forest, question: str) -> None:
    answer = await asked(still, question)
    assert answer.text == "Nothing is known about this here."
    assert not answer.citations
    assert answer.confidence == NONE


async def test_ask_answers_what_is_known(still: Forest) -> None:
    answer = await asked(still, TRACTOR)
    assert "diesel engine" in answer.text
    assert answer.citations
    assert answer.confidence == STRONG


async def asked(still: Forest, question: str) -> pb.Answer:
    store = still.world.store
    models = Models(None)  # type: ignore[arg-type]  # without a chat model, nothing is cached
    asking = Ask(still.recalling, DrillDown(store, models), store, models)
    events = [event async for event in asking.ask(pb.AskRequest(workspace=still.world.workspace, query=question))]
    return events[-1].answer
