"""A question as a stream of events, which ends when its reader goes."""

import asyncio

import pytest
from endpoints import ModelEndpoint
from integration.query.stage import Witness, streamed
from integration.worlds import World
from model_answers import Fault

from memotree.models.function_chat import TurnBrokenOffError
from memotree.query.service import QueryOperations
from memotree.v1 import query_service_pb2 as pb

pytestmark = pytest.mark.requirement("TOOL-9")


async def test_a_stream_tells_text_calls_results_and_the_answer(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint
) -> None:
    endpoint.call_next(("calculator", {"expression": "1 + 1"}), ("nothing", {}), text="Let me see.")
    endpoint.answer_next("It is two.")
    events = await streamed(queries, world)
    kinds = [str(event.WhichOneof("event")) for event in events]
    assert kinds == ["text"] * 3 + ["call", "result", "result"] + ["text"] * 3 + ["answer"]
    assert "".join(event.text for event in events[:3]) == "Let me see."
    assert "".join(event.text for event in events[6:9]) == events[-1].answer.answer == "It is two."
    assert not events[3].call.HasField("result")
    assert {event.result.name: event.result.called for event in events[4:6]} == {"nothing": False, "calculator": True}
    assert [call.name for call in events[-1].answer.tool_calls] == ["calculator", "nothing"]
    assert endpoint.chat_calls[0]["stream"] is True
    assert events[-1].answer.usage[0].completion_tokens == 40


async def test_a_stream_that_breaks_off_is_asked_for_again_only_if_nothing_was_told(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint
) -> None:
    endpoint.call_next(("calculator", {"expression": "1 + 1"}))
    endpoint.fail_next(Fault.CUT_BODY, on="chat")
    events = await streamed(queries, world)
    assert events[-1].answer.end == pb.QUERY_END_ANSWERED
    endpoint.fail_next(Fault.CUT_BODY, on="chat")
    endpoint.answer_next("A long answer of many words that breaks off in its middle.")
    with pytest.raises(TurnBrokenOffError):
        await streamed(queries, world)


async def test_the_loop_the_model_and_the_tools_stop_when_the_reader_goes(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint, witness: Witness
) -> None:
    request = pb.StreamQueryRequest(workspace=world.workspace, query="What is it?")
    endpoint.call_next(("wait_long", {}))
    events = queries.stream_query(request)
    assert (await anext(events)).call.name == "wait_long"
    await witness.begun.wait()
    await events.aclose()
    assert witness.cancelled.is_set()
    assert len(endpoint.chat_calls) == 1
    endpoint.hold()
    asking = asyncio.create_task(queries.query(pb.QueryRequest(workspace=world.workspace, query="What is it?")))
    await endpoint.arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await endpoint.hung_up.wait()
    endpoint.release()
