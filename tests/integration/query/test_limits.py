"""Whatever the model does, the loop ends, and calls, tokens, time and sizes stay within their limits."""

import asyncio
from typing import Any

import pytest
from endpoints import ModelEndpoint
from integration.query.stage import Ask, Witness, codes, results_told
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from model_answers import Fault

from memotree.models.meter import Meter
from memotree.query.calling import Calls
from memotree.query.limits import limits_of
from memotree.query.loop import QueryLoop
from memotree.query.offered_tools import ToolNotOfferedError, offered_tools
from memotree.query.prompt import first_messages
from memotree.query.service import QueryOperations
from memotree.v1 import query_service_pb2 as pb
from memotree.v1.forest_service_pb2 import RecallResponse

pytestmark = pytest.mark.requirement("TOOL-9")


async def test_no_more_calls_are_made_than_the_request_allows(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.call_next(*(("calculator", {"expression": f"{number} + 1"}) for number in range(4)))
    endpoint.answer_next("That is all.")
    answer = await ask(options={"max_tool_calls": 2})
    assert [code for _, code, _ in codes(answer)] == ["", "", "CALL_LIMIT", "CALL_LIMIT"]
    assert (answer.answer, answer.end) == ("That is all.", pb.QUERY_END_CALL_LIMIT)
    assert endpoint.chat_calls[-1]["tool_choice"] == "none"
    endpoint.call_next(*(("calculator", {"expression": f"{number} + 2"}) for number in range(5000)))
    endpoint.answer_next("That is all.")
    answer = await ask()
    assert (len(answer.tool_calls), sum(call.called for call in answer.tool_calls)) == (32, 5), "of a flood"


async def test_a_huge_result_is_cut_for_the_model_and_left_out_of_the_answer(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.call_next(("shout", {"length": 200_000}))
    endpoint.answer_next("Loud.")
    answer = await ask()
    (told,) = results_told(endpoint)
    assert len(told["quoted_data"]) < 30_000
    assert "[Cut: " in told["quoted_data"]
    (call,) = answer.tool_calls
    assert (call.result.success, call.result.data_json) == (True, "")
    assert "is left out here" in call.result.warnings[0]
    assert answer.ByteSize() < 60_000


async def test_a_budget_of_tokens_ends_the_query_before_it_is_exceeded(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.call_next(("shout", {"length": 5000}))
    answer = await ask(options={"max_model_tokens": 6000})
    assert (answer.end, answer.answer, len(answer.tool_calls)) == (pb.QUERY_END_TOKEN_LIMIT, "", 1)
    assert "6,000 tokens" in answer.warnings[0]
    assert len(endpoint.chat_calls) == 1


async def test_the_model_is_told_how_much_it_may_still_write(ask: Ask, endpoint: ModelEndpoint) -> None:
    await ask(options={"max_model_tokens": 6000})
    (call,) = endpoint.chat_calls
    assert 0 < call["max_tokens"] < 6000
    await ask(options={"max_model_tokens": 6000, "max_answer_tokens": 50})
    assert endpoint.chat_calls[-1]["max_tokens"] == 50


async def test_a_budget_beyond_what_the_model_writes_at_once_is_no_error(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.most_written = 4096
    for _ in range(2):
        assert (await ask(options={"max_model_tokens": 1_000_000})).answer
    assert ["max_tokens" in call for call in endpoint.chat_calls] == [True, False, False, False]
    assert "max_completion_tokens" not in endpoint.chat_calls[-1]
    assert (await ask(options={"max_model_tokens": 4000})).answer
    assert endpoint.chat_calls[-1]["max_tokens"] < 4000


async def test_an_answer_that_is_cut_says_so(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.fail_next(Fault.CUT_OFF, on="chat")
    answer = await ask(options={"max_answer_tokens": 20, "tools_enabled": False})
    assert answer.end == pb.QUERY_END_ANSWER_CUT
    assert endpoint.chat_calls[0]["max_tokens"] == 20


async def test_the_time_limit_ends_a_question_whose_model_does_not_answer(ask: Ask, endpoint: ModelEndpoint) -> None:
    endpoint.hold()
    answer = await ask(options={"timeout_seconds": 1})
    endpoint.release()
    assert (answer.end, answer.answer, list(answer.tool_calls)) == (pb.QUERY_END_TIME_LIMIT, "", [])


async def ended_late(
    world: World, queries: QueryOperations, witness: Witness, options: pb.QueryOptions
) -> tuple[Calls, list[pb.StreamQueryResponse]]:
    """The calls of a question whose time is over when a tool works, and the events."""
    limits, events = limits_of(options), list[pb.StreamQueryResponse]()
    calls = Calls(
        queries._catalogue, await offered_tools(queries._catalogue, limits, world.workspace, ""), limits.calls
    )
    loop = QueryLoop(queries._models.functions, calls, limits, Meter(), events.append)
    running = asyncio.create_task(loop.run(first_messages("What is it?", RecallResponse())))
    await witness.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert witness.cancelled.is_set()
    loop.end_late()
    assert loop.end == pb.QUERY_END_TIME_LIMIT
    return calls, events


async def test_a_tool_that_works_when_the_time_is_over_is_ended_and_has_a_result_that_says_so(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint, witness: Witness
) -> None:
    endpoint.call_next(("calculator", {"expression": "1 + 1"}))
    endpoint.call_next(("wait_long", {}))
    _, events = await ended_late(world, queries, witness, pb.QueryOptions())
    told = [(event.result.name, event.result.result.error.code) for event in events if event.HasField("result")]
    assert told == [("calculator", ""), ("wait_long", "QUERY_TIME_LIMIT")]


async def test_calls_that_were_not_begun_when_the_time_was_over_were_not_called(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint, witness: Witness
) -> None:
    endpoint.call_next(("write_long", {}), ("scribble", {"number": 1}))
    allowed = pb.QueryOptions(allowed_tools=["write_long", "scribble"])
    calls, _ = await ended_late(world, queries, witness, allowed)
    told = [(call.called, call.to_wire().result.error.message) for call in calls.made]
    assert [called for called, _ in told] == [True, False]
    assert "the call was ended" in told[0][1]
    assert "before this call was made" in told[1][1]
    assert calls.tools_used == ["write_long"]


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"query": " "}, "query"),
    ({"query": "x" * 9000}, "query"),
    ({"conversation_id": "x" * 201}, "conversation_id"),
    ({"options": {"max_tool_calls": 21}}, "options.max_tool_calls"),
    ({"options": {"max_tool_calls": -1}}, "options.max_tool_calls"),
    ({"options": {"temperature": 2.5}}, "options.temperature"),
    ({"options": {"temperature": float("nan")}}, "options.temperature"),
    ({"options": {"timeout_seconds": float("inf")}}, "options.timeout_seconds"),
    ({"options": {"token_budget": 1_000_000}}, "options.token_budget"),
    ({"options": {"allowed_tools": ["x"] * 101}}, "options.allowed_tools"),
    ({"options": {"allowed_tools": ["recall", "nothing"]}}, "options.allowed_tools[1]"),
    ({"options": {"allowed_tools": ["query"]}}, "options.allowed_tools[0]"),
]


async def test_wrong_options_are_refused_before_the_model_is_asked(ask: Ask, endpoint: ModelEndpoint) -> None:
    for fields, name in WRONG_OPTIONS:
        with pytest.raises(InvalidInputError) as caught:
            await ask(**fields)
        assert [each.field for each in caught.value.violations] == [name]
        assert isinstance(caught.value, ToolNotOfferedError) == ("tools[" in name), name
    assert endpoint.calls == 0
