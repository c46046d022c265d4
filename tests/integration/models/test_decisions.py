"""Structured output in the best form that an endpoint supports, and the decisions of the loop."""

from typing import Any

import pytest
from endpoints import KEY, ModelEndpoint
from integration.models.samples import INNER, LEAF, TEXT, MakeModels
from model_answers import Fault, input_data

from memotree.models.chat_answers import Answer, Explore
from memotree.models.gateway import ChatMissingError
from memotree.models.meter import Meter
from memotree.models.model_errors import ModelRefusedError, ModelUnavailableError, UnusableAnswerError

pytestmark = pytest.mark.requirement("FOREST-12")


# --- Structured output -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-10")
@pytest.mark.parametrize(
    ("formats", "temperature", "tried"),
    [
        (["json_schema", "json_object"], True, ["json_schema"]),
        (["json_object"], True, ["json_schema", "json_object"]),
        ([], True, ["json_schema", "json_object", "text"]),
        (["json_schema"], False, ["json_schema", "json_schema"]),
    ],
)
async def test_the_best_form_that_the_endpoint_knows_is_found_once(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter, formats: list[str], temperature: bool, tried: list[str]
) -> None:
    endpoint.formats, endpoint.takes_temperature = tuple(formats), temperature
    models = await connect()
    assert not (await models.summarise_text(TEXT, meter)).pending
    asked = [call.get("response_format", {"type": "text"})["type"] for call in endpoint.chat_calls]
    assert asked == tried
    await models.summarise_children(["One.", "Two."], meter)
    assert len(endpoint.chat_calls) == len(tried) + 1, "what was found out is remembered"


async def test_the_object_is_found_wherever_the_answer_has_it(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    endpoint.answer_next('<think>{"summary": "no"}</think>Here:\n```json\n{"summary": "An\norchard."}\n```\nBye {')
    assert (await (await connect()).summarise_text(TEXT, meter)).text == "An orchard."


# --- The loop --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-10")
async def test_the_loop_answers_with_citations_or_explores(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    assert await models.decide("Who planted it?", [INNER], meter) == Explore(INNER.node_id, "more detail is needed")
    answer = await models.decide("Who planted it?", [INNER, LEAF], meter)
    assert answer == Answer("Ada Birch, in 1931.", (LEAF.node_id,))
    assert [node["hint"] for node in input_data(endpoint.chat_calls[0])["context_nodes"]] == ["common ancestor"]
    last = await models.decide("Who planted it?", [INNER], meter, must_answer=True)
    assert isinstance(last, Answer)
    payload = {"final_answer": "Ada.", "cited_node_ids": ["made-up", LEAF.node_id, LEAF.node_id]}
    endpoint.answer_next({"action": "ANSWER", "payload": payload})
    assert await models.decide("Who?", [LEAF], meter) == Answer("Ada.", (LEAF.node_id,)), "cites what was shown"


WRONG: list[Any] = [
    {"action": "EXPLORE", "payload": {"node_id_to_explore": LEAF.node_id}},
    {"action": "EXPLORE", "payload": {"node_id_to_explore": "nowhere"}},
    {"action": "EXPLORE", "payload": {"final_answer": "no"}},
    {"action": "DELETE", "payload": {}},
    "no JSON",
]


async def test_an_invalid_decision_is_requested_again_once_and_then_refused(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    for number, wrong in enumerate(WRONG):
        calls = len(endpoint.chat_calls)
        endpoint.answer_next(wrong)
        assert isinstance(await models.decide(f"Who {number}?", [INNER, LEAF], meter), Answer)
        assert len(endpoint.chat_calls) == calls + 2
        assert "cannot be used" in endpoint.chat_calls[-1]["messages"][-1]["content"]
        endpoint.answer_next(wrong, wrong)
        with pytest.raises(UnusableAnswerError, match="agentic_loop@1"):
            await models.decide(f"Who else {number}?", [INNER, LEAF], meter)


async def test_a_decision_fails_when_the_model_does(connect: MakeModels, endpoint: ModelEndpoint, meter: Meter) -> None:
    models = await connect()
    endpoint.fail_always(Fault.BROKEN)
    with pytest.raises(ModelUnavailableError, match=r"4 attempts \(HTTP 500\)"):
        await models.decide("Who?", [LEAF], meter)
    endpoint.fail_always(Fault.UNAUTHORIZED)
    with pytest.raises(ModelRefusedError, match="MEMOTREE_CHAT_URL") as refused:
        await models.decide("Who?", [LEAF], meter)
    assert KEY not in str(refused.value)


async def test_without_a_chat_model_there_is_no_decision(connect: MakeModels, meter: Meter) -> None:
    models = await connect(chat_url=None, chat_model=None, chat_api_key=None)
    assert not models.has_chat
    with pytest.raises(ChatMissingError, match="MEMOTREE_CHAT_URL"):
        await models.decide("Who?", [LEAF], meter)
