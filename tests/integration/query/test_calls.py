"""A question's calls of tools: in turn, at once, and those that the model gets wrong."""

import json

import pytest
from endpoints import ModelEndpoint
from integration.query.stage import Ask, Witness, codes, results_told
from integration.worlds import World
from memotree_storage.model.node import Node

from memotree.query.service import QueryOperations, QueryWithinQueryError
from memotree.request.principal import Principal, acting_as
from memotree.v1 import query_service_pb2 as pb

pytestmark = pytest.mark.requirement("TOOL-9")


async def test_calls_follow_each_other_until_the_model_answers(
    ask: Ask, endpoint: ModelEndpoint, river: Node, witness: Witness
) -> None:
    endpoint.call_next(("recall", {"query": "bridge"}), text="I look it up.")
    endpoint.call_next(("calculator", {"expression": "1784 + 20"}))
    endpoint.answer_next("It was in 1804.")
    answer = await ask(options={"temperature": 0.5})
    assert (answer.answer, answer.end) == ("It was in 1804.", pb.QUERY_END_ANSWERED)
    assert [(call.number, call.turn, call.name, call.called) for call in answer.tool_calls] == [
        (1, 1, "recall", True),
        (2, 2, "calculator", True),
    ]
    assert list(answer.tools_used) == ["recall", "calculator"]
    first, second = answer.tool_calls
    assert list(first.node_ids) == [river.id]
    assert (second.arguments_json, second.result.success) == ('{"expression": "1784 + 20"}', True)
    assert json.loads(second.result.data_json)["result"] == "1804"
    assert second.result.elapsed_ms > 0
    found, added = results_told(endpoint)
    assert river.content in found["quoted_data"]
    assert added["success"] is True
    assert endpoint.chat_calls[-1]["temperature"] == 0.5
    assert answer.usage[0].calls == 3
    assert {name for name, _, _ in witness.calls} == {"recall", "calculator"}


async def test_calls_of_one_turn_that_only_read_run_at_once_and_are_told_in_order(
    ask: Ask, endpoint: ModelEndpoint, witness: Witness
) -> None:
    endpoint.call_next(("meet", {"number": 1}), ("meet", {"number": 2}))
    answer = await ask()
    assert witness.most_running == 2
    assert [call.turn for call in answer.tool_calls] == [1, 1]
    assert [json.loads(call.result.data_json)["value"] for call in answer.tool_calls] == [1, 2]
    asked = endpoint.chat_calls[-1]["messages"]
    assert [part["tool_call_id"] for part in asked if part["role"] == "tool"] == ["call_1", "call_2"]
    assert [call["id"] for part in asked for call in part.get("tool_calls", ())] == ["call_1", "call_2"]


async def test_calls_that_write_run_one_after_the_other_and_only_if_they_are_named(
    ask: Ask, endpoint: ModelEndpoint, witness: Witness
) -> None:
    calls = (("scribble", {"number": 1}), ("scribble", {"number": 2}))
    endpoint.call_next(*calls)
    endpoint.answer_next("I cannot.")
    refused = await ask()
    assert codes(refused) == [("scribble", "UNKNOWN_TOOL", False)] * 2
    endpoint.call_next(*calls)
    endpoint.answer_next("Done.")
    answer = await ask(options={"allowed_tools": ["scribble"]})
    assert codes(answer) == [("scribble", "", True)] * 2
    assert witness.most_running == 1


async def test_a_tool_that_fails_is_told_to_the_model(ask: Ask, endpoint: ModelEndpoint) -> None:
    for arguments, words in (({"expression": "1 / 0"}, ""), ({"formula": "1 + 1"}, "formula")):
        endpoint.call_next(("calculator", arguments))
        endpoint.answer_next("Then not.")
        answer = await ask()
        (call,) = answer.tool_calls
        assert (call.called, call.result.success, answer.end) == (True, False, pb.QUERY_END_ANSWERED)
        (told,) = results_told(endpoint)
        assert told["success"] is False
        assert call.result.error.message in told["quoted_data"]
        assert words in told["quoted_data"]


async def test_the_calls_are_made_by_whoever_asks_also_when_a_tool_asks(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint, witness: Witness, ask: Ask
) -> None:
    endpoint.call_next(("calculator", {"expression": "1 + 1"}))
    with acting_as(Principal("ada", grants=())):
        await ask()
    catalogue = queries._catalogue
    endpoint.call_next(("calculator", {"expression": "1 + 2"}))
    result = await catalogue.call("query", {"query": "What is it?", "workspace": world.workspace, "max_tool_calls": 2})
    assert result.data is not None
    assert [call["name"] for call in result.data["tool_calls"]] == ["calculator"]
    assert witness.calls == [
        ("calculator", "local", "ada"),
        ("calculator", "local", "local"),
        ("query", "local", "local"),
    ]


async def test_a_tool_of_a_query_asks_no_query(
    world: World, queries: QueryOperations, ask: Ask, endpoint: ModelEndpoint, witness: Witness
) -> None:
    async def inner() -> None:
        with pytest.raises(QueryWithinQueryError):
            await queries.query(pb.QueryRequest(workspace=world.workspace, query="x"))

    witness.inner = inner
    endpoint.call_next(("ask_again", {}))
    answer = await ask()
    assert codes(answer) == [("ask_again", "", True)]


UNMADE: list[tuple[tuple[str, object], str]] = [
    (("no_such_tool", {}), "UNKNOWN_TOOL"),
    (("remember", {"text": "x"}), "UNKNOWN_TOOL"),
    (("query", {"query": "again"}), "UNKNOWN_TOOL"),
    (("", {}), "UNKNOWN_TOOL"),
    (("no such tool \u6f22 " * 100, "{"), "UNKNOWN_TOOL"),
    (("calculator", '{"expression": '), "INVALID_ARGUMENTS"),
    (("calculator", "[1]"), "INVALID_ARGUMENTS"),
    (("calculator", '{"expression": "1", "precision": NaN}'), "INVALID_ARGUMENTS"),
    (("calculator", "{" * 100_000), "INVALID_ARGUMENTS"),
    (("recall", {"query": "bridge", "workspace": "elsewhere"}), "OTHER_WORKSPACE"),
    (("recall", {"query": "bridge", "workspace": ["elsewhere"]}), "OTHER_WORKSPACE"),
    (("calculator", f'{{"expression": {"[" * 5000}{"]" * 5000}}}'), "INVALID_ARGUMENTS"),
]


async def test_a_call_that_cannot_be_made_is_answered_to_the_model_readably(
    ask: Ask, endpoint: ModelEndpoint, subtests: pytest.Subtests
) -> None:
    for call, code in UNMADE:
        with subtests.test(call=call, code=code):
            endpoint.call_next(call)
            endpoint.answer_next("Then not.")
            answer = await ask()
            assert [(each.called, each.result.error.code) for each in answer.tool_calls] == [(False, code)]
            assert (answer.answer, answer.end, list(answer.tools_used)) == ("Then not.", pb.QUERY_END_ANSWERED, [])
            (told,) = results_told(endpoint)
            assert told["quoted_data"].startswith(f"{code}: ")
            (asked,) = (part for part in endpoint.chat_calls[-1]["messages"] if part.get("tool_calls"))
            function = asked["tool_calls"][0]["function"]
            assert isinstance(json.loads(function["arguments"]), dict)
            assert 0 < len(function["name"]) <= 64
            assert function["name"].isascii()


async def test_the_same_call_again_is_not_made_and_the_model_has_to_answer_after_a_bound(
    ask: Ask, endpoint: ModelEndpoint, witness: Witness
) -> None:
    for arguments in (
        '{"expression": "1+1"}',
        '{ "expression" : "1+1" }',
        {"expression": "1+1"},
        {"expression": "1+1"},
    ):
        endpoint.call_next(("calculator", arguments))
    endpoint.answer_next("Two.")
    answer = await ask()
    assert codes(answer) == [("calculator", "", True), *[("calculator", "REPEATED_CALL", False)] * 3]
    assert (answer.answer, answer.end) == ("Two.", pb.QUERY_END_FAULTY_CALLS)
    assert [call["tool_choice"] for call in endpoint.chat_calls] == ["auto"] * 4 + ["none"]
    assert len(witness.calls) == 1


async def test_a_model_that_goes_on_calling_when_it_must_answer_is_stopped(ask: Ask, endpoint: ModelEndpoint) -> None:
    for number in range(6):
        endpoint.call_next((f"nothing_{number}", {}), text=f"Try {number}.")
    answer = await ask()
    assert (answer.answer, answer.end) == ("Try 3.", pb.QUERY_END_FAULTY_CALLS)
    assert len(endpoint.chat_calls) == 4


NUMBERED = [("meet", {"number": 1}), ("meet", {"number": 2})]
AGAIN: list[tuple[str, list[list[tuple[str, object]]], list[str]]] = [
    ("reading after a change", [NUMBERED, [("scribble", {"number": 1})], NUMBERED], [""] * 5),
    (
        "the same change, whatever was changed between",
        [[("scribble", {"number": number})] for number in (1, 1, 2, 1)],
        ["", "REPEATED_CALL", "", "REPEATED_CALL"],
    ),
    (
        "a call that only has to be sent again",
        [[("try_twice", {})]] * 3,
        ["TOO_MANY_TOOL_CALLS", "", "REPEATED_CALL"],
    ),
    (
        "a change whose result is too large, which was made",
        [[("write_much", {})]] * 2,
        ["TOOL_RESULT_TOO_LARGE", "REPEATED_CALL"],
    ),
]


async def test_a_call_is_made_again_only_if_it_may_give_something_new(
    ask: Ask, endpoint: ModelEndpoint, witness: Witness
) -> None:
    for what, turns, expected in AGAIN:
        witness.calls.clear()
        for calls in turns:
            endpoint.call_next(*calls)
        endpoint.answer_next("Done.")
        answer = await ask(options={"allowed_tools": ["meet", "scribble", "try_twice", "write_much"]})
        assert [code for _, code, _ in codes(answer)] == expected, what
        assert len(witness.calls) == len(expected) - expected.count("REPEATED_CALL"), what
