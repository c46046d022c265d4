"""Plans: which tools the model would call, without calling one."""

from typing import Any

import pytest
from endpoints import ModelEndpoint
from integration.query.stage import Witness
from integration.worlds import World

from memotree.query.service import QueryOperations
from memotree.v1 import query_service_pb2 as pb

pytestmark = pytest.mark.requirement("TOOL-9")


async def test_a_plan_says_which_tools_would_be_called_and_calls_none(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint, witness: Witness
) -> None:
    endpoint.answer_next(
        {
            "strategy": "SEQUENTIAL",
            "steps": [
                {"tool": "recall", "parameters_json": '{"query": "bridge"}', "purpose": "Find the year."},
                {"tool": "calculator", "parameters_json": "", "purpose": "Count the years."},
            ],
        }
    )
    plan = await queries.plan_query(pb.PlanQueryRequest(workspace=world.workspace, query="How old is it?"))
    assert plan.strategy == pb.QUERY_STRATEGY_SEQUENTIAL
    assert [(step.number, step.tool, step.parameters_json, step.purpose) for step in plan.steps] == [
        (1, "recall", '{"query": "bridge"}', "Find the year."),
        (2, "calculator", "{}", "Count the years."),
    ]
    assert plan.usage[0].calls == 1
    assert witness.calls == []


NO_PLANS: list[list[Any]] = [
    [{"tool": "nothing", "purpose": "x"}],
    [{"tool": "remember", "purpose": "x"}],
    [{"tool": "recall", "parameters_json": "[]", "purpose": "x"}],
    [{"tool": "recall", "parameters_json": "{", "purpose": "x"}],
    [{"tool": "recall", "purpose": "x"}] * 6,
    [],
]


async def test_a_plan_that_cannot_be_carried_out_is_asked_for_again(
    world: World, queries: QueryOperations, endpoint: ModelEndpoint
) -> None:
    for count, steps in enumerate(NO_PLANS, 1):
        endpoint.answer_next({"strategy": "SEQUENTIAL", "steps": steps}, {"strategy": "DIRECT", "steps": []})
        plan = await queries.plan_query(pb.PlanQueryRequest(workspace=world.workspace, query="How old is it?"))
        assert (plan.strategy, list(plan.steps)) == (pb.QUERY_STRATEGY_DIRECT, []), steps
        assert len(endpoint.chat_calls) == 2 * count, steps
